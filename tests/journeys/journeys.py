"""Ten journeys of a new user: what is wanted, what is typed, what is read.

    journeys.py BINARY           the quick commands of every journey
    journeys.py BINARY slow      the others: training, and what takes seconds
    journeys.py BINARY [slow] --update  writes their outputs anew (read the difference!)

A journey is a text file here. Lines with # say what is wanted, in how many tries it is had and its
worst moment. Behind "$ " is a command, below it what it prints on both streams, and its exit code
unless that is 0. "$$ " is a slow one. "@ FILE" begins a file of the user. In a journey that says
"# Machine: ..." numbers, and what else a machine decides, are masked.
"""

import difflib
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'cli'))
import support  # noqa: E402

TEXT = os.path.join(support.ROOT, 'data', 'paradise-lost.txt')
TRIES_MOST = 2
UNITS = '[KMGT]?i?B|[mun]?s|%|[KMGT]?FLOPS|k'
NUMBER = re.compile(rf'\d+(?:[.,]\d+)*(?:e[-+]\d+)?(?: (?:{UNITS})\b)?')
MACHINE = re.compile(r'(?<= x ).*each$|^ (?:MFU|hardware|versions|date) .*|^step \d.*')


def masked(text):
    """Without what a machine decides: its numbers, its name, which steps are shown, and the widths
    of columns."""
    lines = re.sub(r'\b[0-9a-f]{32}\b', '<digest>', text).split('\n')
    lines = [re.sub(' +', ' ', NUMBER.sub('<n>', MACHINE.sub('<this machine>', line)))
             for line in lines]
    return '\n'.join(line for line, before in zip(lines, ['', *lines])
                     if line != '<this machine>' or line != before)


class Journey:
    """A file as a list of parts: ('text', lines), ('file', name, lines), ('run', words, slow, lines)."""

    def __init__(self, path):
        self.path, self.parts, self.problems = path, [], []
        for line in support.content(path).rstrip('\n').split('\n'):
            self.add(line)
        head = self.parts[0][-1]
        self.is_local = any(line.startswith('# Machine:') for line in head)
        self.expect(bool([line for line in head if line.startswith('# Wanted: ')]), 'no "# Wanted:"')
        self.expect(bool([line for line in head if line.startswith('# Worst: ')]), 'no "# Worst:"')
        tries = [int(re.findall(r'\d+', line)[0]) for line in head if line.startswith('# Tries: ')]
        self.expect(len(tries) == 1 and tries[0] <= TRIES_MOST, f'tries: {tries}')

    def expect(self, condition, what):
        if not condition:
            self.problems.append(f'{os.path.basename(self.path)}: {what}')

    def add(self, line):
        kind = 'run' if line.startswith(('$ ', '$$ ')) else 'file' if line.startswith('@ ') else ''
        if kind:
            self.parts.append((kind, line, []))
        elif not self.parts:
            self.parts.append(('text', '', [line]))
        else:
            self.parts[-1][2].append(line)

    def printed(self, binary, folder, words):
        environment = {'PATH': f'{os.path.dirname(binary)}:/usr/bin:/bin', 'HOME': folder,
                       'LC_ALL': 'C', 'XDG_CACHE_HOME': folder, 'TEXT': TEXT}
        done = subprocess.run(words, cwd=folder, env=environment, text=True, timeout=600,
                              shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        text = done.stdout.rstrip('\n') + (f'\nexit {done.returncode}' if done.returncode else '')
        return (masked(text) if self.is_local else text).lstrip('\n')

    def run(self, binary, folder, slow):
        """Its file as it should be. A quick run leaves the slow commands as they are."""
        found = []
        for kind, line, rest in self.parts:
            if kind == 'file':
                with open(os.path.join(folder, shlex.split(line)[1]), 'w', encoding='utf-8') as stream:
                    stream.write('\n'.join(rest).rstrip('\n') + '\n')
            if kind == 'run' and (slow or line.startswith('$ ')):
                printed = self.printed(binary, folder, line.lstrip('$ '))
                rest = [*printed.split('\n'), ''] if printed else ['']
            found += ([line] if line else []) + rest
        return '\n'.join(found).rstrip('\n') + '\n'


def main(binary, slow, update):
    problems, journeys = [], [Journey(path) for path in sorted(glob.glob(f'{HERE}/[0-9]*.txt'))]
    for journey in journeys:
        problems += journey.problems
        if not slow and not any(line.startswith('$ ') for _, line, _ in journey.parts):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = journey.run(binary, folder, slow)
        if update:
            with open(journey.path, 'w', encoding='utf-8') as stream:
                stream.write(found)
        elif found != support.content(journey.path):
            problems += difflib.unified_diff(
                support.content(journey.path).split('\n'), found.split('\n'),
                os.path.basename(journey.path), 'printed', lineterm='', n=1)
    if len(journeys) != 10:
        problems.append(f'{len(journeys)} journeys, expected 10')
    print('\n'.join(problems))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1]), 'slow' in sys.argv[2:], '--update' in sys.argv[2:]))
