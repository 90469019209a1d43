"""Local ranks stand in for the devices of a cluster: what `check` compares is of the same thing.

    emulate.py BINARY
"""

import os
import sys

import support

PLANS = (['--strategy', 'FULL_SHARD'], ['--strategy', 'HYBRID_SHARD', '--shard-group', '4'],
         ['--strategy', 'NO_SHARD'], ['--strategy', 'SHARD_GRAD_OP', '--grad-accum', '2'])


def lines(text):
    return [line.strip() for line in text.split('\n')]


def test_check(box, expect):
    """Eight ranks for two nodes of four GPUs, under each kind of collective."""
    for options in PLANS:
        done = box.run('plan', 'tiny.yaml', 'box.yaml', '--seq-len', '16', '--micro-batch', '1',
                       *options, '-o', 'p.yaml')
        expect(done.code == 0, f'{options}: {done.err}')
        done = box.run('train', 'p.yaml', '--data', 'text.txt', '--steps', '3', '--emulate',
                       'box.yaml', '--slow-motion', '20', '--measured', 'm.json')
        expect(done.code == 0, f'{options}: {done.err}')
        check = box.run('check', 'm.plan.yaml', 'm.json')
        expect(check.code == 0, f'{options}: {check.out}{check.err}')
        expect('sent by a rank' in check.out, f'{options}: bytes are not compared')
        for what in 'leaving a node', 'PSS growth':
            expect(not any(line.startswith(what) for line in lines(check.out)),
                   f'{options}: "{what}" is not what was predicted')


def test_control(box, expect):
    """The same plan on this machine has the line on memory."""
    done = box.run('train', 'p.yaml', '--data', 'text.txt', '--steps', '3', '--measured', 'm.json')
    expect(done.code == 0, done.err)
    check = box.run('check', 'm.plan.yaml', 'm.json')
    expect(check.code == 0, f'{check.out}{check.err}')
    expect('PSS growth' in check.out, f'no memory: {check.out}')


def main(binary):
    expect = support.Expectations()
    with support.Sandbox(os.path.abspath(binary)) as box:
        box.write_text('text.txt')
        test_check(box, expect)
        test_control(box, expect)
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
