"""Ranks that torchrun's environment tells who they are train as local ranks do, without MPI.

    torchrun.py BINARY
    torchrun.py BINARY faults   what takes as long as a hang does
"""

import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import support

TRAIN = ['train', 'p.yaml', '--data', 'text.txt', '--steps', '3']
LAUNCHERS = ('OMPI_', 'PMI', 'SLURM_', 'SHARDPLAN_')


GIVEN = set()


def free_port():
    """Below the ports that the system hands out, so that no test beside this one is given it; not
    twice either. The launcher uses the one after it too."""
    while True:
        port = random.randrange(20000, 32000, 2)
        if port in GIVEN:
            continue
        GIVEN.add(port)
        try:
            for number in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(('', number))
            return port
        except OSError:
            continue


def environment(box, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    return dict(env, HOME=box.folder, XDG_CACHE_HOME=box.path('cache'), LC_ALL='C', **more)


def start(box, binary, words, rank, ranks, per_node, port, **more):
    """One process, as torchrun would start it. A value of None leaves a variable out."""
    env = environment(box, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR='localhost',
                      LOCAL_RANK=str(rank % per_node), LOCAL_WORLD_SIZE=str(per_node),
                      MASTER_PORT=str(port))
    for name, value in more.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return subprocess.Popen([binary, *words], cwd=box.folder, env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(processes, limit=60):
    """(code, stdout, stderr) of each."""
    done = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        done.append((process.returncode, out, err))
    return done


def launch(box, binary, words, ranks, per_node, **more):
    port = free_port()
    return finish([start(box, binary, words, r, ranks, per_node, port, **more)
                   for r in range(ranks)])


def digest(box, name):
    found = re.findall(r'"weights_digest": "(\w+)"', json.dumps(json.loads(box.read(name))))
    return found[0] if found else None


def two_nodes(box):
    """What the cluster would be: a topology of two nodes like this machine."""
    done = box.run('topologies', 'show', 'local', '--gpus', '2')
    text = done.out
    text = re.sub(r'(?m)^nodes: 1$', 'nodes: 2', text)
    text = re.sub(r'(?m)^name: .*$', 'name: two-nodes', text)
    text = re.sub(r'(?ms)^network:\n(  .*?\n)+', '', text)
    text += ('network:\n  kind: ethernet\n  nics_per_node: 1\n  nic_bandwidth: 10Gbit/s\n'
             '  latency: 30us\n  oversubscription: 1\n')
    box.write('two.yaml', text)


def plan_for_four(box, expect, topology='two.yaml', *more):
    done = box.run('plan', 'tiny.yaml', topology, *more, '--seq-len', '16', '--global-batch', '4',
                   '--strategy', 'FULL_SHARD', '--runtime', 'shardplan', '-o', 'p.yaml')
    expect(done.code == 0, f'plan for {topology}: {done.err}')


def test_bits(box, binary, expect):
    """One node of four, and two of two; the second measured file is the launched one's."""
    for topology, more, per_node in (('local', ['--gpus', '4'], 4), ('two.yaml', [], 2)):
        plan_for_four(box, expect, topology, *more)
        here = box.run(*TRAIN, '--measured', 'here.json')
        expect(here.code == 0, f'local ranks: {here.err}')
        for agent in None, 'True':
            done = launch(box, binary, [*TRAIN, '--measured', 'there.json'], 4, per_node,
                          TORCHELASTIC_USE_AGENT_STORE=agent)
            expect([code for code, _, _ in done] == [0] * 4, f'launched, {per_node} a node: {done}')
            expect(done[0][1] != '' and all(out == '' for _, out, _ in done[1:]),
                   'the first rank alone speaks')
        expect(digest(box, 'here.json') and
               digest(box, 'here.json') == digest(box, 'there.json'),
               f'{per_node} a node: other bits')
        if per_node == 2:
            check = box.run('check', 'p.yaml', 'there.json')
            expect(check.code == 0, f'check: {check.out}{check.err}')


def test_missing_peer(box, binary, expect):
    plan_for_four(box, expect)
    started = time.monotonic()
    port = free_port()
    done = finish([start(box, binary, [*TRAIN, '--join-timeout', '1'], r, 4, 2, port)
                   for r in (0, 1, 3)])
    expect([code for code, _, _ in done] == [6, 6, 6], f'a missing rank: {done}')
    expect('3 of 4 ranks came to localhost' in done[0][2] and 'missing: 2.' in done[0][2],
           f'a missing rank is not named: {done[0][2]}')
    expect(len(done[0][2].strip().split('\n')) == 1, f'more than one line: {done[0][2]}')
    expect(done[1][2].strip() == '' and done[2][2].strip() == '', f'others speak too: {done}')
    expect(time.monotonic() - started < 30, 'a missing rank is waited for')


def test_environment(box, binary, expect):
    plan_for_four(box, expect)
    cases = {
        'MASTER_PORT: missing': {'MASTER_PORT': None},
        'MASTER_ADDR: missing': {'MASTER_ADDR': None},
        'LOCAL_RANK: missing': {'LOCAL_RANK': None},
        'MASTER_PORT: expected a number': {'MASTER_PORT': 'http'},
        'MASTER_PORT: expected a port below 65535': {'MASTER_PORT': '70000'},
        'RANK: expected less than WORLD_SIZE (2), got 2': {'RANK': '2'},
        'WORLD_SIZE: expected a number': {'WORLD_SIZE': 'two'},
    }
    for words, change in cases.items():
        code, _, err = finish([start(box, binary, TRAIN, 0, 2, 2, free_port(), **change)])[0]
        expect(code == 2 and words in err, f'{change}: {code}: {err}')
        expect(len([line for line in err.split('\n') if line]) == 1,
               f'{change}: more than one line: {err}')
    # A variable of somebody else: not launched at all.
    code, _, err = finish([start(box, binary, TRAIN, 0, 2, 2, 1, MASTER_PORT=None,
                                 MASTER_ADDR=None)])[0]
    expect(code == 0, f'RANK alone: {err}')


def plan_for_two(box, expect):
    plan = box.run('plan', 'tiny.yaml', 'local', '--gpus', '2', '--seq-len', '16',
                   '--global-batch', '2', '--strategy', 'FULL_SHARD', '-o', 'p.yaml')
    expect(plan.code == 0, f'plan: {plan.err}')


def start_both(box, binary, first, second, more=None, **environment):
    """Two ranks, each with words of its own after TRAIN."""
    port = free_port()
    words = [[*(() if '--steps' in own else TRAIN[-2:]), *(() if '--data' in own else TRAIN[2:4]),
              *own] for own in (first, second)]
    return [start(box, binary, [*TRAIN[:2], '--join-timeout', '20', *own], r, 2, 2, port,
                  **environment, **(more or {}).get(r, {}))
            for r, own in enumerate(words)]


def test_differences(box, binary, expect):
    """What rank 1 was started with otherwise ends the start with both values in one line."""
    plan_for_two(box, expect)
    box.write('other.txt', box.read('text.txt')[:-1] + '!')
    for seed in '1', '2':
        done = box.run(*TRAIN[:-1], '1', '--seed', seed, '--checkpoint', f'run{seed}')
        expect(done.code == 0, f'checkpoint: {done.err}')
    cases = [
        ([], ['--lr', '0.1'], '--lr 0.1, rank 0 has 0.0003'),
        ([], ['--seed', '7'], '--seed 7, rank 0 has 0'),
        ([], ['--warmup', '2'], '--warmup 2, rank 0 has 0'),
        ([], ['--lr-schedule', 'cosine'], '--lr-schedule cosine, rank 0 has constant'),
        (['--lr-schedule', 'linear'], ['--lr-schedule', 'linear', '--min-lr', '0.0001'], '--min-lr 0.0001, rank 0 has 0'),
        ([], ['--steps', '4'], '--steps 4, rank 0 has 3'),
        ([], ['--reproducible', 'run'], '--reproducible run, rank 0 has plan or world'),
        ([], ['--data', 'other.txt'], '--data '),
        ([], ['--checkpoint', 'run3'], '--checkpoint given, rank 0 has not given'),
        (['--resume', 'run1', '--seed', '1'], ['--resume', 'run2', '--seed', '1'],
         '--resume (manifest) '),
    ]
    # Who lets the first rank speak waits: all at once.
    started = [start_both(box, binary, first, second) for first, second, _ in cases]
    for (first, second, words), processes in zip(cases, started):
        done = finish(processes)
        said = done[0][2].strip()
        expect([code for code, _, _ in done] == [2, 2], f'{second}: {done}')
        expect(f'rank 1 has {words}' in said and
               said.endswith('start all ranks with the same options'), f'{second}: {said}')
        expect('\n' not in said.replace('note: ', '') or first, f'{second}: {said}')
        expect(done[1][2].strip() == '' or first, f'{second}: rank 1 speaks too: {done[1][2]}')


def test_differences_over_mpi(box, binary, expect):
    """The same, where ranks meet by MPI."""
    if shutil.which('mpirun') is None or not re.search(r'transport mpi +built in', box.run('--version').out):
        return
    plan_for_two(box, expect)
    # MPI's own leaks are not ours.
    env = environment(box, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1',
                      ASAN_OPTIONS=os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0')
    box.write('other.txt', box.read('text.txt')[:-1] + '!')
    cases = [('text.txt', [], 0, ''), ('text.txt', ['--lr', '0.1'], 2, '--lr 0.1, rank 0 has 0.0003'),
             ('text.txt', ['--seed', '7'], 2, '--seed 7, rank 0 has 0'),
             ('other.txt', [], 2, r'--data (.*), rank 0 has (?!\1;).*')]
    for text, own, code, words in cases:
        first, second = (['-np', '1', '--bind-to', 'none', binary, 'train', 'p.yaml', '--steps', '3', '--data', data]
                         for data in ('text.txt', text))
        process = subprocess.Popen(['mpirun', '--oversubscribe', *first, ':', *second, *own], cwd=box.folder, env=env,
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        found, _, err = finish([process])[0]
        said = [line for line in err.split('\n') if line.startswith('mpirun: rank')]
        expect(found == code and len(said) == (1 if code else 0) and
               all(re.search(f'rank 1 has {words}; start all ranks with the same options$', line) for line in said),
               f'over MPI, {text} {own}: {found}: {err}')


def damage(box, name):
    with open(box.path(name), 'r+b') as stream:
        stream.seek(100)
        stream.write(b'damage')


def test_damaged_checkpoints(box, binary, expect):
    """Each rank looks at its share of the files: what any of them finds sends all of them back, in one line."""
    plan_for_two(box, expect)
    done = box.run(*TRAIN[:-1], '2', '--checkpoint', 'shared', '--every', '1')
    expect(done.code == 0, f'checkpoints: {done.err}')
    done = box.run(*TRAIN, '--measured', 'whole.json')
    expect(done.code == 0, f'undisturbed: {done.err}')
    for rank in 0, 1:
        shutil.rmtree(box.path('run'), ignore_errors=True)
        shutil.copytree(box.path('shared'), box.path('run'))
        damage(box, f'run/step-00000002/rank-0000{rank}.bin')
        line = f'run/step-00000002/rank-0000{rank}.bin: damaged: bytes 0 to '
        done = finish(start_both(box, binary, *[['--resume', 'run', '--measured', 'there.json']] * 2))
        expect([code for code, _, _ in done] == [0, 0], f'rank {rank}: {done}')
        expect(len(re.findall(f'(?m)^note: {re.escape(line)}.*; going back to step 1$', done[0][2])) == 1 and
               line not in done[1][2], f'rank {rank}: who says it: {done}')
        expect(digest(box, 'there.json') == digest(box, 'whole.json'), f'rank {rank}: other bits')
        done = finish(start_both(box, binary, *[['--resume', 'run/step-00000002']] * 2))
        expect([code for code, _, _ in done] == [3, 3], f'rank {rank}, no way back: {done}')
        expect(''.join(err for _, _, err in done).count(line) == 1, f'rank {rank}: who says it: {done}')


def test_restarts(box, binary, expect):
    """What a launcher repeats starts the run, continues it, and ends well when all is done; one rank speaks."""
    plan_for_two(box, expect)
    said = ('loop: no checkpoint yet: training from the beginning', 'resuming at step 1 from loop/step-00000001',
            "loop/step-00000002 has done 2 of --steps 2 (counted from the first run's start): nothing to train")
    for steps, line in zip((1, 2, 2), said):
        words = ['--checkpoint', 'loop', '--resume', 'loop', '--steps', str(steps)]
        done = finish(start_both(box, binary, words, words))
        expect([code for code, _, _ in done] == [0, 0] and f'note: {line}\n' in done[0][2] and line not in done[1][2],
               f'{steps} steps: {done}')


def test_secret(box, binary, expect):
    """From the environment and from a file; a wrong one is refused before anything starts."""
    plan_for_two(box, expect)
    secret = 'a secret of this test'
    box.write('secret', secret + '\n')
    os.chmod(box.path('secret'), 0o600)
    probe = finish(start_both(box, binary, [], [], {
        1: {'SHARDPLAN_SECRET_FILE': box.path('secret')}, 0: {'SHARDPLAN_SECRET': secret}}))
    if any('libsodium' in err for _, _, err in probe):
        return
    expect([code for code, _, _ in probe] == [0, 0], f'one secret: {probe}')
    os.chmod(box.path('secret'), 0o644)
    done = finish(start_both(box, binary, [], [], SHARDPLAN_SECRET_FILE=box.path('secret')))
    expect(all(code == 3 for code, _, _ in done) and 'others can read it' in done[0][2],
           f'a secret for all: {done}')
    # Not on one node: who reaches the port is believed, and that is said.
    for more, words in ({}, True), ({'SHARDPLAN_SECRET': secret}, False):
        done = finish([start(box, binary, [*TRAIN, '--join-timeout', '0.2'], 0, 2, 1, free_port(),
                             MASTER_ADDR='0.0.0.0', **more)])
        expect(('SHARDPLAN_SECRET is not set' in done[0][2]) == words, f'{more}: {done}')
    # Whatever the host is called, it is one line of text.
    done = finish([start(box, binary, [*TRAIN, '--join-timeout', '0.2'], 0, 2, 1, free_port(),
                         MASTER_ADDR='a\udcff\nb\x1b[2J')])
    lines = done[0][2].split('\n')
    expect(len(lines) == 3 and lines[0].startswith('note: SHARDPLAN_SECRET') and '\x1b' not in done[0][2],
           f'a host of bytes: {done}')


def stop_a_rank(box, binary, expect):
    """Of the job's processes none stays when a rank is stopped, not even that rank."""
    plan_for_two(box, expect)
    processes = start_both(box, binary, *[['--steps', '1000000', '--json-lines']] * 2)
    processes[0].stdout.readline()
    with open(f'/proc/{processes[1].pid}/task/{processes[1].pid}/children', encoding='ascii') as f:
        rank = int(f.read().split()[0])
    os.kill(rank, signal.SIGSTOP)
    done = finish(processes, 120)
    expect([code for code, _, _ in done] == [6, 6], f'a stopped rank: {done}')
    expect('rank 1' in done[0][2], f'a stopped rank is not named: {done[0][2]}')
    expect(not os.path.exists(f'/proc/{rank}'), 'a stopped rank stays')


def test_death(box, binary, expect):
    """One of two nodes goes away, or one rank of it: the others say so, and do not hang."""
    plan_for_four(box, expect)
    for victims in (2, 3), (3,):
        port = free_port()
        processes = [start(box, binary, [*TRAIN[:-1], '100000', '--json-lines'], r, 4, 2, port)
                     for r in range(4)]
        processes[0].stdout.readline()
        for victim in victims:
            processes[victim].kill()
        done = finish(processes)
        codes = [code for r, (code, _, _) in enumerate(done) if r not in victims]
        expect(all(code == 6 for code in codes), f'{victims} die: {done}')
        expect(re.search(r'rank [23]', ''.join(err for _, _, err in done)),
               f'{victims} die, nobody is named: {done}')


TESTS = test_bits, test_missing_peer, test_environment, test_death, test_differences, test_differences_over_mpi, \
    test_damaged_checkpoints, test_restarts, test_secret


def all_at_once(binary, run, tests, expect):
    """run(box, test) in a folder of its own: who lets the first rank speak waits, and does nothing
    else. The exit code."""

    def in_a_box(test):
        with support.Sandbox(binary) as box:
            box.write_text('text.txt')
            two_nodes(box)
            run(box, test)

    with concurrent.futures.ThreadPoolExecutor(len(tests)) as pool:
        for done in [pool.submit(in_a_box, test) for test in tests]:
            done.result()
    return expect.exit_code()


def main(binary, tests=TESTS):
    binary = os.path.abspath(binary)
    expect = support.Expectations()
    return all_at_once(binary, lambda box, test: test(box, binary, expect), tests, expect)


if __name__ == '__main__':
    if sys.argv[2:] == ['faults']:
        sys.exit(main(sys.argv[1], [stop_a_rank]))
    sys.exit(main(sys.argv[1]))
