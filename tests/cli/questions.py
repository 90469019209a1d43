"""Every command of docs/questions.md runs and answers.

    questions.py BINARY           fails for one that prints nothing, or an error
    questions.py BINARY --update  writes what each prints below it

What they print is not compared: the cost model may learn, and the page says which version wrote it.
"""

import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, 'docs', 'questions.md')
BLOCK = re.compile(r'```console\n(.*?)```\n', re.S)
LEAST = 25


def answer(command, folder, environment):
    done = subprocess.run(['sh', '-c', command], cwd=folder, env=environment, text=True,
                          capture_output=True)
    wrong = not done.stdout.strip() or 'see: shardplan help' in done.stderr
    # A figure at the end of a long line is worth more than the line's end.
    out = '\n'.join(line.rstrip() for line in done.stdout.rstrip('\n').split('\n')) + '\n'
    return out, f'{command}: {done.stderr.strip()[:300] or "no output"}' if wrong else None


def main(binary, update):
    with open(PAGE, encoding='utf-8') as stream:
        page = stream.read()
    problems, commands = [], 0

    def run(match):
        nonlocal commands
        block = ''
        for command in re.findall(r'^\$ (.*)$', match.group(1), re.M):
            commands += 1
            out, problem = answer(command, folder, environment)
            block += f'$ {command}\n{out}'
            problems.extend([problem] if problem else [])
        return f'```console\n{block}```\n'

    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, XDG_CACHE_HOME=folder, XDG_CONFIG_HOME=folder,
                           NO_COLOR='1', LC_ALL='C.UTF-8', COLUMNS='',
                           PATH=os.path.dirname(os.path.abspath(binary)) + ':' + os.environ['PATH'])
        page = BLOCK.sub(run, page)
    if commands < LEAST:
        problems.append(f'{commands} commands, expected {LEAST} at least')
    if update and not problems:
        with open(PAGE, 'w', encoding='utf-8') as stream:
            stream.write(page)
    return problems


if __name__ == '__main__':
    found = main(sys.argv[1], '--update' in sys.argv)
    print('\n'.join(found))
    sys.exit(1 if found else 0)
