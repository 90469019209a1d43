"""Records the answers of a binary to several hundred questions, or compares two binaries.

    corpus.py BINARY FOLDER            writes an answer a file
    corpus.py BINARY FOLDER --against  compares with what stands there; exit 1 when anything differs

Every command, JSON, CSV, export and import, schedule text and training digest has its question. A
change that is not meant to change an answer leaves all of them equal to the byte. Record with the
program as it was before the change, on the same machine: `local` describes it. CORPUS_ONLY=text
asks only questions whose names have it; CORPUS_SAMPLES=FOLDER adds files of other tools to import.
"""

import difflib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
A100, H100 = '2xdgx-a100-80gb', '2xdgx-h100'

# (name, MODEL TOPOLOGY and knobs): each becomes a plan file; its schedule text is an answer.
PLANS = []
# (name, command line; {plan} and {out} are filled in)
QUESTIONS = []


def plan(name, words):
    PLANS.append((name, words.split()))


def ask(name, words):
    QUESTIONS.append((name, words.split()))


def schedules():
    """Every runtime x strategy, each with the knobs that change its schedule."""
    strategies = {
        'pytorch-fsdp1': ['FULL_SHARD', 'SHARD_GRAD_OP', 'HYBRID_SHARD', 'HYBRID_SHARD_ZERO2',
                          'NO_SHARD'],
        'pytorch-fsdp2': ['FULL_SHARD', 'SHARD_GRAD_OP', 'HYBRID_SHARD', 'HYBRID_SHARD_ZERO2',
                          'NO_SHARD'],
        'pytorch-ddp': ['NO_SHARD'],
        'shardplan': ['FULL_SHARD', 'SHARD_GRAD_OP', 'HYBRID_SHARD', 'HYBRID_SHARD_ZERO2',
                      'NO_SHARD', 'ZERO_1', 'ZERO_2', 'ZERO_3'],
        'deepspeed': ['ZERO_1', 'ZERO_2', 'ZERO_3', 'NO_SHARD'],
        'nanotron': ['ZERO_1', 'NO_SHARD'],
        'internevo': ['ZERO_1', 'FULL_SHARD', 'NO_SHARD'],
    }
    knobs = ['', '--grad-accum 3', '--grad-accum 3 --sync-each-micro-batch off', '--prefetch none',
             '--prefetch post', '--forward-prefetch on', '--limit-all-gathers on',
             '--activation-checkpointing full', '--activation-checkpointing selective',
             '--activation-checkpointing 5xfull+7xnone', '--cpu-offload optimizer',
             '--cpu-offload parameters', '--cpu-offload all --grad-accum 2',
             '--reshard-after-forward 4', '--reshard-after-forward all', '--wrap blocks:5',
             '--wrap model', '--wrap size:20000000+embedding', '--clip 1 --optimizer adamw',
             '--param-dtype fp32 --reduce-dtype bf16', '--attention eager --loss native',
             '--loss fused-linear --compile on', '--optimizer sgd --master-dtype bf16',
             '--gpus 1', '--shard-group 4']
    for runtime, names in strategies.items():
        for strategy in names:
            for number, knob in enumerate(knobs):
                plan(f'schedule-{runtime}-{strategy}-{number}',
                     f'gpt2-124m {A100} --seq-len 256 --runtime {runtime} --strategy {strategy} '
                     f'{knob}')
    for runtime, names in strategies.items():
        for strategy in names[:3]:
            plan(f'schedule-7b-{runtime}-{strategy}',
                 f'llama-2-7b {A100} --runtime {runtime} --strategy {strategy} --grad-accum 2 '
                 f'--sync-each-micro-batch off --activation-checkpointing selective')
    for number, knob in enumerate(['', '--gelu product', '--gradient-sums exact', '--prefetch none',
                                   '--activation-checkpointing full', '--cpu-offload all',
                                   '--param-dtype bf16', '--strategy HYBRID_SHARD --shard-group 2']):
        plan(f'local-{number}', f'gpt2-nano local --gpus 4 --seq-len 64 {knob}')


