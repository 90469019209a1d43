"""Pages that repeat what the program prints must repeat it exactly.

    docs.py BINARY           compares listings and tables in docs/*.md
    docs.py BINARY --update  writes them anew

A listing is a `text` block that begins with `$ shardplan ...`. In the help of commands other than
`plan`, options that are the same as those of `plan` are only named. A table, or the names of a
listing, stands between `<!-- shardplan ... -->` and `<!-- end -->`.
"""

import glob
import os
import re
import sys
import textwrap

import support

PAGES = os.path.join(support.ROOT, 'docs', '*.md')
LISTING = re.compile(r'```text\n\$ shardplan (help [a-z-]+|export --list)\n(.*?)```\n', re.S)
TABLE = re.compile(r'<!-- shardplan (.*?) -->\n(.*?)<!-- end -->\n', re.S)
OPTION = re.compile(r'^  (?:-\S, )?(--[a-z0-9-]+).*(?:\n {6,}.*)*', re.M)


def options(text):
    """name -> lines of help"""
    return {match.group(1): match.group(0) for match in OPTION.finditer(text)}


def fold(text, plan):
    """A help text that only names the options which it shares with `plan`."""
    known, folded = options(plan), []
    for section in text.split('\n\n'):
        heading, _, body = section.partition('\n')
        found = options(body)
        same = [name for name in found if known.get(name) == found[name]]
        if heading.endswith(':') and same:
            whole = heading + '\n' + body in plan.split('\n\n')
            names = 'every option of `plan`' if whole else 'as `plan`: ' + ', '.join(same)
            for name in same:
                body = body.replace(found[name] + '\n', '').replace(found[name], '')
            names = textwrap.wrap(f'[{names}]', 76, break_on_hyphens=False)
            body = '\n'.join(['  ' + line for line in names] +
                             ([body.rstrip('\n')] if body.strip() else []))
            section = heading + '\n' + body
        folded.append(section)
    return '\n\n'.join(folded).rstrip('\n') + '\n'


def table(box, command):
    """Markdown: what a command prints, without its heading; or the names that a listing begins with."""
    if command.startswith('names of '):
        rows = box.run(command.split()[-1]).out.split('\n\n')[0].split('\n')[1:]
        names = ' '.join(f'`{row.split()[0]}`' for row in rows if row.strip())
        return '\n'.join(textwrap.wrap(names, 118, break_on_hyphens=False)) + '\n'
    return re.sub(r'\A# .*\n\n', '', box.run(*command.split()).out)


def expected(binary):
    """(path, content it should have) of every page, and the commands without a listing."""
    with support.Sandbox(binary) as box:
        plan, listed = box.run('help', 'plan').out, []

        def listing(match):
            words = match.group(1).split()
            out = box.run(*words).out
            listed.append(words[-1])
            if words[0] == 'help' and words[1] != 'plan':
                out = fold(out, plan)
            return f'```text\n$ shardplan {match.group(1)}\n{out}```\n'

        def fragment(match):
            listed.append(match.group(1))
            return f'<!-- shardplan {match.group(1)} -->\n{table(box, match.group(1))}<!-- end -->\n'

        pages = []
        for path in sorted(glob.glob(PAGES)):
            content = LISTING.sub(listing, support.content(path))
            pages.append((path, TABLE.sub(fragment, content)))
        wanted = re.findall(r'^  ([a-z]+)  +', box.run('help').out, re.M) + [
            'environment', 'exit-codes', 'defaults', '--list', 'names of models',
            'names of topologies']
        return [name for name in wanted if name not in listed], pages


def main(binary, update):
    missing, pages = expected(binary)
    problems = [f'docs: no listing of {name}' for name in missing]
    for path, content in pages:
        if update:
            with open(path, 'w', encoding='utf-8') as stream:
                stream.write(content)
        elif support.content(path) != content:
            problems.append(f'{os.path.relpath(path, support.ROOT)}: differs from what the '
                            'program prints; tests/cli/docs.py BINARY --update')
    return problems


if __name__ == '__main__':
    bad = main(sys.argv[1], '--update' in sys.argv)
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
