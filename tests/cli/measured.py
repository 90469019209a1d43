"""What was measured on a real GPU is still predicted: measured.py BINARY

Steps of an H100 (bench/results/gpu.md), from the calibration that was made in the same hour."""

import json
import os
import re
import sys
import unittest

import support

BINARY = sys.argv.pop(1)
H100 = os.path.join(support.ROOT, 'topologies', 'measured', 'h100-sxm5-80gb.yaml')

# Model, micro-batch, where GELU is computed, seconds a step, bytes in use by the GPU's own account.
RUNS = [('gpt2-124m', 128, 'kernel', 0.24260, 53.3), ('gpt2-124m', 128, 'product', 0.23204, 53.3),
        ('gpt2-1.5b', 16, 'kernel', 0.34793, 60.9), ('gpt2-1.5b', 16, 'product', 0.34114, 60.9),
        ('llama.yaml', 8, 'kernel', 0.64851, 63.8)]
TIME, MEMORY = 0.06, 0.03


class Case(unittest.TestCase):
    def setUp(self):
        self.box = support.Sandbox(BINARY).__enter__()
        self.addCleanup(self.box.__exit__)
        llama = self.box.run('models', 'show', 'llama-2-7b').out
        self.box.write('llama.yaml', re.sub(r'(?m)^layers: .*', 'layers: 8', llama))

    def test_steps(self):
        for model, batch, gelu, seconds, gib in RUNS:
            done = self.box.run('predict', model, H100, '--gpus', '1', '--runtime', 'shardplan', '--wrap', 'blocks:4',
                                '--strategy', 'SHARD_GRAD_OP', '--gelu', gelu, '--micro-batch', str(batch), '--grad-accum', '1', '--json')
            self.assertEqual(done.code, 0, done.err)
            predicted = json.loads(done.out)['prediction']
            self.assertLess(abs(predicted['step_time_s'] / seconds - 1), TIME, model)
            self.assertLess(abs(predicted['peak_memory_bytes'] / 2**30 / gib - 1), MEMORY, model)


if __name__ == '__main__':
    unittest.main()
