#!/usr/bin/env python3
"""operations.py on a plan and a run of it: every block of every micro-batch counts, and the step is what was measured."""
import json
import os
import re
import subprocess
import sys
import tempfile

program, operations, data = (os.path.abspath(path) for path in sys.argv[1:])

with tempfile.TemporaryDirectory() as folder:
    def run(*words):
        return subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, 'XDG_CACHE_HOME': folder}).stdout

    run(program, 'predict', 'gpt2-nano', 'local', '--gpus', '1', '--runtime', 'shardplan', '--seq-len', '32',
        '--grad-accum', '2', '-o', 'plan.yaml')
    run(program, 'train', 'plan.yaml', '--device', 'null', '--data', data, '--steps', '3', '--measured', 'run.json')
    lines = run(sys.executable, operations, program, 'plan.yaml', 'run.json').splitlines()
    with open(os.path.join(folder, 'run.json'), encoding='utf-8') as file:
        step = json.load(file)['measurement']['step_time_s']

found = {re.split(r'  +', line)[0]: re.split(r' +', line[34:].strip()) for line in lines[2:]}
if found['forward block'][0] != '12' or found['backward block'][0] != '12' or 'optimizer root' not in found:
    sys.exit(f'blocks: {found}')
if abs(float(found['step'][2]) - 1e3 * step) > 5e-4:
    sys.exit(f'the step took {step} s: {found["step"]}')
if not all(float(predicted) >= 0 for _, predicted, *_ in found.values()) or float(found['step'][1]) <= 0:
    sys.exit(f'predicted: {found}')
