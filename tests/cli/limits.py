"""Limits of the shell, and a disk without room, end a command with one line that says so, and the right code:

    limits.py BINARY
"""

import os
import resource
import subprocess
import sys
import unittest

import support

BINARY = os.path.abspath(sys.argv.pop(1))
PLAN = ['plan', 'tiny.yaml', 'local', '--gpus', '1', '--seq-len', '16', '--global-batch', '1']


class Limits(unittest.TestCase):
    def setUp(self):
        self.box = support.Sandbox(BINARY).__enter__()
        self.addCleanup(self.box.__exit__)
        self.box.write_text('corpus.txt')
        done = self.box.run(*PLAN, '-o', 'plan.yaml')
        self.assertEqual(done.code, 0, done.err)

    def limited(self, kind, limit, *words, **streams):
        """As after `ulimit`, for this command alone."""
        return subprocess.run([BINARY, *words], cwd=self.box.folder, text=True, stderr=subprocess.PIPE, timeout=120,
                              preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)), check=False,
                              **{'stdout': subprocess.DEVNULL, **streams})

    def expect(self, done, code, line):
        messages = [said for said in done.stderr.split('\n') if said and not said.startswith(('note: ', 'step '))]
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(messages), 1, done.stderr)
        self.assertRegex(messages[0], line)

    def test_lines_that_are_lost_are_an_error(self):
        with open('/dev/full', 'w', encoding='ascii') as full:
            done = self.box.run('train', 'plan.yaml', '--data', 'corpus.txt', '--steps', '2', '--json-lines',
                                stdout=full)
        self.assertEqual(done.code, 4, done.err)
        self.assertIn('stdout: cannot be written: No space left on device\n', done.err)
        # What the training was for is there.
        self.assertIn('"weights_digest"', self.box.read('measured.json'))

    def test_a_limit_of_file_sizes_is_told(self):
        before = sorted(os.listdir(self.box.folder))
        self.expect(self.limited(resource.RLIMIT_FSIZE, 1024, *PLAN, '-o', 'other.yaml'), 4,
                    r'^other\.yaml: cannot be written: File too large$')
        with open(self.box.path('out.txt'), 'w', encoding='ascii') as out:
            self.expect(self.limited(resource.RLIMIT_FSIZE, 0, *PLAN, stdout=out), 4,
                        r'^stdout: cannot be written: File too large$')
        os.unlink(self.box.path('out.txt'))
        self.expect(self.limited(resource.RLIMIT_FSIZE, 1024, 'train', 'plan.yaml', '--data', 'corpus.txt',
                                 '--steps', '1'), 4, r'File too large')
        self.assertEqual(sorted(os.listdir(self.box.folder)), before)

    def test_a_small_stack_is_told(self):
        self.expect(self.limited(resource.RLIMIT_STACK, 128 << 10, *PLAN), 4,
                    r'^stack: limited to 128 KiB, expected 512 KiB or more; raise it with ulimit -s$')

    def test_the_stack_that_is_asked_for_is_enough(self):
        if any(name.endswith('SAN_OPTIONS') for name in os.environ):
            self.skipTest('sanitizers take more')
        for words in PLAN, ['plan', 'llama-2-7b', '2xdgx-a100-80gb', '--json'], \
                ['train', 'plan.yaml', '--data', 'corpus.txt', '--steps', '1']:
            done = self.limited(resource.RLIMIT_STACK, 512 << 10, *words)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_notes_are_short_and_utf8(self):
        self.box.write('long.json', '{"zero_optimization": {"stage": 3}, "%s": 1}' % ('k' * 4393))
        done = self.box.run('import', 'long.json', text=False)
        self.assertIn(b'unknown', done.err)
        self.assertLess(max(map(len, done.err.split(b'\n'))), 800, done.err)
        for name, content in (('bad.toml', b'[training]\nsteps = \xff\xfe\n'), ('bad.py', b'FSDP(\xff\xfe)\n'),
                              ('bad.yaml', b'a: \xff\n'), ('bad.sh', b'--tensor-model-parallel-size \xff\n')):
            self.box.write(name, content)
            done = self.box.run('import', name, text=False)
            self.assertEqual(done.err.decode('utf-8', 'replace').count('\ufffd'), 0, done.err)


if __name__ == '__main__':
    unittest.main(verbosity=1)
