"""A cluster on one machine: each node a network namespace and a host name of its own, a slow link
between them. MPI takes the nodes for different hosts; processes of one share memory.

The numbers below make a shaped link behave like a real one. Up to 1 or 2 Gbit/s the link is measured;
beyond, the processors."""
import os
import shutil
import signal
import subprocess
import tempfile

MTU = 9000
# A bucket lets this much through at once; more would make short messages free.
BURST = 20000
SEGMENT = 16384
# Data of one socket that may wait in the queue: else the other direction waits behind it.
SOCKET_QUEUE = 32768

AGENT = """#!/bin/sh
# Stands in for ssh: AGENT [-option...] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
case $host in
%s*) echo "no node $host" >&2; exit 255 ;;
esac
exec nsenter --net="/run/netns/$name" -- %s $LAB_PRIORITY unshare --uts --ipc --mount -- \\
  sh -c 'hostname "$0"; mount -t tmpfs none %s; mount --bind %s /etc/hosts; exec sh -c "$1"' "$name" "$*"
"""


class Unavailable(Exception):
    """This machine cannot do it; the text says what is missing."""


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def require():
    """Raises Unavailable unless clusters can be made here."""
    for program, package in (('ip', 'iproute2'), ('tc', 'iproute2'), ('nsenter', 'util-linux'),
                             ('mpirun', 'openmpi-bin'), ('taskset', 'util-linux')):
        if shutil.which(program) is None:
            raise Unavailable(f'{program} is missing (package {package})')
    if os.geteuid() != 0:
        raise Unavailable('network namespaces need root')
    name = f'sp{os.getpid()}-try'
    try:
        run('ip', 'netns', 'add', name)
        try:
            run('ip', '-n', name, 'link', 'set', 'lo', 'up')
            run('ip', '-n', name, 'link', 'add', 'x0', 'type', 'veth', 'peer', 'name', 'x1')
            run('ip', 'netns', 'exec', name, 'tc', 'qdisc', 'add', 'dev', 'x0', 'root', 'tbf',
                'rate', '1gbit', 'burst', str(BURST), 'limit', '4mb')
        finally:
            run('ip', 'netns', 'del', name)
        run('unshare', '--uts', '--ipc', '--mount', 'true')
    except subprocess.CalledProcessError as error:
        raise Unavailable('network namespaces with a shaped link are not allowed here: ' +
                          error.stderr.strip().splitlines()[-1]) from error


