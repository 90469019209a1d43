#!/usr/bin/env python3
"""A cluster of two nodes x two ranks over a link of 1 Gbit/s: calibrated, planned for, trained on.

    short.py SHARDPLAN TEXT

The bits must be those of shared memory, the bytes on the NIC those of the plan, and faults must be
told as on one machine. Times are full.py's business. Exit 77: this machine cannot do it."""
import os
import re
import signal
import sys
import tempfile
import time
import unittest

import network
import runs

SHOWN = ('SHARD_GRAD_OP', 'FULL_SHARD, bf16', 'HYBRID_SHARD')


def words_of(pid):
    with open(f'/proc/{pid}/cmdline', encoding='utf-8') as file:
        return file.read().split('\0')


def parent_of(pid):
    with open(f'/proc/{pid}/stat', encoding='utf-8') as file:
        return int(file.read().rpartition(')')[2].split()[1])


def rank_processes(plan):
    """{rank: pid} of the ranks that train that plan. MPI's daemons leave their parents, so that
    ranks are no descendants of mpirun; those of other runs have launchers with other plans."""
    found = {}
    for entry in os.listdir('/proc'):
        try:
            words = words_of(entry)
            if words[1:2] == ['--shardplan-rank'] and plan in words_of(parent_of(entry)):
                found[int(words[3])] = int(entry)
        except (OSError, ValueError):
            continue
    return found


def gone(pids, seconds):
    """Whether all of them have ended within that time."""
    end = time.monotonic() + seconds
    while any(os.path.exists(f'/proc/{pid}') for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.bench = runs.Bench(PROGRAM, cls.folder.name, TEXT)
        cls.cluster = network.Cluster('1gbit')
        cls.addClassCleanup(cls.folder.cleanup)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.bench.calibrate(cls.cluster)

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

    def test_bits_and_bytes(self):
        for case in SHOWN:
            with self.subTest(case):
                predicted = self.bench.plan(case, 'cluster.yaml')
                here = self.bench.train_here('--steps', '3')
                there = self.bench.train(self.cluster, '--steps', '3')
                self.assertEqual(there['weights_digest'], here['weights_digest'])
                self.assertEqual(there['loss'], here['loss'])
                self.assertEqual(there['wire_bytes']['node_egress'],
                                 predicted['wire_bytes']['node_egress'])
                self.bench.here('check', self.bench.path('plan.yaml'),
                                self.bench.path('measured.json'))

    def test_the_nic_sends_what_is_planned(self):
        predicted = self.bench.plan('FULL_SHARD', 'cluster.yaml')
        sent = self.bench.bytes_per_step(self.cluster)
        planned = predicted['wire_bytes']['node_egress']
        self.assertTrue(abs(sent / planned - 1) < 0.02, (sent, planned))

    def test_another_layout_is_refused(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        result = self.cluster.mpirun(
            2, [PROGRAM, *self.bench.train_arguments('--steps', '2')], 60, layout=[4, 0])
        self.assertEqual(result.returncode, 2)
        self.assertIn('the plan is for 2 nodes x 2 ranks, the launcher started 1 x 4',
                      result.stderr)

    def test_a_dead_rank_is_named(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        process = self.cluster.start(
            2, [PROGRAM, *self.bench.train_arguments('--steps', '100000', '--json-lines')])
        process.stdout.readline()
        ranks = rank_processes(self.bench.path('plan.yaml'))
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        os.kill(ranks[3], signal.SIGKILL)
        started = time.monotonic()
        _, messages = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 6, messages)
        self.assertRegex(messages, r'rank 3 was killed by signal 9 \(Killed\) in step \d+')
        self.assertLess(time.monotonic() - started, 30)
        # What a rank of Open MPI hands to mpirun at that moment can crash it.
        self.assertNotIn('unexpectedly disconnected', messages)
        self.assertTrue(gone(ranks.values(), 10))

    def stop_early(self, whom, *arguments):
        """SIGTERM to a process that `whom` chooses, after the first step; exit code, messages."""
        process = self.cluster.start(2, [PROGRAM, *self.bench.train_arguments(
            '--steps', '100000', '--json-lines', *arguments)])
        process.stdout.readline()
        ranks = rank_processes(self.bench.path('plan.yaml'))
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        os.kill(whom(process, ranks), signal.SIGTERM)
        _, messages = process.communicate(timeout=60)
        self.assertTrue(gone(ranks.values(), 10))
        return process.returncode, messages

    def test_sigterm_ends_all_after_the_same_step(self):
        """To one process of one node, as a batch system sends it; all stop, and nothing is lost."""
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        folder = self.bench.path('terminated')
        code, messages = self.stop_early(
            lambda process, ranks: parent_of(ranks[3]), '--checkpoint', folder)
        self.assertEqual(code, 143, messages)
        said = re.findall(r'stopped by SIGTERM after step (\d+) of 100000; --resume', messages)
        self.assertEqual(len(said), 1, messages)
        steps = int(said[0])
        self.assertEqual(os.listdir(folder), [f'step-{steps:08}'])
        resumed = self.bench.train_here('--steps', str(steps + 1), '--resume', folder)
        undisturbed = self.bench.train_here('--steps', str(steps + 1))
        self.assertEqual(resumed['weights_digest'], undisturbed['weights_digest'])

    def test_a_checkpoint_needs_a_shared_folder(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        result = self.cluster.mpirun(2, [PROGRAM, *self.bench.train_arguments(
            '--steps', '2', '--checkpoint', self.cluster.private)], 60)
        self.assertEqual(result.returncode, 6)
        self.assertIn('rank 2 has written it, the first rank does not see it', result.stderr)

    def test_rings_sum_in_another_order(self):
        predicted = self.bench.plan('FULL_SHARD', 'cluster.yaml')
        tree = self.bench.train(self.cluster, '--steps', '3')
        ring = self.bench.train(self.cluster, '--steps', '3', '--collectives', 'ring')
        self.assertEqual(ring['reproducible'], 'run')
        self.assertNotEqual(ring['weights_digest'], tree['weights_digest'])
        self.assertAlmostEqual(ring['loss'][-1], tree['loss'][-1], places=5)
        # (n - 1) / n of 4 ranks instead of (N - 1) / N of 2 nodes.
        self.assertEqual(ring['wire_bytes']['node_egress'] * 2,
                         predicted['wire_bytes']['node_egress'] * 3)

    def test_resumed_here(self):
        """A checkpoint that ranks of two nodes have written is one like any other."""
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        folder = self.bench.path('checkpoints')
        self.bench.train(self.cluster, '--steps', '2', '--checkpoint', folder)
        resumed = self.bench.train_here('--steps', '4', '--resume', folder)
        undisturbed = self.bench.train(self.cluster, '--steps', '4')
        self.assertEqual(resumed['weights_digest'], undisturbed['weights_digest'])


if __name__ == '__main__':
    PROGRAM, TEXT = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
    try:
        network.require()
    except network.Unavailable as reason:
        print(f'SKIPPED: {reason}')
        sys.exit(77)
    unittest.main()
