#!/usr/bin/env python3
"""Ranks that Slurm starts: two nodes x two ranks over a link of 1 Gbit/s, with a Slurm of their own.

    srun.py SHARDPLAN TEXT

Once with `srun --mpi=none`, where ranks find each other over TCP by what Slurm tells them, and once
with --mpi=pmix, where MPI carries the messages (skipped without MPI, or without that plugin). The bits must be those of shared memory, and faults
and signals must be told as elsewhere. Exit 77: this machine cannot do it."""
import re
import subprocess
import unittest

import slurm
import two_nodes


def knows_mpi(program):
    done = subprocess.run([program, '--version'], capture_output=True, text=True, check=True)
    return re.search(r'transport mpi +built in', done.stdout) is not None


class Base(two_nodes.Training):
    """What holds for every kind of --mpi."""
    mpi = 'none'
    shown = ('FULL_SHARD', 'HYBRID_SHARD', 'FULL_SHARD, bf16')

    @classmethod
    def new_cluster(cls):
        return slurm.Cluster('1gbit', cls.mpi)

    @classmethod
    def check_cluster(cls):
        if not cls.cluster.speaks(cls.mpi):
            raise unittest.SkipTest(f'this Slurm does not know --mpi={cls.mpi}')

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

    def cancel(self, _process, _ranks):
        """To all tasks, as when a job's time is up."""
        steps = self.cluster.command('squeue', '-h', '-s', '-o', '%i').stdout.split()
        done = self.cluster.command('scancel', '--signal=TERM',
                                    *[step for step in steps if step.split('.')[1].isdigit()])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_scancel_commits_a_checkpoint(self):
        self.expect_a_checkpoint(self.cancel)


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
        late = 'if [ $SLURM_PROCID = 2 ]; then sleep 12; else exec "$@"; fi'
        result = self.cluster.mpirun(
            2, ['sh', '-c', late, 'sh', *self.train('--steps', '2', '--join-timeout', '6')], 60)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn(f'srun: 3 of 4 ranks came to {self.cluster.nodes[0]}', result.stderr)
        self.assertIn('missing: 2.', result.stderr)


class Pmix(Base, unittest.TestCase):
    mpi = 'pmix'

    @classmethod
    def setUpClass(cls):
        if not knows_mpi(cls.program):
            raise unittest.SkipTest('this build has no MPI')
        super().setUpClass()


if __name__ == '__main__':
    two_nodes.main(slurm.require)
