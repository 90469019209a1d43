"""Files that people bring and edit: own_files.py BINARY"""

import json
import os
import re
import sys
import unittest

import support

BINARY = os.path.abspath(sys.argv.pop(1))

CLUSTER = """shardplan: topology/1
name: ours
nodes: 2
devices_per_node: 4
device: {name: A100-SXM4-40GB, kind: gpu, generation: ampere, memory: 40GiB, memory_bandwidth: 1.555TB/s,
         fp32: 19.5TFLOPS, bf16: 312TFLOPS}
fabric: {kind: nvswitch, bandwidth: 240GB/s, latency: 3.4us}
network: {kind: infiniband, nics_per_node: 1, nic_bandwidth: 100Gbit/s, latency: 14us}
host: {memory: 1TiB, memory_bandwidth: 400GB/s, cores: 64, pcie_bandwidth: 24GB/s, cpu: amd}
"""


class OwnFiles(unittest.TestCase):
    def setUp(self):
        self.box = support.Sandbox(BINARY).__enter__()
        self.addCleanup(self.box.__exit__)
        self.box.write('ours.yaml', CLUSTER)

    def run_well(self, *words, code=0):
        done = self.box.run(*words)
        self.assertEqual(done.code, code, done.err)
        return done

    def edit(self, name, old, new):
        text = self.box.read(name)
        self.assertIn(old, text)
        self.box.write('edited.yaml', text.replace(old, new))


class EditedPlans(OwnFiles):
    """A plan's digest does not cover what the machine can do."""

    def setUp(self):
        super().setUp()
        self.run_well('predict', 'gpt2-1.5b', 'ours.yaml', '-o', 'plan.yaml')

    def explained(self, name):
        done = self.run_well('explain', name)
        return re.search(r'step time +([^,]*),', done.out)[1], done

    def test_as_written_it_is_shown_without_a_note(self):
        self.assertNotIn('note', self.explained('plan.yaml')[1].err)
        self.run_well('predict', 'gpt2-1.5b', 'ours.yaml', '--memory-limit', '60GiB', '-o', 'larger.yaml')
        self.assertNotIn('note', self.explained('larger.yaml')[1].err)

    def test_a_faster_network_is_what_is_shown(self):
        slow = self.explained('plan.yaml')[0]
        self.edit('plan.yaml', 'nic_bandwidth: 12.5GB/s', 'nic_bandwidth: 50GB/s')
        now, done = self.explained('edited.yaml')
        self.box.write('ours.yaml', CLUSTER.replace('100Gbit/s', '400Gbit/s'))
        self.run_well('predict', 'gpt2-1.5b', 'ours.yaml', '-o', 'plan.yaml')
        self.assertEqual(now, self.explained('plan.yaml')[0])
        self.assertNotEqual(now, slow)
        self.assertIn(f'note: edited.yaml predicts {slow} a step, ', done.err)
        self.assertIn(f'it is now {now} a step, ', done.err)

    def test_less_memory_is_what_is_judged(self):
        self.edit('plan.yaml', 'memory: 40GiB', 'memory: 5GiB')
        done = self.explained('edited.yaml')[1]
        self.assertIn('of 5.00 GiB (does not fit)', done.out)
        self.assertIn('it was edited', done.err)


class OddBatches(OwnFiles):
    """Twelve sequences are no multiple of eight devices; with two tensor ranks they are of four."""

    def setUp(self):
        super().setUp()
        self.run_well('predict', 'llama-3-8b', 'ours.yaml', '--tensor', '2', '--micro-batch', '3',
                      '--activation-checkpointing', 'full', '-o', 'plan.yaml')

    def test_a_plan_is_compared(self):
        done = self.run_well('plan', '--compare', 'plan.yaml')
        self.assertIn('Your plan: TP 2 x FULL_SHARD', done.out)
        self.assertRegex(done.out, r'Use +TP 2 x ')

    def test_a_file_is_compared(self):
        self.run_well('export', 'plan.yaml', '--to', 'torchtitan', '-o', 'config.py')
        done = self.run_well('import', 'config.py', 'llama-3-8b', 'ours.yaml')
        self.assertIn('--tensor                   2 ', done.out)
        self.assertIn('The planner', done.out)


class OneGroup(OwnFiles):
    """Where the ranks are one group, HYBRID_SHARD has nothing to replicate."""

    def figures(self, *words):
        done = self.run_well('predict', 'gpt2-1.5b', 'ours.yaml', '--json', *words)
        prediction = json.loads(done.out)['prediction']
        return prediction['step_time_s'], prediction['peak_memory_bytes'], done.err

    def test_it_is_the_flat_strategy_and_says_so(self):
        for hybrid, flat in ('HYBRID_SHARD', 'FULL_SHARD'), ('HYBRID_SHARD_ZERO2', 'SHARD_GRAD_OP'):
            time, peak, said = self.figures('--gpus', '4', '--strategy', hybrid)
            self.assertEqual((time, peak, ''), self.figures('--gpus', '4', '--strategy', flat))
            self.assertEqual(said, f'note: {hybrid} in one group of 4 ranks is the same as {flat}\n')
            self.assertEqual(self.figures('--strategy', hybrid)[2], '')

    def test_stages_leave_smaller_groups(self):
        done = self.run_well('predict', 'llama-3-8b', 'ours.yaml', '--gpus', '4', '--pipeline', '2', '--strategy',
                             'HYBRID_SHARD', '--activation-checkpointing', 'full', code=1)
        self.assertIn('in one group of 2 ranks', done.err)


if __name__ == '__main__':
    unittest.main(verbosity=1)
