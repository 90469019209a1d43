"""The silhouette of the code: small functions, files that fit a sitting, headers that fit a page.

    sizes.py ROOT         prints a row per folder, and fails where a limit is passed
    sizes.py --self-test  fails unless planted giants are found
"""

import os
import statistics
import sys
import tempfile

import sources

# CONTRIBUTING.md states the aims (files to 500, headers to 120 lines); here is where patience ends.
FILE_LINES = {'.c': 600, '.h': 180}
FUNCTION_MEDIAN = 15
FUNCTION_P90 = 50
FUNCTION_LINES = 120


def functions(content):
    """(first line, lines of the body) of every function: '{' to '}' in the first column."""
    start = None
    for number, line in enumerate(content.split('\n'), 1):
        if line == '{':
            start = number
        elif line == '}' and start:
            yield start, number - start - 1
            start = None


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0


def check(root, quiet=False):
    problems, all_bodies = [], []
    for folder in sources.FOLDERS:
        lines, bodies = [], []
        for path in sources.files(root, ['.c', '.h'], [folder]):
            content = sources.text(root, path)
            count = content.count('\n')
            limit = FILE_LINES[os.path.splitext(path)[1]]
            lines.append(count)
            if count > limit:
                problems.append(f'{path}: {count} lines, at most {limit}')
            for start, body in functions(content):
                bodies.append(body)
                if body > FUNCTION_LINES:
                    problems.append(f'{path}:{start}: a function of {body} lines, at most '
                                    f'{FUNCTION_LINES}')
        all_bodies += bodies
        if lines and not quiet:
            print(f'{folder:12} {len(lines):3} files {sum(lines):6} lines, largest '
                  f'{max(lines):4}; {len(bodies):4} functions, median '
                  f'{statistics.median(bodies or [0]):4.0f}, p90 {percentile(bodies, 0.9):3}')
    if all_bodies and statistics.median(all_bodies) > FUNCTION_MEDIAN:
        problems.append(f'median function: {statistics.median(all_bodies)} lines, at most '
                        f'{FUNCTION_MEDIAN}')
    if percentile(all_bodies, 0.9) > FUNCTION_P90:
        problems.append(f'90 % of functions: {percentile(all_bodies, 0.9)} lines, at most '
                        f'{FUNCTION_P90}')
    return problems


def self_test():
    planted = {
        'base/a.c': '\n' * 601,
        'base/b.h': '\n' * 181,
        'base/c.c': 'int f(void)\n{\n' + '\tx;\n' * 121 + '}\n',
        'base/d.c': 'int f(void)\n{\n' + '\tx;\n' * 10 + '}\n',
    }
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, 'base'))
        for path, content in planted.items():
            with open(os.path.join(root, path), 'w') as stream:
                stream.write(content)
        found = check(root, quiet=True)
    expected = ['base/a.c: 601', 'base/b.h: 181', 'base/c.c:2: a function of 121',
                'median function: 65.5', '90 % of functions: 121']
    if len(found) != len(expected) or not all(f.startswith(e) for f, e in zip(found, expected)):
        return [f'expected {expected}, got {found}']
    return []


if __name__ == '__main__':
    bad = self_test() if sys.argv[1] == '--self-test' else check(sys.argv[1])
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
