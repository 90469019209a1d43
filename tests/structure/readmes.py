"""Fails when the README of a room does not say what a source file of it is for: by its name
(`comm.h` speaks for `comm.c` too), or by a pattern that it is one of (`view_*.c`); and when it does
not fit a screen.

    readmes.py ROOT         checks the tree
    readmes.py --self-test  plants violations in a small tree and fails unless each is found
"""

import fnmatch
import os
import re
import sys
import tempfile

import sources

LINES = 40
NAME = re.compile(r'(?<![\w/*.])([a-z0-9_]*[a-z0-9_*]+)\.(?:[ch]|cuh|\*)(?![\w*])')


def named(readme):
    """The names and patterns of source files in a README, without endings."""
    return set(NAME.findall(readme))


def unnamed(files, readme):
    """Those of the files that no name or pattern of the README stands for."""
    names = named(readme)
    return [path for path in files
            if not any(fnmatch.fnmatchcase(os.path.splitext(os.path.basename(path))[0], name)
                       for name in names)]


def missing_patterns(files, readme):
    """Names and patterns that no file bears (any more)."""
    stems = {os.path.splitext(os.path.basename(path))[0] for path in files}
    return sorted(name for name in named(readme) if not fnmatch.filter(stems, name))


def check(root):
    everywhere = sources.files(root, ['.c', '.h', '.cpp', '.cu', '.cuh'])
    problems = []
    for room in sources.rooms(root):
        path = os.path.join(room, 'README.md')
        if not os.path.isfile(os.path.join(root, path)):
            continue  # what rooms.py is for
        own = [p for p in sources.files(root, ['.c', '.h'], [room.split(os.sep)[0]])
               if os.path.dirname(p) == room]
        readme = sources.text(root, path)
        if readme.count('\n') > LINES:
            problems.append(f'{path}: {readme.count(chr(10))} lines, at most {LINES}')
        problems += [f'{path}: no word about {os.path.basename(name)}'
                     for name in unnamed(own, readme)]
        problems += [f'{path}: there is no {name}.c or {name}.h'
                     for name in missing_patterns(everywhere, readme)]
    return problems


def self_test():
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, 'base'))
        for name in ('arena.c', 'arena.h', 'view_a.c', 'view_b.c', 'lost.c', 'view.h'):
            with open(os.path.join(root, 'base', name), 'w', encoding='utf-8') as stream:
                stream.write('\n')
        with open(os.path.join(root, 'base', 'README.md'), 'w', encoding='utf-8') as stream:
            stream.write('`arena.h`; views are in `view_*.c`, `dropped.c` is of the past. A lost.day'
                         + '\n' * (LINES + 1))
        found = check(root)
    expected = [f'base/README.md: {LINES + 1} lines, at most {LINES}',
                'base/README.md: no word about lost.c', 'base/README.md: no word about view.h',
                'base/README.md: there is no dropped.c or dropped.h']
    if found != expected:
        sys.exit(f'self-test: expected {expected}, found {found}')


if __name__ == '__main__':
    if sys.argv[1] == '--self-test':
        self_test()
        sys.exit(0)
    PROBLEMS = check(sys.argv[1])
    print('\n'.join(PROBLEMS))
    sys.exit(1 if PROBLEMS else 0)
