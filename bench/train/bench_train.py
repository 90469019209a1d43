"""Tokens per second and core of training on one core, beside PyTorch's in the same run.

    bench_train.py SHARDPLAN [--python PYTHON] [--repeat N] [--steps N] [--only NAME] [--dtype fp32|bf16]

SHARDPLAN is the program, PYTHON an interpreter that has torch (default: this one; without torch only our column is
printed). Every trainer is pinned to one CPU, one after the other, and the whole set is repeated. Figures are per second
of CPU time of that core, which other work on the machine changes little; tokens per second of wall time stand beside.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, '..', '..', 'data', 'paradise-lost.txt')
# name, model, layers, hidden, heads, batch, tokens, tokens/s and core that are expected of an AVX-512 core
CASES = [('30M', os.path.join(HERE, 'gpt2-30m.yaml'), 6, 384, 6, 4, 256, {'fp32': 450, 'bf16': 700}),
         ('124M', 'gpt2-124m', 12, 768, 12, 4, 64, {'fp32': 120})]
WARM_UP = 2


def pin():
    os.sched_setaffinity(0, {CORE})


def cpu_seconds(pid):
    """Of a process and all below it: threads that are alive."""
    total = 0
    try:
        for task in os.listdir(f'/proc/{pid}/task'):
            with open(f'/proc/{pid}/task/{task}/schedstat') as file:
                total += int(file.read().split()[0])
            with open(f'/proc/{pid}/task/{task}/children') as file:
                total += sum(cpu_seconds(int(child)) * 1e9 for child in file.read().split())
    except FileNotFoundError:
        pass
    return total / 1e9


def ours(program, case, dtype, steps):
    """CPU and wall seconds of each step after the warm-up."""
    _, model, _, _, _, batch, tokens, _ = case
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, 'plan.yaml')
        subprocess.run([program, 'plan', model, 'local', '--gpus', '1', '--strategy', 'NO_SHARD', '--seq-len',
                        str(tokens), '--micro-batch', str(batch), '--activation-checkpointing', 'none',
                        '--param-dtype', dtype, '-o', plan], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, preexec_fn=pin)
        train = subprocess.Popen([program, 'train', plan, '--data', TEXT, '--steps', str(steps), '--json-lines',
                                  '--measured', os.path.join(folder, 'measured.json')],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=pin)
        marks, walls = [], []
        for line in train.stdout:
            record = json.loads(line)
            if 'step_time_s' in record:
                marks.append(cpu_seconds(train.pid))
                walls.append(record['step_time_s'])
        if train.wait() != 0:
            sys.exit(f'bench_train: {train.stderr.read().strip()}')
    # The reading comes late where the machine is busy: the mean over the steps is what counts. The last reading
    # may come when the rank has gone.
    span = len(marks) - WARM_UP - 1
    return (marks[-2] - marks[WARM_UP - 1]) / span, statistics.mean(walls[WARM_UP:])


def theirs(python, case, dtype, steps):
    _, _, layers, hidden, heads, batch, tokens, _ = case
    arguments = map(str, (layers, hidden, heads, batch, tokens, dtype, steps, 1))
    done = subprocess.run([python, os.path.join(HERE, 'torch_train.py'), *arguments], capture_output=True, text=True,
                          preexec_fn=pin)
    if done.returncode != 0:
        sys.exit(f'bench_train: {done.stderr.strip()}')
    records = [json.loads(line) for line in done.stdout.splitlines()][WARM_UP:]
    return statistics.mean(r['cpu_s'] for r in records), statistics.mean(r['wall_s'] for r in records), \
        records[0]['version']


def spread(values):
    return f'{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})'


def measure(options, case, dtype, table):
    """One repetition of one case: a pair of rates, ours and theirs."""
    tokens = case[5] * case[6]
    cpu, wall = ours(options.program, case, dtype, options.steps)
    row = table.setdefault((case[0], dtype), {'ours': [], 'wall': [], 'theirs': [], 'ratio': []})
    row['ours'].append(tokens / cpu)
    row['wall'].append(tokens / wall)
    reference = options.torch and theirs(options.python, case, dtype, options.steps)
    if reference:
        row['theirs'].append(tokens / reference[0])
        row['ratio'].append(reference[0] / cpu)
        options.version = reference[2]


def print_table(table):
    print('| model | dtype | tokens/s per core: median (least-most) | by wall time | PyTorch | ours / PyTorch | '
          'bar | |')
    print('|---|---|---|---|---|---|---|---|')
    for case in CASES:
        for dtype in ('fp32', 'bf16'):
            row = table.get((case[0], dtype))
            if not row:
                continue
            bar, best = case[7].get(dtype), statistics.median(row['ours'])
            ratio = statistics.median(row['ratio']) if row['ratio'] else None
            verdict = '' if not bar else 'reached' if best >= bar or (ratio and ratio >= 1.4) else 'missed'
            print(f"| {case[0]} (B{case[5]} T{case[6]}) | {dtype} | {spread(row['ours'])} | {spread(row['wall'])} | "
                  f"{spread(row['theirs']) if ratio else '-'} | {f'{ratio:.2f}' if ratio else '-'} | "
                  f"{f'{bar} or 1.4x' if bar else '-'} | {verdict} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program')
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--repeat', type=int, default=5)
    parser.add_argument('--steps', type=int, default=7)
    parser.add_argument('--only', choices=[case[0] for case in CASES])
    parser.add_argument('--dtype', choices=['fp32', 'bf16'])
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    options.torch = subprocess.run([options.python, '-c', 'import torch'], capture_output=True).returncode == 0
    options.version = ''
    table = {}
    loads = [os.getloadavg()[0]]
    for _ in range(options.repeat):
        for case in CASES:
            for dtype in ('fp32', 'bf16'):
                if options.only in (None, case[0]) and options.dtype in (None, dtype):
                    measure(options, case, dtype, table)
        loads.append(os.getloadavg()[0])
    print_table(table)
    print(f"\n{options.repeat} repetitions of {options.steps - WARM_UP} steps on CPU {CORE}, load {min(loads):.1f} to "
          f"{max(loads):.1f}; " + (f'PyTorch {options.version}, eager, bf16 by autocast' if options.torch else
                                   f'no reference: {options.python} has no torch'))


CORE = max(os.sched_getaffinity(0))

if __name__ == '__main__':
    main()
