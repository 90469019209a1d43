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


def run(tree, path, *arguments):
    return subprocess.run(['sh', 'scripts/gpu', *arguments], cwd=tree, capture_output=True, text=True,
                          env={**os.environ, 'PATH': path})


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
    done = run(tree, path, '--built', 'gpt2-124m', 'gpt2-1.5b')
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout[done.stdout.index('tests on the GPU: passed'):].splitlines()
    rows = {line.split()[0]: line.split() for line in table if line.strip()}
    assert 'MFU_%' in rows['run'] and 'memory' in rows['run'], table
    assert rows['gpt2-1.5b'][1:3] == ['no', 'plan:'], table
    for name in ['gpt2-124m', 'gpt2-124m-1by1', '2x8-FULL_SHARD', '2x8-HYBRID_SHARD']:
        numbers = [float(word) for word in rows[name][1:5]]
        assert all(number > 0 for number in numbers), (name, table)
        assert rows[name][-1] in ('agrees', 'differs'), (name, table)
    assert open(os.path.join(tree, 'build/gpu/kernels.txt'), encoding='utf-8').read() == 'gemm 90 %\n'


def main():
    with tempfile.TemporaryDirectory() as tree:
        os.makedirs(os.path.join(tree, 'scripts'))
        shutil.copy(os.path.join(ROOT, 'scripts/gpu'), os.path.join(tree, 'scripts/gpu'))
        for name in ['bench', 'data']:
            os.symlink(os.path.join(ROOT, name), os.path.join(tree, name))
        path = os.path.join(tree, 'bin') + ':' + os.environ['PATH']
        without_a_gpu(tree, path)
        from_end_to_end(tree, path)
    print('scripts/gpu: one table')


if __name__ == '__main__':
    main()
