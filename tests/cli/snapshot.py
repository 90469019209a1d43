"""The memory snapshot of a real plan: its peak is the predicted one.

    snapshot.py BINARY
"""

import json
import pickle
import sys

import support

# Each exercises memory of another kind: gathers, replicas, frees that other streams defer, the host.
QUESTIONS = [
    ['--strategy', 'FULL_SHARD', '--activation-checkpointing', 'full'],
    ['--strategy', 'HYBRID_SHARD', '--micro-batch', '1'],
    ['--strategy', 'FULL_SHARD', '--runtime', 'pytorch-fsdp1', '--wrap', 'block'],
    ['--strategy', 'FULL_SHARD', '--cpu-offload', 'all', '--micro-batch', '1'],
]


def replay(snapshot):
    live, total, peak, blocks = {}, 0, 0, 0
    for event in snapshot['device_traces'][0]:
        if event['action'] == 'alloc':
            live[event['addr']] = event['size']
            total += event['size']
            blocks = max(blocks, len(live))
            peak = max(peak, total)
        elif event['action'] == 'free_completed':
            total -= live.pop(event['addr'])
    return peak, 512 * blocks


def main(binary):
    problems = []
    with support.Sandbox(binary) as box:
        for question in QUESTIONS:
            done = box.run('plan', 'llama-2-7b', '2xdgx-a100-80gb', *question, '-o', 'p.yaml', '--json')
            if done.code != 0:
                problems.append(f'{question}: {done.err}')
                continue
            predicted = json.loads(done.out)['chosen']['prediction']['peak_allocated_bytes']
            box.run('report', 'p.yaml', '-o', 'p.pickle')
            with open(box.path('p.pickle'), 'rb') as stream:
                peak, rounding = replay(pickle.load(stream))
            if not predicted <= peak <= predicted + rounding:
                problems.append(f'{question}: predicted {predicted}, snapshot {peak}')
    print('\n'.join(problems))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
