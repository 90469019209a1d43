"""Every command in a `console` or `sh` block of docs/*.md runs and answers.

    examples.py BINARY [PAGE...]            fails for one that does not run
    examples.py BINARY --update [PAGE...]   writes what each prints below it (`console` blocks)

What they print is not compared: times are those of the machine and the version that wrote the page.
The commands of a page run one after the other in one empty folder. Indented blocks are not run: they
need machines or files that are not here.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLOCK = re.compile(r'```(console|sh)\n(.*?)```\n', re.S)
LEAST = 40


def answer(command, folder, environment):
    done = subprocess.run(['bash', '-o', 'pipefail', '-c', command], cwd=folder, env=environment,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # 1 is an answer too; 141 says that `head` had seen enough.
    wrong = done.returncode not in (0, 1, 141)
    out = '\n'.join(line.rstrip() for line in done.stdout.rstrip('\n').split('\n'))
    return out + '\n' if out else '', f'{command}: {out[-300:]}' if wrong else None


def run_page(path, binary):
    """(what the page should hold, problems, number of commands)"""
    with open(path, encoding='utf-8') as stream:
        page = stream.read()
    problems, commands = [], 0

    def run(match):
        nonlocal commands
        kind, content = match.groups()
        block = ''
        lines = re.findall(r'^\$ (.*)$' if kind == 'console' else r'^(.+)$', content, re.M)
        for command in lines:
            commands += 1
            out, problem = answer(command, folder, environment)
            block += f'$ {command}\n{out}'
            problems.extend([problem] if problem else [])
        return f'```{kind}\n{block if kind == "console" else content}```\n'

    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(ROOT, 'data'), os.path.join(folder, 'data'))
        environment = dict(os.environ, XDG_CACHE_HOME=folder, XDG_CONFIG_HOME=folder,
                           NO_COLOR='1', LC_ALL='C.UTF-8', COLUMNS='',
                           PATH=os.path.dirname(os.path.abspath(binary)) + ':' + os.environ['PATH'])
        return BLOCK.sub(run, page), problems, commands


def main(binary, update, pages):
    problems, commands = [], 0
    for path in pages or sorted(glob.glob(os.path.join(ROOT, 'docs', '*.md'))):
        page, bad, n = run_page(path, binary)
        problems += [f'{os.path.basename(path)}: {problem}' for problem in bad]
        commands += n
        if update and not bad:
            with open(path, 'w', encoding='utf-8') as stream:
                stream.write(page)
    if not pages and commands < LEAST:
        problems.append(f'{commands} commands, expected {LEAST} at least')
    return problems


if __name__ == '__main__':
    found = main(sys.argv[1], '--update' in sys.argv,
                 [word for word in sys.argv[2:] if word != '--update'])
    print('\n'.join(found))
    sys.exit(1 if found else 0)