def planned():
    for model, topology in itertools.product(['gpt2-1.5b', 'llama-2-7b', 'llama-3.1-8b',
                                              'llama-2-13b'],
                                             [A100, 'dgx-h100', '4xp5.48xlarge']):
        ask(f'plan-{model}-{topology}', f'plan {model} {topology}')
    ask('plan-70b', 'plan llama-3-70b 8xdgx-h100 --global-batch 1024 --seq-len 8192 --json '
        '--wrap block --activation-checkpointing none,full')
    ask('plan-405b', 'plan llama-3-405b 64xdgx-h100 --json --wrap block --micro-batch 1 '
        '--activation-checkpointing full --cpu-offload none')
    for number, knobs in enumerate([
            '', '--global-batch 256', '--global-batch 1000 --seq-len 8192', '--objective memory',
            '--objective network', '--memory-limit 20GiB', '--memory-limit 1GiB', '--pareto',
            '--runtime pytorch-fsdp1', '--runtime deepspeed', '--runtime nanotron',
            '--runtime shardplan', '--strategy FULL_SHARD,HYBRID_SHARD', '--no-prefetch',
            '--forbid strategy=NO_SHARD,wrap=model', '--wrap block,blocks:2 --micro-batch 1,2',
            '--find max-seq-len', '--find max-micro-batch', '--find min-gpus',
            '--find network-for=90%', '--find scaling', '--cpu-offload none,optimizer',
            '--activation-checkpointing selective', '--compile on --loss fused',
            '--libraries pytorch:2.1.0+cuda:12.1', '--gpus 4', '--seq-len 32768']):
        for suffix, output in [('', ''), ('-json', ' --json')]:
            ask(f'plan-7b-{number}{suffix}', f'plan llama-2-7b {A100} {knobs}{output}')
    ask('plan-local', 'plan gpt2-nano local --gpus 4 --global-batch 16 --clip 1')
    ask('plan-compare', f'plan llama-2-7b {A100} --compare {{plan:compare}}')
    plan('compare', f'llama-2-7b {A100} --strategy HYBRID_SHARD --micro-batch 2 '
         '--activation-checkpointing full')


def predicted():
    for number, words in enumerate([
            f'llama-2-7b {A100}', 'llama-3-8b 4xp5.48xlarge --strategy HYBRID_SHARD '
            '--global-batch 256', 'gpt2-124m local --gpus 2', 'gpt3-175b 16xdgx-a100-80gb '
            '--activation-checkpointing full', 'mpt-7b 8xdgx-a100-40gb --runtime pytorch-fsdp1 '
            '--seq-len 2048 --micro-batch 4', 'llama-3-405b 64xdgx-h100 --grad-accum 8',
            f'mistral-7b {H100} --micro-batch 2 --compile on --attention flash3',
            'llama-2-70b 4xgb200-nvl72 --micro-batch 2', 'gpt2-1.5b 3xp3dn.24xlarge --seq-len 1024',
            f'llama-2-7b {H100} --runtime deepspeed --strategy ZERO_3 --cpu-offload all',
            f'llama-2-7b {H100} --loader-rate 3000 --clip 1 --allocator expandable']):
        ask(f'predict-{number}', f'predict {words}')
        ask(f'predict-{number}-json', f'predict {words} --json')
    ask('predict-cases', 'predict --cases {data}/cases.csv')
    ask('predict-cases-many', 'predict --cases {inputs}/cases.csv')


def shown():
    ask('help', 'help')
    for topic in ['calibrate', 'check', 'diagnose', 'explain', 'export', 'help', 'import', 'models',
                  'plan', 'predict', 'report', 'topologies', 'train', 'completion bash',
                  'completion zsh', 'completion fish', 'defaults', 'environment', 'exit-codes',
                  'man', 'settings']:
        ask('help-' + topic.replace(' ', '-'), 'help ' + topic)
    for words in ['models', 'models --json', 'topologies', 'topologies --json',
                  'models show llama-2-7b', 'models show gpt3-175b --json',
                  'models show mpt-7b --json', 'topologies show 2xdgx-a100-80gb',
                  'topologies show gb200-nvl72 --json', 'topologies show 4xp5.48xlarge',
                  'models show {data}/config.json', 'models show {data}/config.json --json',
                  'export --list', 'export --knobs']:
        ask('show-' + words.replace(' ', '_').replace('/', '_'), words)
    for view in ['summary', 'operations', 'streams', 'memory', 'critical', 'units',
                 'communication', 'layout']:
        for of in ['compare', 'schedule-shardplan-HYBRID_SHARD-2', 'schedule-deepspeed-ZERO_3-0']:
            ask(f'explain-{view}-{of}', f'explain {{plan:{of}}} --view {view}')
            ask(f'explain-{view}-{of}-json', f'explain {{plan:{of}}} --view {view} --json')
    for view in ['communication', 'layout']:
        ask(f'explain-{view}-svg', f'explain {{plan:compare}} --view {view} --svg')
    for ending in ['html', 'md', 'csv', 'trace.json', 'pickle', 'json']:
        ask(f'report-{ending}', f'report {{plan:compare}} -o {{out}}.{ending}')
    ask('report-two', f'report llama-3-8b dgx-a100-80gb {H100} -o {{out}}.md')


