"""Every header must bring what it needs and guard itself: those that no source includes before all else are compiled
alone, and twice over. Of the others the build does so, and the guard is read.

    headers.py ROOT COMPILER...         checks the tree
    headers.py --self-test COMPILER...  fails unless planted bad headers are found
"""

import os
import re
import subprocess
import sys
import tempfile

import sources

FLAGS = ['-std=gnu11', '-D_GNU_SOURCE', '-fsyntax-only', '-Wall', '-Wextra', '-Wpedantic',
         '-Wmissing-prototypes', '-Wstrict-prototypes', '-Werror', '-x', 'c', '-']


def compile_alone(root, header, compiler):
    # The object keeps -Wpedantic from calling the unit empty.
    unit = f'#include "{header}"\n#include "{header}"\nextern int unit_is_not_empty;\n'
    done = subprocess.run(compiler + ['-I', root] + FLAGS, input=unit, text=True,
                          capture_output=True)
    return f'{header} does not compile alone:\n{done.stderr}' if done.returncode else None


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8') as stream:
        return stream.read()


def included_first(root):
    """Headers that a source begins with, so that its compilation is theirs."""
    firsts = (re.search(r'^#.*', read(root, path), re.MULTILINE)
              for path in sources.files(root, ['.c'], sources.FOLDERS))
    names = (re.fullmatch(r'#include "(.*)"', first.group()) for first in firsts if first)
    return {name.group(1) for name in names if name}


def guards_itself(text):
    guard = re.match(r'(?:/\*.*?\*/\s*)?#ifndef (\w+)\n#define (\w+)\n', text, re.DOTALL)
    return guard and guard.group(1) == guard.group(2) and text.rstrip().endswith('#endif')


def problem(root, header, firsts, compiler):
    if header in firsts:
        return None if guards_itself(read(root, header)) else f'{header} has no guard'
    return compile_alone(root, header, compiler)


def check(root, compiler):
    headers = sources.files(root, ['.h'], sources.FOLDERS)
    firsts = included_first(root)
    if not headers:
        return [f'no header found under {root}']
    return [found for header in headers if (found := problem(root, header, firsts, compiler))]


def self_test(compiler):
    planted = {
        'base/needy.h': '#ifndef NEEDY_H\n#define NEEDY_H\nint64_t count(void);\n#endif\n',
        'base/unguarded.h': 'struct twice {\n\tint member;\n};\n',
        'base/fine.h': '#ifndef FINE_H\n#define FINE_H\n#include <stdint.h>\n'
                       'int64_t count(void);\n#endif\n',
        'base/first.h': 'struct once {\n\tint member;\n};\n',
        'base/first.c': '#include "base/first.h"\n',
    }
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, 'base'))
        for path, content in planted.items():
            with open(os.path.join(root, path), 'w') as stream:
                stream.write(content)
        found = sorted(line.split()[0] for line in check(root, compiler))
    expected = ['base/first.h', 'base/needy.h', 'base/unguarded.h']
    return [] if found == expected else [f'expected {expected}, got {found}']


if __name__ == '__main__':
    command = sys.argv[2:]
    bad = self_test(command) if sys.argv[1] == '--self-test' else check(sys.argv[1], command)
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
