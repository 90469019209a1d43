"""Judges the documents that a program writes by the schemas of docs/schema/.

    check_documents.py SCHEMAS WRITE_DOCUMENTS      one of every document, from the writers
    check_documents.py SCHEMAS --cli SHARDPLAN      what the commands print

Both also break every document in several ways and fail unless each is noticed. Exit 77 (skipped)
without python3-jsonschema or python3-yaml.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f'skipped: {missing}')
    sys.exit(77)

warnings.simplefilter('ignore', DeprecationWarning)

# Document, its schema. What the C writers make (tests/reports/write_documents.c).
WRITTEN = [
    ('plan.json', 'plan.json'),
    ('predict.json', 'predict.json'),
    ('measurement.json', 'measurement.json'),
    ('check.json', 'check.json'),
    ('explain.json', 'explain.json'),
    ('report.json', 'report.json'),
    ('plan-file.yaml', 'plan-file.json'),
    ('topology.json', 'topology-file.json'),
]

# Arguments, the schema of what is printed.
PRINTED = [
    (['plan', 'gpt2-nano', 'dgx-a100-80gb', '--json', '--global-batch', '64', '--pareto', '-o',
      'plan.yaml'], 'plan.json'),
    (['plan', 'llama-3-405b', 'dgx-a100-40gb', '--json', '--gpus', '1', '--strategy',
      'FULL_SHARD'], 'plan.json'),
    (['plan', 'gpt2-1.5b', '2xdgx-a100-80gb', '--json', '--runtime', 'megatron', '--pipeline', '4',
      '--global-batch', '256'], 'plan.json'),
    (['plan', '--compare', 'plan.yaml', '--json'], 'plan.json'),
    (['plan', 'gpt2-124m', 'dgx-a100-80gb', '--json', '--find', 'min-gpus'], 'find.json'),
    (['predict', 'llama-2-7b', '2xdgx-a100-80gb', '--json'], 'predict.json'),
    (['predict', 'gpt2-124m', 'local', '--json', '--gpus', '2'], 'predict.json'),
    (['import', 'accelerate.yaml', 'gpt2-124m', 'dgx-h100', '--micro-batch', '1', '--json'], 'predict.json'),
    (['explain', 'plan.yaml', '--json'], 'explain.json'),
    (['report', 'plan.yaml', '--json'], 'report.json'),
    (['report', 'gpt2-nano', 'dgx-h100', '2xdgx-a100-80gb', '--json'], 'report.json'),
    (['models', '--json'], 'models.json'),
    (['models', 'show', 'llama-3-8b', '--json'], 'model.json'),
    (['models', 'show', 'gpt2-124m'], 'model-file.json'),
    (['topologies', '--json'], 'topologies.json'),
    (['topologies', 'show', '2xdgx-h100', '--json'], 'topology.json'),
    (['topologies', 'show', 'rtx4090-8x'], 'topology-file.json'),
    (['topologies', 'fit', '2xdgx-a100-80gb', 'runs.csv', '--json'], 'fit.json'),
]

RUNS = """case,model,gpus,micro_batch,step_time_s
few,gpt2-124m,8,1,0.05
more,gpt2-124m,8,8,0.09
both,gpt2-124m,16,8,0.09
"""


ACCELERATE = """distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}
mixed_precision: bf16
num_processes: 8
"""


def load(path):
    with open(path, encoding='utf-8') as stream:
        return json.load(stream) if path.endswith('.json') else yaml.safe_load(stream)


class Schemas:
    """Every schema, which refer to each other by file name."""

    def __init__(self, folder):
        self.all = {name: load(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
                    if name.endswith('.json')}
        for name, schema in self.all.items():
            jsonschema.Draft7Validator.check_schema(schema)
            if schema['$id'] != name:
                raise SystemExit(f'{name}: $id is {schema["$id"]}')
        self.validators = {
            name: jsonschema.Draft7Validator(
                schema, resolver=jsonschema.RefResolver(name, schema, store=dict(self.all)))
            for name, schema in self.all.items()}

    def problems(self, document, name):
        return [f'{"/".join(map(str, error.absolute_path))}: {error.message[:200]}'
                for error in self.validators[name].iter_errors(document)]

    def notices(self, document, name):
        """Whether there is a problem; it stops at the first."""
        return not self.validators[name].is_valid(document)


def maps(document):
    """Every map in a document, but only the first of a list: the others are alike."""
    if isinstance(document, dict):
        yield document
        for value in document.values():
            yield from maps(value)
    elif isinstance(document, list) and document:
        yield from maps(document[0])


def breakages(document):
    """What is wrong with the document, which has one thing wrong until the next is asked for."""
    for i, broken in enumerate(list(maps(document))):
        broken['nonsense'] = 1
        yield f'unknown key in map {i}'
        del broken['nonsense']
    for key in list(document):
        kept, document[key] = document[key], {'nonsense': []}
        yield f'{key} is nonsense'
        document[key] = kept


def judge(schemas, document, schema, name):
    found = [f'{name}: {problem}' for problem in schemas.problems(document, schema)]
    for what in breakages(document):
        if not schemas.notices(document, schema):
            found.append(f'{name}: {schema} does not notice: {what}')
    return found


def judge_written(schemas, program):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder], check=True)
        for name, schema in WRITTEN:
            found += judge(schemas, load(os.path.join(folder, name)), schema, name)
    return found


def judge_cli(schemas, program):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, XDG_CACHE_HOME=folder)
        with open(os.path.join(folder, 'runs.csv'), 'w', encoding='utf-8') as stream:
            stream.write(RUNS)
        with open(os.path.join(folder, 'accelerate.yaml'), 'w', encoding='utf-8') as stream:
            stream.write(ACCELERATE)
        for arguments, schema in PRINTED:
            done = subprocess.run([program] + arguments, cwd=folder, env=environment, text=True,
                                  capture_output=True)
            name = ' '.join(arguments)
            if done.returncode not in (0, 1) or not done.stdout:
                found.append(f'{name}: exit {done.returncode}: {done.stderr.strip()}')
                continue
            document = json.loads(done.stdout) if '--json' in arguments else \
                yaml.safe_load(done.stdout)
            found += judge(schemas, document, schema, name)
        if os.path.exists(os.path.join(folder, 'plan.yaml')):
            found += judge(schemas, load(os.path.join(folder, 'plan.yaml')), 'plan-file.json',
                           'plan.yaml')
    return found


def judge_case(schemas, program):
    """The names of values in a file, in another case: read, as the schemas say."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        shown = subprocess.run([program, 'topologies', 'show', 'dgx-h100'], check=True, text=True,
                               capture_output=True).stdout
        for name, text in (('as it is', shown), ('other', shown.replace('infiniband', 'InfiniBand')),
                           ('unknown', shown.replace('infiniband', 'infiniban'))):
            with open(os.path.join(folder, 'box.yaml'), 'w', encoding='utf-8') as stream:
                stream.write(text)
            done = subprocess.run([program, 'topologies', 'show', 'box.yaml'], cwd=folder, text=True,
                                  capture_output=True)
            if (done.stdout == shown) == (name == 'unknown'):
                found.append(f'{name} case of a network: {done.stdout}{done.stderr}')
    network = schemas.all['common.json']['definitions']['topology']['properties']['network']
    if 'any case' not in network['properties']['kind'].get('description', ''):
        found.append('common.json: the kind of a network does not say that any case is read')
    return found


if __name__ == '__main__':
    loaded = Schemas(sys.argv[1])
    if sys.argv[2] == '--cli':
        bad = judge_cli(loaded, os.path.abspath(sys.argv[3])) + \
            judge_case(loaded, os.path.abspath(sys.argv[3]))
    else:
        bad = judge_written(loaded, sys.argv[2])
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
