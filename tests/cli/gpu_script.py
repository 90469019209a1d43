"""scripts/gpu where there is no GPU, and from end to end with a stand-in: an nvidia-smi that lists one, and a
program that plans and trains a small model on the CPU whatever it is asked for.

    gpu_script.py PROGRAM ROOT
"""

import os
import shutil
import subprocess
import sys
import tempfile

PROGRAM, ROOT = (os.path.abspath(path) for path in sys.argv[1:3])

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
    [ "$2" != gpt2-1.5b ] || {{ echo "plan: no room" >&2; exit 1; }}
    exec "$real" plan gpt2-nano local --gpus 1 --global-batch 2 --micro-batch 2 --seq-len 32 -o "$last" ;;
train)
    plan=$2
    while [ $# -gt 1 ]; do [ "$1" = --measured ] && measured=$2; shift; done
    exec "$real" train "$plan" --data data/paradise-lost.txt --steps 3 --measured "$measured" ;;
*) exec "$real" "$@" ;;
esac
"""

NVIDIA_SMI = """#!/bin/sh
case $* in
-L) echo "GPU 0: a stand-in (UUID: 0)" ;;
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
    table = out[out.rindex('\n\nplanned for'):]
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
    write(os.path.join(tree, 'build/bench/kernels/bench_cuda'), '#!/bin/sh\necho "gemm 90 %"\n')
    done = run(tree, path, '--built')
    # A model that has no plan is the only failure.
    assert done.returncode == 1, done.stdout + done.stderr
    stages, rows = parse(done.stdout)
    assert [name for name in stages if 'passed' not in stages[name]] == ['gpt2-1.5b'], stages
    assert sorted(stages) == sorted(['tests', 'calibrate', 'gpt2-124m', 'kernels', 'gpt2-1.5b', 'llama-7b',
                                     'cluster']), stages
    assert rows['gpt2-1.5b'][1:3] == ['no', 'plan:'], rows
    for name in ['gpt2-124m', 'gpt2-124m-1by1', 'llama-7b', '2x8-FULL_SHARD', '2x8-HYBRID_SHARD']:
        numbers = [float(word) for word in rows[name][1:5]]
        assert all(number > 0 for number in numbers), (name, rows)
        assert rows[name][-1] in ('agrees', 'differs'), (name, rows)
    assert open(os.path.join(tree, 'build/gpu/kernels.txt'), encoding='utf-8').read() == 'gemm 90 %\n'


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


def main():
    with tempfile.TemporaryDirectory() as tree:
        os.makedirs(os.path.join(tree, 'scripts'))
        shutil.copy(os.path.join(ROOT, 'scripts/gpu'), os.path.join(tree, 'scripts/gpu'))
        for name in ['bench', 'data']:
            os.symlink(os.path.join(ROOT, name), os.path.join(tree, name))
        path = os.path.join(tree, 'bin') + ':' + os.environ['PATH']
        without_a_gpu(tree, path)
        from_end_to_end(tree, path)
        failures_stay_apart(tree, path)
    print('scripts/gpu: one table')


if __name__ == '__main__':
    main()
