"""Rows of the table of scripts/gpu.

    gpu_table.py head
    gpu_table.py ours NAME PLAN MEASURED CHECK VERDICT   a run, its prediction, and what `check` said: its JSON, and in a word
    gpu_table.py torch NAME LINES PLAN MEASURED          steps of torch_train.py; the same model's plan and run of ours
    gpu_table.py batch LINES                             the micro-batch at which PyTorch's steps fitted
"""

import json
import re
import statistics
import sys

COLUMNS = [('run', -18), ('predicted_s', 12), ('measured_s', 12), ('ratio', 9), ('tokens/s', 12), ('MFU_%', 7),
           ('MFU6N_%', 7), ('memory', 8), ('GPU_use', 8), ('undeclared', 10), ('late', 6), ('graph', 5), ('check', -7)]
WARM_UP = 5


def line(*words):
    cells = [f'{word:>{width}}' if width > 0 else f'{word:<{-width}}' for word, (_, width) in zip(words, COLUMNS)]
    return ' '.join(cells).rstrip()


def ratio(measured, predicted):
    return f'{measured / predicted:.3f}' if measured and predicted else '-'


def measurement(path):
    with open(path, encoding='utf-8') as file:
        return json.load(file)['measurement']


def figure(plan, key):
    with open(plan, encoding='utf-8') as file:
        found = re.search(r'^ *' + key + r':\s*([0-9.e+-]+)', file.read(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def checked(path, what):
    """The ratio of one line of `check`."""
    with open(path, encoding='utf-8') as file:
        text = file.read()
    lines = {line['what']: line for line in json.loads(text)['lines']} if text else {}
    return ratio(lines[what]['measured'], lines[what]['predicted']) if what in lines else '-'


def ours(name, plan, measured, check, verdict):
    m = measurement(measured)
    predicted, step = figure(plan, 'step_time_s'), m['step_time_s']
    print(line(name, f'{predicted:.5g}', f'{step:.5g}', ratio(step, predicted), f"{m.get('tokens_per_s_per_gpu', 0):.0f}",
               f"{100 * m.get('mfu', 0):.1f}", f"{100 * m.get('mfu_6n', 0):.1f}",
               ratio(m.get('pss_growth_bytes', 0), figure(plan, 'peak_reserved_bytes')),
               checked(check, 'in use on the GPU'),
               m.get('undeclared_bytes', 0), m.get('late_operations', 0),
               m.get('cuda_graphs', '-').split(':')[0], verdict))


def steps_of(path):
    """Those of the last batch: larger ones that came before did not fit."""
    with open(path, encoding='utf-8') as file:
        steps = [json.loads(text) for text in file if text.strip()]
    return [step for step in steps if step['batch'] == steps[-1]['batch']]


def torch(name, path, plan, measured):
    steps, m = steps_of(path), measurement(measured)
    batch, tokens, parts = steps[-1]['batch'], figure(plan, 'seq_len'), figure(plan, 'grad_accum')
    if len(steps) <= WARM_UP:
        sys.exit(f'{len(steps)} steps at a micro-batch of {batch}, expected more than {WARM_UP}')
    step = statistics.median(step['wall_s'] for step in steps[WARM_UP:])
    rate = batch * tokens / step
    scale = rate / m['tokens_per_s_per_gpu']
    print(line(name, '', f'{step:.5g}', '', f'{rate:.0f}', f"{100 * scale * m.get('mfu', 0):.1f}",
               f"{100 * scale * m.get('mfu_6n', 0):.1f}"),
          f"  PyTorch {steps[-1]['version']}, a micro-batch of {batch} and update, "
          f"{steps[-1]['memory_bytes'] / 2**30:.1f} GiB; our plan has {figure(plan, 'micro_batch'):.0f} x {parts:.0f}")


def main():
    command, *arguments = sys.argv[1:]
    if command == 'head':
        print(line(*(name for name, _ in COLUMNS)))
    elif command == 'batch':
        print(steps_of(*arguments)[-1]['batch'])
    else:
        {'ours': ours, 'torch': torch}[command](*arguments)


if __name__ == '__main__':
    main()
