"""One process a GPU, of our own or of a launcher: each finds its own, all meet by the identifier that went
over the rendezvous, and train and calibrate alike. The program is linked with GPUs that are
none, whose NCCL meets in files.

    gpu_ranks.py FAKE_BINARY BINARY [FOLDER_OF_FAKE_NVML]
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import support
import torchrun

TRAIN = ['train', 'p.yaml', '--data', 'text.txt', '--steps', '3', '--device', 'cuda']


class Launchers:
    """Ways to start `words` as 4 ranks, two or four on a node; (code, stdout, stderr) of each process."""

    def __init__(self, box, binary):
        self.box, self.binary = box, binary

    def torchrun(self, words, per_node, **more):
        return torchrun.launch(self.box, self.binary, words, 4, per_node, **more)

    def srun(self, words, per_node, **more):
        """What `srun --mpi=none` leaves in the environment of its tasks."""
        started = []
        port = str(torchrun.free_port())
        for r in range(4):
            env = torchrun.environment(
                self.box, SLURM_PROCID=str(r), SLURM_STEP_NUM_TASKS='4', SLURM_LOCALID=str(r % per_node),
                SLURM_STEP_ID='0', SLURM_JOB_ID='7', SLURM_STEP_NODELIST='localhost', MASTER_PORT=port, **more)
            started.append(subprocess.Popen([self.binary, *words], cwd=self.box.folder, env=env, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return torchrun.finish(started)

    def mpirun(self, words, per_node, **more):
        assert per_node == 4
        # MPI's own leaks are not ours.
        asan = os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
        env = torchrun.environment(self.box, OMPI_ALLOW_RUN_AS_ROOT='1', ASAN_OPTIONS=asan,
                                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', **more)
        return torchrun.finish([subprocess.Popen(
            ['mpirun', '-np', '4', '--oversubscribe', '--bind-to', 'none', self.binary, *words],
            cwd=self.box.folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)])


class Meeting:
    """The folder in which NCCL's processes meet."""

    def __init__(self, box):
        self.folder = tempfile.mkdtemp(dir=box.folder)

    def gpus(self):
        """[the GPU of each rank], as they came to the communicator over all."""
        found = {}
        for path in glob.glob(os.path.join(self.folder, '*.init0.*')):
            name, _, rank = os.path.basename(path).rsplit('.', 2)
            with open(path, encoding='utf-8') as file:
                found[name, int(rank)] = int(file.read())
        # One identifier, which all have.
        return [found[key] for key in sorted(found)] if len({name for name, _ in found}) == 1 else found


def has_mpi(binary):
    said = subprocess.run([binary, '--version'], capture_output=True, text=True, check=True).stdout
    return re.search(r'transport mpi +built in', said) and shutil.which('mpirun')


def test_training(box, launchers, mpi, expect):
    """Bits, transport and GPUs, whoever starts the ranks."""
    plan = ['--seq-len', '16', '--global-batch', '4', '--runtime', 'shardplan', '-o', 'p.yaml']
    for topology, more, per_node in (('local', ['--gpus', '4'], 4), ('two.yaml', [], 2)):
        strategy = 'HYBRID_SHARD' if per_node == 2 else 'FULL_SHARD'
        done = box.run('plan', 'tiny.yaml', topology, *more, *plan, '--strategy', strategy)
        expect(done.code == 0, f'plan for {topology}: {done.err}')
        meeting = Meeting(box)
        here = box.run(*TRAIN, '--measured', 'here.json', FAKE_NCCL_FOLDER=meeting.folder)
        expect(here.code == 0, f'alone: {here.err}')
        # In files, so each is a process.
        expect(meeting.gpus() == [0, 1, 2, 3], f'alone: GPUs {meeting.gpus()}')
        ways = ['torchrun', 'srun'] + (['mpirun'] if mpi and per_node == 4 else [])
        for way in ways:
            meeting = Meeting(box)
            done = getattr(launchers, way)([*TRAIN, '--nccl', 'max-ctas=8', '--measured', 'there.json'], per_node,
                                           FAKE_NCCL_FOLDER=meeting.folder)
            expect(all(code == 0 for code, _, _ in done), f'{way}, {per_node} a node: {done}')
            measured = json.loads(box.read('there.json'))['measurement']
            expect(re.match(r'2\.28\.9, max-ctas=8, .*NCCL_LAUNCH_ORDER_IMPLICIT=1', measured.get('nccl', '')),
                   f'{way}: settings {measured.get("nccl")}')
            expect('symmetric' in measured.get('nccl_buffers', ''), f'{way}: not over NCCL: {measured}')
            expect(torchrun.digest(box, 'here.json') and
                   torchrun.digest(box, 'here.json') == torchrun.digest(box, 'there.json'),
                   f'{way}, {per_node} a node: other bits')
            expect(meeting.gpus() == [r % per_node for r in range(4)], f'{way}: GPUs {meeting.gpus()}')


