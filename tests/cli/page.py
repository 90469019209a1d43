"""Every claim of the page beside the JSON of the same report: page.py BINARY

What was asked for and no more, bars of equal work, axes that say where they are cut, one meaning a
colour, and no sentence that a figure beside it contradicts."""

import html
import json
import math
import os
import re
import sys
import unittest

import support

BINARY = sys.argv.pop(1)
ASKED = ['FULL_SHARD', 'SHARD_GRAD_OP', 'HYBRID_SHARD']
QUESTIONS = {
    'three strategies': ['llama-2-7b', '2xdgx-a100-80gb', '--strategy', ','.join(ASKED),
                         '--wrap', 'block'],
    # The fastest plan leaves too little memory free: a faster one stands beside the answer.
    'a faster one was passed over': ['llama-3.1-8b', '2xdgx-h100', '--wrap', 'block'],
    'nothing fits': ['llama-2-13b', 'rtx4090-8x', '--micro-batch', '8', '--cpu-offload', 'none',
                     '--tensor', '1', '--context', '1'],
    'two axes': ['llama-2-7b', '2xdgx-a100-80gb', '--tensor', '2', '--strategy', 'FULL_SHARD'],
}
AXES = [('PP', 'pipeline'), ('TP', 'tensor'), ('CP', 'context'), ('EP', 'expert')]
UNITS = {'ns': 1e-9, 'us': 1e-6, '\xb5s': 1e-6, 'ms': 1e-3, 's': 1, 'min': 60, 'h': 3600,
         'B': 1, 'KiB': 2**10, 'MiB': 2**20, 'GiB': 2**30, 'TiB': 2**40, '%': 0.01}


def figure(text):
    """The number that a cell shows, in seconds, bytes or as a ratio."""
    number, _, unit = text.replace('\xa0', ' ').partition(' ')
    return float(number) * UNITS.get(unit, 1)


def words(fragment):
    return html.unescape(re.sub(r'<[^>]+>', '', fragment)).strip()


def section(page, name):
    found = re.search(r'<h2 id="%s">.*?</section>' % name, page, re.S)
    return found.group(0) if found else ''


def table(fragment):
    """Of the first table: rows of (class, cells by heading, what each sorts by)."""
    found = re.search(r'<table.*?</table>', fragment, re.S).group(0)
    names = [words(name) for name in re.findall(r'<th scope="col".*?</th>', found, re.S)]
    for css, row in re.findall(r'<tr( class="[a-z]+")?>(.*?)</tr>', found.split('<tbody>')[1], re.S):
        cells = re.findall(r'<t[dh]([^>]*)>(.*?)</t[dh]>', row, re.S)
        keys = [re.search(r'data-sort="([^"]*)"', attributes) for attributes, _ in cells]
        yield (css, dict(zip(names, (words(cell) for _, cell in cells))),
               dict(zip(names, (float(key.group(1)) if key else None for key in keys))))


def colours(css):
    """Light and dark: the colour of each class that a legend may show."""
    for dark in (False, True):
        roots = re.findall(r':root\{(.*?)\}', css, re.S)
        variables = {}
        for root in roots[:1 + dark]:
            variables.update(re.findall(r'--([a-z0-9]+):(#[0-9a-f]{3,6})', root))
        found = {}
        for name, value in re.findall(r'\.((?:c|s)\d|k-[a-z]+)\{(?:fill|stroke):([^;}]+)', css):
            if value.startswith('var('):
                value = variables[value[6:-1]]
            found[name] = value
        yield found


