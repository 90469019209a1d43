"""Plans and runs on a cluster of two nodes x two ranks, for the tests and the table beside this."""
import json
import os
import subprocess

RANKS_PER_NODE = 2
STEPS = 8

# 13 MB of parameters in five units: what a step sends takes a while, and headers are few.
MODEL = """shardplan: model/1
name: wide-gpt2
family: gpt2
layers: 4
hidden: 256
heads: 4
ffn: 1024
vocab: 512
context: 64
"""

# Name of a case: what `plan` is held to. Every strategy, and some that cost the link more.
CASES = {
    'NO_SHARD': [],
    'SHARD_GRAD_OP': [],
    'FULL_SHARD': ['--reshard-after-forward', 'true'],
    'HYBRID_SHARD': ['--shard-group', '2', '--reshard-after-forward', 'true'],
    'HYBRID_SHARD_ZERO2': ['--shard-group', '2'],
    'ZERO_1': [],
    'ZERO_2': [],
    'ZERO_3': ['--reshard-after-forward', 'true'],
    'FULL_SHARD, bf16': ['--reshard-after-forward', 'true', '--param-dtype', 'bf16',
                         '--reduce-dtype', 'bf16'],
    'FULL_SHARD, one unit': ['--reshard-after-forward', 'true', '--wrap', 'model'],
    'SHARD_GRAD_OP, no prefetch': ['--prefetch', 'none', '--forward-prefetch', 'off'],
    'FULL_SHARD, 2 micro-batches': ['--reshard-after-forward', 'true', '--grad-accum', '2',
                                    '--sync-each-micro-batch', 'on'],
}


class Failed(Exception):
    """A command did not do what it should."""


class Bench:
    """A folder with the model, topologies and plans, and the program that is tested."""

    def __init__(self, program, folder, text):
        self.program, self.folder, self.text = os.path.abspath(program), folder, text
        with open(self.path('model.yaml'), 'w', encoding='ascii') as file:
            file.write(MODEL)

    def path(self, name):
        return os.path.join(self.folder, name)

    def here(self, *arguments):
        """Runs shardplan without a launcher; what it printed."""
        result = subprocess.run([self.program, *arguments], capture_output=True, text=True,
                                check=False, env=self.environment())
        if result.returncode != 0:
            raise Failed(f'{" ".join(arguments)}: exit {result.returncode}: {result.stderr}')
        return result.stdout

    def environment(self):
        return dict(os.environ, XDG_CACHE_HOME=self.folder, XDG_CONFIG_HOME=self.folder)

    def on(self, cluster, *arguments, timeout=300):
        result = cluster.mpirun(RANKS_PER_NODE, [self.program, *arguments], timeout)
        if result.returncode != 0:
            raise Failed(f'{" ".join(arguments)}: exit {result.returncode}: {result.stderr}')
        return result

    def calibrate(self, cluster):
        """The cluster's topology, as a file; and one whose ranks own their processors, which is
        what paced runs are like."""
        self.on(cluster, 'calibrate', 'cluster', '--quick', '-o', self.path('cluster.yaml'))
        with open(self.path('cluster.yaml'), encoding='utf-8') as file:
            lines = file.read().split('\n')
        own = [f'  cores: {4 * RANKS_PER_NODE}' if line.startswith('  cores:') else line
               for line in lines]
        with open(self.path('paced.yaml'), 'w', encoding='utf-8') as file:
            file.write('\n'.join(own))

    def plan(self, case, topology):
        """Writes plan.yaml; the prediction."""
        options = ['--strategy', case.split(',')[0], '--global-batch',
                   '8' if '--grad-accum' in CASES[case] else '4', '--seq-len', '64',
                   '--activation-checkpointing', 'none', *CASES[case]]
        if '--wrap' not in options:
            options += ['--wrap', 'block']
        if '--grad-accum' not in options:
            options += ['--micro-batch', '1']
        out = self.here('plan', self.path('model.yaml'), self.path(topology), *options, '--json',
                        '-o', self.path('plan.yaml'))
        return json.loads(out)['chosen']['prediction']

    def train_arguments(self, *more):
        return ['train', self.path('plan.yaml'), '--data', self.text, '--measured',
                self.path('measured.json'), *more]

    def measured(self):
        with open(self.path('measured.json'), encoding='utf-8') as file:
            return json.load(file)['measurement']

    def train(self, cluster, *more):
        self.on(cluster, *self.train_arguments(*more))
        return self.measured()

    def train_here(self, *more):
        """The same plan over shared memory."""
        self.here(*self.train_arguments(*more))
        return self.measured()

    def bytes_per_step(self, cluster):
        """What the first node's NIC sends in a step, headers and all: the difference of two runs,
        so that what starts and ends a run cancels out."""
        sent = []
        for steps in (2, 2 + STEPS):
            before = cluster.sent(0)
            self.train(cluster, '--device', 'null', '--steps', str(steps))
            sent.append(cluster.sent(0) - before)
        return (sent[1] - sent[0]) / STEPS
