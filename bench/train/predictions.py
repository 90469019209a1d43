"""Predicted and measured step times on this machine, of configurations that no calibration has seen.

    predictions.py SHARDPLAN [--seed N] [--cases N] [--calibrations N] [--rounds N] [--seconds S] [--keep FOLDER]
                   [--quick] [--save FILE] [--join FILE]...

Calibrates this machine into a folder of its own, draws configurations (model, strategy, wrap, checkpointing,
micro-batch, accumulation, dtype, one or two ranks), predicts and trains each for some seconds, and prints a table of
errors. Then one question is asked without restrictions, and its answer is trained beside the best plan of every
strategy: how far the chosen plan is from the fastest one measured. Plain Python, no other package.

For an idle machine. A virtual one is never quite idle: its neighbours take caches, memory and the cores' other
threads for seconds or minutes, which nothing inside can see or undo. They only ever make a step longer. So the plans
are trained in turn, round after round, and a plan's time is that of its fastest round (each the median of its steps
after the warm-up): what it takes when it is left alone, which is what the prediction says. That must have been seen
twice: plans whose two fastest rounds differ by more than 3 % get up to as many rounds again. The column "median" is
the middle of the rounds, what such a neighbourhood makes of it, and "rounds" how far they lie apart,
(most - least) / median. Calibrations are spread over the rounds, and the least of their predictions counts, for
the same reason.
What a neighbour does may last for an hour: --join adds the rounds that a run of another hour saved.
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
SETTLED = 0.03
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

    def predict(self, words):
        """Of a question's answer, which becomes plan.yaml."""
        return json.loads(self.run('plan', *words, '--json', '-o', 'plan.yaml'))['chosen']['prediction']

    def train(self, predicted):
        """What was measured of plan.yaml, whose steps are predicted to take so many seconds."""
        steps = WARM_UP + max(3, min(40, round(self.seconds / predicted)))
        self.run('train', 'plan.yaml', '--data', TEXT, '--steps', str(steps), '--measured', 'measured.json')
        with open(os.path.join(self.folder, 'measured.json'), encoding='utf-8') as file:
            return json.load(file)['measurement']


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


def choice_questions():
    """One question without restrictions, and for the best plan of each strategy."""
    question = ['gpt2-nano', 'local', '--gpus', '2', '--seq-len', '128', '--global-batch', '16']
    return {('chosen',): question,
            **{(strategy,): question + ['--strategy', strategy] for strategy in STRATEGIES[2]}}


class Plan:
    """One plan: its prediction by each calibration, its measurement in each round."""

    def __init__(self, words):
        self.words, self.predictions, self.measurements = words, [], []

    def prediction(self):
        return min(self.predictions, key=lambda p: p['step_time_s'])

    def predicted(self):
        return self.prediction()['step_time_s']

    def fastest(self):
        return min(self.measurements, key=lambda m: m['step_time_p50_s'])

    def measured(self):
        return self.fastest()['step_time_p50_s']

    def middle(self):
        return statistics.median(m['step_time_p50_s'] for m in self.measurements)

    def error(self):
        return self.predicted() / self.measured() - 1

    def error_of(self, part):
        predicted, measured = self.prediction()['time_s'][part], self.fastest()['time_s'][part]
        return percent(predicted / measured - 1) if measured > 0 else ''

    def is_settled(self):
        """Whether nobody disturbed its fastest round: another one was as fast."""
        times = sorted(m['step_time_p50_s'] for m in self.measurements)
        return len(times) > 1 and times[1] < times[0] * (1 + SETTLED)

    def apart(self):
        times = [m['step_time_p50_s'] for m in self.measurements]
        return f'{100 * (max(times) - min(times)) / statistics.median(times):.0f} %'

    def cells(self):
        return [f'{1e3 * self.predicted():.1f} ms', f'{1e3 * self.measured():.1f} ms', percent(self.error())]


def percent(ratio):
    return f'{100 * ratio:+.1f} %'


def print_cases(plans):
    """Relative errors of the step time."""
    print_row(['model', 'ranks', 'strategy', 'wrap', 'checkpointing', 'batch', 'dtype', 'predicted', 'measured',
               'error', 'of compute', 'of optimizer', 'median', 'rounds'])
    print_row(['---'] * 14)
    for name, plan in plans.items():
        print_row([*name, *plan.cells(), *(plan.error_of(part) for part in PARTS), f'{1e3 * plan.middle():.1f} ms',
                   plan.apart()])


def share(plans):
    """Questions with one answer are one plan, whose measurements are everybody's. A later calibration may have chosen
    another plan than an earlier one: a question's plan is its last, and what was measured of others does not count."""
    everything = [measured for plan in plans.values() for measured in plan.measurements]
    for plan in plans.values():
        schedule, plan.measurements = plan.predictions[-1]['schedule_digest'], []
        plan.predictions = [p for p in plan.predictions if p['schedule_digest'] == schedule]
        for measured in everything:
            if measured['schedule_digest'] == schedule and measured not in plan.measurements:
                plan.measurements.append(measured)


def join(plans, path):
    """Rounds of another hour. Their calibrations do not count."""
    with open(path, encoding='utf-8') as file:
        for name, _, measurements in json.load(file):
            if tuple(name) in plans:
                plans[tuple(name)].measurements += measurements


