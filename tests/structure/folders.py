"""Fails when a folder includes what the folder table does not let it include, or lacks one of the
files that every folder has.

    folders.py ROOT         checks the tree
    folders.py --self-test  plants violations in a small tree and fails unless each is found
"""

import os
import re
import sys
import tempfile

import sources

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)

# Headers whose only use would be a file, a process, a thread, a clock, a locale or a socket.
IMPURE = re.compile(r'^(unistd|fcntl|pthread|threads|time|locale|signal|dirent|spawn|dlfcn|poll|'
                    r'semaphore|sched|netdb|termios|glob|ftw|sys/.*|linux/.*|arpa/.*|netinet/.*|'
                    r'hwloc.*)\.h$')


def allowed(folder, header):
    target = header.split('/')[0]
    return target == folder or target in sources.MAY_INCLUDE[folder] or \
        header in sources.MAY_INCLUDE[folder]


def problem(root, folder, kind, header):
    if kind == '<':
        if folder in sources.PURE and IMPURE.match(header):
            return f'<{header}> is for the edge (cli, executor), not for {folder}'
        if os.path.isfile(os.path.join(root, header)):
            return f'our own header in <>: write "{header}"'
        return None
    if header.split('/')[0] not in sources.FOLDERS:
        if os.path.isfile(os.path.join(root, folder, header)):
            return f'write "{folder}/{header}": includes name the folder'
        return None  # generated into the build folder
    if not allowed(folder, header):
        may = ', '.join(sources.MAY_INCLUDE[folder]) or 'nothing'
        return f'{folder} includes {header}; it may include only {may}'
    return None


def missing_files(root):
    """A folder has a README, a face header named after it (cli has no face) and a meson.build."""
    problems = []
    for folder in sources.FOLDERS:
        if not sources.files(root, ['.c'], [folder]):
            continue
        face = [f'{folder}.h'] if folder != 'cli' else []
        for name in ['README.md', 'meson.build'] + face:
            if not os.path.isfile(os.path.join(root, folder, name)):
                problems.append(f'{folder}/{name} is missing')
    return problems


def check(root):
    problems = []
    for path in sources.files(root, ['.c', '.h', '.cu', '.cuh', '.inc'], sources.FOLDERS):
        content = sources.text(root, path)
        for match in INCLUDE.finditer(content):
            found = problem(root, path.split(os.sep)[0], *match.groups())
            if found:
                line = content.count('\n', 0, match.start(1)) + 1
                problems.append(f'{path}:{line}: {found}')
    return problems


PLANTED = [
    ('simulator/engine/engine.c', '#include "executor/executor.h"\n', 'simulator includes executor'),
    ('executor/run.c', '#include "planner/planner.h"\n', 'executor includes planner'),
    ('executor/run.c', '  # include  "simulator/simulator.h"\n', 'executor includes simulator'),
    ('base/text.c', '#include "models/model.h"\n', 'base includes models'),
    ('reports/pages/html.c', '#include "planner/search/search.h"\n', 'reports includes planner/search/search.h'),
    ('models/model.c', '#include <stdio.h>\n#include <fcntl.h>\n', 'model.c:2: <fcntl.h>'),
    ('base/text.c', '#include "text.h"\n', 'includes name the folder'),
]
INNOCENT = [
    ('executor/run.c', '#include "schedule/schedule.h"\n#include <pthread.h>\n'),
    ('reports/pages/html.c', '#include "planner/planner.h"\n#include "page.h"\n'),
    ('cli/main.c', '#include "planner/planner.h"\n#include "executor/executor.h"\n'),
]


def plant(path, content):
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, os.path.dirname(path)))
        for name, body in [('text.h', ''), (os.path.basename(path), content)]:
            with open(os.path.join(root, os.path.dirname(path), name), 'w') as stream:
                stream.write(body)
        return check(root)


def self_test():
    failures = []
    for path, content, expected in PLANTED:
        found = plant(path, content)
        if len(found) != 1 or expected not in found[0]:
            failures.append(f'planted {content!r} in {path}: expected "{expected}", got {found}')
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, 'base'))
        open(os.path.join(root, 'base', 'arena.c'), 'w').close()
        found = missing_files(root)
        if len(found) != 3:
            failures.append(f'an empty folder lacks three files, got {found}')
    for path, content in INNOCENT:
        found = plant(path, content)
        if found:
            failures.append(f'innocent {content!r} in {path}: got {found}')
    return failures


if __name__ == '__main__':
    bad = self_test() if sys.argv[1] == '--self-test' else \
        check(sys.argv[1]) + missing_files(sys.argv[1])
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
