"""Checkpoints as a user sees them: what is damaged is named in one line, one job has a folder, nothing is left behind.

    checkpoints.py BINARY [faults]

With "faults": forty pairs of jobs in one folder each, or FAULTS_PERCENT of that.
"""

import glob
import os
import random
import re
import socket
import subprocess
import sys
import time

import support

MODEL = 'shardplan: model/1\nname: tiny\nfamily: gpt2\nlayers: 2\nhidden: 18\nheads: 3\nffn: 37\nvocab: 259\ncontext: 16\n'
TRAIN = ['train', 'p.yaml', '--data', 'text.txt', '--warmup', '1']


def start(box, binary, *words):
    return subprocess.Popen([binary, *TRAIN, *words], cwd=box.folder, text=True, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE)


def wait_for_a_checkpoint(folder, process):
    end = time.monotonic() + 60
    while not glob.glob(f'{folder}/step-*') and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)


def damaged_ones_are_named(box, expect):
    done = box.run(*TRAIN, '--steps', '4', '--checkpoint', 'run', '--every', '2')
    expect(done.code == 0, done.err)
    manifest = box.read('run/step-00000004/manifest.json')
    box.write('run/step-00000004/manifest.json', manifest.replace('"learning_rate": 0.0003', '"learning_rate": 0.8003'))
    done = box.run(*TRAIN, '--steps', '5', '--resume', 'run')
    line = r'run/step-00000004/manifest\.json: damaged: bytes 0 to \d+: expected checksum [0-9a-f]{32}, got [0-9a-f]{32}'
    expect(done.code == 0 and len(re.findall(f'^note: {line}; going back to step 2$', done.err, re.M)) == 1, done.err)
    expect('resuming at step 2 from run/step-00000002' in done.err, done.err)
    for words in [*TRAIN, '--steps', '5', '--resume', 'run/step-00000004'], ['export', 'run/step-00000004', '--to',
                                                                            'safetensors', '-o', 'w.safetensors']:
        done = box.run(*words)
        expect(done.code == 3 and re.fullmatch(line, '\n'.join(done.messages())), f'{words}: {done.code} {done.err}')
    box.write('run/step-00000004/manifest.json', manifest)
    file = box.path('run/step-00000004/rank-00001.bin')
    with open(file, 'r+b') as stream:
        stream.seek(100)
        stream.write(b'damage')
    line = r'run/step-00000004/rank-00001\.bin: damaged: bytes 0 to \d+: expected checksum \w{32}, got \w{32}'
    for words in [*TRAIN, '--steps', '5', '--resume', 'run'], ['export', 'run', '--to', 'safetensors', '-o',
                                                              'w.safetensors']:
        done = box.run(*words)
        expect(done.code == 0 and len(re.findall(f'^note: {line}; going back to step 2$', done.err, re.M)) == 1,
               f'{words}: {done.code} {done.err}')
    # The last of all steps is as good as its contents.
    done = box.run(*TRAIN, '--steps', '4', '--resume', 'run')
    expect(done.code == 0 and len(re.findall(f'^note: {line}; going back to step 2$', done.err, re.M)) == 1 and
           'resuming at step 2 from' in done.err, f'the last step: {done.code} {done.err}')
    done = box.run(*TRAIN, '--steps', '4', '--resume', 'run/step-00000004')
    expect(done.code == 3 and re.fullmatch(line, '\n'.join(done.messages())), f'the last: {done.code} {done.err}')
    done = box.run(*TRAIN, '--steps', '2', '--resume', 'run/step-00000002')
    expect(done.code == 2 and 'step-00000002 has done 2' in done.err, f'whole: {done.code} {done.err}')


