"""PyTorch on one GPU beside its predictions: rows.csv (step time and memory) and retries.csv (the allocator at a limit).

    table.py predict SHARDPLAN [--topology NAME]   writes bench/results/torch-predicted.csv
    table.py measure [--minutes N] [--device cuda|cpu] [--rows LIST] [--steps N] [--only CASE,...] [--measured FILE]
                     adds to build/gpu/torch-measured.csv what is not there yet
    table.py judge [--rows LIST] [--measured FILE]
                     both side by side, and the bars

Predictions come first, and are committed: `measure` writes the digest of the file of predictions beside each row, and
`judge` refuses rows of another. Nothing of a measurement is read by `predict`. `measure` needs PyTorch and a GPU, and no
more of shardplan than this folder, bench/train and bench/results/torch-predicted.csv.

Bars: step time, median of |predicted / measured - 1| at most 3 %; allocated memory, median at most 1 %; no row fits that
was said not to, or the other way round; of all pairs of measured steps that are more than 3 % apart, the order is right;
retries: as many a step, and the reserved bytes within 3 %.
"""

import argparse
import csv
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PREDICTED = os.path.join(HERE, '..', 'results', 'torch-predicted.csv')
MEASURED = os.path.join(HERE, '..', '..', 'build', 'gpu', 'torch-measured.csv')
LISTS = ['rows.csv', 'retries.csv']
# Llama-2-7B's shape with fewer layers, which fit one GPU.
LAYERS = {'llama-7b-4l': 4, 'llama-7b-8l': 8}
PREDICTIONS = ['case', 'fits', 'step_time_s', 'step_time_low_s', 'step_time_high_s', 'peak_allocated_bytes',
               'peak_reserved_bytes', 'overhead_bytes', 'fraction_bytes', 'allocator_retries', 'allocator_s', 'version']
MEASUREMENTS = ['case', 'outcome', 'step_time_s', 'allocated_bytes', 'reserved_bytes', 'retries_a_step', 'gpu', 'torch',
                'predictions', 'said']
STEP_BAR, MEMORY_BAR, PAIR, RETRY_BAR = 0.03, 0.01, 0.03, 0.03
WARM_UP = 5


def read(path):
    with open(path, encoding='utf-8', newline='') as file:
        return list(csv.DictReader(file))


def write(path, columns, rows):
    with open(path, 'w', encoding='utf-8', newline='') as file:
        writer = csv.DictWriter(file, columns, lineterminator='\n', restval='')
        writer.writeheader()
        writer.writerows(rows)


# --- predictions ---

