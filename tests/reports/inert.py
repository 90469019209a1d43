"""Names come from files that others wrote: whatever is in them stays text.

    inert.py WRITE_DOCUMENTS

Every payload becomes the name of the model, the machine, every unit, module and parameter; then
each document is read again by a reader of its format. The page has the same elements as with plain
names, no handler and no address; cells do not start a formula; terminals get no control character.
A document that lets one payload through must be noticed.
"""

import csv
import glob
import html.parser
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
import xml.etree.ElementTree

ACTS = ['<script>alert(1)</script>', '<img src=x onerror=alert(2)>', '"><svg onload=alert(3)>',
        "'><iframe src=javascript:alert(4)>", '</style><script>alert(5)</script>', '</title><b>x',
        '<!--', '-->', ']]>', '&lt;script&gt;', '${7*7}', '{{7*7}}', '`id`', '$(id)',
        'javascript:alert(6)', '[x](javascript:alert(7))', '![x](http://example.invalid/x.png)',
        '| a | b |', '# heading', '\\', '"', "'", '=HYPERLINK("http://example.invalid")',
        '=1+1', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1', '%0d%0a', '\x1b[31m', '\x1b]0;x\x07',
        '\x9b31m', '\u2028', '\u202e', '\u200b', '\ufeff', '\U000e0041', '\x7f', 'a' * 3000,
        '\u6a21\u578b', '\U0001f4a5', '%s%n%d', '../../etc/passwd', 'x\ny', '; rm -rf /']
PAYLOADS = ACTS + ['a' + act + 'b' for act in ACTS[::3]]
CONTROLS = {'Cc', 'Cf', 'Zl', 'Zp', 'Cs'}


class Elements(html.parser.HTMLParser):
    """Counts elements; notes handlers and addresses."""

    def __init__(self):
        super().__init__()
        self.counts, self.bad = {}, []

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            if name.startswith('on') or name == 'style':
                self.bad.append(f'{tag} {name}={value}')
            if name in ('href', 'src', 'action', 'srcset', 'data') and \
                    not (value or '').startswith(('#', 'data:,')):
                self.bad.append(f'{tag} {name}={value}')


def elements(text):
    parser = Elements()
    parser.feed(text)
    parser.close()
    return parser


# What names may add or remove: rows of facts that are only there when known.
VARIABLE = {'tr', 'th', 'td', 'text', 'p', 'code'}


def judge_html(text, calm):
    page, plain = elements(text), elements(calm)
    yield from page.bad
    for tag in set(page.counts) | set(plain.counts):
        if tag not in VARIABLE and page.counts.get(tag, 0) != plain.counts.get(tag, 0):
            yield f'{tag}: {page.counts.get(tag, 0)} elements, not {plain.counts.get(tag, 0)}'
    if "default-src 'none'" not in text or 'unsafe-inline' in text:
        yield 'no policy'
    yield from judge_text(text, None)


def judge_svg(text, _):
    root = xml.etree.ElementTree.fromstring(text)
    for node in root.iter():
        tag = node.tag.rsplit('}', 1)[-1]
        if tag not in ('svg', 'desc', 'defs', 'pattern', 'path', 'rect', 'title', 'text'):
            yield f'element {tag}'
        for name in node.attrib:
            if name.startswith('on') or 'href' in name:
                yield f'attribute {name}'
    yield from judge_text(text, None)


def judge_csv(text, _):
    rows = list(csv.reader(io.StringIO(text, newline='')))
    for row in rows:
        if len(row) != len(rows[0]):
            yield f'{len(row)} cells, not {len(rows[0])}'
        for cell in row:
            if re.match(r'[=+@\t\r]|-(?![0-9.])', cell):
                yield f'a formula: {cell[:40]!r}'


def judge_json(text, _):
    json.loads(text)
    for act in ('</script', '<!--', '\u2028', '\u2029'):
        if act in text:
            yield f'{act!r} in JSON'


def judge_markdown(text, _):
    if re.search(r'<[A-Za-z!/]', text):
        yield 'a tag in Markdown'
    if re.search(r'(?<!\\)\]\(', text):
        yield 'a link in Markdown'
    widths = {}
    for block in text.split('\n\n'):
        lines = [line for line in block.split('\n') if line.startswith('|')]
        for line in lines:
            cells = len(re.findall(r'(?<!\\)\|', line))
            if widths.setdefault(id(block), cells) != cells:
                yield f'{cells} cell ends in Markdown, not {widths[id(block)]}'
    yield from judge_text(text, None)


def judge_text(text, _):
    for letter in set(text):
        if letter != '\n' and unicodedata.category(letter) in CONTROLS:
            yield f'U+{ord(letter):04X}'


JUDGES = {'.html': judge_html, '.svg': judge_svg, '.csv': judge_csv, '.json': judge_json,
          '.md': judge_markdown, '.txt': judge_text}


def documents(program, folder, payload):
    words = ['--names', payload] if payload is not None else []
    subprocess.run([program, folder] + words, check=True)
    for path in sorted(glob.glob(os.path.join(folder, '*'))):
        ending = os.path.splitext(path)[1]
        if ending in JUDGES:
            with open(path, encoding='utf-8', newline='') as stream:
                yield os.path.basename(path), ending, stream.read()


def write_all(program):
    """Only that they are written: a sanitizer judges the writer."""
    with tempfile.TemporaryDirectory() as folder:
        n = sum(len(list(documents(program, folder, payload))) for payload in PAYLOADS)
    print(f'{len(PAYLOADS)} names, {n} documents')
    return [] if n > len(PAYLOADS) else ['no documents']


def judge_all(program):
    found, n = [], 0
    with tempfile.TemporaryDirectory() as folder:
        calm = {name: text for name, _, text in documents(program, folder, 'plain')}
        for payload in PAYLOADS:
            for name, ending, text in documents(program, folder, payload):
                n += 1
                found += [f'{payload[:40]!r}: {name}: {what}'
                          for what in JUDGES[ending](text, calm[name])]
    print(f'{len(PAYLOADS)} names, {n} documents')
    return found


def self_test():
    """What each judge must notice."""
    page = "<html><meta content=\"default-src 'none'\"><p>x</p></html>"
    planted = [
        (judge_html, page.replace('x', '<b>x</b>'), page), (judge_html, page + '\x1b', page),
        (judge_html, page.replace('<p>', '<p onclick="x">'), page),
        (judge_html, page.replace('<p>', '<a href="http://x">').replace('</p>', '</a>'), page),
        (judge_svg, '<svg><script/></svg>', ''), (judge_svg, '<svg onload="x"/>', ''),
        (judge_csv, 'a,b\n=1,2\n', ''), (judge_csv, 'a,b\n-x,2\n', ''), (judge_csv, 'a,b\n1\n', ''),
        (judge_json, '{"a": "</script>"}', ''), (judge_markdown, '<b>', ''),
        (judge_markdown, '[a](b)', ''), (judge_markdown, '| a |\n| b | c |\n', ''),
        (judge_text, '\x1b[31m', ''), (judge_text, '\u202e', '')]
    return [f'not noticed: {text[:60]!r}' for judge, text, calm in planted
            if not list(judge(text, calm))]


if __name__ == '__main__':
    bad = write_all(sys.argv[1]) if '--only-write' in sys.argv else \
        self_test() + judge_all(sys.argv[1])
    print('\n'.join(bad[:60]))
    sys.exit(1 if bad else 0)