def one_command_starts_and_ends_a_run(box, expect):
    """What a restart loop repeats: train, --checkpoint and --resume of one folder, which need not be there."""
    def start(steps, *words, folder='loop', resume='loop', code=0):
        done = box.run(*TRAIN, '--steps', str(steps), '--checkpoint', folder, '--every', '2', '--resume', resume, *words)
        expect(done.code == code, f'{steps} {words}: {done.code} {done.err}')
        return done

    done = start(2, resume='./loop/', folder='.//loop')
    expect('note: ./loop/: no checkpoint yet: training from the beginning\n' in done.err, done.err)
    done = start(4)
    expect('note: resuming at step 2 from loop/step-00000002\n' in done.err and 'no checkpoint yet' not in done.err,
           done.err)
    undisturbed = box.run(*TRAIN, '--steps', '4', '--measured', 'undisturbed.json')
    digests = [re.search(r'"weights_digest": "(\w+)"', box.read(name)).group(1)
               for name in ('measured.json', 'undisturbed.json')]
    expect(undisturbed.code == 0 and digests[0] == digests[1], f'other bits: {digests}')
    before = [box.read('measured.json'), *sorted(os.listdir(box.path('loop')))]
    for steps in 4, 3:
        done = start(steps)
        expect(done.out == '' and done.err == f'note: loop/step-00000004 has done 4 of --steps {steps} (counted from '
               "the first run's start): nothing to train\n", f'{steps}: {done.err}')
    expect(before == [box.read('measured.json'), *sorted(os.listdir(box.path('loop')))], 'something was lost')

    # Another place of checkpoints than that of --resume, or none: a missing one is a slip.
    for words in ['--checkpoint', 'other'], []:
        done = box.run(*TRAIN, '--steps', '4', '--resume', 'lop', *words)
        expect(done.code == 3 and 'lop: no checkpoint' in done.err and not os.path.exists(box.path('other')),
               f'{words}: {done.code} {done.err}')

    # What a run left that was killed in its first checkpoint is none; anything else of one is not nothing.
    for left, begins in (('.step-00000002.partial', True), ('step-00000002', False), ('step-00000002.damaged', False),
                         ('manifest.json', False), ('notes.txt', True)):
        folder = f'left{len(left)}'
        os.makedirs(box.path(f'{folder}/{left}'))
        done = start(1, folder=folder, resume=folder, code=0 if begins else 3)
        expect(('no checkpoint yet' in done.err) == begins, f'{left}: {done.err}')
        expect(('(.step-00000002.partial was not completed)' in done.err) == (left[0] == '.'), f'{left}: {done.err}')
        expect(os.path.exists(box.path(f'{folder}/{left}')) == (left[0] != '.'), f'{left}: what is there now?')
    box.write('file', '')
    done = start(1, folder='file', resume='file', code=3)
    start(1, folder='step-00000004', resume='step-00000004', code=3)


def weights_are_for_the_first_start(box, expect):
    box.run(*TRAIN, '--steps', '1', '--seed', '7', '--checkpoint', 'pretrained')
    box.run('export', 'pretrained', '--to', 'safetensors', '-o', 'w7.safetensors')
    words = [*TRAIN, '--weights', 'w7.safetensors', '--checkpoint', 'tuned', '--resume', 'tuned', '--json', '--steps']
    losses = []
    for steps in '1', '2':
        done = box.run(*words, steps)
        expect(done.code == 0, done.err)
        losses += re.findall(r'"loss": \[\s*([\d.]+)', done.out)
    done = box.run(*TRAIN, '--weights', 'w7.safetensors', '--json', '--steps', '2')
    whole = re.search(r'"loss": \[([^]]*)\]', done.out).group(1).split(',')
    expect(losses == [value.strip() for value in whole], f'{losses}, {whole}')
    done = box.run(*words[:-4], '--resume', 'tuned/step-00000001', '--steps', '3')
    expect(done.code == 2 and '--weights: does not go with --resume' in done.err, done.err)


def a_decay_is_not_ignored(box, expect):
    for words in [], ['--checkpoint', 'decay', '--resume', 'decay'], ['--resume', 'run']:
        done = box.run(*TRAIN, '--steps', '9', '--min-lr', '1e-5', *words)
        expect(done.code == 2 and '--min-lr: goes with --lr-schedule' in done.err, f'{words}: {done.code} {done.err}')


def other_data_are_noted(box, expect):
    box.write_text('less.txt', 20000)
    done = box.run('train', 'p.yaml', '--data', 'less.txt', '--steps', '3', '--resume', 'run/step-00000002')
    expect(done.code == 0 and 'note:   other data: 20000 tokens instead of 40000\n' in done.err,
           f'other data: {done.code} {done.err}')
    done = box.run(*TRAIN, '--steps', '3', '--resume', 'run/step-00000002')
    expect(done.code == 0 and 'other data' not in done.err, f'the same data: {done.code} {done.err}')


def another_optimizer_is_noted(box, expect):
    box.run('predict', 'model.yaml', 'local', '--gpus', '2', '--seq-len', '16', '--global-batch', '2',
            '--optimizer', 'sgd', '-o', 'sgd.yaml')
    done = box.run('train', 'sgd.yaml', '--data', 'text.txt', '--steps', '3', '--resume', 'run/step-00000002')
    expect(done.code == 0 and 'note:   SGD instead of AdamW: the moments are not used\n' in done.err,
           f'to SGD: {done.code} {done.err}')
    box.run('train', 'sgd.yaml', '--data', 'text.txt', '--steps', '1', '--checkpoint', 'plain')
    done = box.run(*TRAIN, '--steps', '2', '--resume', 'plain')
    expect(done.code == 0 and 'note:   AdamW instead of SGD: its moments start at 0\n' in done.err,
           f'from SGD: {done.code} {done.err}')
    done = box.run(*TRAIN, '--steps', '3', '--resume', 'run/step-00000002')
    expect(done.code == 0 and 'moments' not in done.err, f'the same: {done.code} {done.err}')