def refused():
    for number, knobs in enumerate([
            '--wrap blocks:0', '--wrap nothing', '--prefetch early', '--prefetch none --runtime '
            'pytorch-fsdp2', '--limit-all-gathers off --runtime pytorch-fsdp2', '--seq-len 0',
            '--seq-len 1e9', '--micro-batch x', '--global-batch 7', '--grad-accum 0',
            '--global-batch 64 --micro-batch 3 --grad-accum 2', '--strategy ZERO_1',
            '--strategy full', '--shard-group 3', '--reshard-after-forward maybe',
            '--reshard-after-forward 5', '--reshard-after-forward 20xtrue+2xfalse',
            '--activation-checkpointing 8xfull', '--activation-checkpointing some',
            '--attention flash9', '--loss mse', '--compile maybe', '--param-dtype int8',
            '--master-dtype fp8', '--reduce-dtype x', '--gradient-sums exact', '--gelu product',
            '--optimizer lion', '--allocator jemalloc', '--clip -1', '--loader-rate -3',
            '--runtime horovod', '--libraries pytorch', '--libraries torch:2', '--cpu-offload disk',
            '--cpu-offload parameters --runtime nanotron', '--gpus 5', '--gpus 24',
            '--memory-limit 0', '--objective fame', '--find happiness', '--no-strategy',
            '--forward-prefetch yes', '--sync-each-micro-batch 1', '--unknown 3', '--wrap']):
        ask(f'refuse-{number}', f'predict llama-2-7b {A100} {knobs}')
        ask(f'refuse-plan-{number}', f'plan llama-2-7b {A100} {knobs} --memory-limit 2GiB')



def exported(binary):
    listed = subprocess.run([binary, 'export', '--list'], text=True, capture_output=True).stdout
    targets = [line.split()[0] for line in listed.splitlines() if line.strip()]
    of = ['compare', 'schedule-7b-deepspeed-ZERO_3', 'schedule-7b-pytorch-fsdp1-SHARD_GRAD_OP',
          'schedule-7b-shardplan-FULL_SHARD', 'schedule-7b-nanotron-ZERO_1']
    for target, name in itertools.product(targets, of):
        ask(f'export-{target}-{name}', f'export {{plan:{name}}} --to {target} -o {{out}}.d/')
        QUESTIONS.append((f'import-{target}-{name}',
                          ['import', f'{{first:export-{target}-{name}}}', 'llama-2-7b', A100]))
    samples = os.environ.get('CORPUS_SAMPLES')
    for here, _, names in sorted(os.walk(samples)) if samples else []:
        for name in sorted(names):
            path = os.path.join(here, name)
            word = os.path.relpath(path, samples).replace('/', '_')
            if 'hf-config' in here:
                QUESTIONS.append((f'sample-model-{word}', ['models', 'show', path, '--json']))
            elif 'nccl' in here:
                QUESTIONS.append((f'sample-topology-{word}', ['topologies', 'import', path]))
            elif 'export' in here:
                QUESTIONS.append((f'sample-import-{word}',
                                  ['import', path, 'llama-2-7b', 'dgx-h100']))
                QUESTIONS.append((f'sample-import-{word}-json',
                                  ['import', path, 'llama-2-7b', 'dgx-h100', '--json']))


TRAINED = [('gpt2-nano', '--gpus 2'), ('gpt2-nano', '--gpus 2 --strategy NO_SHARD --grad-accum 2'),
           ('gpt2-nano', '--gpus 4 --strategy HYBRID_SHARD --shard-group 2'),
           ('llama-nano', '--gpus 2 --activation-checkpointing full'),
           ('llama-nano', '--gpus 4 --strategy ZERO_2 --clip 1'),
           ('gpt2-nano', '--gpus 2 --param-dtype bf16 --cpu-offload optimizer'),
           ('llama-nano', '--gpus 1 --gradient-sums exact')]


def trained(box, number, model, knobs):
    """The digest and every loss and norm of four steps."""
    file = os.path.join(box.folder, f'train-{number}.yaml')
    done = box.run(['predict', model, 'local', '--seq-len', '64', '--optimizer', 'adamw-fused'] +
                   knobs.split() + ['-o', file])
    if done.returncode:
        return done.stdout + done.stderr
    text = os.path.join(ROOT, 'data', 'paradise-lost.txt')
    done = box.run(['train', file, '--data', text, '--steps', '4', '--json'])
    if done.returncode:
        return done.stdout + done.stderr
    found = json.loads(done.stdout)
    found = found.get('measurement', found)
    return json.dumps({key: found.get(key) for key in
                       ['weights_digest', 'schedule_digest', 'loss', 'gradient_norm']}, indent=1)


