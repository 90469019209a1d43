"""While something takes long, a terminal says so; nothing else ever does: waiting.py BINARY"""

import os
import signal
import subprocess
import sys
import unittest

import support

BINARY = sys.argv.pop(1)
# A second or two of planning.
LONG = ['plan', 'llama-2-7b', '2xdgx-a100-80gb', '--global-batch', '256']
LONGER = ['plan', 'llama-3-405b', '64xdgx-h100', '--global-batch', '2048']


def on_terminal(box, words, interrupts=False):
    """(exit code, stdout, what a terminal on stderr got); Ctrl-C when it says that it plans"""
    leader, follower = support.open_terminal()
    env = {'PATH': os.environ['PATH'], 'HOME': box.folder, 'TERM': 'xterm'}
    process = subprocess.Popen([box.binary] + words, cwd=box.folder, env=env, text=True,
                               stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    shown = b''
    while True:
        try:
            got = os.read(leader, 4096)
        except OSError:
            break
        if not got:
            break
        shown += got
        if interrupts and b'planning' in shown:
            process.send_signal(signal.SIGINT)
            interrupts = False
    out = process.stdout.read()
    process.stdout.close()
    os.close(leader)
    return process.wait(), out, shown.decode()


class Waiting(unittest.TestCase):
    def setUp(self):
        self.box = support.Sandbox(BINARY).__enter__()
        self.addCleanup(self.box.__exit__)

    def test_terminal(self):
        code, out, shown = on_terminal(self.box, LONG)
        self.assertEqual(code, 0, shown)
        self.assertIn('\nUse ', out.replace('\r', ''))
        if not shown:
            self.skipTest('planned within a second')
        self.assertRegex(shown, r'^\r\x1b\[Kplanning, 1 s(: [0-9,]+ (of [0-9,]+ )?plans looked at)?')
        # The line is gone when the answer comes.
        self.assertTrue(shown.endswith('\r\x1b[K'), repr(shown[-40:]))

    def test_interrupted(self):
        code, out, shown = on_terminal(self.box, LONGER + ['-o', 'best.yaml'], interrupts=True)
        if code == 0:  # it was ready before
            self.assertNotIn('Interrupted', out)
            return
        self.assertEqual(code, 130, shown)
        if out:
            self.assertIn('Interrupted: this is the best plan so far', out)
            self.assertEqual(self.box.run('explain', 'best.yaml').code, 0)
        else:
            self.assertIn('interrupted before a plan that fits was found', shown)

    def test_elsewhere(self):
        result = self.box.run(*LONG)
        self.assertEqual(result.code, 0)
        self.assertEqual(result.err, '')

    def test_quick(self):
        self.assertEqual(on_terminal(self.box, ['plan', 'tiny.yaml', 'box.yaml'])[2], '')


if __name__ == '__main__':
    unittest.main()