def distance(a, b):
    def parts(colour):
        return [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
    return math.dist(parts(a), parts(b))


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.all = {}
        with support.Sandbox(BINARY) as box:
            for name, question in QUESTIONS.items():
                page = box.run('report', *question, '--format', 'html')
                document = box.run('report', *question, '--format', 'json')
                assert page.code == document.code, (page.err, document.err)
                cls.all[name] = page.out, json.loads(document.out)['reports'][0]

    def each(self):
        return self.all.values()

    def candidates(self, report):
        """By strategy and runtime: the first of the answer, as the page shows them."""
        defence, found = report['defence'], {}
        chosen = [dict(report, verdict='chosen')] if defence['chosen'] else []
        for candidate in chosen + defence['alternatives']:
            plan = candidate['plan']
            found.setdefault((plan['strategy'], plan['runtime']), candidate)
        return list(found.values())

    def near(self, shown, value):
        if shown != '-':
            self.assertAlmostEqual(figure(shown) / value if value else figure(shown),
                                   1 if value else 0, delta=0.006)

    def test_three_strategies_are_three_rows(self):
        page, report = self.all['three strategies']
        rows = [cells['strategy'] for _, cells, _ in table(section(page, 'strategies'))]
        self.assertEqual(sorted(re.sub('[/,].*', '', row) for row in rows), sorted(ASKED))
        bars = re.findall(r'<div class="row[^"]*"><div class="name">(.*?)<small>', page)
        self.assertEqual(sorted(re.sub('[/,].*', '', words(row)) for row in bars), sorted(ASKED))
        for row in report['defence']['sensitivity']:
            if row['knob'] == 'strategy':
                self.assertIn(row['value'], ASKED)
        for strategy in set(re.findall(r'\b(?:NO_SHARD|ZERO_\d|HYBRID_SHARD_ZERO2)\b', page)):
            self.fail(f'{strategy} was not asked for')

    def test_figures_are_those_of_the_json(self):
        for page, report in self.each():
            candidates = self.candidates(report)
            rows = list(table(section(page, 'strategies')))
            self.assertEqual(len(rows), len(candidates))
            for (css, cells, keys), candidate in zip(rows, candidates):
                self.assertEqual('good' in css, candidate.get('verdict') == 'chosen')
                prediction = candidate.get('prediction')
                if cells['step time'] == '-':
                    continue
                self.assertIn(candidate['plan']['strategy'], cells['strategy'])
                self.near(cells['step time'], prediction['step_time_s'])
                self.near(cells['tokens/s/GPU'], prediction['tokens_per_s_per_gpu'])
                self.near(cells['peak memory'], prediction['peak_memory_bytes'])
                self.near(cells['exposed'], prediction['time_s']['exposed_communication'])
                self.assertEqual(cells['fits'], prediction['fits'])
                # Steps of unlike batches are put in order by what a token takes.
                self.assertAlmostEqual(keys['step time'] * keys['tokens/s/GPU'], 1)

    def test_the_card_says_the_plan(self):
        for page, report in self.each():
            prediction = report['prediction']
            tiles = dict((words(name), words(value)) for name, value in re.findall(
                r'<dt>(.*?)</dt><dd>(.*?)(?:<small>.*?)?</dd>', page))
            self.near(tiles['Step time'], prediction['step_time_s'])
            self.near(tiles['Throughput'], prediction['tokens_per_s_per_gpu'])
            self.near(tiles['Peak memory'], prediction['peak_memory_bytes'])
            self.near(tiles['MFU'], prediction['mfu'])
            self.assertEqual('>Use ' in page, report['defence']['chosen'])
            self.assertEqual('No plan fits' in page, not report['defence']['chosen'])
            mesh, plan = report['plan']['mesh'], report['plan']
            axes = [f'{name} {mesh[axis]} x ' for name, axis in AXES if mesh.get(axis, 1) > 1]
            if report['defence']['chosen']:
                self.assertIn(f'>Use {"".join(axes)}{plan["strategy"]}', page)

    def test_bars_are_of_equal_work(self):
        for page, report in self.each():
            rows = re.findall(r'<div class="row.*?(?=<div class="row|<ul class="legend">)', page, re.S)
            candidates = [c for c in self.candidates(report) if c.get('prediction')]
            self.assertEqual(len(rows), len(candidates))
            ends = [max(map(int, re.findall(r'H(\d+)V', re.search(
                r'aria-label="time .*?</svg>', row, re.S).group(0)))) for row in rows]
            times = [1 / c['prediction']['tokens_per_s_per_gpu'] for c in candidates]
            for end, time in zip(ends, times):
                self.assertAlmostEqual(end / max(ends), time / max(times), delta=0.002)
            for row, candidate in zip(rows, candidates):
                self.assertEqual('does not fit</small>' in row,
                                 candidate.get('verdict') == 'does_not_fit')
                self.cache_beside_what_it_needs(row, candidate['prediction'])

    def cache_beside_what_it_needs(self, row, prediction):
        cache = prediction['peak_reserved_bytes'] - prediction['peak_allocated_bytes']
        said = re.search(r'([\d.]+ [KMGT]iB) of it cache', row)
        self.assertEqual(said is not None, cache > 0.02 * prediction['memory_limit_bytes'])
        if said:
            self.near(said.group(1), cache)
        needs = re.search(r'does not fit: needs ([\d.]+ [KMGT]iB) of', row)
        if needs and said:
            self.near(needs.group(1), prediction['peak_memory_bytes'] - cache)

    def test_nothing_is_best_beside_something_faster(self):
        claims = set()
        for page, report in self.each():
            defence = report['defence']
            if not defence['chosen']:
                continue
            now = report['prediction']['tokens_per_s_per_gpu']
            faster = [c for c in defence['alternatives'] if c['verdict'] == 'slower' and
                      c['prediction']['tokens_per_s_per_gpu'] > now] + defence['options']
            proof = re.search(r'\d+ plans simulated.*?</p>', page).group(0)
            claims.add(bool(faster))
            self.assertEqual('except those listed as faster' in proof, bool(faster), proof)
            for option in defence['options']:
                self.assertIn(option['typed'], words(section(page, 'options')))
        self.assertIn(True, claims)

    def test_the_fastest_of_a_study_is(self):
        for page, report in self.each():
            for name in 'scaling', 'link':
                study, said = report.get(name), words(section(page, name))
                if not study:
                    continue
                best = []
                for points in zip(*(line['points'] for line in study['lines'])):
                    fit = [(p['tokens_per_s_per_gpu'], line['name'])
                           for p, line in zip(points, study['lines'])
                           if 'step_time_s' in p and p['fits'] != 'no']
                    # Of equals, which a plan is beside itself on one node, the first.
                    best.append(max(fit, key=lambda pair: pair[0])[1] if fit else None)
                named = re.findall(r'(\S+) is the fastest', said)
                changes = [b for i, b in enumerate(best) if b and (i == 0 or b != best[i - 1])]
                self.assertEqual([n.split(',')[0] for n in named],
                                 [re.sub(r'^(\w+ \d+ x )+', '', c).split(',')[0].split(' ')[0]
                                  for c in changes])

    def test_what_if_and_levers_are_those_of_the_json(self):
        for page, report in self.each():
            defence = report['defence']
            if defence['sensitivity']:
                whose = 'chosen' if defence['chosen'] else 'closest'
                self.assertIn(f'The {whose} plan with one thing changed', page)
                rows = list(table(section(page, 'what-if')))
                self.assertEqual(len(rows), len(defence['sensitivity']))
                for (_, cells, _), row in zip(rows, defence['sensitivity']):
                    self.assertEqual(cells['were'], row['value'])
                    if row['step_time_s']:
                        self.near(cells['step time'], row['step_time_s'])
            if defence['levers']:
                rows = list(table(section(page, 'levers')))
                self.assertEqual([cells['one line of the script'] for _, cells, _ in rows],
                                 [lever['typed'] for lever in defence['levers']])

    def test_axes_begin_at_zero_or_say_so(self):
        cuts = 0
        for page, _ in self.each():
            for plot in re.findall(r'<div class="plot">.*?</div>\s*</div>\s*(?=<)', page, re.S):
                labels = re.findall(r'y="([\d.]+)%"[^>]*>([^<]*)<', plot.split('class="area"')[0])
                at_zero = any(float(y) > 99.9 and float(text.split()[0]) == 0 for y, text in labels)
                self.assertEqual('the upward axis is cut' in plot, not at_zero, labels)
                cuts += not at_zero
        self.assertGreater(cuts, 0)

    def test_a_colour_has_one_meaning(self):
        css = support.content(os.path.join(support.ROOT, 'reports', 'pages', 'page.css'))
        for found in colours(css):
            self.assertGreater(len(found), 24)
            names = sorted(found)
            for i, a in enumerate(names):
                for b in names[i + 1:]:
                    self.assertGreater(distance(found[a], found[b]), 20, f'{a} and {b}')
        for page, _ in self.each():
            for legend in re.findall(r'<ul class="legend">.*?</ul>', page, re.S):
                entries = re.findall(r'<i class="([^"]+)"></i>([^<]*)', legend)
                self.assertEqual(len(dict(entries)), len(entries))


if __name__ == '__main__':
    unittest.main(verbosity=1)
