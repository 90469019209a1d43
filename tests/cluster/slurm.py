"""Slurm on the cluster of network.py: a slurmctld, a slurmd on each node, munge and a configuration
of their own, so that `srun` starts ranks as it does on a real cluster. Nothing outside the cluster's
folder is read or written, and nothing stays behind.

Debian: slurmctld, slurmd, slurm-client, munge."""
import os
import re
import shutil
import signal
import subprocess
import time

import network

# Slurm keeps that many tasks on a node, whatever this machine's cores.
SLOTS = 8

CONFIGURATION = """ClusterName=shardplan
SlurmctldHost={first}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=20
"""


def require():
    """Raises network.Unavailable unless Slurm can be run here."""
    network.require()
    for program in ('slurmctld', 'slurmd', 'srun', 'munged'):
        if shutil.which(program) is None:
            raise network.Unavailable(f'{program} is missing (packages slurmctld, slurmd, '
                                      'slurm-client, munge)')


class Cluster(network.Cluster):
    """Two nodes whose ranks `srun --mpi=MPI` starts. Use it in a with statement."""

    def __init__(self, rate, mpi='none'):
        super().__init__(rate)
        self.mpi = mpi
        self.job = None
        self.configuration = os.path.join(self.folder, 'slurm.conf')

    def __exit__(self, *_):
        try:
            self._end_job()
        finally:
            super().__exit__()
            self._end_steps()

    def _end_job(self):
        if self.job is None:
            return
        self.command('scancel', self.job)
        end = time.monotonic() + 5
        while self.command('squeue', '-h').stdout.strip() and time.monotonic() < end:
            time.sleep(0.1)

    def _end_steps(self):
        """What Slurm keeps for each step has left its parents; it knows this cluster's configuration."""
        ours = f'SLURM_CONF={self.configuration}'.encode()
        for entry in os.listdir('/proc'):
            try:
                with open(f'/proc/{entry}/environ', 'rb') as file:
                    if ours in file.read().split(b'\0'):
                        os.kill(int(entry), signal.SIGKILL)
            except (OSError, ValueError):
                continue

    def _environment(self):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(('SLURM_', 'PMI', 'OMPI_', 'MASTER_'))}
        return dict(kept, SLURM_CONF=self.configuration, LC_ALL='C')

    def _daemon(self, node, *command):
        words = ' '.join(f"'{word}'" for word in command)
        with open(os.path.join(self.folder, f'{command[0]}-{node}.out'), 'wb') as log:
            self.processes.append(subprocess.Popen(
                [self.agent, self.address(node), 'exec ' + words], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True, env=self._environment()))

    def command(self, *words, timeout=60):
        """Runs one of Slurm's commands on the first node, as subprocess.run does."""
        quoted = ' '.join("'" + word.replace("'", "'\\''") + "'" for word in words)
        return subprocess.run([self.agent, self.address(0), quoted], text=True,
                              capture_output=True, timeout=timeout, check=False,
                              env=self._environment())

    def _up(self):
        super()._up()
        os.chmod(self.folder, 0o755)
        key = os.path.join(self.folder, 'munge.key')
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), 'wb') as file:
            file.write(os.urandom(128))
        with open(self.configuration, 'w', encoding='ascii') as file:
            file.write(CONFIGURATION.format(first=self.nodes[0], address=self.address(0),
                                            folder=self.folder))
            for i, node in enumerate(self.nodes):
                file.write(f'NodeName={node} NodeAddr={self.address(i)} CPUs={SLOTS}\n')
            file.write('PartitionName=all Nodes=ALL Default=YES State=UP\n')
        os.mkdir(os.path.join(self.folder, 'state'))
        for node in self.nodes:
            os.mkdir(os.path.join(self.folder, f'spool-{node}'))
            os.mkdir(os.path.join(self.folder, f'tmp-{node}'))
        socket = os.path.join(self.folder, 'munge.sock')
        self._daemon(0, 'munged', '--foreground', f'--socket={socket}', f'--key-file={key}',
                     *(f'--{name}-file={self.folder}/munge.{name}' for name in ('pid', 'log', 'seed')))
        self._wait(lambda: os.path.exists(socket), 'munged')
        self._daemon(0, 'slurmctld', '-D')
        for i, node in enumerate(self.nodes):
            self._daemon(i, 'slurmd', '-D', '-N', node)
        self._wait(self._idle, 'slurmctld and its nodes')
        self._allocate()

    def _allocate(self):
        """One job for all runs: a new one would wait until Slurm has cleaned up after the last."""
        done = self.command('salloc', '--no-shell', f'--nodes={len(self.nodes)}', '--exclusive')
        found = re.search(r'Granted job allocation (\d+)', done.stderr)
        if found is None:
            raise network.Unavailable(f'salloc: {done.stderr.strip()}')
        self.job = found.group(1)

    def _idle(self):
        done = self.command('sinfo', '-h', '-o', '%t %D')
        return done.stdout.strip() == f'idle {len(self.nodes)}'

    def _wait(self, ready, what):
        end = time.monotonic() + 30
        while not ready():
            if time.monotonic() > end:
                raise network.Unavailable(f'{what} did not come up: {self._last_words()}')
            time.sleep(0.1)

    def _last_words(self):
        words = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(('.out', '.log')):
                with open(os.path.join(self.folder, name), encoding='utf-8', errors='replace') as file:
                    words += [f'{name}: {line}' for line in file.read().splitlines()[-2:]]
        return '; '.join(words)

    def speaks(self, mpi):
        """Whether this Slurm knows that kind of --mpi."""
        done = self.command('srun', '--mpi=list')
        return re.search(rf'^\s*{mpi}$', done.stdout + done.stderr, re.MULTILINE) is not None

    def start(self, per_node, command, layout=None):
        """srun with so many tasks on each node (`layout`: [tasks in all], where Slurm likes)."""
        tasks = [f'--ntasks={layout[0]}'] if layout else [
            f'--ntasks={per_node * len(self.nodes)}', f'--ntasks-per-node={per_node}']
        srun = ['srun', '--quiet', f'--jobid={self.job}', f'--nodes={len(self.nodes)}', *tasks,
                f'--mpi={self.mpi}']
        shell = 'exec ' + ' '.join("'" + word.replace("'", "'\\''") + "'" for word in srun + command)
        process = subprocess.Popen(
            [self.agent, self.address(0), shell], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL, text=True, env=self._environment(), start_new_session=True)
        self.processes.append(process)
        return process
