"""The style rules that a machine can judge (CONTRIBUTING.md states them).

    style.py ROOT         checks the tree; also asks clang-format 14 where it is installed
    style.py --self-test  fails unless planted violations are found
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import sources

C = ('.c', '.h', '.cu', '.cuh')
SPACED = ('.py', '.yaml', '.yml', '.json', '.md', 'meson.build', 'meson_options.txt', '.ini')
TEXT = C + SPACED + ('.sh', '.csv', '.txt', '.1')
COLUMNS = 100

# A committed file must mean the same on every machine. (In pieces, so that it passes itself.)
ELSEWHERE = re.compile('/wo' + r'rk/|/tmp/bu' + 'ild|sha' +
                       r'red/(design|reference|samples|vectors|published|hooks|cluster)')
INVISIBLE = re.compile('[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]')


def width(line):
    return len(line.expandtabs(8))


def line_problems(path, line):
    is_c = path.endswith(C)
    if line.endswith(('\r', ' ', '\t')):
        yield 'trailing blank'
    if ELSEWHERE.search(line):
        yield 'names a path of one machine'
    if INVISIBLE.search(line):
        yield 'invisible character'
    if is_c and width(line) > COLUMNS:
        yield f'{width(line)} columns, at most {COLUMNS}'
    if is_c and re.match(r' {4,}[^*\s]|\t* {8,}\S', line):
        yield 'indented with spaces'
    if is_c and re.match(r'\s*typedef\s+(struct|union|enum)\b', line):
        yield 'typedef of a struct, union or enum'
    if is_c and re.search(r'setlocale\(LC_(ALL|NUMERIC)', line):
        yield 'numbers would depend on the locale'
    if path.endswith(SPACED) and '\t' in line:
        yield 'tab'


def dead_links(root, path, content):
    """Relative links of a Markdown page that lead nowhere."""
    for match in re.finditer(r'\]\((?![a-z]+:|#)([^)#\s]+)', content):
        target = os.path.join(root, os.path.dirname(path), match.group(1))
        if not os.path.exists(target):
            line = content.count('\n', 0, match.start()) + 1
            yield f'{path}:{line}: {match.group(1)} does not exist'


def is_script(root, path):
    with open(os.path.join(root, path), 'rb') as stream:
        return stream.read(2) == b'#!'


def judged(root):
    """Our own text. Data and golden files keep the bytes they have."""
    for path in sources.files(root, ['']):
        parts = path.split(os.sep)
        if parts[0] == 'data' or {'golden', 'samples', 'vectors', 'corpus', 'fixtures'} & \
                set(parts):
            continue
        if path.endswith(TEXT) or is_script(root, path):
            yield path


def check(root):
    problems = []
    for path in judged(root):
        try:
            content = sources.text(root, path)
        except UnicodeDecodeError:
            problems.append(f'{path}: not UTF-8')
            continue
        if content and not content.endswith('\n'):
            problems.append(f'{path}: no newline at the end')
        if content.endswith('\n\n'):
            problems.append(f'{path}: blank lines at the end')
        if path.endswith('.md'):
            problems += dead_links(root, path, content)
        for number, line in enumerate(content.split('\n'), 1):
            problems += [f'{path}:{number}: {what}' for what in line_problems(path, line)]
    return problems


def clang_format(root):
    """Another version formats otherwise, so only the one that the tree was formatted with."""
    program = shutil.which('clang-format-14') or shutil.which('clang-format')
    version = subprocess.run([program, '--version'], capture_output=True,
                             text=True).stdout if program else ''
    paths = sources.files(root, ['.c', '.h'], sources.FOLDERS + ['tests', 'bench'])
    if ' 14.' not in version or not paths:
        print('clang-format 14 is not here: formatting not checked', file=sys.stderr)
        return []
    done = subprocess.run([program, '--dry-run', '-Werror', '--ferror-limit=1'] + paths,
                          cwd=root, capture_output=True, text=True)
    return [line for line in done.stderr.split('\n') if 'error:' in line] if done.returncode \
        else []


PLANTED = {
    'base/a.c': ('int a; \n', 'trailing blank'),
    'base/b.c': ('int b;', 'no newline'),
    'base/c.c': ('int c;\n\n', 'blank lines at the end'),
    'base/d.c': ('/* ' + 'd' * 95 + ' */\n', 'columns'),
    'base/e.c': ('int f(void)\n{\n    return 0;\n}\n', 'indented with spaces'),
    'base/f.h': ('typedef struct {\n\tint x;\n} thing;\n', 'typedef'),
    'base/g.c': ('/* see /wo' + 'rk/main */\n', 'path of one machine'),
    'base/h.c': ('int h; /* \u200b */\n', 'invisible'),
    'base/i.c': ('int i;\r\n', 'trailing blank'),
    'scripts/j.py': ('if True:\n\tpass\n', 'tab'),
    'scripts/k': ('#!/bin/sh\necho \n', 'trailing blank'),
    'cli/m.c': ('void f(void)\n{\n\tsetlocale(LC_ALL, "");\n}\n', 'depend on the locale'),
    'docs/p.md': ('[here](p.md) [there](https://x.y) [nowhere](q.md)\n', 'q.md does not exist'),
    'base/l.c': (b'/* \xff */\n', 'not UTF-8'),
}
INNOCENT = {
    'base/n.c': '/*\n * Fine.\n */\nint m;\n\nint f(void)\n{\n\treturn 1;\n}\n',
    'data/o.txt': 'verse \r\n',
}


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as root:
        for path, content in list(PLANTED.items()) + list(INNOCENT.items()):
            content = content[0] if isinstance(content, tuple) else content
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), 'wb') as stream:
                stream.write(content if isinstance(content, bytes) else content.encode())
        found = check(root)
    for path, (_, expected) in PLANTED.items():
        hits = [line for line in found if line.startswith(path)]
        if len(hits) != 1 or expected not in hits[0]:
            failures.append(f'{path}: expected "{expected}", got {hits}')
    failures += [line for line in found if line.startswith(tuple(INNOCENT))]
    return failures


if __name__ == '__main__':
    bad = self_test() if sys.argv[1] == '--self-test' else \
        check(sys.argv[1]) + clang_format(sys.argv[1])
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