def tokens_alone_are_noted(box, expect):
    box.write('raw.bin', bytes(i % 256 if i % 2 == 0 else 0 for i in range(4000)))
    done = box.run('train', 'p.yaml', '--data', 'raw.bin', '--steps', '1')
    expect(done.code == 0 and 'note: raw.bin has no header: read as 2000 tokens of 16 bits' in done.err,
           f'tokens alone: {done.code} {done.err}')
    box.write_text('text.bin')
    done = box.run('train', 'p.yaml', '--data', 'text.bin', '--steps', '1')
    expect(done.code == 3 and 'a text must not end in .bin' in done.err, f'a text: {done.code} {done.err}')


def a_second_job_is_sent_away(box, binary, expect):
    first = start(box, binary, '--steps', '100000', '--checkpoint', 'busy', '--every', '1', '--keep', '1')
    wait_for_a_checkpoint(box.path('busy'), first)
    done = box.run(*TRAIN, '--steps', '2', '--seed', '2', '--checkpoint', 'busy')
    expect(done.code == 4 and done.messages() == [
        f'busy: process {first.pid} on {socket.gethostname()} writes its checkpoints there; wait for it, or give '
        'another folder'], f'second job: {done.code} {done.err}')
    # Whatever of it goes first, the folder is free when all of it is gone.
    first.kill()
    first.communicate()
    end = time.monotonic() + 60
    while (done := box.run(*TRAIN, '--steps', '100000', '--checkpoint', 'busy', '--resume', 'busy', '--fault',
                           'exit_rank=0')).code == 4 and time.monotonic() < end:
        time.sleep(0.1)
    expect(done.code == 6, f'after its death: {done.code} {done.err}')
    left = glob.glob(box.path('busy/.step-*'))
    expect(not left, f'left behind: {left}')


def nothing_is_left_behind(box, expect):
    dead = subprocess.Popen(['true'])
    dead.wait()
    names = [f'.q.yaml.{dead.pid}', f'.q.yaml.{os.getpid()}', '.q.yaml.old', f'.other.yaml.{dead.pid}']
    for name in names:
        box.write(name, 'half')
    done = box.run('plan', 'model.yaml', 'local', '--gpus', '1', '-o', 'q.yaml')
    expect(done.code == 0, done.err)
    left = [name for name in names if os.path.exists(box.path(name))]
    expect(left == names[1:], f'temporary files: {left}')


def one_run_in(box, folder, expect):
    """All that is there can be read, and is of one run."""
    runs = set()
    for path in glob.glob(box.path(f'{folder}/step-*')):
        done = box.run('export', path, '--to', 'safetensors', '-o', 'w.safetensors')
        expect(done.code == 0, f'{path}: {done.err}')
        with open(os.path.join(path, 'manifest.json'), encoding='utf-8') as file:
            runs.add(re.search(r'"run": "(\w+)"', file.read()).group(1))
    expect(len(runs) == 1, f'{folder}: {len(runs)} runs')


def pairs(box, binary, expect, count):
    """Which of the two comes first is left to chance."""
    chance, won = random.Random(1), 0
    for i in range(count):
        words = ['--steps', '40', '--checkpoint', f'pair{i}', '--every', '1']
        jobs = [start(box, binary, *words, '--seed', '1')]
        time.sleep(chance.random() * 0.3)
        jobs.append(start(box, binary, *words, '--seed', '2'))
        ends = [(job.communicate()[1], job.returncode) for job in jobs]
        codes = sorted(code for _, code in ends)
        # The second one may also come when the first is done.
        expect(codes in ([0, 4], [0, 2]), f'pair {i}: {ends}')
        won += codes == [0, 4]
        one_run_in(box, f'pair{i}', expect)
    print(f'{count} pairs of jobs, {won} of them at one time')
    expect(won > 0, 'no two jobs met')


def main(binary, faults):
    expect = support.Expectations()
    with support.Sandbox(binary) as box:
        box.write_text('text.txt')
        box.write('model.yaml', MODEL)
        done = box.run('plan', 'model.yaml', 'local', '--gpus', '2', '--seq-len', '16', '--global-batch', '2',
                       '--strategy', 'FULL_SHARD', '-o', 'p.yaml')
        expect(done.code == 0, done.err)
        if faults:
            pairs(box, binary, expect, max(1, 40 * int(os.environ.get('FAULTS_PERCENT', '100')) // 100))
        else:
            damaged_ones_are_named(box, expect)
            one_command_starts_and_ends_a_run(box, expect)
            weights_are_for_the_first_start(box, expect)
            a_decay_is_not_ignored(box, expect)
            other_data_are_noted(box, expect)
            another_optimizer_is_noted(box, expect)
            tokens_alone_are_noted(box, expect)
            a_second_job_is_sent_away(box, binary, expect)
            nothing_is_left_behind(box, expect)
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1]), 'faults' in sys.argv[2:]))
