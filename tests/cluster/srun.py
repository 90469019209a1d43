#!/usr/bin/env python3
"""Ranks that Slurm starts: two nodes x two ranks over a link of 1 Gbit/s, with a Slurm of their own.

    srun.py SHARDPLAN TEXT

Once with `srun --mpi=none`, where ranks find each other over TCP by what Slurm tells them, and once
with --mpi=pmix, where MPI carries the messages (skipped without MPI, or without that plugin). The bits must be those of shared memory, and faults
and signals must be told as elsewhere. Exit 77: this machine cannot do it."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import network
import runs
import short
import slurm

SHOWN = ('FULL_SHARD', 'HYBRID_SHARD', 'FULL_SHARD, bf16')


def knows_mpi(program):
    done = subprocess.run([program, '--version'], capture_output=True, text=True, check=True)
    return re.search(r'transport mpi +built in', done.stdout) is not None


class Base:
    """What holds for every kind of --mpi."""
    mpi = 'none'
    fault_codes = (6,)

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.bench = runs.Bench(PROGRAM, cls.folder.name, TEXT)
        cls.cluster = slurm.Cluster('1gbit', cls.mpi)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        if not cls.cluster.speaks(cls.mpi):
            raise unittest.SkipTest(f'this Slurm does not know --mpi={cls.mpi}')
        cls.bench.calibrate(cls.cluster)

    def train(self, *more):
        return [PROGRAM, *self.bench.train_arguments(*more)]

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

    def test_the_first_rank_speaks(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        alone = self.bench.here(*self.bench.train_arguments('--steps', '2', '--json-lines'))
        there = self.cluster.mpirun(2, self.train('--steps', '2', '--json-lines'), 60)
        self.assertEqual(there.returncode, 0, there.stderr)
        self.assertEqual(len(there.stdout.splitlines()), len(alone.splitlines()))

    def test_another_layout_is_refused(self):
        """Three tasks for a plan of four ranks."""
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        result = self.cluster.mpirun(2, self.train('--steps', '2'), 60, layout=[3])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn('for 4 ranks (2 nodes x 2), srun started 3', result.stderr)

    def start(self, *more):
        """Training without end, after its first step; the process and {rank: pid}."""
        process = self.cluster.start(2, self.train('--steps', '100000', '--json-lines', *more))
        process.stdout.readline()
        ranks = short.rank_processes(self.bench.path('plan.yaml'))
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        return process, ranks

    def test_a_dead_rank_is_named(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        process, ranks = self.start()
        os.kill(ranks[3], signal.SIGKILL)
        started = time.monotonic()
        _, messages = process.communicate(timeout=60)
        self.assertIn(process.returncode, self.fault_codes, messages)
        self.assertRegex(messages, r'rank 3 was killed by signal 9 \(Killed\) in step \d+')
        self.assertLess(time.monotonic() - started, 30)
        self.assertTrue(short.gone(ranks.values(), 10))

    def test_scancel_commits_a_checkpoint(self):
        """All tasks get SIGTERM, as when a job's time is up; nothing is lost."""
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        folder = self.bench.path('cancelled')
        process, ranks = self.start('--checkpoint', folder)
        steps = self.cluster.command('squeue', '-h', '-s', '-o', '%i').stdout.split()
        done = self.cluster.command('scancel', '--signal=TERM',
                                    *[step for step in steps if step.split('.')[1].isdigit()])
        self.assertEqual(done.returncode, 0, done.stderr)
        _, messages = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143, messages)
        self.assertTrue(short.gone(ranks.values(), 10))
        said = re.findall(r'stopped by SIGTERM after step (\d+) of 100000; --resume', messages)
        self.assertEqual(len(said), 1, messages)
        last = int(said[0])
        self.assertEqual(os.listdir(folder), [f'step-{last:08}'])
        resumed = self.bench.train_here('--steps', str(last + 1), '--resume', folder)
        undisturbed = self.bench.train_here('--steps', str(last + 1))
        self.assertEqual(resumed['weights_digest'], undisturbed['weights_digest'])


class Tcp(Base, unittest.TestCase):
    """No MPI in between, whether it is built in or not."""

    def test_pmi2_is_not_open_mpis(self):
        """A protocol that Debian's Open MPI does not speak: no reason not to start."""
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        here = self.bench.train_here('--steps', '2')
        self.cluster.mpi = 'pmi2'
        try:
            there = self.bench.train(self.cluster, '--steps', '2')
        finally:
            self.cluster.mpi = self.mpi
        self.assertEqual(there['weights_digest'], here['weights_digest'])

    def test_a_node_that_does_not_come_is_named(self):
        self.bench.plan('FULL_SHARD', 'cluster.yaml')
        late = 'if [ $SLURM_PROCID = 2 ]; then sleep 4; else exec "$@"; fi'
        result = self.cluster.mpirun(
            2, ['sh', '-c', late, 'sh', *self.train('--steps', '2', '--join-timeout', '1')], 60)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn(f'srun: 3 of 4 ranks came to {self.cluster.nodes[0]}', result.stderr)
        self.assertIn('missing: 2.', result.stderr)


class Pmix(Base, unittest.TestCase):
    mpi = 'pmix'
    # Slurm's PMIx server kills what is left when a rank has gone, and srun gives the highest code.
    fault_codes = (6, 128 + signal.SIGKILL)

    @classmethod
    def setUpClass(cls):
        if not knows_mpi(PROGRAM):
            raise unittest.SkipTest('this build has no MPI')
        super().setUpClass()


if __name__ == '__main__':
    PROGRAM, TEXT = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
    try:
        slurm.require()
    except network.Unavailable as reason:
        print(f'SKIPPED: {reason}')
        sys.exit(77)
    unittest.main()
