#!/usr/bin/env python3
"""Where a prediction is off: predicted and measured time of a step by kind of operation.

    bench/train/operations.py build/cli/shardplan PLAN.yaml MEASURED.json ...

Of plans and the measurements that `train` made of them. The step is predicted anew, with the calibration
that is in the plan, so that a change of the model can be tried on old measurements. Operations of one
stream and kind are one line; blocks are alike, and micro-batches. The last column is what the line adds to the step's error."""
import json
import re
import subprocess
import sys


def kind_of(operation):
    """`forward transformer.h.3` and `forward model.layers.7, micro-batch 2` are blocks."""
    label = re.sub(r', micro-batch \d+$', '', operation['label'])
    return re.sub(r' \S+\.\d+(\.\.\d+)?(\.[a-z]\S*)?$', r' block\2', label)


def lines(explained):
    """By kind in order of their first: number, predicted and measured seconds."""
    sums = {}
    for operation in explained['operations']:
        if 'measured' not in operation or operation['stream'] != 'compute':
            continue
        line = sums.setdefault(kind_of(operation), [0, 0.0, 0.0])
        line[0] += 1
        for i, side in enumerate(('predicted', 'measured')):
            line[1 + i] += operation[side]['end_s'] - operation[side]['start_s']
    return sums


def show(program, plan, measured):
    text = subprocess.run([program, 'explain', plan, '--analyze', measured, '--json'], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    explained = json.loads(text)
    with open(measured, encoding='utf-8') as file:
        step = json.load(file)['measurement']['step_time_s']
    # The file's own prediction is as old as the file.
    predicted = max(operation['predicted']['end_s'] for operation in explained['operations'])
    print(f'{plan}, {measured}')
    print(f'{"operations":<34} {"n":>4} {"predicted ms":>13} {"measured ms":>12} {"ratio":>6} {"of the step":>11}')
    for kind, (n, ours, theirs) in [*lines(explained).items(), ('step', (1, predicted, step))]:
        ratio = f'{ours / theirs:6.3f}' if theirs > 0 else ''
        print(f'{kind:<34} {n:4} {1e3 * ours:13.3f} {1e3 * theirs:12.3f} {ratio:>6} '
              f'{100 * (ours - theirs) / step:+10.2f} %')


def main():
    program, *files = sys.argv[1:]
    if not files or len(files) % 2:
        sys.exit(__doc__)
    for plan, measured in zip(files[::2], files[1::2]):
        show(program, plan, measured)


if __name__ == '__main__':
    main()
