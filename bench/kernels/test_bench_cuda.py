"""bench_cuda on the machine of the tests: one row a kernel, bf16 first, prefixes, the verdicts, launches.

    test_bench_cuda.py BENCH_CUDA
"""

import re
import subprocess
import sys


def lines_of(*arguments):
    run = subprocess.run([sys.argv[1], 'on-cpu', *arguments], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()


def rows_of(lines):
    return [line for line in lines if not line.startswith('#')]


def check_all():
    lines = lines_of()
    rows = rows_of(lines)
    names = [line[:34].strip() for line in rows]
    for name in 'gemm bf16', 'attention_backward bf16', 'rmsnorm', 'adamw', 'two types bf16 to fp32':
        assert names.count(name) == 1, (name, names)
    assert 'gemm' not in names and 'attention' not in names, 'fp32 products are on request'
    bf16 = ['bf16' in name and 'fp32 to bf16' not in name for name in names]
    assert bf16 == sorted(bf16, reverse=True), names
    products = [line for line in rows if line.startswith('gemm')]
    bound = [line for line in rows if not line.startswith(('gemm', 'attention'))]
    assert all(re.search(r'TFLOP/s +[0-9.]+ % of the best, candidate \d; 32 MiB: +[0-9.]+ TFLOP/s', line)
               for line in products), products
    assert all(re.search(r'GB/s +[0-9.]+ % of a copy$', line) for line in bound), bound
    forward = [line for line in rows if line.startswith('attention bf16')]
    assert len(forward) == 1, rows
    assert re.search(r'cuDNN 91100: +[0-9.]+ TFLOP/s, +[0-9.]+ % of ours, engine \d$', forward[0]), forward
    for count, text in (len(bound), 'memory-bound kernels reach 85 % of a copy'), \
            (len(products), "products reach 90 % of cuBLASLt's best candidate"):
        verdict = [line for line in lines if text in line]
        assert len(verdict) == 1, lines
        found = re.match(r'# (\d+) of (\d+) ', verdict[0])
        assert int(found[2]) == count, (verdict, count)
    # Those below a mark are named, each with its figure.
    reached = int(re.match(r'# (\d+) of', next(line for line in lines if 'memory-bound' in line))[1])
    below = [line for line in bound if float(re.search(r'([0-9.]+) % of a copy', line)[1]) < 85]
    assert reached == len(bound) - len(below)
    for line in below:
        assert any(other.startswith('#   below') and line[:34].strip() in other for other in lines), line


def check_choice():
    names = [line[:34].strip() for line in rows_of(lines_of('--fp32', 'gemm', 'rope'))]
    assert names == ['gemm bf16', 'gemm bf16 to fp32', 'rope bf16', 'rope', 'gemm'], names


def check_bytes():
    """What a kernel must move, of the 8 KiB that the copy moves in the same time here."""
    percent = {line[:34].strip(): float(re.search(r'([0-9.]+) % of a copy', line)[1])
               for line in rows_of(lines_of('rope', 'layernorm', 'embedding_backward'))}
    # 33 tokens of width 17: all 9 rows of the table and 11 positions are read and written.
    moved = {'rope': 2 * 34 * 128 * 4, 'rope bf16': 2 * 34 * 128 * 2, 'layernorm bf16': 2 * 21 * 2,
             'layernorm_backward': 4 * 21 * 4,
             'embedding_backward bf16': (33 + 40) * 17 * 2,
             'embedding_backward bf16 to fp32': 33 * 17 * 2 + 40 * 17 * 4}
    for name, expected in moved.items():
        assert abs(percent[name] - 100 * expected / 8192) < 0.06, (name, percent[name], expected)


def check_launches():
    lines = lines_of('--launches', 'embedding_backward bf16 to')
    launches = [line.split() for line in lines[2:] if ' us ' in line]
    names = [words[3] for words in launches]
    assert names == ['embedding_count', 'embedding_scatter', 'embedding_runs_fp32_bf16', 'embedding_join_fp32'], lines
    # The machine of the tests says a millisecond of everything. 2 pieces each of the table and the positions.
    assert all(words[1] == '1000.0' for words in launches), lines
    assert launches[2][4:] == '4 x 1 x 1 blocks of 32'.split(), lines
    assert not any(' us ' in line for line in lines_of('embedding_backward') if line.startswith('#'))


check_all()
check_choice()
check_bytes()
check_launches()
print('bench_cuda: rows, choice, verdicts and launches')