def run(program, *words):
    done = subprocess.run([program, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          env=dict(os.environ, LC_ALL='C'))
    # 1 is the answer that it does not fit.
    if done.returncode not in (0, 1):
        sys.exit(f'{" ".join(words)}: exit {done.returncode}: {done.stderr.strip()}')
    return done.stdout


def model_file(program, name, folder):
    if name not in LAYERS:
        return name
    path = os.path.join(folder, name + '.yaml')
    lines = run(program, 'models', 'show', 'llama-2-7b').splitlines()
    with open(path, 'w', encoding='utf-8') as file:
        for line in lines:
            key = line.split(':')[0]
            file.write({'layers': f'layers: {LAYERS[name]}', 'name': f'name: {name}'}.get(key, line) + '\n')
    return path


def predict_row(program, row, topology, folder):
    words = [model_file(program, row['model'], folder), topology, '--gpus', '1', '--json']
    for key, value in row.items():
        if key not in ('case', 'model') and value:
            words += ['--' + key.replace('_', '-'), value]
    document = json.loads(run(program, 'predict', *words))
    p = document['prediction']
    # What a process has beside its allocator: context and libraries.
    overhead, interval = p['peak_memory_bytes'] - p['peak_reserved_bytes'], p['uncertainty']
    return {'case': row['case'], 'fits': p['fits'], 'step_time_s': f"{p['step_time_s']:.6g}",
            'step_time_low_s': f"{interval['step_time_low_s']:.6g}",
            'step_time_high_s': f"{interval['step_time_high_s']:.6g}",
            'peak_allocated_bytes': p['peak_allocated_bytes'], 'peak_reserved_bytes': p['peak_reserved_bytes'],
            'overhead_bytes': overhead, 'allocator_retries': p.get('allocator_retries', 0),
            'allocator_s': f"{p['time_s'].get('allocator', 0):.6g}", 'version': document['version']}


def predict(options):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in LISTS:
            for row in read(os.path.join(HERE, name)):
                rows.append(predict_row(os.path.abspath(options.program), row, options.topology, folder))
                if row.get('memory_limit'):
                    rows[-1]['fraction_bytes'] = int(row['memory_limit']) - rows[-1]['overhead_bytes']
    write(PREDICTED, PREDICTIONS, rows)
    print(f'{len(rows)} predictions in {os.path.relpath(PREDICTED)}')


# --- measurements ---

def digest():
    with open(PREDICTED, 'rb') as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def is_committed():
    """True too where there is no git, as in a folder of `scripts/gpu --pack`."""
    done = subprocess.run(['git', 'status', '--porcelain', '--', PREDICTED], cwd=HERE, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.returncode != 0 or not done.stdout.strip()


def outcome_of(report, steps):
    if 'short' in report:
        return {'outcome': 'no', 'said': report['short'][:200]}
    if len(report['seconds']) < steps:
        return {'outcome': 'failed', 'said': 'steps are missing'}
    return {'outcome': 'yes', 'step_time_s': f"{statistics.median(report['seconds'][min(WARM_UP, steps - 1):]):.6g}",
            'allocated_bytes': report['allocated_bytes'],
            'reserved_bytes': max(report['reserved_bytes'], report['reserved_later_bytes']),
            'retries_a_step': f"{report['retries_a_step']:.4g}"}


def measure_row(row, options, seconds):
    try:
        done = subprocess.run([sys.executable, os.path.join(HERE, 'torch_step.py'), json.dumps(row), '--device',
                               options.device, '--steps', str(options.steps)], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {'outcome': 'failed', 'said': f'not ready after {seconds:.0f} s'}
    lines = [line for line in done.stdout.splitlines() if line.startswith('{')]
    if done.returncode != 0 or not lines:
        said = (done.stderr.strip() or 'nothing').splitlines()[-1]
        return {'outcome': 'failed', 'said': f'exit {done.returncode}: {said}'[:200]}
    report = json.loads(lines[-1])
    return {**outcome_of(report, options.steps), 'gpu': report.get('gpu', options.device), 'torch': report['version']}


def measure(options):
    if not is_committed():
        sys.exit('the predictions are not committed: they come first')
    known = {p['case']: p for p in read(PREDICTED)}
    rows = [row for name in options.rows or LISTS for row in read(os.path.join(HERE, name))]
    wanted = options.only.split(',') if options.only else [row['case'] for row in rows]
    done = read(options.measured) if os.path.exists(options.measured) else []
    # A row that failed is tried again.
    done = [d for d in done if d['outcome'] != 'failed' and d['predictions'] == digest()]
    there, end = {d['case'] for d in done}, time.monotonic() + 60 * options.minutes
    os.makedirs(os.path.dirname(os.path.abspath(options.measured)), exist_ok=True)
    for row in rows:
        left = end - time.monotonic()
        if row['case'] not in wanted or row['case'] in there or left < 10:
            continue
        row['fraction_bytes'] = known[row['case']]['fraction_bytes'] if row['case'] in known else ''
        done.append({'case': row['case'], **measure_row(row, options, min(left, 240)), 'predictions': digest()})
        write(options.measured, MEASUREMENTS, done)
        print(row['case'], done[-1]['outcome'], done[-1].get('step_time_s', ''), done[-1].get('said', ''), flush=True)
    missing = len({row['case'] for row in rows} & set(wanted)) - len(done)
    print(f'{len(done)} rows in {os.path.relpath(options.measured)}' + (f', {missing} are left' if missing > 0 else ''))


# --- side by side ---

def order(pairs):
    """How many pairs of measured steps more than PAIR apart are predicted in the same order, and how many there are."""
    right = total = 0
    for (_, p, m), (_, q, n) in itertools.combinations(pairs, 2):
        if max(m, n) <= (1 + PAIR) * min(m, n):
            continue
        total += 1
        right += (p < q) == (m < n)
    return right, total


def errors_of(name, values, bar):
    if not values:
        return f'{name}: nothing to compare'
    middle = statistics.median(abs(v) for v in values)
    return (f'{name}: n {len(values)}, median error {100 * middle:.1f} % (bar {100 * bar:.0f}), bias '
            f'{100 * statistics.median(values):+.1f} %: {"met" if middle <= bar else "missed"}')


def ratio(predicted, measured):
    return float(predicted) / float(measured) - 1


def judge_list(name, rows, known, found):
    """Lines of one list; False where a bar is missed."""
    pairs, steps, allocated, reserved, wrong = [], [], [], [], []
    print(f'{name}: {"case":6} {"step":>9} {"measured":>9} {"error":>8} {"allocated":>10} {"reserved":>10}  fits')
    for row in rows:
        p, m = known[row['case']], found.get(row['case'])
        if m is None or m['outcome'] == 'failed':
            continue
        fits = p['fits'] != 'no'
        if fits != (m['outcome'] == 'yes'):
            wrong.append(row['case'])
        if m['outcome'] != 'yes':
            print(f"{'':{len(name)}}  {row['case']:6} {'':>51}  predicted {p['fits']}, measured no")
            continue
        # At a limit no more can be reserved; what is predicted is what the allocator would like to have.
        wanted = min(int(p['peak_reserved_bytes']), int(p['fraction_bytes'] or p['peak_reserved_bytes']))
        step, memory, held = (ratio(value, m[other]) if float(m[other] or 0) else float('nan') for value, other in (
            (p['step_time_s'], 'step_time_s'), (p['peak_allocated_bytes'], 'allocated_bytes'), (wanted, 'reserved_bytes')))
        print(f"{'':{len(name)}}  {row['case']:6} {float(p['step_time_s']):9.4f} {float(m['step_time_s']):9.4f} "
              f"{100 * step:+7.1f}% {100 * memory:+9.2f}% {100 * held:+9.2f}%  {p['fits']}, retries "
              f"{p['allocator_retries']} / {m['retries_a_step']}")
        if fits:
            pairs.append((row['case'], float(p['step_time_s']), float(m['step_time_s'])))
            steps.append(step)
            allocated += [memory] if memory == memory else []
            reserved += [held] if held == held else []
    right, total = order(pairs)
    print(errors_of('step time', steps, STEP_BAR))
    print(errors_of('allocated', allocated, MEMORY_BAR))
    print(errors_of('reserved', reserved, RETRY_BAR))
    print(f'pairs more than {100 * PAIR:.0f} % apart in the right order: {right} of {total}; '
          f'misjudged whether they fit: {", ".join(wrong) or "none"}; {len(rows) - len(steps)} of {len(rows)} rows lack a step')


def judge(options):
    known = {p['case']: p for p in read(PREDICTED)}
    found = {m['case']: m for m in read(options.measured)}
    stale = [m for m in found.values() if m['predictions'] != digest()]
    if stale:
        sys.exit(f'{len(stale)} rows were measured beside other predictions: measure them again')
    for name in options.rows or LISTS:
        judge_list(name, read(os.path.join(HERE, name)), known, found)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    one = commands.add_parser('predict')
    one.add_argument('program')
    one.add_argument('--topology', default='dgx-h100')
    two = commands.add_parser('measure')
    two.add_argument('--minutes', type=float, default=60)
    two.add_argument('--device', default='cuda')
    two.add_argument('--only', default='')
    two.add_argument('--steps', type=int, default=20)
    for command in two, commands.add_parser('judge'):
        command.add_argument('--rows', action='append', choices=LISTS, help='both, if not given')
        command.add_argument('--measured', default=MEASURED)
    options = parser.parse_args(words)
    {'predict': predict, 'measure': measure, 'judge': judge}[options.command](options)


if __name__ == '__main__':
    main()
