"""scripts/gpu where there is no GPU, and from end to end with a stand-in: an nvidia-smi that lists one, and a
program that plans and trains a small model on the CPU whatever it is asked for.

    gpu_script.py PROGRAM ROOT [slow]       slow: also with two GPUs, beside PyTorch, and with other bits
"""

import os
import shutil
import subprocess
import sys
import tempfile

PROGRAM, ROOT = (os.path.abspath(path) for path in sys.argv[1:3])
# What takes a second of training each matters to the slow run only, which looks at PyTorch's share of the peak.
MODEL = 'gpt2-nano' if sys.argv[3:] == ['slow'] else os.path.join(ROOT, 'tests/cli/data/tiny.yaml')

STAND_IN = f"""#!/bin/sh
# calibrate and train without the GPU, plan of a small model.
real={PROGRAM}
case $1 in
calibrate)
    [ ! -f no-calibration ] || {{ echo "calibrate: the GPU is busy" >&2; exit 4; }}
    "$real" topologies show dgx-h100 >local.txt
    while [ $# -gt 1 ]; do [ "$1" = -o ] && cp local.txt "$2"; shift; done
    echo "bf16 products: 700 TFLOP/s" ;;
plan)
    for word; do last=$word; done
    echo "$*" >>plans-asked
    [ "$2" != gpt2-1.5b ] || [ -f has-room ] || {{ echo "plan: no room" >&2; exit 1; }}
    tokens=32
    # What must not change bits does.
    case "$*" in *SHARD_GRAD_OP*) [ ! -f other-bits ] || tokens=16 ;; esac
    exec "$real" plan {MODEL} local --gpus 1 --global-batch 2 --micro-batch 2 --seq-len $tokens -o "$last" ;;
train)
    plan=$2
    while [ $# -gt 1 ]; do [ "$1" = --measured ] && measured=$2; shift; done
    exec "$real" train "$plan" --data data/paradise-lost.txt --steps 3 --measured "$measured" ;;
*) exec "$real" "$@" ;;
esac
"""

# A python3 whose PyTorch fits half the batch and cannot compile.
PYTHON = f"""#!/bin/sh
case "$*" in
*'import torch'*) exit 0 ;;
*torch_train.py*--compile*) echo 'no compiler' >&2; exit 1 ;;
*torch_train.py*)
    echo "$*" >>torch-was-asked
    echo '{{"wall_s": 9, "batch": 2, "memory_bytes": 0, "version": "2"}}'
    for step in 1 2 3 4 5 6 7; do
        echo '{{"wall_s": 0.5, "batch": 1, "memory_bytes": 1073741824, "version": "2"}}'
    done ;;
*) exec {sys.executable} "$@" ;;
esac
"""

