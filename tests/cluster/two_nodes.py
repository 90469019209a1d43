"""What holds for training on two nodes x two ranks, whoever starts the ranks."""
import os
import re
import signal
import sys
import tempfile
import time
import unittest

import network
import runs


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


class Training:
    """Beside unittest.TestCase. `shown`: cases of runs.py."""
    program = text = None  # main() knows
    shown = ()

    @classmethod
    def new_cluster(cls):
        return network.Cluster('1gbit')

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.bench = runs.Bench(cls.program, cls.folder.name, cls.text)
        cls.cluster = cls.new_cluster()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.check_cluster()
        cls.bench.calibrate(cls.cluster)

    @classmethod
    def check_cluster(cls):
        """Raises unittest.SkipTest where the running cluster cannot do it."""

    def train(self, *more):
        """What a launcher starts."""
        return [self.program, *self.bench.train_arguments(*more)]

    def start(self, *more):
        """Training without end, after its first step; the process and {rank: pid}."""
        process = self.cluster.start(2, self.train('--steps', '100000', '--json-lines', *more))
        process.stdout.readline()
        ranks = rank_processes(self.bench.path('plan.yaml'))
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        return process, ranks

    def test_bits_and_bytes(self):
        for case in self.shown:
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

    def test_a_dead_rank_is_named(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        process, ranks = self.start()
        os.kill(ranks[3], signal.SIGKILL)
        started = time.monotonic()
        _, messages = process.communicate(timeout=60)
        # Open MPI may find the broken connection first: it then ends a rank, and mpirun, with its code.
        self.assertEqual(process.returncode, 255 if 'pml_ob1_sendreq' in messages else 6, messages)
        self.assertRegex(messages, r'rank 3 was killed by signal 9 \(Killed\) in step \d+')
        self.assertLess(time.monotonic() - started, 30)
        # What a rank of Open MPI hands to mpirun at that moment can crash it.
        self.assertNotIn('unexpectedly disconnected', messages)
        self.assertTrue(gone(ranks.values(), 10))

    def expect_a_checkpoint(self, stop):
        """`stop` is called with the process and {rank: pid} of a run and sends SIGTERM to some: all end
        after the same step, and nothing is lost."""
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        folder = self.bench.path('terminated')
        process, ranks = self.start('--checkpoint', folder)
        stop(process, ranks)
        _, messages = process.communicate(timeout=60)
        self.assertTrue(gone(ranks.values(), 10))
        self.assertEqual(process.returncode, 143, messages)
        said = re.findall(r'stopped by SIGTERM after step (\d+) of 100000; --resume', messages)
        self.assertEqual(len(said), 1, messages)
        last = int(said[0])
        there = [name for name in os.listdir(folder) if 'step-' in name]
        self.assertEqual(there, [f'step-{last:08}'])
        resumed = self.bench.train_here('--steps', str(last + 1), '--resume', folder)
        undisturbed = self.bench.train_here('--steps', str(last + 1))
        self.assertEqual(resumed['weights_digest'], undisturbed['weights_digest'])


def main(require):
    """SCRIPT SHARDPLAN TEXT. Exit 77 where `require` says that this machine cannot do it."""
    Training.program, Training.text = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    try:
        require()
    except network.Unavailable as reason:
        print(f'SKIPPED: {reason}')
        sys.exit(77)
    unittest.main()
