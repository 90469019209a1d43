#!/usr/bin/env python3
"""How far the predictions of laboratory.py are from what it measured.

    verdict.py FOLDER ... [--worst N --with SHARDPLAN] [--again SHARDPLAN]

Errors by strategy and link, pairs of a question's plans in the right order, how far the chosen plan is behind the
fastest, and of the worst plans the operations that are most wrong, by the executor's timeline beside the simulated
one. With --again all is predicted anew from the same calibrations, to try a change on old measurements."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

PAIR, BEHIND = 0.05, 0.05


class Row:
    def __init__(self, folder, link, question, plan, measured):
        self.folder, self.link, self.question, self.plan, self.measured = folder, link, question, plan, measured

    def predicted(self):
        return self.plan['step']

    def took(self):
        return self.measured['step']

    def error(self):
        return self.predicted() / self.took() - 1

    def exposed(self):
        """Seconds in which only communication runs: predicted, measured."""
        path = os.path.join(self.folder, self.plan['file'])
        with open(path, encoding='utf-8') as file:
            predicted = re.search(r'exposed_communication: (\S+)', file.read()).group(1)
        with open(path.replace('.yaml', '.measured.json'), encoding='utf-8') as file:
            return float(predicted), json.load(file)['measurement']['time_s']['exposed_communication']

    def knobs(self):
        words = self.plan['words'][len(self.question['work']):]
        return ' '.join(word for word in words[1::2]) or 'chosen'


def read(folder):
    """Questions of rows. What was not measured yet is left out."""
    with open(os.path.join(folder, 'predictions.json'), encoding='utf-8') as file:
        links = json.load(file)['links']
    with open(os.path.join(folder, 'measurements.jsonl'), encoding='utf-8') as file:
        measured = {line['file']: line for line in map(json.loads, file)}
    questions = [[Row(folder, link, question, plan, measured[plan['file']])
                  for plan in question['plans'] if plan['file'] in measured]
                 for link in links for question in link['questions']]
    return [rows for rows in questions if len(rows) > 1]


def predict_again(program, row):
    """The chosen plan too: it is told by its knobs."""
    plan, words = row.plan['plan'], list(row.question['work'])
    for knob in ('strategy', 'reshard_after_forward', 'wrap', 'prefetch'):
        words += [f'--{knob.replace("_", "-")}', plan[knob]]
    for knob in ('forward_prefetch', 'limit_all_gathers', 'sync_each_micro_batch'):
        words += [f'--{knob.replace("_", "-")}', 'on' if plan[knob] else 'off']
    if plan['strategy'].startswith('HYBRID'):
        words += ['--shard-group', str(plan['mesh']['shard'])]
    told = subprocess.run([program, 'plan', os.path.join(row.folder, f'{row.question["name"]}.model.yaml'),
                           os.path.join(row.folder, row.question['topology']), *words, '--json'],
                          check=True, capture_output=True, text=True).stdout
    return json.loads(told)['chosen']['prediction']['step_time_s']


# --- figures ---

def percent(ratio):
    return f'{100 * ratio:+.1f} %'


def summary(rows):
    sizes = sorted(abs(row.error()) for row in rows)
    return (f'{len(rows):4}  {percent(statistics.median(row.error() for row in rows)):>8}  {100 * statistics.median(sizes):5.1f} % '
            f' {100 * sizes[int(0.9 * (len(sizes) - 1))]:5.1f} %  {100 * sizes[-1]:5.1f} %')


def print_groups(rows, title, name_of):
    print(f'\n{title:<26}    n      bias   median     p90  largest')
    groups = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    for name in sorted(groups):
        print(f'{name:<26} {summary(groups[name])}')


def pairs_of(rows):
    """Whether rightly ordered, of the pairs that differ by more than PAIR."""
    return [fast.predicted() < slow.predicted()
            for fast in rows for slow in rows if slow.took() > (1 + PAIR) * fast.took()]


def behind(rows):
    """The plan that is predicted to be fastest, over the fastest."""
    chosen = min(rows, key=Row.predicted)
    return chosen.took() / min(row.took() for row in rows) - 1


def print_choices(questions):
    pairs = [right for rows in questions for right in pairs_of(rows)]
    late = sorted(behind(rows) for rows in questions)
    print(f'\npairs that differ by more than {100 * PAIR:.0f} %: {sum(pairs)} of {len(pairs)} in the right order '
          f'({100 * sum(pairs) / max(len(pairs), 1):.1f} %)')
    print(f'questions whose predicted best is within {100 * BEHIND:.0f} % of the fastest: '
          f'{sum(one <= BEHIND for one in late)} of {len(late)}; the median is {percent(statistics.median(late))}, '
          f'the largest {percent(late[-1])}')


def print_exposed(rows):
    """Where it is at least a twentieth of the step."""
    pairs = [(row.exposed(), row.took()) for row in rows]
    shares = [measured / step for (_, measured), step in pairs]
    errors = [predicted / measured - 1 for (predicted, measured), step in pairs if measured > 0.05 * step]
    sizes = sorted(map(abs, errors))
    print(f'\nexposed communication: {100 * statistics.median(shares):.0f} % of the step in the median; of {len(errors)} plans '
          f'with more than 5 %: bias {percent(statistics.median(errors))}, median {100 * statistics.median(sizes):.1f} %, p90 '
          f'{100 * sizes[int(0.9 * (len(sizes) - 1))]:.1f} %')


# --- which operation ---

def kind_of(operation):
    label = re.sub(r', micro-batch \d+$', '', operation['label'])
    return operation['stream'] + ': ' + re.sub(r' \S+\.\d+(\.\.\d+)?(\.[a-z]\S*)?$', r' block\2', label)


def lines(row, program):
    """(what it adds to the error, kind, number, predicted, measured), the most wrong first."""
    explained = json.loads(subprocess.run(
        [program, 'explain', os.path.join(row.folder, row.plan['file']), '--analyze',
         os.path.join(row.folder, row.plan['file'].replace('.yaml', '.measured.json')), '--json'],
        check=True, capture_output=True, text=True).stdout)
    sums = {}
    for operation in explained['operations']:
        if 'measured' not in operation:
            continue
        line = sums.setdefault(kind_of(operation), [0, 0.0, 0.0])
        line[0] += 1
        for i, side in enumerate(('predicted', 'measured')):
            line[1 + i] += operation[side]['end_s'] - operation[side]['start_s']
    told = [((ours - theirs) / row.took(), kind, n, ours, theirs) for kind, (n, ours, theirs) in sums.items()]
    return sorted(told, key=lambda line: -abs(line[0]))


def print_worst(rows, number, program):
    for row in sorted(rows, key=lambda row: -abs(row.error()))[:number]:
        model = row.question['model']
        print(f'\n{percent(row.error())}: {1e3 * row.predicted():.1f} ms predicted, {1e3 * row.took():.1f} measured, mean '
              f'{1e3 * row.measured["mean"]:.1f}; {row.link["text"]}; {model["family"]} {model["layers"]} x {model["hidden"]}, '
              f'{" ".join(row.question["work"][1:6:2])}; {row.knobs()}; {row.plan["file"]}')
        if program:
            for adds, kind, n, ours, theirs in lines(row, program)[:4]:
                print(f'    {percent(adds):>8} of the step  {kind:<44} {n:3} x {1e3 * ours / n:8.2f} ms predicted, '
                      f'{1e3 * theirs / n:8.2f} measured')


def latency_of(row):
    return f'{1e3 * row.link["latency"]:g} ms, {100 * row.link["loss"]:g} % lost'


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('folders', nargs='+')
    parser.add_argument('--worst', type=int, default=0)
    parser.add_argument('--with', dest='program', help='shardplan, for the operations of the worst')
    parser.add_argument('--again', help='shardplan that predicts anew')
    options = parser.parse_args()
    questions = [rows for folder in options.folders for rows in read(folder)]
    rows = [row for question in questions for row in question]
    if options.again:
        for row in rows:
            row.plan['step'] = predict_again(options.again, row)
    print_groups(rows, 'all', lambda row: 'all')
    print_groups(rows, 'strategy', lambda row: row.plan['plan']['strategy'])
    print_groups(rows, 'latency, loss', latency_of)
    print_groups(rows, 'link', lambda row: row.link['text'])
    print_choices(questions)
    print_exposed(rows)
    print_worst(rows, options.worst, options.program)


if __name__ == '__main__':
    sys.exit(main())