NVIDIA_SMI = """#!/bin/sh
case $* in
-L) echo "GPU 0: a stand-in (UUID: 0)"; [ ! -f two-gpus ] || echo "GPU 1: a stand-in (UUID: 1)" ;;
*) echo "name, driver_version"; echo "a stand-in, 1" ;;
esac
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
    os.chmod(path, 0o755)


def run(tree, path, *arguments, minutes='25'):
    return subprocess.run(['sh', 'scripts/gpu', *arguments], cwd=tree, capture_output=True, text=True,
                          env={**os.environ, 'PATH': path, 'GPU_MINUTES': minutes})


def parse(out):
    """{stage: words} and {row: words} of what is printed last."""
    table = out[out.rindex('\n\nplanned for'):].split('\n\nkernels')[0]
    before = out[:out.rindex('\n\nplanned for')].rsplit('\n\n', 1)[1]
    return tuple({line.split()[0]: line.split() for line in part.splitlines() if line.strip()}
                 for part in (before, table))


def without_a_gpu(tree, path):
    write(os.path.join(tree, 'bin/nvidia-smi'), '#!/bin/sh\nexit 9\n')
    done = run(tree, path)
    assert done.returncode == 0 and 'skipped, there is no GPU' in done.stdout, done


def from_end_to_end(tree, path):
    write(os.path.join(tree, 'bin/nvidia-smi'), NVIDIA_SMI)
    done = run(tree, path, '--built')
    assert done.returncode == 4 and '--built, but build/cli/shardplan is not there' in done.stderr, done
    write(os.path.join(tree, 'build/cli/shardplan'), STAND_IN)
    for name in ['kernels/test_cuda_parity', 'executor/test_gpu']:
        write(os.path.join(tree, 'build/tests', name), '#!/bin/sh\necho "1 shapes compared, 0 failed"\n')
    write(os.path.join(tree, 'build/bench/kernels/bench_cuda'),
          '#!/bin/sh\n[ "$1" = --launches ] && echo "of $2" && exit\necho "gemm 90 %"\necho "# 1 of 2 products"\n')
    done = run(tree, path, '--built')
    # A model that has no plan is the only failure.
    assert done.returncode == 1, done.stdout + done.stderr
    stages, rows = parse(done.stdout)
    assert '# 1 of 2 products' in done.stdout and 'bf16 products: 700 TFLOP/s' in done.stdout, done.stdout
    assert [name for name in stages if 'passed' not in stages[name]] == ['gpt2-1.5b'], stages
    assert sorted(stages) == sorted(['tests', 'digests', 'nccl', 'calibrate', 'gpus', 'gpt2-124m', 'kernels', 'gpt2-1.5b', 'llama-7b',
                                     'cluster']), stages
    assert not [name for name in rows if 'gpus' in name], rows
    for name, count in ('digests', 9), ('nccl', 4):
        assert f'{name}: {count} configurations in fp32, one digest' in done.stdout, done.stdout
    assert rows['gpt2-1.5b'][1:3] == ['no', 'plan:'], rows
    for name in ['gpt2-124m', 'gpt2-124m-1by1', 'llama-7b', '2x8-FULL_SHARD', '2x8-HYBRID_SHARD']:
        numbers = [float(word) for word in rows[name][1:5]]
        assert all(number > 0 for number in numbers), (name, rows)
        assert rows[name][-1] in ('agrees', 'differs'), (name, rows)
    assert open(os.path.join(tree, 'build/gpu/kernels.txt'), encoding='utf-8').read() == 'gemm 90 %\n# 1 of 2 products\n'
    assert open(os.path.join(tree, 'build/gpu/launches.txt'), encoding='utf-8').read() == 'of embedding_backward\n'


def on_all_gpus(tree, path):
    """Where there are two: the best plan for both, and one of each way to shard."""
    write(os.path.join(tree, 'two-gpus'), '')
    asked = os.path.join(tree, 'plans-asked')
    os.remove(asked)
    done = run(tree, path, '--built', 'gpus')
    rows = parse(done.stdout)[1]
    # The stand-in has no plan for this model.
    names = [f'2gpus-{name}' for name in ('best', 'FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD')]
    assert all(rows[name][1:3] == ['no', 'plan:'] for name in names), rows
    with open(asked, encoding='utf-8') as file:
        plans = file.read().splitlines()
    assert len(plans) == 4 and all('gpt2-1.5b' in plan and '--gpus 2 ' in plan for plan in plans), plans
    assert [name for name in ('FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD') if not any(name in plan for plan in plans)] == []
    write(os.path.join(tree, 'has-room'), '')
    done = run(tree, path, '--built', 'gpus')
    rows = parse(done.stdout)[1]
    assert all(float(rows[name][2]) > 0 and rows[name][-1] in ('agrees', 'differs') for name in names), rows
    for name in 'two-gpus', 'has-room':
        os.remove(os.path.join(tree, name))


def beside_pytorch(tree, path):
    """Half the micro-batch fits there: a row of ours at that one; what cannot be compiled says why."""
    write(os.path.join(tree, 'bin/python3'), PYTHON)
    done = run(tree, path, '--built', 'gpt2-124m', 'llama-7b')
    stages, rows = parse(done.stdout)
    assert done.returncode == 1 and 'its rows say why' in ' '.join(stages['gpt2-124m']), done
    theirs = rows['torch-gpt2-124m']
    # One sequence of 32 tokens in half a second, in the column of ours; and no prediction.
    assert theirs[1:3] == ['0.5', '64'] and float(theirs[3]) > 0, theirs
    assert 'a micro-batch of 1' in ' '.join(theirs) and 'our plan has 2 x 1' in ' '.join(theirs), theirs
    assert rows['compiled-gpt2-124m'][1:] == 'failed: no compiler (code 1)'.split(), rows
    assert float(rows['gpt2-124m-mb1'][2]) > 0, rows
    with open(os.path.join(tree, 'torch-was-asked'), encoding='utf-8') as file:
        asked = [line.split('torch_train.py ')[1].split() for line in file]
    assert asked == ['12 768 12 2 32 bf16 20 4 cuda --halve'.split(),
                     '8 4096 32 2 32 bf16 20 4 cuda --halve --llama 11008 --vocabulary 32000'.split()], asked
    os.remove(os.path.join(tree, 'bin/python3'))


def failures_stay_apart(tree, path):
    """One stage fails, another has no time left: the others' results, also of earlier runs, are shown."""
    write(os.path.join(tree, 'no-calibration'), '')
    done = run(tree, path, '--built', 'calibrate', 'gpt2-124m')
    stages, rows = parse(done.stdout)
    assert done.returncode == 1 and 'the GPU is busy (code 4)' in ' '.join(stages['calibrate']), done
    assert 'passed' in stages['gpt2-124m'] and 'passed' in stages['tests'], stages
    assert float(rows['llama-7b'][2]) > 0, rows
    done = run(tree, path, '--built', 'kernels', minutes='0')
    stages, rows = parse(done.stdout)
    assert done.returncode == 1 and ' '.join(stages['kernels']).endswith('time was up'), stages
    assert 'passed' in stages['gpt2-124m'], stages


