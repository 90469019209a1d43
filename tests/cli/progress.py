"""A training run is never silent for long, by what it prints, and its statistics are of enough
steps: progress.py BINARY. Steps are slowed down to known lengths; nothing here reads a clock."""

import re
import subprocess
import sys
import unittest

import support

BINARY = sys.argv.pop(1)


class Progress(unittest.TestCase):
    def start(self, box, step, steps):
        """A run of steps that last `step` seconds or more."""
        predicted = float(re.search(r'step_time_s: (\S+)', box.read('plan.yaml')).group(1))
        return subprocess.Popen(
            [box.binary, 'train', 'plan.yaml', '--data', 'corpus.txt', '--steps', str(steps),
             '--pace', 'all', '--slow-motion', str(step / predicted),
             '--measured', f'{steps}.json'],
            cwd=box.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_a_line_comes_in_time(self):
        with support.Sandbox(BINARY) as box:
            box.write_text('corpus.txt')
            done = box.run('plan', 'tiny.yaml', 'local', '--gpus', '1', '--seq-len', '16',
                           '--global-batch', '1', '-o', 'plan.yaml')
            self.assertEqual(done.code, 0, done.err)
            long, short = self.start(box, 11.5, 1), self.start(box, 4, 4)
            (out, said), (more, lines) = long.communicate(), short.communicate()
        self.assertEqual((long.returncode, short.returncode), (0, 0), said + lines)
        # A step that takes longer than ten seconds says so before it ends.
        self.assertLess(said.index('step 1/1  has been running for 1'), said.index('step 1/1  loss'))
        # After the third step of four seconds the line after the next would be too late; after the
        # second where a busy machine makes them longer.
        self.assertRegex(lines, r'step [23]/4  loss')
        # One step, and two that count, have no deviation and no percentile.
        self.assertRegex(out, r'step time +\S+ \S+ \(one step')
        self.assertRegex(more, r'step time +mean .* of 2 steps, too few')
        for text in out, more:
            self.assertNotIn('deviation', text)
            self.assertNotIn('percentile', text)
            self.assertNotIn('PSS growth', text)
            self.assertRegex(text, r'memory taken is +what the kernel counts for a rank \(PSS\)')


if __name__ == '__main__':
    unittest.main(verbosity=1)
