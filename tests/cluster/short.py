#!/usr/bin/env python3
"""A cluster of two nodes x two ranks over a link of 1 Gbit/s: calibrated, planned for, trained on.

    short.py SHARDPLAN TEXT

The bits must be those of shared memory, the bytes on the NIC those of the plan, and faults must be
told as on one machine. Times are full.py's business. Exit 77: this machine cannot do it."""
import os
import re
import signal
import time
import unittest

import network
import runs
import two_nodes


class Cluster(two_nodes.Training, unittest.TestCase):
    """Started by mpirun."""
    shown = ('SHARD_GRAD_OP', 'FULL_SHARD, bf16', 'HYBRID_SHARD')

    def test_the_calibration_has_the_link(self):
        with open(self.bench.path('cluster.yaml'), encoding='utf-8') as file:
            text = file.read()
        self.assertIn('nodes: 2', text)
        number, unit = re.search(r'nic_bandwidth: ([0-9.]+)([MG])B/s', text).groups()
        rate = float(number) * {'M': 1e6, 'G': 1e9}[unit]
        # 125 MB/s less headers; a busy machine may be slower than its link, none is faster.
        self.assertTrue(10e6 < rate < 130e6, rate)
        for ranks in (2, 4):
            self.assertRegex(text, rf'ranks: {ranks}\n +nodes: 2')

    def test_the_nic_sends_what_is_planned(self):
        predicted = self.bench.plan('FULL_SHARD', 'cluster.yaml')
        sent = self.bench.bytes_per_step(self.cluster)
        planned = predicted['wire_bytes']['node_egress']
        self.assertTrue(abs(sent / planned - 1) < 0.02, (sent, planned))

    def test_another_layout_is_refused(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        result = self.cluster.mpirun(2, self.train('--steps', '2'), 60, layout=[4, 0])
        self.assertEqual(result.returncode, 2)
        self.assertIn('the plan is for 2 nodes x 2 ranks, the launcher started 1 x 4',
                      result.stderr)

    def test_a_rank_that_never_comes_ends_a_calibration(self):
        """MPI waits for all for ever; whoever has started a rank does not."""
        words = [self.program, 'calibrate', 'cluster', '--quick', '--join-timeout', '3',
                 '-o', self.bench.path('never.yaml')]
        lazy = ['sh', '-c', 'test "$OMPI_COMM_WORLD_RANK" != 3 || exec sleep 100; exec "$@"', 'sh']
        started = time.monotonic()
        result = self.cluster.mpirun(2, lazy + words, 60)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn('rank 0: MPI has not brought all ranks together for 3 s', result.stderr)
        self.assertLess(time.monotonic() - started, 30)
        self.assertFalse(os.path.exists(self.bench.path('never.yaml')))

    def test_sigterm_ends_all_after_the_same_step(self):
        """To one process of one node, as a batch system sends it."""
        self.expect_a_checkpoint(
            lambda process, ranks: os.kill(two_nodes.parent_of(ranks[3]), signal.SIGTERM))

    def test_a_checkpoint_needs_a_shared_folder(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        result = self.cluster.mpirun(
            2, self.train('--steps', '2', '--checkpoint', self.cluster.private), 60)
        self.assertEqual(result.returncode, 6)
        self.assertIn('rank 2 has written it, the first rank does not see it', result.stderr)

    def test_stages(self):
        """A node has a stage; or two of them, whose messages need MPI's channels."""
        with open(self.bench.path('untied.yaml'), 'w', encoding='ascii') as file:
            file.write(runs.MODEL + 'tied_head: false\n')
        for order in ('1f1b', 'interleaved'):
            with self.subTest(order):
                self.bench.here('plan', self.bench.path('untied.yaml'),
                                self.bench.path('cluster.yaml'), '--runtime', 'shardplan',
                                '--pipeline', '2', '--pipeline-schedule', order, '--micro-batch',
                                '1', '--global-batch', '8', '--seq-len', '64', '--strategy',
                                'FULL_SHARD', '-o', self.bench.path('plan.yaml'))
                there = self.bench.train(self.cluster, '--steps', '3')
                self.bench.here('check', self.bench.path('plan.yaml'),
                                self.bench.path('measured.json'))
                here = self.bench.train_here('--steps', '3')
                self.assertEqual(there['weights_digest'], here['weights_digest'])
                self.assertEqual(there['loss'], here['loss'])

    def test_resumed_here(self):
        """A checkpoint that ranks of two nodes have written is one like any other."""
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        folder = self.bench.path('checkpoints')
        self.bench.train(self.cluster, '--steps', '2', '--checkpoint', folder)
        resumed = self.bench.train_here('--steps', '4', '--resume', folder)
        undisturbed = self.bench.train(self.cluster, '--steps', '4')
        self.assertEqual(resumed['weights_digest'], undisturbed['weights_digest'])


if __name__ == '__main__':
    two_nodes.main(network.require)
