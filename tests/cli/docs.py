"""Pages that repeat what the program prints must repeat it exactly.

    docs.py BINARY           compares docs/defaults.md, docs/exports.md's table, the manual and
                             the listings in docs/commands.md
    docs.py BINARY --update  writes them anew
"""

import os
import re
import sys

import support

DEFAULTS = os.path.join(support.ROOT, 'docs', 'defaults.md')
COMMANDS = os.path.join(support.ROOT, 'docs', 'commands.md')
EXPORTS = os.path.join(support.ROOT, 'docs', 'exports.md')
TABLE = re.compile(r'(?:^\| .*\n|^\|---.*\n)+', re.M)
LISTING = re.compile(r'```text\n\$ shardplan (help [a-z-]+|models|topologies|export --list)\n(.*?)```\n', re.S)
MANUAL = os.path.join(support.ROOT, 'docs', 'shardplan.1.scd')


def read(path):
    with open(path, encoding='utf-8') as stream:
        return stream.read()


def write(path, content):
    with open(path, 'w', encoding='utf-8') as stream:
        stream.write(content)


def expected(binary):
    """(path, content it should have) of every page."""
    with support.Sandbox(binary) as box:
        def listing(match):
            out = box.run(*match.group(1).split()).out
            return f'```text\n$ shardplan {match.group(1)}\n{out}```\n'

        commands = LISTING.sub(listing, read(COMMANDS))
        missing = [name for name in re.findall(r'^  ([a-z]+)  +', box.run('help').out, re.M)
                   if f'$ shardplan help {name}\n' not in commands]
        exports = LISTING.sub(listing, read(EXPORTS))
        exports = TABLE.sub(lambda _: box.run('export', '--knobs').out, exports, count=1)
        return missing, [(DEFAULTS, box.run('help', 'defaults').out), (COMMANDS, commands),
                         (EXPORTS, exports), (MANUAL, box.run('help', 'man').out)]


def main(binary, update):
    missing, pages = expected(binary)
    problems = [f'docs/commands.md: no listing of `help {name}`' for name in missing]
    for path, content in pages:
        if update:
            write(path, content)
        elif read(path) != content:
            problems.append(f'{os.path.relpath(path, support.ROOT)}: differs from what the '
                            'program prints; tests/cli/docs.py BINARY --update')
    return problems


if __name__ == '__main__':
    bad = main(sys.argv[1], '--update' in sys.argv)
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
