"""Predicted and measured step times on this machine, of configurations that no calibration has seen.

    predictions.py SHARDPLAN [--seed N] [--cases N] [--seconds S] [--keep FOLDER] [--quick]

Calibrates this machine into a folder of its own, draws configurations (model, strategy, wrap, checkpointing,
micro-batch, accumulation, dtype, one or two ranks), predicts and trains each for some seconds, and prints a table of
errors. Then one question is asked without restrictions, and its answer is trained beside the best plan of every other
strategy: how far the chosen plan is from the fastest one measured. Plain Python, no other package.

A figure is the median over the steps after the warm-up. For an idle machine: on a busy one both columns move.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, '..', '..', 'data', 'paradise-lost.txt')
WARM_UP = 2
# name -> longest sequence that is drawn
MODELS = {'gpt2-nano': [64, 128, 256], 'llama-nano': [64, 128, 256],
          os.path.join(HERE, 'gpt2-30m.yaml'): [64, 128, 256], 'gpt2-124m': [32, 64, 128]}
# Strategy and what makes it feasible on one or two ranks.
STRATEGIES = {1: ['NO_SHARD'], 2: ['NO_SHARD', 'SHARD_GRAD_OP', 'FULL_SHARD', 'ZERO_1', 'ZERO_2']}


class Bench:
    def __init__(self, options, folder):
        self.program, self.folder, self.seconds = os.path.abspath(options.program), folder, options.seconds
        self.environment = dict(os.environ, XDG_CACHE_HOME=folder, XDG_CONFIG_HOME=folder, LC_ALL='C')

    def run(self, *words):
        done = subprocess.run([self.program, *words], cwd=self.folder, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise RuntimeError(f'{" ".join(words)}: exit {done.returncode}: {done.stderr.strip()}')
        return done.stdout

    def calibrate(self, quick):
        self.run('calibrate', 'local', *(['--quick'] if quick else []))

    def plan(self, words):
        """Of a question: the answer's document, and plan.yaml."""
        return json.loads(self.run('plan', *words, '--json', '-o', 'plan.yaml'))

    def train(self, predicted):
        """Median seconds of a step of plan.yaml."""
        steps = WARM_UP + max(3, min(40, round(self.seconds / predicted)))
        self.run('train', 'plan.yaml', '--data', TEXT, '--steps', str(steps), '--measured', 'measured.json')
        with open(os.path.join(self.folder, 'measured.json'), encoding='utf-8') as file:
            return json.load(file)['measurement']

    def compare(self, words):
        document = self.plan(words)
        predicted = document['chosen']['prediction']
        return predicted, self.train(predicted['step_time_s'])


def draw(random_source):
    """Words of one question that leaves nothing open, and a short name."""
    ranks = random_source.choice([1, 2])
    model = random_source.choice(list(MODELS))
    tokens = random_source.choice(MODELS[model])
    strategy = random_source.choice(STRATEGIES[ranks])
    micro, accumulate = random_source.choice([1, 2, 4]), random_source.choice([1, 1, 2])
    wrap = random_source.choice(['block', 'model', 'blocks:2'])
    checkpointing = random_source.choice(['none', 'none', 'selective', 'full'])
    dtype = random_source.choice(['fp32', 'fp32', 'bf16'])
    words = [model, 'local', '--gpus', str(ranks), '--seq-len', str(tokens), '--strategy', strategy, '--wrap', wrap,
             '--activation-checkpointing', checkpointing, '--micro-batch', str(micro), '--grad-accum',
             str(accumulate), '--param-dtype', dtype]
    name = os.path.basename(model).replace('.yaml', '')
    return words, (name, ranks, strategy, wrap, checkpointing, f'{micro} x {accumulate} x {tokens}', dtype)


def print_row(cells):
    print('| ' + ' | '.join(str(cell) for cell in cells) + ' |', flush=True)


PARTS = ('compute', 'optimizer', 'exposed_communication')


def compare_cases(bench, options):
    """Relative errors of the step time."""
    source, errors, seen = random.Random(options.seed), [], set()
    print_row(['model', 'ranks', 'strategy', 'wrap', 'checkpointing', 'batch', 'dtype', 'predicted', 'measured',
               'error', 'of compute', 'of optimizer'])
    print_row(['---'] * 12)
    while len(errors) < options.cases:
        words, name = draw(source)
        if name in seen:
            continue
        seen.add(name)
        predicted, measured = bench.compare(words)
        p, m = predicted['step_time_s'], measured['step_time_p50_s']
        errors.append(p / m - 1)
        parts = [predicted['time_s'][part] / measured['time_s'][part] - 1 if measured['time_s'][part] > 0 else 0
                 for part in PARTS[:2]]
        print_row([*name, f'{1e3 * p:.1f} ms', f'{1e3 * m:.1f} ms', f'{100 * errors[-1]:+.1f} %',
                   *(f'{100 * part:+.1f} %' for part in parts)])
    return errors


def compare_choice(bench):
    """The answer to a question and the best plan of each strategy, all measured."""
    question = ['gpt2-nano', 'local', '--gpus', '2', '--seq-len', '128', '--global-batch', '16']
    rows = []
    chosen = bench.plan(question)
    for strategy in [None] + STRATEGIES[2]:
        words = question + (['--strategy', strategy] if strategy else [])
        try:
            predicted, measured = bench.compare(words)
        except RuntimeError as reason:
            print(f'{strategy}: {reason}')
            continue
        rows.append((strategy or f"chosen: {chosen['chosen']['plan']['strategy']}", predicted['step_time_s'],
                     measured['step_time_p50_s']))
    print()
    print_row(['the best plan of', 'predicted', 'measured', 'error'])
    print_row(['---'] * 4)
    for name, p, m in rows:
        print_row([name, f'{1e3 * p:.1f} ms', f'{1e3 * m:.1f} ms', f'{100 * (p / m - 1):+.1f} %'])
    best = min(m for _, _, m in rows)
    return rows[0][2] / best - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('program')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--cases', type=int, default=20)
    parser.add_argument('--seconds', type=float, default=6, help='of training, for each configuration')
    parser.add_argument('--keep', help='folder of an earlier run: its calibration is used again')
    parser.add_argument('--quick', action='store_true', help='calibrate --quick')
    options = parser.parse_args()
    started, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(options.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        bench = Bench(options, folder)
        if not os.path.exists(os.path.join(folder, 'shardplan', 'local.yaml')):
            bench.calibrate(options.quick)
        calibrated = time.monotonic() - started
        errors = compare_cases(bench, options)
        behind = compare_choice(bench)
    sizes = sorted(abs(error) for error in errors)
    print(f'\n{sum(size <= 0.1 for size in sizes)} of {len(sizes)} step times within 10 %; error: median '
          f'{100 * statistics.median(sizes):.1f} %, largest {100 * sizes[-1]:.1f} %, mean with sign '
          f'{100 * statistics.mean(errors):+.1f} %.')
    print(f'The chosen plan took {100 * behind:.1f} % longer than the fastest measured one.')
    print(f'Seed {options.seed}, calibrated in {calibrated:.0f} s, {time.monotonic() - started:.0f} s in all, load '
          f'{load:.1f} at the start and {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores.')


if __name__ == '__main__':
    main()