class Cluster:
    """Two nodes and a link of `rate` ("200mbit"). Use it in a with statement. `relay` is the program of relay.c with its
    latency, share of lost frames and seed: the link has none of these without."""

    def __init__(self, rate, nodes=2, relay=()):
        self.rate = rate
        self.relay = relay
        self.nodes = [f'sp{os.getpid()}-n{i}' for i in range(nodes)]
        self.folder = tempfile.mkdtemp(prefix='shardplan-cluster-')
        self.processes = []
        # Ranks before all other processes of this machine: what waits for the link is then not late because others
        # compute. Only for runs that mostly sleep.
        self.urgent = False

    def __enter__(self):
        try:
            self._up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for node in self.nodes:
            subprocess.run(['ip', 'netns', 'del', node], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, node):
        return f'10.77.0.{node + 1}'

    def _up(self):
        for node in self.nodes:
            run('ip', 'netns', 'add', node)
            run('ip', '-n', node, 'link', 'set', 'lo', 'up')
        self._connect()
        for i, node in enumerate(self.nodes):
            run('ip', '-n', node, 'link', 'set', 'eth0', 'mtu', str(MTU),
                'gso_max_size', str(SEGMENT), 'gro_max_size', str(SEGMENT))
            run('ip', '-n', node, 'addr', 'add', f'{self.address(i)}/24', 'dev', 'eth0')
            run('ip', '-n', node, 'link', 'set', 'eth0', 'up')
            # Nothing is lost on this link, so that reno just fills the window.
            run('ip', 'netns', 'exec', node, 'sysctl', '-qw',
                'net.ipv4.tcp_congestion_control=reno',
                'net.ipv4.tcp_slow_start_after_idle=0', 'net.ipv4.tcp_no_metrics_save=1',
                f'net.ipv4.tcp_limit_output_bytes={SOCKET_QUEUE}')
            self._shape(node, 'add')
        # A folder that each run on each node has to itself.
        self.private = os.path.join(self.folder, 'private')
        os.mkdir(self.private)
        # Nodes know each other by name.
        hosts = os.path.join(self.folder, 'hosts')
        with open(hosts, 'w', encoding='ascii') as file:
            file.write('127.0.0.1 localhost\n')
            file.writelines(f'{self.address(i)} {node}\n' for i, node in enumerate(self.nodes))
        self.agent = os.path.join(self.folder, 'agent')
        cases = ''.join(f'{self.address(i)}) name={node}; core={i % (os.cpu_count() or 1)} ;;\n'
                        for i, node in enumerate(self.nodes))
        with open(self.agent, 'w', encoding='ascii') as file:
            file.write(AGENT % (cases, 'taskset -c $core', self.private, hosts))
        os.chmod(self.agent, 0o755)

    def _connect(self):
        if not self.relay:
            run('ip', 'link', 'add', 'eth0', 'netns', self.nodes[0], 'type', 'veth',
                'peer', 'name', 'eth0', 'netns', self.nodes[1])
            return
        program, *numbers = (str(word) for word in self.relay)
        # Before all ranks: a frame that waits for a core would be a longer latency.
        process = subprocess.Popen(
            ['chrt', '--rr', '2', program, *self.nodes, 'eth0', *numbers], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.processes.append(process)
        if process.stdout.readline() != 'ready\n':
            raise Unavailable('no TAP device in a network namespace (/dev/net/tun)')

    def _shape(self, node, verb):
        run('ip', 'netns', 'exec', node, 'tc', 'qdisc', verb, 'dev', 'eth0', 'root', 'tbf',
            'rate', self.rate, 'burst', str(BURST), 'limit', str(BURST + (4 << 20)))

    def set_rate(self, rate):
        self.rate = rate
        for node in self.nodes:
            self._shape(node, 'replace')

    def sent(self, node):
        """Bytes that have left the node, with all headers."""
        text = run('ip', 'netns', 'exec', self.nodes[node], 'cat',
                   '/sys/class/net/eth0/statistics/tx_bytes').stdout
        return int(text)

    def mpirun(self, per_node, command, timeout, layout=None):
        """Runs a command on `per_node` ranks of each node (or as `layout` says) as
        subprocess.run does."""
        process = self.start(per_node, command, layout)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            err += f'\nkilled after {timeout} s'
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def start(self, per_node, command, layout=None):
        slots = layout or [per_node] * len(self.nodes)
        hosts = ','.join(f'{self.address(i)}:{n}' for i, n in enumerate(slots) if n)
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1',
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', LC_ALL='C',
                           LAB_PRIORITY='chrt --rr 1' if self.urgent else '')
        mpirun = ['mpirun', '-np', str(sum(slots)), '--host', hosts, '--map-by', 'slot',
                  '--bind-to', 'none',
                  '--mca', 'plm', 'rsh', '--mca', 'plm_rsh_agent', self.agent,
                  '--mca', 'plm_rsh_no_tree_spawn', '1', '--mca', 'pml', 'ob1',
                  '--mca', 'btl', 'vader,tcp,self', '--mca', 'btl_tcp_if_include', 'eth0',
                  '--mca', 'oob_tcp_if_include', 'eth0', '--mca', 'btl_tcp_links', '2']
        # In place of the shell: a crash of mpirun itself is then a negative code, not 139.
        shell = 'exec ' + ' '.join("'" + word.replace("'", "'\\''") + "'" for word in mpirun + command)
        process = subprocess.Popen(
            [self.agent, self.address(0), shell], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment, start_new_session=True)
        self.processes.append(process)
        return process
