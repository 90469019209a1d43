"""Predicted and measured step times on this machine, of configurations that no calibration has seen.

    predictions.py SHARDPLAN SEED [--cases N] [--questions N] [--rounds N] [--seconds S] [--keep FOLDER]
                   [--quick] [--save FILE]

As a user does it: this machine is calibrated once, into a folder of its own. SEED draws configurations (model, strategy,
wrap, checkpointing, micro-batch, accumulation, dtype, one or two ranks); each is predicted and trained once, for some
seconds, and the median of its steps is held against the prediction. Then SEED draws questions that leave the strategy
open: the answer is trained beside the best plan of every strategy, once each, one after the other: how far the chosen
plan is from the fastest one measured. That is the first figure printed. Plain Python, no other package.

With --rounds everything is trained again, round after round. Beside the first figure then stand the middle of the
rounds, against the same prediction, and the fastest round, against the best case that the prediction names: what a
step takes when nobody else uses the machine. "spread" is how far the rounds lie apart, (most - least) / median.
"machine" is what the yardstick said of a run: seconds of a fixed product over those when the machine was calibrated.
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
THIRTY = os.path.join(HERE, 'gpt2-30m.yaml')
# name -> longest sequence that is drawn
MODELS = {'gpt2-nano': [64, 128, 256], 'llama-nano': [64, 128, 256], THIRTY: [64, 128, 256], 'gpt2-124m': [32, 64, 128]}
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
        """Seconds it took, and the fixed product's; those of an earlier run are used again."""
        path, begun = os.path.join(self.folder, 'shardplan', 'local.yaml'), time.monotonic()
        if not os.path.exists(path):
            self.run('calibrate', 'local', *(['--quick'] if quick else []))
        shown = json.loads(self.run('topologies', 'show', 'local', '--json'))
        return time.monotonic() - begun, shown['calibration'].get('yardstick', 0)

    def predict(self, words, path):
        """Of a question's answer, which becomes a file."""
        return json.loads(self.run('plan', *words, '--json', '-o', path))['chosen']['prediction']

    def train(self, path, predicted):
        """What was measured of a plan, whose steps are predicted to take so many seconds."""
        steps = WARM_UP + max(3, min(40, round(self.seconds / predicted)))
        self.run('train', path, '--data', TEXT, '--steps', str(steps), '--measured', 'measured.json')
        with open(os.path.join(self.folder, 'measured.json'), encoding='utf-8') as file:
            measured = json.load(file)['measurement']
        del measured['timeline']
        return measured


# --- what is asked ---

def draw(source):
    """Words of one question that leaves nothing open, and a short name."""
    ranks = source.choice([1, 2])
    model = source.choice(list(MODELS))
    tokens = source.choice(MODELS[model])
    strategy = source.choice(STRATEGIES[ranks])
    micro, accumulate = source.choice([1, 2, 4]), source.choice([1, 1, 2])
    wrap = source.choice(['block', 'model', 'blocks:2'])
    checkpointing = source.choice(['none', 'none', 'selective', 'full'])
    dtype = source.choice(['fp32', 'fp32', 'bf16'])
    words = [model, 'local', '--gpus', str(ranks), '--seq-len', str(tokens), '--strategy', strategy, '--wrap', wrap,
             '--activation-checkpointing', checkpointing, '--micro-batch', str(micro), '--grad-accum',
             str(accumulate), '--param-dtype', dtype]
    return words, (short(model), ranks, strategy, wrap, checkpointing, f'{micro} x {accumulate} x {tokens}', dtype)


def draw_question(source):
    """Words of one question that leaves open how, and a short name. Not the largest model: its steps take seconds."""
    model = source.choice(['gpt2-nano', 'llama-nano', THIRTY])
    tokens, batch = source.choice(MODELS[model][:2]), source.choice([4, 8, 16])
    dtype = source.choice(['fp32', 'bf16'])
    words = [model, 'local', '--gpus', '2', '--seq-len', str(tokens), '--global-batch', str(batch),
             '--param-dtype', dtype]
    return words, f'{short(model)}, {batch} x {tokens}, {dtype}'


def short(model):
    return os.path.basename(model).replace('.yaml', '')


def draw_different(draw_one, source, number):
    """name -> words"""
    drawn = {}
    while len(drawn) < number:
        words, name = draw_one(source)
        drawn.setdefault(name, words)
    return drawn


# --- plans ---