def test_visible_gpus(box, binary, expect):
    """A launcher may show each rank its own GPU only; one GPU for two ranks is told."""
    for shown, code in (['3', '2', '1', '0'], 0), (['0', '1', '1', '2'], 2):
        meeting, port = Meeting(box), torchrun.free_port()
        done = torchrun.finish([torchrun.start(box, binary, TRAIN, r, 4, 4, port, CUDA_VISIBLE_DEVICES=gpu,
                                               FAKE_NCCL_FOLDER=meeting.folder)
                                for r, gpu in enumerate(shown)])
        expect([c for c, _, _ in done] == [code] * 4, f'{shown}: {done}')
        if code == 0:
            expect(meeting.gpus() == [3, 2, 1, 0], f'GPUs {meeting.gpus()}')
        else:
            said = [err for _, _, err in done]
            expect('ranks 1 and 2 were both given GPU-01000000-' in said[2], f'{said}')
            expect(not any(said[:2] + said[3:]), f'others speak too: {said}')


def test_too_few_gpus(box, launchers, expect):
    for code, _, err in launchers.torchrun([*TRAIN, '--transport', 'nccl'], 4, FAKE_GPUS='2'):
        expect(code == 2 and '4 ranks need a GPU each, this machine has 2' in err, f'{code}: {err}')


def test_failure(box, launchers, expect):
    """NCCL fails on one rank: it says so, and none waits for ever in a collective."""
    meeting = Meeting(box)
    done = launchers.torchrun([*TRAIN, '--cuda-graphs', 'off'], 4, FAKE_NCCL_FOLDER=meeting.folder,
                              FAKE_NCCL_FAULT='error:2:5')
    expect(all(code == 6 for code, _, _ in done), f'{done}')
    expect('rank 2: nccl: a collective failed' in done[2][2], f'{done}')
    alone = box.run(*TRAIN, FAKE_NCCL_FOLDER=Meeting(box).folder, FAKE_NCCL_FAULT='error:2:5')
    expect(alone.code == 6 and 'rank 2: nccl: a collective failed' in alone.err, f'{alone.err}')


def near(value, expected):
    return abs(value / expected - 1) < 1e-3


def test_calibration(box, launchers, nvml, expect):
    """Two nodes of two GPUs: the rates that the machine was given, in a topology to plan for."""
    calibrate = ['calibrate', 'cluster', '--device', 'cuda', '--quick', '-o', 'gpus.yaml']
    meeting = Meeting(box)
    done = launchers.torchrun(calibrate, 2, FAKE_NCCL_FOLDER=meeting.folder, FAKE_RATES='1',
                              LD_LIBRARY_PATH=nvml)
    expect(all(code == 0 for code, _, _ in done), f'calibrate: {done}')
    expect(done[0][1] != '' and all(out == '' for _, out, _ in done[1:]), 'the first rank alone speaks')
    text = box.read('gpus.yaml')
    for what in (r'\nname: cluster', r'\nnodes: 2', r'\ndevices_per_node: 2', r'gemm_flops: 699\.9\d*TFLOPS'):
        expect(re.search(what, text), f'{what} is not in {text}')
    expect('host.pcie_bandwidth:' not in text and 'as NCCL\'s all-gathers' in text, f'origins: {text}')
    # Groups: of a node, one rank of each node, all. A latency of 20 us, 100 GB/s of the gathered size.
    pieces = re.findall(r'collective: (\w+)[,\s]+ranks: (\d+)[,\s]+nodes: (\d+)[,\s]+(?:from: [^,\s]+[,\s]+)?'
                        r'latency: ([\d.]+)us[,\s]+bandwidth: ([\d.]+)GB/s', text)
    for kind in 'all_gather', 'reduce_scatter', 'all_reduce':
        for group in ('2', '1'), ('2', '2'), ('4', '2'):
            found = [(float(latency), float(rate)) for k, r, n, latency, rate in pieces
                     if (k, r, n) == (kind, *group)]
            expect(len(found) == 3 and all(near(latency, 20) and near(rate, 100) for latency, rate in found),
                   f'{kind} {group}: {found}')
    # Two ranks of a node, of which half of what they gather comes over the link.
    link = re.search(r'nic_bandwidth: ([\d.]+)GB/s', text)
    expect(link and near(float(link[1]), 100), f'the link: {text}')
    done = box.run('plan', 'tiny.yaml', 'gpus.yaml', '--seq-len', '16', '--global-batch', '4', '-o', 'q.yaml')
    expect(done.code == 0, f'plan for the cluster: {done.err}')


