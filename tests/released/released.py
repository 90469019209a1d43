"""Exports judged by the released frameworks: released.py BINARY [PART]

RELEASED_FRAMEWORKS names the folder that `environment` made; without it there is nothing to do (77).
PART is `accept` (every target's own parser, on plans for two nodes) or `run` (the PyTorch scripts,
with gloo); both without it."""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
PLANS = [
    [],
    ['--strategy', 'SHARD_GRAD_OP', '--activation-checkpointing', 'full'],
    ['--strategy', 'HYBRID_SHARD'],
    ['--strategy', 'NO_SHARD', '--memory-limit', '900GiB'],
    ['--runtime', 'pytorch-fsdp1', '--strategy', 'HYBRID_SHARD_ZERO2', '--prefetch', 'post'],
    ['--wrap', 'size:100000000', '--clip', '1', '--grad-accum', '2'],
    ['--cpu-offload', 'parameters', '--clip', '0', '--compile', 'on'],
    ['--param-dtype', 'fp32', '--optimizer', 'adamw-fused', '--activation-checkpointing',
     'selective', '--reshard-after-forward', '8'],
]
RANKS = 16
MODELS = ['llama-3.1-8b', 'llama-3.1-70b']  # torchtitan splits its own larger one by tensors
TARGETS = {  # with the folder of its package, where that is none of the environment's own
    'accelerate': '', 'accelerate-fsdp1': '', 'trl': '', 'accelerate-deepspeed': 'deepspeed-0.19.8',
    'hf-trainer': '', 'hf-trainer-fsdp1': '', 'axolotl': '',
    'deepspeed': 'deepspeed-0.19.8', 'deepspeed@0.19.4': 'deepspeed-0.19.4',
    'torchtitan': 'torchtitan-0.3.0', 'torchtitan-flags': 'torchtitan-0.3.0',
    'torchtitan-toml': 'torchtitan-0.2.2',
}
LAYERS = 6
SMALL = ['gpt2-nano', 'llama-nano']  # a shared head, and none
RUNS = [
    (0, 2, ['--strategy', 'FULL_SHARD']),
    (0, 2, ['--strategy', 'NO_SHARD']),
    (0, 2, ['--strategy', 'SHARD_GRAD_OP', '--grad-accum', '2', '--sync-each-micro-batch', 'off']),
    (1, 2, ['--strategy', 'FULL_SHARD', '--activation-checkpointing', 'full', '--wrap',
            'block+embedding+head', '--reshard-after-forward', '7xtrue+1xfalse']),
    (1, 2, ['--wrap', 'blocks:2', '--reshard-after-forward', 'all', '--param-dtype', 'bf16',
            '--reduce-dtype', 'fp32', '--grad-accum', '2']),
    (1, 4, ['--strategy', 'HYBRID_SHARD', '--shard-group', '2', '--activation-checkpointing',
            '2xfull+4xnone']),
    (1, 4, ['--strategy', 'FULL_SHARD', '--reshard-after-forward', '2']),
    (1, 2, ['--wrap', 'size:500000', '--forward-prefetch', 'on']),
    (0, 2, ['--runtime', 'pytorch-fsdp1', '--strategy', 'FULL_SHARD']),
    (0, 2, ['--runtime', 'pytorch-fsdp1', '--strategy', 'NO_SHARD']),
    (1, 2, ['--runtime', 'pytorch-fsdp1', '--strategy', 'SHARD_GRAD_OP', '--prefetch', 'post',
            '--grad-accum', '2', '--sync-each-micro-batch', 'off']),
    (1, 4, ['--runtime', 'pytorch-fsdp1', '--strategy', 'HYBRID_SHARD_ZERO2', '--shard-group',
            '2']),
    (1, 2, ['--runtime', 'pytorch-fsdp1', '--wrap', 'size:500000', '--activation-checkpointing',
            'full']),
]
COLLECTIVES = ('all_gather', 'reduce_scatter', 'all_reduce')


def last(text):
    lines = [line for line in text.strip().split('\n') if 'Error' in line] or text.split('\n')
    return lines[-1][:200]


class Bench:
    def __init__(self, binary, environment, folder):
        self.binary, self.folder = os.path.abspath(binary), folder
        self.environment = os.path.abspath(environment)
        self.failures = 0

    def go(self, *words):
        result = subprocess.run([self.binary, *words], cwd=self.folder, text=True,
                                capture_output=True)
        if result.returncode not in (0, 1):
            raise SystemExit(f'shardplan {" ".join(words)}: {result.stderr}')
        return result

    def python(self, words, package='', limit=300):
        variables = dict(os.environ, OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES='',
                         PYTHONPATH=f'{self.environment}/{package}' if package else '')
        return subprocess.run([f'{self.environment}/bin/python', *words], cwd=self.folder,
                              env=variables, text=True, capture_output=True, timeout=limit)

    def judge(self, ok, *words):
        self.failures += not ok
        print('ok  ' if ok else 'FAIL', *words, flush=True)


def exported(bench, name):
    """Its file of every plan."""
    target, _, version = name.partition('@')
    paths = []
    for number in range(len(PLANS)):
        folder = pathlib.Path(bench.folder) / name
        folder.mkdir(exist_ok=True)
        ending = {'torchtitan': 'py', 'torchtitan-toml': 'toml', 'torchtitan-flags': 'args'}.get(
            target, 'json' if target in ('hf-trainer', 'hf-trainer-fsdp1', 'deepspeed') else 'yaml')
        paths.append(str(folder / f'plan{number}.{ending}'))
        bench.go('export', f'{number}.yaml', '--to', target, '-o', paths[-1],
                 *(['--for-version', version] if version else []))
    planted = folder / f'planted.{ending}'
    planted.write_text('{\n')
    return [*paths, str(planted)]