def what_a_visit_runs(tree, path):
    """Three calibrations side by side; the models without what a calibration chose; rows that need PyTorch say so."""
    calibration = os.path.join(tree, 'build/gpu/local.yaml')
    with open(calibration, encoding='utf-8') as file:
        text = file.read()
    with open(calibration, 'w', encoding='utf-8') as file:
        file.write(text.replace('calibration:\n', 'calibration:\n  attention_library: 91900\n  attention:\n'
                                '    - head_dim: 64\n      length: 1024\n      engine: 2\n'))
    os.remove(os.path.join(tree, 'plans-asked'))
    done = run(tree, path, '--built', 'calibrations', 'plain', 'torch')
    stages, rows = parse(done.stdout.split('\n\ncalibrations\n')[0])
    assert 'passed' in stages['calibrations'] and 'its rows say why' in ' '.join(stages['plain']), stages
    assert 'PyTorch is not here' in ' '.join(stages['torch']), stages
    line = [line.split() for line in done.stdout.splitlines() if line.startswith('sustained_clock ')]
    assert len(line) == 1 and len(line[0]) == 4 and len(set(line[0])) == 2, done.stdout
    assert float(rows['gpt2-124m-plain'][2]) > 0 and rows['gpt2-1.5b-plain'][1:3] == ['no', 'plan:'], rows
    with open(os.path.join(tree, 'plans-asked'), encoding='utf-8') as file:
        plans = file.read().splitlines()
    assert len(plans) == 3 and all(plan.split()[2] == 'build/gpu/plain.yaml' for plan in plans), plans
    assert not os.path.exists(os.path.join(tree, 'build/gpu/plain.yaml'))


def other_bits(tree, path):
    write(os.path.join(tree, 'other-bits'), '')
    done = run(tree, path, '--built', 'digests')
    stages = parse(done.stdout)[0]
    assert '9 configurations in fp32, NOT one digest' in ' '.join(stages['digests']), stages


def main():
    with tempfile.TemporaryDirectory() as tree:
        os.makedirs(os.path.join(tree, 'scripts'))
        for name in 'gpu', 'gpu_table.py':
            shutil.copy(os.path.join(ROOT, 'scripts', name), os.path.join(tree, 'scripts', name))
        for name in ['bench', 'data']:
            os.symlink(os.path.join(ROOT, name), os.path.join(tree, name))
        path = os.path.join(tree, 'bin') + ':' + os.environ['PATH']
        without_a_gpu(tree, path)
        from_end_to_end(tree, path)
        if sys.argv[3:] == ['slow']:
            on_all_gpus(tree, path)
            what_a_visit_runs(tree, path)
            beside_pytorch(tree, path)
            other_bits(tree, path)
        failures_stay_apart(tree, path)
    print('scripts/gpu: one table')


if __name__ == '__main__':
    main()