def test_memory_of_others(box, nvml, expect):
    """What NVML says was in use before is not the run's; where it says nothing, all is."""
    found = []
    for more in {}, {'LD_LIBRARY_PATH': nvml}, {'LD_LIBRARY_PATH': nvml, 'FAKE_NVML_USED': '1000'}:
        done = box.run(*TRAIN, '--transport', 'device', '--measured', 'used.json', **more)
        expect(done.code == 0, f'{more}: {done.err}')
        measured = json.loads(box.read('used.json'))['measurement']
        found.append((measured['device_used_bytes'], measured['device_ranks'], measured['device_account']))
    expect(found[0] == found[1] and 'NVML does not say' in found[0][2], f'{found}')
    expect(found[2] == (found[0][0] - 1000, 4, 'less 1000 bytes in use before the run'), f'{found}')


def test_steps(box, nvml, expect):
    """Real steps of one GPU of a machine whose clock says how long they take: what its kernels add up to."""
    done = box.run('calibrate', 'local', '--device', 'cuda', '-o', 'one.yaml', FAKE_RATES='a100',
                   LD_LIBRARY_PATH=nvml, limit=220)
    expect(done.code == 0, f'calibrate local: {done.err}')
    said = re.findall(r'steps, (\w+) mlp, bf16, all threads: forward ([\d.]+), backward ([\d.]+) of', done.out)
    expect([kind for kind, *_ in said] == ['plain', 'gated'], f'steps: {done.out[-500:]} {done.err}')
    expect(all(0.8 < float(ratio) < 1.25 for _, *ratios in said for ratio in ratios), f'steps: {said}')
    text = box.read('one.yaml')
    expect(len(re.findall(r'threads: all\n\s+forward: ', text)) == 2, f'kept steps: {text[-900:]}')
    expect('kernel: cross_entropy' in text and 'gradient_norm_rate' in text, f'kernels: {text[-900:]}')


def slow(fake, nvml):
    expect = support.Expectations()
    with support.Sandbox(os.path.abspath(fake)) as box:
        test_steps(box, os.path.abspath(nvml), expect)
    return expect.exit_code()


def main(fake, real, nvml=None):
    fake = os.path.abspath(fake)
    expect = support.Expectations()
    nvml = nvml and os.path.abspath(nvml)
    tests = [lambda box, launchers: test_training(box, launchers, has_mpi(real), expect),
             lambda box, _: test_visible_gpus(box, fake, expect),
             lambda box, launchers: test_too_few_gpus(box, launchers, expect),
             lambda box, launchers: test_failure(box, launchers, expect)]
    if nvml:
        tests += [lambda box, _: test_memory_of_others(box, nvml, expect),
                  lambda box, launchers: test_calibration(box, launchers, nvml, expect)]

    def run(box, test):
        torchrun.plan_for_four(box, expect, 'local', '--gpus', '4')
        test(box, Launchers(box, fake))

    return torchrun.all_at_once(fake, run, tests, expect)


if __name__ == '__main__':
    sys.exit(slow(*sys.argv[2:]) if sys.argv[1] == 'slow' else main(*sys.argv[1:]))