def print_choice(plans):
    """How much longer the chosen plan took than the fastest measured one."""
    print()
    print_row(['the best plan of', 'predicted', 'measured', 'error', 'median', 'rounds'])
    print_row(['---'] * 6)
    for name, plan in plans.items():
        print_row([*name, *plan.cells(), f'{1e3 * plan.middle():.1f} ms', plan.apart()])
    return plans[('chosen',)].measured() / min(plan.measured() for plan in plans.values()) - 1


class Cores:
    """What the cores do: seconds of all processes, of the host's other guests, and of this bench."""

    def __init__(self):
        self.begun, self.before = time.monotonic(), self.now()

    @staticmethod
    def now():
        with open('/proc/stat', encoding='utf-8') as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        ours = sum(os.times()[:4])
        return (user + nice + system + irq + softirq) / os.sysconf('SC_CLK_TCK'), steal / os.sysconf('SC_CLK_TCK'), ours

    def elsewhere(self):
        """Percent of the cores that others had since the beginning, and that the host did not give."""
        all_of_it, steal, ours = (now - before for now, before in zip(self.now(), self.before))
        cores = (time.monotonic() - self.begun) * os.cpu_count() / 100
        return max(0, all_of_it - ours) / cores, steal / cores


def calibrate(bench, options, number):
    """Seconds of the calibration before a round, if there is one."""
    every = max(1, options.rounds // options.calibrations)
    known = os.path.exists(os.path.join(bench.folder, 'shardplan', 'local.yaml'))
    if number % every or number // every >= options.calibrations or (known and number == 0):
        return 0
    begun = time.monotonic()
    bench.calibrate(options.quick)
    return time.monotonic() - begun


def run_round(bench, plans):
    """Trains every plan for a moment, once if it answers several questions; what this machine cannot train is left
    out for good."""
    trained = {}
    for name, plan in list(plans.items()):
        try:
            predicted = bench.predict(plan.words)
            schedule = predicted['schedule_digest']
            if schedule not in trained:
                trained[schedule] = bench.train(predicted['step_time_s'])
        except RuntimeError as reason:
            print(f'{" ".join(map(str, name))}: {reason}', file=sys.stderr)
            del plans[name]
            continue
        plan.predictions.append(predicted)
        plan.measurements.append(trained[schedule])


def save(path, plans):
    if path:
        with open(path, 'w', encoding='utf-8') as file:
            json.dump([[name, plan.predictions, plan.measurements] for name, plan in plans.items()], file)


def run_rounds(bench, options, plans):
    """Seconds of calibration."""
    seconds = 0
    for number in range(options.rounds):
        seconds += calibrate(bench, options, number)
        run_round(bench, plans)
        save(options.save, plans)
    for number in range(options.rounds):
        run_round(bench, {name: plan for name, plan in plans.items() if not plan.is_settled()})
        save(options.save, plans)
    return seconds


def at_least_one(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('expected 1 or more')
    return number


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('program')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--cases', type=at_least_one, default=20)
    parser.add_argument('--calibrations', type=at_least_one, default=2)
    parser.add_argument('--rounds', type=at_least_one, default=6)
    parser.add_argument('--seconds', type=float, default=1, help='of training, for each configuration and round')
    parser.add_argument('--keep', help='folder of an earlier run: its calibration is used again')
    parser.add_argument('--quick', action='store_true', help='calibrate --quick')
    parser.add_argument('--save', help='everything that was predicted and measured, as JSON')
    parser.add_argument('--join', action='append', default=[], metavar='FILE', help='count its measured rounds too')
    return parser.parse_args()


def main():
    options = parse_options()
    started, load, cores = time.monotonic(), os.getloadavg()[0], Cores()
    cases = {name: Plan(words) for name, words in draw_cases(options).items()}
    choice = {name: Plan(words) for name, words in choice_questions().items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(options.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        everything = {**cases, **choice}
        calibrated = run_rounds(Bench(options, folder), options, everything)
    for path in options.join:
        join(everything, path)
    share(everything)
    cases = {name: plan for name, plan in cases.items() if name in everything}
    print_cases(cases)
    behind = print_choice({name: plan for name, plan in choice.items() if name in everything})
    errors = [plan.error() for plan in cases.values()]
    sizes = sorted(abs(error) for error in errors)
    print(f'\n{sum(size <= 0.1 for size in sizes)} of {len(sizes)} step times within 10 %; error: median '
          f'{100 * statistics.median(sizes):.1f} %, largest {100 * sizes[-1]:.1f} %, mean with sign '
          f'{100 * statistics.mean(errors):+.1f} %. Of the median over the rounds: '
          f'{sum(abs(plan.predicted() / plan.middle() - 1) <= 0.1 for plan in cases.values())} within 10 %.')
    print(f'The chosen plan took {100 * behind:.1f} % longer than the fastest measured one.')
    others, steal = cores.elsewhere()
    print(f'Seed {options.seed}, {options.rounds} rounds and up to as many more, {options.calibrations} calibrations '
          f'in {calibrated:.0f} s, {time.monotonic() - started:.0f} s in all, load {load:.1f} at the start and '
          f'{os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores, of which other processes took '
          f'{others:.1f} % and the host {steal:.1f} %.')


if __name__ == '__main__':
    main()
