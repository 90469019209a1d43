"""The same bytes for any number of threads: threads.py BINARY"""

import itertools
import sys

import support

CASES = list(itertools.product(['gpt2-nano', 'gpt2-124m', 'llama-2-7b', 'nowhere', 'tiny.yaml'],
                               ['2xdgx-a100-80gb', 'local', 'box.yaml'], ['', '2', '-1'],
                               ['FULL_SHARD', 'NO_SHARD', '']))


def cases():
    rows = [','.join(row) for row in CASES]
    return 'model,topology,grad_accum,strategy,seq_len\n' + ''.join(f'{row},8192\n' for row in rows)


PLAN = ['plan', 'gpt2-nano', '2xdgx-a100-80gb']
QUESTIONS = [
    ['predict', '--cases', 'cases.csv'],
    PLAN + ['--json', '--pareto', '--global-batch', '64'],
    PLAN + ['--find', 'scaling'],
    PLAN + ['--find', 'network-for=90%'],
    PLAN + ['--find', 'max-seq-len', '--json'],
    ['plan', 'gpt2-nano', 'dgx-a100-80gb', '--memory-limit', '10MiB'],
    ['report', 'gpt2-nano', 'dgx-a100-80gb', '-o', '-', '--format', 'json'],
]


def main(binary):
    expect = support.Expectations()
    with support.Sandbox(binary) as box:
        box.write('cases.csv', cases())
        for words in QUESTIONS:
            alone = box.run(*words, '--threads', '1')
            expect(alone.out.count('\n') > 1, f'{words}: {alone.out} {alone.err}')
            for threads in ['2', '3', '8'] if '--cases' in words else ['3']:
                several = box.run(*words, '--threads', threads)
                expect((several.code, several.out, several.err) == (alone.code, alone.out, alone.err),
                       f'{words} --threads {threads}: another answer than with one')
        refused = box.run('predict', 'tiny.yaml', 'box.yaml', '--threads', '0')
        expect(refused.code == 2 and '--threads' in refused.err, f'--threads 0: {refused.err}')
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