class Plan:
    """One plan: what is predicted of it, and what was measured in each round."""

    def __init__(self, words, path):
        self.words, self.path, self.prediction, self.measurements = words, path, None, []

    def predicted(self):
        return self.prediction['step_time_s']

    def best_case(self):
        """What nobody else's work makes longer, where the calibration says so."""
        return self.prediction['uncertainty'].get('step_time_best_s', self.predicted())

    def once(self):
        return self.measurements[0]['step_time_p50_s']

    def middle(self):
        return statistics.median(m['step_time_p50_s'] for m in self.measurements)

    def fastest(self):
        return min(m['step_time_p50_s'] for m in self.measurements)

    def spread(self):
        times = [m['step_time_p50_s'] for m in self.measurements]
        return (max(times) - min(times)) / statistics.median(times)

    def slower(self, yardstick):
        """The machine in the first run, over that of the calibration; 1 where nobody measured it."""
        first = self.measurements[0]
        if yardstick <= 0 or 'yardstick_before_s' not in first:
            return 1
        return (first['yardstick_before_s'] + first['yardstick_after_s']) / 2 / yardstick

    def is_inside(self, seconds):
        interval = self.prediction['uncertainty']
        return interval['step_time_low_s'] <= seconds <= interval['step_time_high_s']

    def error_of(self, part):
        predicted, measured = self.prediction['time_s'][part], self.measurements[0]['time_s'][part]
        return percent(predicted / measured - 1) if measured > 0 else ''


def predict_all(bench, plans):
    """What this machine cannot train is left out for good."""
    for name, plan in list(plans.items()):
        try:
            plan.prediction = bench.predict(plan.words, plan.path)
        except RuntimeError as reason:
            print(f'{name}: {reason}', file=sys.stderr)
            del plans[name]


def run_round(bench, plans):
    """Trains every plan for a moment, once if it answers several questions."""
    trained = {}
    for plan in plans.values():
        schedule = plan.prediction['schedule_digest']
        if schedule not in trained:
            trained[schedule] = bench.train(plan.path, plan.predicted())
        plan.measurements.append(trained[schedule])


# --- what is told ---

def percent(ratio):
    return f'{100 * ratio:+.1f} %'


def print_row(cells):
    print('| ' + ' | '.join(str(cell) for cell in cells) + ' |', flush=True)


def milliseconds(seconds):
    return f'{1e3 * seconds:.1f} ms'


def print_cases(plans, yardstick):
    columns = ['model', 'ranks', 'strategy', 'wrap', 'checkpointing', 'batch', 'dtype', 'predicted', 'measured', 'error',
               'inside', 'of compute', 'of optimizer', 'machine', 'best case', 'fastest', 'middle', 'spread']
    print_row(columns)
    print_row(['---'] * len(columns))
    for name, plan in plans.items():
        print_row([*name, milliseconds(plan.predicted()), milliseconds(plan.once()),
                   percent(plan.predicted() / plan.once() - 1), 'yes' if plan.is_inside(plan.once()) else 'no',
                   plan.error_of('compute'), plan.error_of('optimizer'), f'{plan.slower(yardstick):.2f}',
                   milliseconds(plan.best_case()), milliseconds(plan.fastest()), milliseconds(plan.middle()),
                   f'{100 * plan.spread():.0f} %'])


def summary(what, pairs):
    """Of (predicted, measured)."""
    errors = [predicted / measured - 1 for predicted, measured in pairs]
    sizes = sorted(abs(error) for error in errors)
    return (f'{what}: median error {100 * statistics.median(sizes):.1f} %, bias {percent(statistics.mean(errors))}, '
            f'{sum(size <= 0.1 for size in sizes)} of {len(sizes)} within 10 %, largest {100 * sizes[-1]:.1f} %')


def behind(plans, measured):
    """How much longer the chosen plan took than the fastest."""
    return measured(plans['chosen']) / min(measured(plan) for plan in plans.values()) - 1


def print_questions(questions):
    print()
    columns = ['question', 'plans: predicted / measured, ms', 'chosen behind', 'of the middle of the rounds']
    print_row(columns)
    print_row(['---'] * len(columns))
    for name, plans in questions.items():
        told = ', '.join(f'{strategy} {1e3 * plan.predicted():.1f} / {1e3 * plan.once():.1f}'
                         for strategy, plan in plans.items())
        print_row([name, told, percent(behind(plans, Plan.once)), percent(behind(plans, Plan.middle))])