def misunderstood(options, line):
    """What the framework took otherwise than the plan; a plan without a clip leaves it."""
    found, wrong = json.loads(line.partition(' ')[2]), []
    given = dict(zip(options[::2], options[1::2]))
    clip = float(given.get('--clip', 1)) or float('inf')
    if found.get('clip') is not None and (found['clip'] or float('inf')) != clip:
        wrong.append(f'clip {found["clip"]}')
    if found.get('ranks', RANKS) != RANKS:
        wrong.append(f'{found["ranks"]} ranks')
    strategy = given.get('--strategy', 'FULL_SHARD')
    if found.get('strategy', strategy).lstrip('_') != strategy:
        wrong.append(f'strategy {found["strategy"]}')
    return wrong


def accept(bench):
    for number, options in enumerate(PLANS):
        model = MODELS[number % len(MODELS)]
        bench.go('predict', model, '2xdgx-h100', *options, '-o', f'{number}.yaml')
    for name, package in TARGETS.items():
        words = [str(HERE / 'accept.py'), name.partition('@')[0], str(RANKS), *exported(bench, name)]
        result = bench.python(words, package)
        lines = [line for line in result.stdout.split('\n')
                 if line.startswith(('understood ', 'refused '))]
        accepted = [line for line in lines[:len(PLANS)] if line.startswith('understood')]
        wrong = [word for options, line in zip(PLANS, lines) if line in accepted
                 for word in misunderstood(options, line)]
        planted = lines[len(PLANS):] and lines[-1].startswith('refused')
        bench.judge(len(accepted) == len(PLANS) and not wrong and planted,
                    f'{name}: {len(accepted)} of {len(PLANS)} accepted', *wrong)
        for options, line in zip(PLANS, lines or [last(result.stderr)] * len(PLANS)):
            print('   ', ' '.join(options) or '(defaults)', '|', line, flush=True)


def planned(bench):
    document = json.loads(bench.go('explain', 'plan.yaml', '--json').stdout)
    lines = bench.go('explain', 'plan.yaml', '--view', 'schedule').stdout.split('\n')
    numbers = [int(line.split(' parameters=')[1].split()[0]) for line in lines
               if line.startswith('unit ')]
    checkpointing = document['plan']['activation_checkpointing']
    runs = [run.partition('x') for run in checkpointing.split('+')]
    wanted = {
        'checkpointed': sum((int(run[0]) if run[1] else LAYERS) for run in runs
                            if (run[2] or run[0]) != 'none'),
        'units': sum(n > 0 for n in numbers), 'parameters': sum(numbers),
        'collectives': sorted(f'{o["kind"]} {o["bytes"]}' for o in document['operations']
                              if o['kind'] in COLLECTIVES)}
    if document['plan']['strategy'] == 'NO_SHARD':
        del wanted['units']
    return wanted


def prepared(bench, number):
    """Plan and script of a run; its title, its job and what must be seen."""
    model, ranks, options = RUNS[number]
    target = 'pytorch-fsdp1' if 'pytorch-fsdp1' in options else 'pytorch'
    if 'NO_SHARD' in options:
        options = ['--strategy', 'NO_SHARD', '--runtime', 'pytorch-ddp']
    elif '--runtime' not in options:
        options = ['--runtime', 'pytorch-fsdp2', *options]
    bench.go('predict', SMALL[model], 'local', '--gpus', str(ranks), '--seq-len', '16', *options,
             '-o', 'plan.yaml')
    script, output = (str(pathlib.Path(bench.folder) / f'run{number}.{end}')
                      for end in ('py', 'json'))
    bench.go('export', 'plan.yaml', '--to', target, '-o', script)
    return (f'{SMALL[model]}, {ranks} ranks, {target}: {" ".join(options)}',
            {'script': script, 'output': output, 'ranks': ranks}, planned(bench))


def run(bench):
    runs = [prepared(bench, number) for number in range(len(RUNS))]
    jobs = pathlib.Path(bench.folder) / 'jobs.json'
    jobs.write_text(json.dumps([job for _, job, _ in runs]))
    result = bench.python([str(HERE / 'observe.py'), str(jobs)], limit=1500)
    for title, job, wanted in runs:
        output = pathlib.Path(job['output'])
        if not output.exists():
            bench.judge(False, title, last(result.stderr))
            continue
        seen = json.loads(output.read_text())
        wrong = [f'{key}: {difference(seen.get(key), value)}' for key, value in wanted.items()
                 if seen.get(key) != value]
        bench.judge(not wrong, title, *wrong)


def difference(seen, wanted):
    if not isinstance(wanted, list):
        return f'{seen}, the plan has {wanted}'
    left, right = collections.Counter(seen), collections.Counter(wanted)
    return f'only there {dict(left - right)}, only in the plan {dict(right - left)}'


def main():
    environment = os.environ.get('RELEASED_FRAMEWORKS')
    if not environment:
        print('RELEASED_FRAMEWORKS is not set: nothing to judge with')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(sys.argv[1], environment, folder)
        for part in (accept, run):
            if sys.argv[2:] in ([], [part.__name__]):
                part(bench)
    return bench.failures > 0


if __name__ == '__main__':
    sys.exit(main())
