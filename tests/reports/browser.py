"""Opens the report in headless Chromium, as readers do, and judges what happens.

    browser.py WRITE_DOCUMENTS                 the page of tests/reports/write_documents.c
    browser.py --page FILE.html [--out DIR]    any page; with --out also pictures and a PDF

Judged: no request but for the file itself, an empty console (a refused style or script would be
there), nothing wider than a phone, names and order in the accessibility tree, sorting, and tips by
keyboard. A page that is broken on purpose must fail. Exit 77 (skipped) without Chromium.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ['chromium', 'chromium-browser', 'google-chrome']
WIDE, NARROW = (1280, 900), (390, 844)
SECONDS = 60
SLICE = 1500


class Browser:
    """The DevTools protocol over a pipe: one JSON message, then a NUL."""

    def __init__(self, program, folder):
        self.ids, self.events, self.buffer = itertools.count(1), [], b''
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()

        def pipes():
            first, second = os.dup(to_read), os.dup(to_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe',
                 '--no-first-run', '--hide-scrollbars', f'--user-data-dir={folder}']
        self.process = subprocess.Popen([program] + flags, preexec_fn=pipes, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = None
        self.session = self.call('Target.attachToTarget', targetId=target,
                                 flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network', 'Accessibility', 'DOM'):
            self.call(domain + '.enable')

    def receive(self, seconds):
        """The next message, or None."""
        end = time.monotonic() + seconds
        while b'\0' not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                return None
            got = os.read(self.read_end, 1 << 20)
            if not got:
                raise SystemExit('Chromium went away')
            self.buffer += got
        message, self.buffer = self.buffer.split(b'\0', 1)
        return json.loads(message)

    def call(self, method, **params):
        mine = next(self.ids)
        message = {'id': mine, 'method': method, 'params': params}
        if getattr(self, 'session', None):
            message['sessionId'] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b'\0')
        while True:
            answer = self.receive(SECONDS)
            if answer is None:
                raise SystemExit(f'{method}: no answer in {SECONDS} s')
            if answer.get('id') == mine:
                if 'error' in answer:
                    raise SystemExit(f'{method}: {answer["error"]}')
                return answer['result']
            self.events.append(answer)

    def value(self, expression):
        result = self.call('Runtime.evaluate', expression=expression, returnByValue=True)
        if 'exceptionDetails' in result:
            raise SystemExit(f'{expression}: {result["exceptionDetails"]["text"]}')
        return result['result'].get('value')

    def open(self, path, size, dark=False, media=''):
        self.call('Emulation.setDeviceMetricsOverride', width=size[0], height=size[1],
                  deviceScaleFactor=1, mobile=size[0] < 600)
        self.call('Emulation.setEmulatedMedia', media=media, features=[
            {'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])
        self.events.clear()
        self.call('Page.navigate', url='file://' + os.path.abspath(path))
        end = time.monotonic() + SECONDS
        while not any(e.get('method') == 'Page.loadEventFired' for e in self.events):
            event = self.receive(1)
            if event:
                self.events.append(event)
            if time.monotonic() > end:
                raise SystemExit(f'{path}: not loaded in {SECONDS} s')

    def key(self, name):
        for kind in ('keyDown', 'keyUp'):
            self.call('Input.dispatchKeyEvent', type=kind, key=name, code=name)

    def pictures(self, path):
        """PATH-0.png, PATH-1.png ...: the page in slices."""
        size = self.call('Page.getLayoutMetrics')['cssContentSize']
        for i, top in enumerate(range(0, int(size['height']), SLICE)):
            clip = {'x': 0, 'y': top, 'width': size['width'], 'scale': 1,
                    'height': min(SLICE, size['height'] - top)}
            data = self.call('Page.captureScreenshot', clip=clip,
                             captureBeyondViewport=True)['data']
            with open(f'{path}-{i}.png', 'wb') as stream:
                stream.write(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        self.process.wait()


def heard(browser, path):
    """What the page said or asked for."""
    own = 'file://' + os.path.abspath(path)
    for event in browser.events:
        params = event.get('params', {})
        if event.get('method') == 'Network.requestWillBeSent':
            url = params['request']['url']
            if url != own and not url.startswith('data:'):
                yield f'requests {url[:120]}'
        elif event.get('method') == 'Runtime.consoleAPICalled':
            yield f'console: {params["args"]}'
        elif event.get('method') == 'Log.entryAdded':
            yield f'log: {params["entry"]["text"][:200]}'
        elif event.get('method') == 'Runtime.exceptionThrown':
            yield f'exception: {params["exceptionDetails"]["text"]}'


def tree(browser):
    """(role, name, properties) of what assistive technology sees, in order."""
    for node in browser.call('Accessibility.getFullAXTree')['nodes']:
        if not node.get('ignored'):
            yield (node.get('role', {}).get('value', ''), node.get('name', {}).get('value', ''),
                   {p['name']: p['value'].get('value') for p in node.get('properties', [])})


def judge_tree(browser):
    nodes = list(tree(browser))
    counts = {role: sum(1 for n in nodes if n[0] == role) for role in {n[0] for n in nodes}}
    for role in ('heading', 'table', 'columnheader', 'rowheader', 'image', 'figure', 'main'):
        if not counts.get(role):
            yield f'accessibility: no {role}'
    for role, name, _ in nodes:
        if role in ('image', 'table', 'heading', 'link', 'button', 'columnheader') and \
                not name.strip():
            yield f'accessibility: a {role} without a name'
    levels = [properties.get('level', 0) for role, _, properties in nodes if role == 'heading']
    if levels.count(1) != 1 or levels[:1] != [1]:
        yield f'accessibility: headings of levels {levels}'
    if any(after > before + 1 for before, after in zip(levels, levels[1:])):
        yield f'accessibility: a level of headings is left out: {levels}'


def judge_sorting(browser):
    script = '''(function () {
        var table = document.querySelector('table.sortable');
        if (!table) return null;
        var buttons = table.tHead.querySelectorAll('button'), at = buttons.length - 4;
        function column() {
            return Array.prototype.map.call(table.tBodies[0].rows, function (row) {
                var value = row.cells[at].dataset.sort;
                return value === 'inf' ? 1e300 : parseFloat(value);
            });
        }
        buttons[at].click();
        var up = column(), said = buttons[at].parentNode.getAttribute('aria-sort');
        buttons[at].click();
        return {up: up, down: column(), said: said};
    })()'''
    result = browser.value(script)
    if result is None:
        return
    if result['up'] != sorted(result['up']) or \
            result['down'] != sorted(result['down'], reverse=True):
        yield f'sorting: {result}'
    if result['said'] != 'ascending':
        yield f'sorting: aria-sort is {result["said"]}'


def judge_keyboard(browser):
    browser.value('document.querySelector("figure svg[tabindex]").focus()')
    browser.key('ArrowRight')
    shown = browser.value('(function () { var t = document.querySelector(".tip");'
                          'return t && !t.hidden ? t.textContent : ""; })()')
    if not shown:
        yield 'keyboard: no tip after an arrow key'


def judge_width(browser, size):
    wide = browser.value('document.documentElement.scrollWidth')
    if wide > size[0]:
        yield f'{wide} pixels wide on a screen of {size[0]}'


def judge_names(browser):
    """The words of row headings that are broken within themselves."""
    script = '''(function () {
        var broken = [], range = document.createRange();
        document.querySelectorAll('tbody th').forEach(function (th) {
            var walker = document.createTreeWalker(th, NodeFilter.SHOW_TEXT);
            for (var node; (node = walker.nextNode());)
                for (var word, words = /[A-Za-z_]+/g; (word = words.exec(node.data));) {
                    range.setStart(node, word.index);
                    range.setEnd(node, word.index + word[0].length);
                    if (range.getClientRects().length > 1)
                        broken.push(word[0]);
                }
        });
        return broken;
    })()'''
    return [f'{name} is broken' for name in browser.value(script)]


def judge(browser, path):
    found = []
    for size in (WIDE, NARROW):
        for dark in (False, True):
            browser.open(path, size, dark)
            found += [f'{size[0]} px: {what}' for what in
                      itertools.chain(judge_width(browser, size), judge_names(browser))]
            found += judge_tree(browser)
            if size == WIDE and not dark:
                found += list(judge_sorting(browser)) + list(judge_keyboard(browser))
            found += heard(browser, path)
    colors = []
    for dark in (False, True):
        browser.open(path, WIDE, dark)
        colors.append(browser.value('getComputedStyle(document.body).backgroundColor'))
    if colors[0] == colors[1]:
        found.append(f'dark and light are both {colors[0]}')
    return sorted(set(found))


def write_pictures(browser, path, folder):
    os.makedirs(folder, exist_ok=True)
    for name, size, dark in (('desktop', WIDE, False), ('desktop-dark', WIDE, True),
                             ('phone', NARROW, False), ('phone-dark', NARROW, True)):
        browser.open(path, size, dark)
        browser.pictures(os.path.join(folder, name))
    browser.open(path, WIDE)
    data = browser.call('Page.printToPDF', preferCSSPageSize=True)['data']
    with open(os.path.join(folder, 'print.pdf'), 'wb') as stream:
        stream.write(base64.b64decode(data))


BREAKAGES = [
    ('</h1>', '</h1><img src="http://127.0.0.1:9/x.png" alt="x">', 'log:'),
    ('</h1>', '</h1><script>alert(1)</script>', 'log:'),
    ('</h1>', '</h1><p id="wide"></p><svg width="2000" height="9" class="c0" '
              'viewBox="0 0 9 9"></svg><pre>' + 'x' * 900 + '</pre>', 'pixels wide'),
    ('</h1>', '</h1><button type="button"></button>', 'without a name'),
    ('</h1>', '</h1><table><tbody><tr><th>' + 'long_' * 30 + 'name</th></tr></tbody></table>',
     'is broken'),
    ('<h1>', '<h3>x</h3><h1>', 'headings of levels'),
    ('setAttribute(\'aria-sort\'', 'setAttribute(\'data-none\'', 'sorting'),
]


def self_test(browser, path, folder):
    """Pages that are broken on purpose are noticed."""
    with open(path, encoding='utf-8') as stream:
        page = stream.read()
    broken = os.path.join(folder, 'broken.html')
    for before, after, expected in BREAKAGES:
        with open(broken, 'w', encoding='utf-8') as stream:
            stream.write(page.replace(before, after, 1))
        found = judge(browser, broken)
        if not any(expected in line for line in found):
            yield f'not noticed: {after[:60]}: {found}'


def main():
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        print('skipped: no Chromium (apt-get install chromium)')
        return 77
    words = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, os.path.join(folder, 'profile'))
        try:
            if words[0] == '--page':
                found = judge(browser, words[1])
                if '--out' in words:
                    write_pictures(browser, words[1], words[words.index('--out') + 1])
            else:
                subprocess.run([words[0], folder], check=True)
                page = os.path.join(folder, 'report.html')
                found = judge(browser, page) + list(self_test(browser, page, folder))
        finally:
            browser.close()
    print('\n'.join(found) or 'nothing to complain about')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