def median_behind(questions, measured):
    return f'{100 * statistics.median(behind(plans, measured) for plans in questions.values()):.1f} %'


def user_figure(cases, questions, yardstick):
    """What a user sees: one calibration, one run each."""
    plans = list(cases.values())
    inside = sum(plan.is_inside(plan.once()) for plan in plans)
    lines = [summary('One calibration, one run each', [(plan.predicted(), plan.once()) for plan in plans]) +
             f'; {inside} of {len(plans)} inside the 80 % interval']
    if questions:
        lines.append(f'The chosen plan took {median_behind(questions, Plan.once)} longer than the fastest measured, in '
                     f'the median of {len(questions)} questions')
    lines.append(summary('The same at the machine\'s speed, by the yardstick',
                         [(plan.predicted() * plan.slower(yardstick), plan.once()) for plan in plans]))
    return lines


def rounds_figure(cases, questions, rounds):
    plans = list(cases.values())
    lines = [summary(f'Middle of {rounds} rounds', [(plan.predicted(), plan.middle()) for plan in plans]),
             summary(f'Best of {rounds} rounds, against the best case',
                     [(plan.best_case(), plan.fastest()) for plan in plans])]
    if questions:
        lines.append(f'The chosen plan in the middle of the rounds: {median_behind(questions, Plan.middle)} longer')
    return lines


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


# --- all of it ---

def save(path, cases, questions):
    if not path:
        return
    everything = [[name, plan.prediction, plan.measurements] for name, plan in cases.items()]
    everything += [[[name, strategy], plan.prediction, plan.measurements]
                   for name, plans in questions.items() for strategy, plan in plans.items()]
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(everything, file)


def plans_of_question(words, number):
    """Of the question, and of what it would be with each strategy."""
    asked = {'chosen': [], **{strategy: ['--strategy', strategy] for strategy in STRATEGIES[2]}}
    return {name: Plan(words + more, f'question-{number}-{name}.yaml') for name, more in asked.items()}


def at_least(least):
    def convert(text):
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f'expected {least} or more')
        return number
    return convert


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('program')
    parser.add_argument('seed', type=int, help='of what is drawn: one that was not used before')
    parser.add_argument('--cases', type=at_least(1), default=16)
    parser.add_argument('--questions', type=at_least(0), default=10)
    parser.add_argument('--rounds', type=at_least(1), default=1)
    parser.add_argument('--seconds', type=float, default=1, help='of training, for each configuration and round')
    parser.add_argument('--keep', help='folder of an earlier run: its calibration is used again')
    parser.add_argument('--quick', action='store_true', help='calibrate --quick')
    parser.add_argument('--save', help='everything that was predicted and measured, as JSON')
    return parser.parse_args()


def run(bench, options):
    """Cases and questions, measured; the calibration's seconds and yardstick."""
    source = random.Random(options.seed)
    drawn = draw_different(draw, source, options.cases)
    cases = {name: Plan(words, f'case-{i}.yaml') for i, (name, words) in enumerate(drawn.items())}
    asked = draw_different(draw_question, source, options.questions)
    questions = {name: plans_of_question(words, i) for i, (name, words) in enumerate(asked.items())}
    calibrated = bench.calibrate(options.quick)
    for plans in (cases, *questions.values()):
        predict_all(bench, plans)
    for _ in range(options.rounds):
        for plans in (cases, *questions.values()):
            run_round(bench, plans)
        save(options.save, cases, questions)
    return cases, questions, calibrated


def main():
    options = parse_options()
    started, load, cores = time.monotonic(), os.getloadavg()[0], Cores()
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(options.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        cases, questions, (calibrated, yardstick) = run(Bench(options, folder), options)
    lines = user_figure(cases, questions, yardstick)
    if options.rounds > 1:
        lines += rounds_figure(cases, questions, options.rounds)
    print('\n'.join(f'{line}.' for line in lines) + '\n')
    print_cases(cases, yardstick)
    print_questions(questions)
    others, steal = cores.elsewhere()
    print(f'\nSeed {options.seed}, {options.rounds} rounds, calibrated in {calibrated:.0f} s, '
          f'{time.monotonic() - started:.0f} s in all, load {load:.1f} at the start and {os.getloadavg()[0]:.1f} at the '
          f'end, {os.cpu_count()} cores, of which other processes took {others:.1f} % and the host {steal:.1f} %.')


if __name__ == '__main__':
    main()