class Box:
    def __init__(self, binary):
        self.binary, self.folder = os.path.abspath(binary), tempfile.mkdtemp()
        self.environment = {'PATH': os.environ['PATH'], 'HOME': self.folder, 'COLUMNS': '100',
                            'XDG_CACHE_HOME': self.folder, 'LC_ALL': 'C.UTF-8',
                            'SOURCE_DATE_EPOCH': '1700000000', 'OMP_NUM_THREADS': '1'}

    def run(self, words):
        return subprocess.run([self.binary] + words, cwd=self.folder, env=self.environment,
                              text=True, capture_output=True, stdin=subprocess.DEVNULL,
                              errors='replace')

    def filled(self, word, name):
        word = word.replace('{out}', os.path.join('out', name))
        word = word.replace('{data}', os.path.join(ROOT, 'tests', 'cli', 'data'))
        word = word.replace('{inputs}', os.path.dirname(os.path.abspath(__file__)))
        if word.startswith('{plan:'):
            return os.path.join('plans', word[6:-1] + '.yaml')
        if word.startswith('{first:'):
            folder = os.path.join('out', word[7:-1] + '.d')
            names = sorted(os.listdir(os.path.join(self.folder, folder))) \
                if os.path.isdir(os.path.join(self.folder, folder)) else []
            return os.path.join(folder, names[0] if names else 'nothing')
        return word

    def answer(self, name, words):
        done = self.run([self.filled(word, name) for word in words])
        text = f'exit {done.returncode}\n{done.stdout}'
        if done.stderr:
            text += f'--- stderr\n{done.stderr}'
        out = os.path.join(self.folder, 'out')
        for here, _, names in sorted(os.walk(out)):
            for file in sorted(names):
                path = os.path.join(here, file)
                if os.path.relpath(path, out).startswith((name + '.', name + '/')):
                    with open(path, encoding='utf-8', errors='backslashreplace') as stream:
                        text += f'--- {os.path.relpath(path, out)}\n{stream.read()}'
        return text.replace(self.folder, 'BOX').replace(ROOT, 'ROOT')

    def schedule(self, name, words):
        file = os.path.join('plans', name + '.yaml')
        done = self.run(['predict'] + words + ['-o', file])
        text = f'exit {done.returncode}\n{done.stdout}{done.stderr}'
        if not os.path.exists(os.path.join(self.folder, file)):
            return text
        with open(os.path.join(self.folder, file), encoding='utf-8') as stream:
            text += '--- plan file\n' + stream.read()
        return text + '--- schedule\n' + self.run(['explain', file, '--view', 'schedule']).stdout


def record(binary):
    box = Box(binary)
    for folder in ['plans', 'out']:
        os.mkdir(os.path.join(box.folder, folder))
    schedules()
    planned()
    predicted()
    shown()
    refused()
    exported(binary)
    only = os.environ.get('CORPUS_ONLY', '')
    answers = {}
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(lambda entry: (entry[0], box.schedule(*entry)), PLANS)
        answers.update(done)
        # Imports read what exports wrote.
        for first in (False, True):
            some = [q for q in QUESTIONS if q[0].startswith('import-') == first and only in q[0]]
            answers.update(pool.map(lambda entry: (entry[0], box.answer(*entry)), some))
    if not only:
        for number, (model, knobs) in enumerate(TRAINED):
            answers[f'train-{number}'] = trained(box, number, model, knobs)
    shutil.rmtree(box.folder)
    return answers


def main(binary, folder, against):
    answers = record(binary)
    if not against:
        os.makedirs(folder, exist_ok=True)
        for name, text in answers.items():
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as stream:
                stream.write(text)
        print(f'{len(answers)} answers')
        return 0
    differ = 0
    for name, text in sorted(answers.items()):
        with open(os.path.join(folder, name), encoding='utf-8') as stream:
            before = stream.read()
        if text != before:
            differ += 1
            lines = list(difflib.unified_diff(before.split('\n'), text.split('\n'), 'before',
                                              'after', lineterm='', n=0))
            print(f'== {name}', *lines[2:12], sep='\n')
            if len(lines) > 12:
                print(f'... {len(lines) - 12} lines more')
    print(f'{len(answers)} answers, {differ} differ')
    return 1 if differ else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ['--against']))
