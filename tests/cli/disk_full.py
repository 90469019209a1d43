"""A disk that is full, or a limit of file sizes, stops training with a clear word; the checkpoints that were there
stay, and a run that goes on from the last one ends in the bits of an undisturbed one.

    disk_full.py BINARY

The full disk is a small tmpfs in a mount namespace of this test; where that is not allowed, that part is left out with
a word (exit 77 if nothing else failed).
"""

import json
import os
import re
import resource
import subprocess
import sys
import time

import support

STEPS = 6
TRAIN = ['--data', 'text.txt', '--warmup', '1']


def measured_digest(box, name):
    return json.loads(box.read(name))['measurement']['weights_digest']


def children(pid):
    """Of all threads of a process."""
    found = []
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/children', encoding='ascii') as file:
            found += [int(word) for word in file.read().split()]
    return found


def steps_in(folder):
    return sorted(name for name in os.listdir(folder) if re.fullmatch(r'step-\d+', name))


class Test:
    def __init__(self, binary, box):
        self.binary, self.box, self.problems = binary, box, []
        box.plan_small()

    def expect(self, condition, what):
        if not condition:
            self.problems.append(what)

    def train(self, *words):
        return self.box.run('train', 'p.yaml', *TRAIN, *words)

    def expect_failure(self, what, code, err, reason):
        """One line with rank, file and reason."""
        lines = [line for line in err.split('\n') if 'checkpoint' in line]
        self.expect(code == 6, f'{what}: exit {code}: {err}')
        self.expect(len(lines) == 1 and reason in lines[0]
                    and re.search(r'rank \d: checkpoint: cannot \w+', lines[0]), f'{what}: {err}')

    def expect_sound(self, what, folder):
        """What is left in the folder is whole, and a step further leads to the right bits."""
        kept = steps_in(self.box.path(folder))
        self.expect(len(kept) >= 1, f'{what}: no checkpoint is left')
        digests = []
        for words in ['--resume', folder], []:
            done = self.train('--steps', str(int(kept[-1][5:]) + 1 if kept else 1), *words, '--measured', 'm.json')
            self.expect(done.code == 0, f'{what}: {done.err}')
            digests.append(measured_digest(self.box, 'm.json') if done.code == 0 else words)
        self.expect(digests[0] == digests[1], f'{what}: resumed from {kept}, other bits')

    def full_disk(self):
        """False where no file system can be mounted."""
        disk = self.box.path('disk')
        os.mkdir(disk)
        done = self.train('--steps', '1', '--checkpoint', 'whole')
        self.expect(done.code == 0, done.err)
        size = sum(os.path.getsize(os.path.join(folder, name))
                   for folder, _, names in os.walk(self.box.path('whole')) for name in names)
        # Room for two and a half.
        script = f'mount -t tmpfs -o size={size * 5 // 2 // 4096 * 4096} none disk || exit 99\n' \
            f'"$0" "$@"; code=$?; ls -A disk >listing; cp -r disk kept; exit $code'
        words = ['unshare', '--mount', 'sh', '-c', script, self.binary, 'train', 'p.yaml', *TRAIN,
                 '--steps', str(STEPS), '--checkpoint', 'disk', '--every', '1']
        try:
            done = subprocess.run(words, cwd=self.box.folder, text=True, capture_output=True, timeout=120)
        except FileNotFoundError:
            return False
        if done.returncode in (1, 99) and not os.path.exists(self.box.path('listing')):
            return False
        self.expect_failure('full disk', done.returncode, done.stderr, 'cannot write to disk: needs ')
        self.expect(re.search(r'needs \d+ bytes \(.*\), \d+ are free \(.*\)', done.stderr), done.stderr)
        listing = self.box.read('listing').split()
        self.expect(not [name for name in listing if 'partial' in name], f'full disk: {listing}')
        kept = steps_in(self.box.path('kept'))
        self.expect(kept == ['step-00000001', 'step-00000002'], f'full disk: {kept}')
        self.expect_sound('full disk', 'kept')
        return True

    def limited_files(self):
        """The limit comes while ranks are running: before, it would be one of their shared memory too."""
        process = subprocess.Popen([self.binary, 'train', 'p.yaml', *TRAIN, '--steps', '5000', '--checkpoint',
                                    'limited', '--every', '2', '--keep', '2'], cwd=self.box.folder, text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while not (os.path.isdir(self.box.path('limited')) and steps_in(self.box.path('limited'))):
            if process.poll() is not None or time.monotonic() > end:
                break
            time.sleep(0.02)
        for rank in children(process.pid):
            resource.prlimit(rank, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            _, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
        self.expect_failure('limit of file sizes', process.returncode, err, 'File too large')
        self.expect_sound('limit of file sizes', 'limited')


def main(binary):
    with support.Sandbox(binary) as box:
        test = Test(binary, box)
        test.limited_files()
        mounted = test.full_disk()
    print('\n'.join(test.problems))
    if not mounted:
        print('SKIPPED: a small tmpfs cannot be mounted here (unshare --mount needs root)')
    return 1 if test.problems else 0 if mounted else 77


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1])))
