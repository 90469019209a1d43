"""SIGTERM and Ctrl-C end training after a step, with a checkpoint from which it goes on bit-equal.

    terminate.py BINARY
"""

import os
import re
import signal
import subprocess
import sys

import support

TRAIN = ['--data', 'text.txt', '--warmup', '1']


def as_on_a_terminal():
    """Whoever starts this may have set them to be ignored, as nohup does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def stop_early(box, binary, words, number=signal.SIGTERM):
    """Asks after the first step that is reported; the exit code and what was said."""
    process = subprocess.Popen([binary, 'train', 'p.yaml', *TRAIN, '--steps', '5000', *words],
                               cwd=box.path('.'), text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True,
                               preexec_fn=as_on_a_terminal)
    while 'step 1/' not in (line := process.stderr.readline()) and line != '':
        pass
    # As a terminal does it: to the ranks too.
    os.killpg(process.pid, number)
    try:
        _, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
    return process.returncode, err


def ask_a_rank(box, binary, expect):
    """SIGTERM to a rank alone ends the job as one to the launcher does."""
    process = subprocess.Popen([binary, 'train', 'p.yaml', *TRAIN, '--steps', '5000',
                                '--checkpoint', 'asked'], cwd=box.path('.'), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while 'step 1/' not in (line := process.stderr.readline()) and line != '':
        pass
    with open(f'/proc/{process.pid}/task/{process.pid}/children', encoding='ascii') as file:
        os.kill(int(file.read().split()[1]), signal.SIGTERM)
    try:
        _, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
    found = re.search(r'stopped by SIGTERM after step (\d+) of 5000; --resume asked', err)
    expect(process.returncode == 143 and found, f'a rank is asked: {process.returncode}: {err}')
    there = [name for name in os.listdir(box.path('asked')) if 'step-' in name]
    expect(not found or there == [f'step-{int(found.group(1)):08d}'], f'a rank is asked: {there}')


def main(binary):
    expect = support.Expectations()
    with support.Sandbox(binary) as box:
        box.plan_small()
        code, err = stop_early(box, binary, ['--checkpoint', 'runs'])
        found = re.search(r'after step (\d+) of 5000; --resume runs', err)
        expect(code == 143 and found, f'{code}: {err}')
        if found:
            after = int(found.group(1))
            digests = []
            for name, words in ('resumed', ['--resume', 'runs']), ('undisturbed', []):
                done = box.run('train', 'p.yaml', *TRAIN, '--steps', str(after + 2), *words,
                               '--measured', f'{name}.json')
                expect(done.code == 0, f'{name}: {done.err}')
                digests.append(re.findall(r'"weights_digest": ?"(\w+)"', box.read(f'{name}.json')))
            expect(digests[0] and digests[0] == digests[1], f'digests differ: {digests}')
        code, err = stop_early(box, binary, ['--checkpoint', 'more'], signal.SIGINT)
        expect(code == 130 and re.search(r'stopped by Ctrl-C after step (\d+) of 5000; --resume more', err),
               f'Ctrl-C: {code}: {err}')
        there = [name for name in os.listdir(box.path('more')) if 'step-' in name]
        expect(len(there) == 1, f'Ctrl-C: {there}')
        code, err = stop_early(box, binary, ['--checkpoint', 'hung'], signal.SIGHUP)
        expect(code == 129 and re.search(r'stopped by SIGHUP .* after step \d+ of 5000; --resume hung', err),
               f'SIGHUP: {code}: {err}')
        code, err = stop_early(box, binary, [], signal.SIGHUP)
        expect(code == -signal.SIGHUP, f'SIGHUP without a folder: {code}: {err}')
        code, err = stop_early(box, binary, [], signal.SIGINT)
        expect(code == -signal.SIGINT, f'Ctrl-C without a folder: {code}: {err}')
        ask_a_rank(box, binary, expect)
        code, err = stop_early(box, binary, [])
        expect(code == 143 and 'nothing is kept' in err, f'without a folder: {code}: {err}')
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1])))
