"""Predicted and measured step times on this machine, of configurations that no calibration has seen.

    predictions.py SHARDPLAN [--seed N] [--cases N] [--rounds N] [--seconds S] [--keep FOLDER] [--quick] [--save FILE]

Calibrates this machine into a folder of its own, draws configurations (model, strategy, wrap, checkpointing,
micro-batch, accumulation, dtype, one or two ranks), predicts and trains each for some seconds, and prints a table of
errors. Then one question is asked without restrictions, and its answer is trained beside the best plan of every other
strategy: how far the chosen plan is from the fastest one measured. Plain Python, no other package.

A figure is the median over the steps after the warm-up. For an idle machine: on a busy one both columns move. On a
virtual machine whose host is busy they move as well, by tens of percent within minutes: --rounds repeats everything,
calibration included, and compares the medians over the rounds. Many short rounds see more of what a host does than
few long ones. The column "rounds" is how far the rounds' measurements of one plan lie apart, (most - least) / median;
"elsewhere" what other processes, and the host (steal), took of the cores while a round went on.
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


PARTS = ('compute', 'optimizer')


def draw_cases(options):
    source, cases = random.Random(options.seed), {}
    while len(cases) < options.cases:
        words, name = draw(source)
        cases.setdefault(name, words)
    return cases


def time_all(bench, questions):
    """{name: (predicted, measured)} of one round; what this machine cannot train is left out."""
    found = {}
    for name, words in questions.items():
        try:
            found[name] = bench.compare(words)
        except RuntimeError as reason:
            print(f'{name}: {reason}', file=sys.stderr)
    return found


def median(rounds, name, part):
    return statistics.median(part(*found[name]) for found in rounds)


def step_times(rounds, name):
    """Predicted and measured seconds: medians over the rounds."""
    return (median(rounds, name, lambda p, _: p['step_time_s']),
            median(rounds, name, lambda _, m: m['step_time_p50_s']))


def time_of(rounds, name, part):
    """Relative error of a part of the step."""
    predicted = median(rounds, name, lambda p, _: p['time_s'][part])
    measured = median(rounds, name, lambda _, m: m['time_s'][part])
    return f'{100 * (predicted / measured - 1):+.1f} %' if measured > 0 else ''


def apart(rounds, name):
    """(most - least) / median of the measured step times."""
    times = [found[name][1]['step_time_p50_s'] for found in rounds]
    return f'{100 * (max(times) - min(times)) / statistics.median(times):.0f} %'


def in_all(rounds, questions):
    return [name for name in questions if all(name in found for found in rounds)]


def print_cases(rounds, cases):
    """Relative errors of the step time."""
    errors = []
    print_row(['model', 'ranks', 'strategy', 'wrap', 'checkpointing', 'batch', 'dtype', 'predicted', 'measured',
               'error', 'of compute', 'of optimizer', 'rounds'])
    print_row(['---'] * 13)
    for name in in_all(rounds, cases):
        p, m = step_times(rounds, name)
        errors.append(p / m - 1)
        print_row([*name, f'{1e3 * p:.1f} ms', f'{1e3 * m:.1f} ms', f'{100 * errors[-1]:+.1f} %',
                   *(time_of(rounds, name, part) for part in PARTS), apart(rounds, name)])
    return errors


def choice_questions():
    """One question without restrictions, and for the best plan of each strategy."""
    question = ['gpt2-nano', 'local', '--gpus', '2', '--seq-len', '128', '--global-batch', '16']
    return {'chosen': question, **{strategy: question + ['--strategy', strategy] for strategy in STRATEGIES[2]}}


def print_choice(rounds):
    """How much longer the chosen plan took than the fastest measured one."""
    names = in_all(rounds, choice_questions())
    print()
    print_row(['the best plan of', 'predicted', 'measured', 'error', 'rounds'])
    print_row(['---'] * 5)
    for name in names:
        p, m = step_times(rounds, name)
        print_row([name, f'{1e3 * p:.1f} ms', f'{1e3 * m:.1f} ms', f'{100 * (p / m - 1):+.1f} %', apart(rounds, name)])
    return step_times(rounds, 'chosen')[1] / min(step_times(rounds, name)[1] for name in names) - 1


class Cores:
    """What the cores do: seconds of all processes, of the host's other guests, and of this bench."""

    def __init__(self):
        self.before = self.now()

    @staticmethod
    def now():
        with open('/proc/stat', encoding='utf-8') as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        ours = sum(os.times()[:4])
        return (user + nice + system + irq + softirq) / os.sysconf('SC_CLK_TCK'), steal / os.sysconf('SC_CLK_TCK'), ours

    def elsewhere(self):
        """Cores that others had since the beginning, and that the host did not give."""
        all_of_it, steal, ours = (now - before for now, before in zip(self.now(), self.before))
        return max(0, all_of_it - ours), steal


def run_rounds(bench, options, questions):
    """Of each round {name: (predicted, measured)}; seconds of calibration; what went on elsewhere, in words."""
    rounds, calibrated, elsewhere = [], 0, []
    for number in range(options.rounds):
        cores, begun = Cores(), time.monotonic()
        if number > 0 or not os.path.exists(os.path.join(bench.folder, 'shardplan', 'local.yaml')):
            bench.calibrate(options.quick)
            calibrated += time.monotonic() - begun
        rounds.append(time_all(bench, questions))
        others, steal = cores.elsewhere()
        seconds = (time.monotonic() - begun) * os.cpu_count() / 100
        elsewhere.append(f'{others / seconds:.1f} % and {steal / seconds:.1f} %')
        if options.save:
            with open(options.save, 'w', encoding='utf-8') as file:
                json.dump([[[list(name), *pair] for name, pair in found.items()] for found in rounds], file)
    return rounds, calibrated, ', '.join(elsewhere)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('program')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--cases', type=int, default=20)
    parser.add_argument('--rounds', type=int, default=1)
    parser.add_argument('--seconds', type=float, default=6, help='of training, for each configuration')
    parser.add_argument('--keep', help='folder of an earlier run: its calibration is used again')
    parser.add_argument('--quick', action='store_true', help='calibrate --quick')
    parser.add_argument('--save', help='everything that was predicted and measured, as JSON')
    options = parser.parse_args()
    started, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(options.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        bench, cases = Bench(options, folder), draw_cases(options)
        rounds, calibrated, elsewhere = run_rounds(bench, options, {**cases, **choice_questions()})
        errors = print_cases(rounds, cases)
        behind = print_choice(rounds)
    sizes = sorted(abs(error) for error in errors)
    print(f'\n{sum(size <= 0.1 for size in sizes)} of {len(sizes)} step times within 10 %; error: median '
          f'{100 * statistics.median(sizes):.1f} %, largest {100 * sizes[-1]:.1f} %, mean with sign '
          f'{100 * statistics.mean(errors):+.1f} %.')
    print(f'The chosen plan took {100 * behind:.1f} % longer than the fastest measured one.')
    print(f'Seed {options.seed}, {options.rounds} rounds, calibrated in {calibrated:.0f} s, '
          f'{time.monotonic() - started:.0f} s in all, load {load:.1f} at the start and {os.getloadavg()[0]:.1f} at '
          f'the end, {os.cpu_count()} cores. Other processes and the host took, round by round: {elsewhere} of them.')


if __name__ == '__main__':
    main()
