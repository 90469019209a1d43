"""Where ranks take all cores, threads that compute stay on one each, and the communication thread on none.

    cores.py BINARY
"""

import os
import subprocess
import sys

import support


def masks(pid):
    """On which CPUs each thread of a process may run."""
    found = []
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/status', encoding='utf-8') as file:
            found.append(next(line.split()[1] for line in file if line.startswith('Cpus_allowed_list:')))
    return sorted(found)


def has_openmp(binary):
    """It is OpenMP's library that binds threads."""
    with open(binary, 'rb') as file:
        program = file.read()
    return b'GOMP_parallel' in program or b'__kmpc_fork_call' in program


def masks_of_ranks(box, binary, environment={}):
    """Of each rank, when a step is done and all threads have been started."""
    process = subprocess.Popen([binary, 'train', 'p.yaml', '--data', 'text.txt', '--steps', '100000'],
                               cwd=box.path('.'), text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=dict(os.environ, **environment))
    try:
        while 'step 1/' not in (line := process.stderr.readline()) and line != '':
            pass
        with open(f'/proc/{process.pid}/task/{process.pid}/children', encoding='utf-8') as file:
            return [masks(pid) for pid in file.read().split()]
    finally:
        process.kill()
        process.communicate()


def main(binary):
    expect = support.Expectations()
    cpus = sorted(os.sched_getaffinity(0))
    with open('/proc/self/status', encoding='utf-8') as file:
        everywhere = next(line.split()[1] for line in file if line.startswith('Cpus_allowed_list:'))
    with support.Sandbox(binary) as box:
        if len(cpus) < 2 or not has_openmp(binary):
            return 77
        box.write_text('text.txt')
        box.run('plan', 'gpt2-nano', 'local', '--gpus', '1', '--seq-len', '128', '--micro-batch', '2', '-o', 'p.yaml')
        ranks = masks_of_ranks(box, binary)
        expect(len(ranks) == 1 and everywhere in ranks[0] and set(map(str, cpus)) <= set(ranks[0]),
               f'one rank on {everywhere}: {ranks}')
        ranks = masks_of_ranks(box, binary, {'OMP_PROC_BIND': 'false'})
        expect(len(ranks) == 1 and set(ranks[0]) == {everywhere}, f'unbound by who trains: {ranks}')
        box.run('plan', 'gpt2-nano', 'local', '--gpus', str(len(cpus)), '--seq-len', '128', '--micro-batch', '1',
                '-o', 'p.yaml')
        ranks = masks_of_ranks(box, binary)
        bound = [cpu for rank in ranks for cpu in rank if cpu != everywhere]
        expect(sorted(bound) == sorted(map(str, cpus)), f'a rank a core: {ranks}')
        done = box.run('train', 'p.yaml', '--data', 'text.txt', '--steps', '3', '--measured', 'm.json')
        expect(done.code == 0 and f', {len(cpus)} CPUs, ' in box.read('m.json'), f'all cores are told: {done.err}')
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1])))
