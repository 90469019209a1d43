"""Bad input of every kind: the exit code, and the one line that says what is wrong, are compared
with golden/bad_input.txt.

    bad_input.py BINARY           compares
    bad_input.py BINARY --update  writes the golden file anew (read the difference!)
"""

import json
import os
import re
import sys

import support

GOLDEN = os.path.join(support.HERE, 'golden', 'bad_input.txt')
PREDICT = ['predict', 'tiny.yaml', 'box.yaml']


def edited(name, old, new):
    """A file named bad.* that is `name` with one replacement."""
    def make(box):
        content = box.read(name)
        assert old in content, f'{name} has no {old!r}'
        box.write('bad' + os.path.splitext(name)[1], content.replace(old, new, 1))
    return make


def cut(name, mark):
    """The file ends in the middle of the line that holds the mark."""
    def make(box):
        content = box.read(name)
        assert mark in content, f'{name} has no {mark!r}'
        box.write('bad' + os.path.splitext(name)[1], content[:content.index(mark) + len(mark)])
    return make


def given(name, content):
    return lambda box: box.write(name, content)


def measured(change):
    def make(box):
        document = json.loads(box.read('measured.json'))
        change(document)
        box.write('bad.json', json.dumps(document, indent=2))
    return make


def nothing(box):
    pass


MODEL = ['models', 'show', 'bad.yaml']
CONFIG = ['models', 'show', 'bad.json']
TOPOLOGY = ['topologies', 'show', 'bad.yaml']
PLAN = ['explain', 'bad.yaml']
CHECK = ['check', 'plan.yaml', 'bad.json']
FIT = ['topologies', 'fit', 'box.yaml']
RUNS = ('case,model,gpus,micro_batch,step_time_s\n'
        'a,gpt2-124m,4,8,0.226\nb,gpt2-124m,8,4,0.161\nc,gpt2-124m,4,1,0.0425\n')
CASES = ['predict', '--cases', 'bad.csv']

# (exit code, name, what to prepare, words of the command line)
INPUT = [
    # models
    (3, 'model: no such preset', nothing, ['models', 'show', 'lama-2-7b']),
    (3, 'model: no such preset, nothing near', nothing, ['models', 'show', 'whatever']),
    (3, 'model: no such file', nothing, ['models', 'show', 'none/model.yaml']),
    (3, 'model: unknown key', edited('tiny.yaml', 'layers:', 'layer:'), MODEL),
    (3, 'model: missing key', edited('tiny.yaml', 'hidden: 32\n', ''), MODEL),
    (3, 'model: key twice', edited('tiny.yaml', 'layers: 2', 'layers: 2\nlayers: 3'), MODEL),
    (3, 'model: zero layers', edited('tiny.yaml', 'layers: 2', 'layers: 0'), MODEL),
    (3, 'model: too many layers', edited('tiny.yaml', 'layers: 2', 'layers: 99999999'), MODEL),
    (3, 'model: heads do not divide', edited('tiny.yaml', 'heads: 4', 'heads: 5'), MODEL),
    (3, 'model: a word for a number', edited('tiny.yaml', 'layers: 2', 'layers: two'), MODEL),
    (3, 'model: a fraction', edited('tiny.yaml', 'layers: 2', 'layers: 2.5'), MODEL),
    (3, 'model: a number in quotes', edited('tiny.yaml', 'layers: 2', 'layers: "2"'), MODEL),
    (3, 'model: a list for a number', edited('tiny.yaml', 'layers: 2', 'layers: [2]'), MODEL),
    (3, 'model: unknown family', edited('tiny.yaml', 'gpt2', 'gtp2'), MODEL),
    (3, 'model: another version', edited('tiny.yaml', 'model/1', 'model/9'), MODEL),
    (3, 'model: a topology', given('bad.yaml', 'shardplan: topology/1\n'), MODEL),
    (3, 'model: neither', given('bad.yaml', 'a: 1\n'), MODEL),
    (3, 'model: empty', given('bad.yaml', ''), MODEL),
    (3, 'model: a tab', edited('tiny.yaml', 'layers: 2', '\tlayers: 2'), MODEL),
    (3, 'model: broken flow', given('bad.yaml', 'a: [1, 2\nb: 3\n'), MODEL),
    (3, 'model: an anchor', edited('tiny.yaml', 'layers: 2', 'layers: &a 2'), MODEL),
    (3, 'model: NUL bytes', given('bad.yaml', b'a: 1\0\n'), MODEL),
    (3, 'model: not UTF-8', given('bad.yaml', b'a: \xff\xfe\n'), MODEL),
    (3, 'model: escapes for the terminal',
     edited('tiny.yaml', 'layers: 2', 'layers: "\\e[31m2"'), MODEL),
    (3, 'model: too deep', given('bad.json', '{"a":' + '[' * 5000), CONFIG),
    (3, 'model: a page', given('bad.html', '<!DOCTYPE html>\n<html></html>\n'),
     ['models', 'show', './bad.html']),
    (3, 'config: truncated', cut('config.json', '"num_hid'), CONFIG),
    (3, 'config: no comma', edited('config.json', ',\n  "hid', '\n  "hid'), CONFIG),
    (3, 'config: unknown type', edited('config.json', '"llama"', '"mamba"'), CONFIG),
    (3, 'config: missing key', edited('config.json', '  "hidden_size": 64,\n', ''), CONFIG),
    (3, 'config: heads do not divide',
     edited('config.json', '_attention_heads": 4', '_attention_heads": 5'), CONFIG),
    (3, 'config: more key heads than heads',
     edited('config.json', 'key_value_heads": 2', 'key_value_heads": 8'), CONFIG),
    (3, 'config: a negative size', edited('config.json', '": 64', '": -64'), CONFIG),
    (3, 'config: a string', edited('config.json', '": 64', '": "64"'), CONFIG),
    (3, 'config: no such folder', nothing, ['models', 'show', './nowhere/']),
    # topologies
    (3, 'topology: no such name', nothing, ['topologies', 'show', 'dgx-a100-81gb']),
    (3, 'topology: no such node', nothing, ['topologies', 'show', '2xdgx-a10']),
    (3, 'topology: no nodes', nothing, ['topologies', 'show', '0xdgx-h100']),
    (3, 'topology: too many nodes', nothing, ['topologies', 'show', '999999999999xdgx-h100']),
    (3, 'topology: no network', nothing, ['topologies', 'show', '2xrtx4090-8x']),
    (3, 'topology: wrong unit', edited('box.yaml', '16GiB', '16GHz'), TOPOLOGY),
    (3, 'topology: bytes for bandwidth', edited('box.yaml', '1TB/s', '1TB'), TOPOLOGY),
    (3, 'topology: bandwidth for time', edited('box.yaml', '5us', '5GB/s'), TOPOLOGY),
    (3, 'topology: a fraction of a byte', edited('box.yaml', '16GiB', '0.3B'), TOPOLOGY),
    (3, 'topology: negative', edited('box.yaml', '10us', '-10us'), TOPOLOGY),
    (3, 'topology: zero devices', edited('box.yaml', 'node: 4', 'node: 0'), TOPOLOGY),
    (3, 'topology: unknown key', edited('box.yaml', 'fabric:', 'fabrik:'), TOPOLOGY),
    (3, 'topology: unknown key inside', edited('box.yaml', '  latency', '  latencee'), TOPOLOGY),
    (3, 'topology: unknown kind', edited('box.yaml', 'pcie', 'pci'), TOPOLOGY),
    (3, 'topology: nodes without network',
     edited('box.yaml', 'kind: ethernet', 'kind: none'), TOPOLOGY),
    (3, 'topology: a device for a generation', edited('box.yaml', 'ampere', 'H100-SXM'), TOPOLOGY),
    (3, 'topology: an architecture for a generation', edited('box.yaml', 'ampere', 'sm_100'), TOPOLOGY),
    (3, 'topology: GPUs of a node', edited('box.yaml', 'devices_per_node', 'gpus_per_node'), TOPOLOGY),
    (3, 'topology: two kinds of NICs',
     edited('box.yaml', '  kind: ethernet\n  nics_per_node: 1\n  nic_bandwidth: 100Gbit/s\n  latency: 10us\n',
            ' - {kind: efa}\n - {kind: ethernet}\n'),
     TOPOLOGY),
    (3, 'topology: truncated', cut('box.yaml', 'bf16: 10'), TOPOLOGY),
    # plan files
    (3, 'plan: no such file', nothing, ['explain', 'none.yaml']),
    (3, 'plan: a folder', nothing, ['explain', '.']),
    (3, 'plan: a model', nothing, ['explain', 'tiny.yaml']),
    (3, 'plan: truncated', cut('plan.yaml', '  prefetch: p'), PLAN),
    (3, 'plan: another version', edited('plan.yaml', 'plan/1', 'plan/2'), PLAN),
    (3, 'plan: unknown knob', edited('plan.yaml', '  wrap:', '  wrapp:'), PLAN),
    (3, 'plan: no such strategy', edited('plan.yaml', 'FULL_SHARD', 'FULL_SHRAD'), PLAN),
    (3, 'plan: a mesh of other ranks', edited('plan.yaml', '    shard: 2', '    shard: 3'), PLAN),
    (3, 'plan: batch that does not multiply',
     edited('plan.yaml', '  grad_accum: 1', '  grad_accum: 2'), PLAN),
    (3, 'plan: edited knob', edited('plan.yaml', '  prefetch: pre', '  prefetch: none'), PLAN),
    (3, 'plan: edited model', edited('plan.yaml', '  ffn: 64', '  ffn: 128'), PLAN),
    (3, 'plan: impossible model', edited('plan.yaml', '  heads: 4', '  heads: 5'), PLAN),
    (3, 'plan: edited digest',
     lambda box: box.write('bad.yaml', re.sub(r'(\nschedule_digest: ).*',
                                              r'\g<1>' + 32 * '0', box.read('plan.yaml'))),
     PLAN),
    (3, 'plan: a digest that is none',
     lambda box: box.write('bad.yaml', re.sub(r'(\nschedule_digest: ).*', r'\g<1>0',
                                              box.read('plan.yaml'))), PLAN),
    (3, 'plan: of another version of the question',
     edited('plan.yaml', '--gpus 2', '--gups 2'), ['report', 'bad.yaml']),
    # measurements
    (3, 'measurement: of another plan', nothing, ['check', 'other.yaml', 'measured.json']),
    (3, 'measurement: a plan', nothing, ['check', 'plan.yaml', 'plan.yaml']),
    (3, 'measurement: truncated', cut('measured.json', '"step_time_'), CHECK),
    (3, 'measurement: another schema', measured(lambda d: d.update(schema='x/1')), CHECK),
    (3, 'measurement: none inside', measured(lambda d: d.pop('measurement')), CHECK),
    (3, 'measurement: no digest',
     measured(lambda d: d['measurement'].pop('schedule_digest')), CHECK),
    (3, 'measurement: a word for a time',
     measured(lambda d: d['measurement'].update(step_time_s='fast')), CHECK),
    (3, 'measurement: unknown key',
     measured(lambda d: d.update(measurement={'step_tine_s': 1, **d['measurement']})), CHECK),
    (3, 'measurement: for explain', nothing,
     ['explain', 'other.yaml', '--analyze', 'measured.json']),
    (3, 'data: no such file', nothing, ['train', 'plan.yaml', '--data', 'none.txt']),
    (3, 'data: empty', given('empty.txt', ''), ['train', 'plan.yaml', '--data', 'empty.txt']),
    # cases
    (3, 'cases: no such file', nothing, ['predict', '--cases', 'none.csv']),
    (3, 'cases: empty', given('bad.csv', ''), CASES),
    (3, 'cases: unknown column', given('bad.csv', 'case,model,topolgy\n'), CASES),
    (0, 'cases: an option of another command', given('bad.csv', 'model,steps\n'), CASES),
    (0, 'cases: a column with a dash', given('bad.csv', 'model,seq-len\n'), CASES),
    (0, 'cases: headings as in a spreadsheet', given('bad.csv', 'Case,MODEL,Topology,Seq Len,GPUs\n'), CASES),
    (0, 'cases: a column of notes', given('bad.csv', 'model,topology,notes\n'), CASES),
    (0, 'cases: semicolons', given('bad.csv', 'case;model;topology\n'), CASES),
    (0, 'cases: tabs', given('bad.csv', 'case\tmodel\ttopology\n'), CASES),
    (3, 'cases: a column of two meanings', given('bad.csv', 'model,batch_size\n'), CASES),
    (3, 'cases: a column twice', given('bad.csv', 'model,model\n'), CASES),
    (3, 'fit: no such file', nothing, FIT + ['none.csv']),
    (3, 'fit: no such topology', given('runs.csv', RUNS), ['topologies', 'fit', 'boks.yaml', 'runs.csv']),
    (3, 'fit: two runs', given('bad.csv', RUNS.rsplit('\n', 2)[0] + '\n'), FIT + ['bad.csv']),
    (3, 'fit: empty', given('bad.csv', ''), FIT + ['bad.csv']),
    (3, 'fit: no column of a measurement', given('bad.csv', RUNS.replace('step_time_s', 'step_time')), FIT + ['bad.csv']),
    (3, 'fit: a run that was not measured', given('bad.csv', RUNS.replace('0.226', '')), FIT + ['bad.csv']),
    (3, 'fit: a word for a time', given('bad.csv', RUNS.replace('0.226', 'fast')), FIT + ['bad.csv']),
    (3, 'fit: no time', given('bad.csv', RUNS.replace('0.226', '0')), FIT + ['bad.csv']),
    (3, 'fit: no model', given('bad.csv', RUNS.replace('gpt2-124m,4,8', ',4,8')), FIT + ['bad.csv']),
    (3, 'fit: an unknown model', given('bad.csv', RUNS.replace('gpt2-124m,4,8', 'gpt2-124,4,8')), FIT + ['bad.csv']),
    (3, 'fit: GPUs that it does not have', given('bad.csv', RUNS.replace('124m,8,4', '124m,16,4')), FIT + ['bad.csv']),
    (3, 'fit: several values', given('bad.csv', RUNS.replace('124m,8,4', '124m,8,"2,4"')), FIT + ['bad.csv']),
    (3, 'fit: another topology', given('bad.csv', 'model,topology,step_time_s\ngpt2-124m,dgx-h100,1\n'), FIT + ['bad.csv']),
    (3, 'fit: two figures that differ',
     given('bad.csv', 'model,step_time_s,tokens_per_s_per_gpu\ngpt2-124m,1,9\n'), FIT + ['bad.csv']),
    (3, 'fit: a cell too many', given('bad.csv', RUNS.replace('0.226', '0.226,1')), FIT + ['bad.csv']),
    (2, 'fit: a plan without a measurement', nothing, FIT + ['plan.yaml']),
    (3, 'fit: a plan and a table', given('runs.csv', RUNS), FIT + ['plan.yaml', 'runs.csv']),
    (2, 'fit: no runs', nothing, FIT),
    (3, 'cases: an open quote', given('bad.csv', 'case,model\n"a,b\n'), CASES),
    (3, 'cases: bad rows', nothing, ['predict', '--cases', 'cases.csv']),
]

USAGE = [
    (2, 'no command', nothing, []),
    (2, 'command: unknown', nothing, ['pln']),
    (2, 'command: of another tool', nothing, ['sweep']),
    (2, 'command: of another tool, with options', nothing, ['simulate', 'llama-2-7b', 'dgx-h100']),
    (2, 'diagnose: no files', nothing, ['diagnose']),
    (2, 'import: no file', nothing, ['import']),
    (2, 'import: unknown framework', nothing, ['import', 'x.yaml', '--from', 'acelerate']),
    (2, 'import: not enough for a plan', given('x.yaml', 'distributed_type: FSDP\n'),
     ['import', 'x.yaml', '-o', 'p.yaml']),
    (3, 'import: no such file', nothing, ['import', 'none.yaml']),
    (3, 'import: of no framework', given('x.yaml', 'answer: 42\n'), ['import', 'x.yaml']),
    (3, 'import: context ranks', given('x.yaml', 'parallelism: {dp: 4, context_parallel_size: 2}\n'),
     ['import', 'x.yaml']),
    (3, 'import: a bad value', given('x.json', '{"zero_optimization": {"stage": 4}}'),
     ['import', 'x.json']),
    (3, 'import: TOML with an open bracket', given('x.toml', '[training\nseq_len = 8\n'), ['import', 'x.toml']),
    (3, 'import: TOML with a key twice', given('x.toml', '[training]\nseq_len = 8\nseq_len = 9\n'),
     ['import', 'x.toml']),
    (3, 'import: DeepSpeed with bf16 and fp16', given(
        'x.json', '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "fp16": {"enabled": true}}'),
     ['import', 'x.json']),
    (3, 'import: bad TOML', given('x.toml', '[training]\nseq_len = \n'), ['import', 'x.toml']),
    (3, 'import: more ranks than there are',
     given('x.yaml', 'distributed_type: MULTI_GPU\nnum_processes: 64\n'),
     ['import', 'x.yaml', 'tiny.yaml', 'box.yaml']),
    (2, 'export: no plan', nothing, ['export']),
    (2, 'export: no target', nothing, ['export', 'plan.yaml']),
    (2, 'export: unknown target', nothing, ['export', 'plan.yaml', '--to', 'acelerate']),
    (2, 'command: unknown topic', nothing, ['help', 'default']),
    (2, 'operands: too few', nothing, ['plan', 'tiny.yaml']),
    (2, 'operands: too many', nothing, PREDICT + ['more']),
    (2, 'operands: models', nothing, ['models', 'sow', 'gpt2-124m']),
    (2, 'option: unknown', nothing, PREDICT + ['--seqlen', '32']),
    (2, 'option: unknown letter', nothing, PREDICT + ['-x']),
    (2, 'option: of another command', nothing, PREDICT + ['--steps', '3']),
    (2, 'option: twice', nothing, PREDICT + ['--gpus', '2', '--gpus=4']),
    (2, 'option: without its value', nothing, PREDICT + ['--prefetch']),
    (2, 'option: a switch with a value', nothing, PREDICT + ['--json=yes']),
    (2, 'option: not a number', nothing, PREDICT + ['--gpus', 'two']),
    (2, 'option: zero', nothing, PREDICT + ['--micro-batch', '0']),
    (2, 'option: overflow', nothing, PREDICT + ['--micro-batch', '99999999999999999999']),
    (2, 'option: not on or off', nothing, PREDICT + ['--forward-prefetch', 'perhaps']),
    (2, 'option: no such choice', nothing, PREDICT + ['--prefetch', 'prae']),
    (2, 'option: no such strategy', nothing, PREDICT + ['--strategy', 'FULL_SHRAD']),
    (2, 'option: an empty strategy', nothing, ['plan'] + PREDICT[1:] + ['--strategy', 'NO_SHARD,']),
    (2, 'option: two strategies', nothing, PREDICT + ['--strategy', 'NO_SHARD,FULL_SHARD']),
    (2, 'option: wrong unit', nothing, PREDICT + ['--memory-limit', '8GB/s']),
    (2, 'option: wrap', nothing, PREDICT + ['--wrap', 'layers']),
    (2, 'option: color', nothing, PREDICT + ['--color', 'red']),
    (2, 'question: part of a node and a half', nothing, PREDICT + ['--gpus', '6']),
    (2, 'question: more than there are', nothing, PREDICT + ['--gpus', '64']),
    (2, 'question: shard group does not divide', nothing,
     PREDICT + ['--strategy', 'HYBRID_SHARD', '--shard-group', '3']),
    (2, 'question: shard group of NO_SHARD', nothing,
     PREDICT + ['--strategy', 'NO_SHARD', '--shard-group', '2']),
    (2, 'question: tensor ranks do not divide the ranks', nothing, PREDICT + ['--tensor', '3']),
    (2, 'question: tensor ranks do not divide the heads', nothing,
     ['predict', 'gpt2-124m', 'dgx-h100', '--tensor', '8']),
    (2, 'question: a kernel without the bias that positions need', nothing,
     ['predict', 'mpt-7b', 'dgx-h100', '--attention', 'flash3']),
    (2, 'question: sequence parallel without tensor ranks', nothing,
     ['predict', 'gpt2-124m', 'dgx-h100', '--sequence-parallel', 'on']),
    (2, 'question: tokens do not make chunks', nothing,
     ['predict', 'gpt2-124m', 'dgx-h100', '--context', '8', '--seq-len', '1000']),
    (2, 'question: context ranks that other axes leave no room for', nothing,
     ['predict', 'llama-2-7b', 'dgx-h100', '--context', '2', '--tensor', '8']),
    (2, 'question: stages do not divide the ranks', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '3']),
    (2, 'question: more stages than blocks', nothing,
     ['predict', 'llama-2-7b', '8xdgx-h100', '--pipeline', '64']),
    (2, 'question: stages of a tied head', nothing,
     ['predict', 'gpt2-1.5b', '2xdgx-h100', '--pipeline', '2']),
    (2, 'question: micro-batches that interleaved stages cannot share out', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '4', '--pipeline-schedule',
      'interleaved', '--grad-accum', '9']),
    (2, 'question: fewer micro-batches than stages', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '8', '--grad-accum', '4']),
    (2, 'question: a pipeline that reduces each micro-batch', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '2', '--grad-accum', '4',
      '--sync-each-micro-batch', 'on']),
    (2, 'question: one stage a rank is not interleaved', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '4', '--pipeline-schedule',
      'interleaved', '--virtual-stages', '1']),
    (2, 'question: too many stages a rank', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '4', '--pipeline-schedule',
      'interleaved', '--virtual-stages', '20']),
    (2, 'question: several stages a rank in 1f1b', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '4', '--virtual-stages', '2']),
    (2, 'question: stages whose blocks are too many', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '4', '--layers-per-stage', '10,10,10,10']),
    (2, 'question: an empty stage in the middle', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--pipeline', '4', '--layers-per-stage', '8,0,16,8']),
    (2, 'question: expert ranks of a model without experts', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--expert', '2']),
    (2, 'question: expert ranks do not divide the experts', nothing,
     ['predict', 'qwen3-30b-a3b', '16xdgx-h100', '--expert', '12']),
    (2, 'question: an expert over other ranks than tensor ranks', nothing,
     ['predict', 'qwen3-30b-a3b', '2xdgx-h100', '--expert', '4', '--expert-tensor', '3']),
    (2, 'question: a load below the mean', nothing,
     ['predict', 'qwen3-30b-a3b', '2xdgx-h100', '--expert', '4', '--expert-load', '0.5']),
    (2, 'question: tokens dropped by a runtime that drops none', nothing,
     ['predict', 'qwen3-30b-a3b', '2xdgx-h100', '--expert', '4', '--capacity-factor', '1.25']),
    (2, 'question: experts beside tensor ranks without sequence parallel', nothing,
     ['predict', 'qwen3-30b-a3b', '2xdgx-h100', '--runtime', 'megatron', '--tensor', '2',
      '--sequence-parallel', 'off']),
    (2, 'question: more expert ranks than data-parallel ranks have', nothing,
     ['predict', 'qwen3-30b-a3b', '2xdgx-h100', '--runtime', 'megatron', '--tensor', '4',
      '--expert', '8']),
    (2, 'question: a shard group beside tensor ranks', nothing,
     ['predict', 'llama-2-7b', '2xdgx-h100', '--tensor', '8', '--shard-group', '4']),
    (2, 'question: a runtime without tensor ranks', nothing,
     ['predict', 'llama-2-7b', 'dgx-h100', '--tensor', '2', '--runtime', 'pytorch-fsdp1']),
    (2, 'question: heads and ranks have no divisor near', nothing,
     ['predict', 'gpt2-1.5b', 'dgx-h100', '--tensor', '8']),
    (2, 'question: ranks that heads divide too', nothing,
     ['predict', 'llama-3.1-8b', 'dgx-h100', '--tensor', '6']),
    (2, 'question: a width that fewer ranks divide', edited('tiny.yaml', 'ffn: 64', 'ffn: 30'),
     ['predict', 'bad.yaml', 'box.yaml', '--tensor', '4']),
    (2, 'question: batch does not divide', nothing, PREDICT + ['--global-batch', '12']),
    (2, 'question: batch contradicts itself', nothing,
     PREDICT + ['--global-batch', '16', '--micro-batch', '1', '--grad-accum', '1']),
    (2, 'question: sequence too long', nothing, PREDICT + ['--seq-len', '4096']),
    (2, 'question: runtime without the knob', nothing,
     PREDICT + ['--runtime', 'pytorch-fsdp2', '--limit-all-gathers', 'on']),
    (2, 'question: strategy contradicts resharding', nothing,
     PREDICT + ['--strategy', 'FULL_SHARD', '--reshard-after-forward', 'false']),
    (2, 'cases: with --json', nothing, ['predict', '--cases', 'cases.csv', '--json']),
    (2, 'explain: unknown view', nothing, ['explain', 'plan.yaml', '--view', 'opertions']),
    (2, 'check: tolerance', nothing,
     ['check', 'plan.yaml', 'measured.json', '--tolerance-time', 'much']),
    (2, 'report: format', nothing, ['report', 'plan.yaml', '--format', 'pdf']),
    (2, 'calibrate: something else', nothing, ['calibrate', 'dgx-h100']),
    (2, 'calibrate: GPUs without a place for them', nothing,
     ['calibrate', 'local', '--device', 'cuda']),
    (2, 'calibrate: nobody', nothing, ['calibrate', 'local', '--device', 'null']),
    (2, 'train: a question where a plan is meant', nothing,
     ['train', *PREDICT[1:], '--data', 'tiny.yaml']),
    (2, 'train: a decay that is not asked for', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--min-lr', '1e-5']),
    (2, 'train: a decay that grows', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--lr-schedule', 'cosine', '--min-lr', '1e-3']),
    (2, 'train: no data', nothing, ['train', 'plan.yaml']),
    (2, 'train: slow motion of nothing', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--slow-motion', '2']),
    (3, 'train: no checkpoint', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--resume', 'x']),
    (2, 'train: every without a folder', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--every', '5']),
    (2, 'train: reproducible galaxy', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--reproducible', 'galaxy']),
    (2, 'train: graphs without a GPU', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--cuda-graphs', 'on']),
    (2, 'train: no steps', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--steps', '0']),
    (2, 'train: unknown fault', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--fault', 'explode']),
    (2, 'train: fault of no rank', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--fault', 'kill_rank=8']),
    (2, 'train: fault at no step', nothing,
     ['train', 'plan.yaml', '--data', 'tiny.yaml', '--steps', '3', '--fault', 'nan@step=3']),
]

ENVIRONMENT = [
    (4, 'output: a file where a folder should be', nothing, PREDICT + ['-o', 'tiny.yaml/plan.yaml']),
    (4, 'output: no place left', nothing, PREDICT + ['-o', '/dev/full']),
    (1, 'no: does not fit', nothing, PREDICT + ['--memory-limit', '1KiB']),
    (1, 'no: nothing fits', nothing, ['plan'] + PREDICT[1:] + ['--memory-limit', '1KiB']),
]

with open(os.path.join(support.HERE, 'data', 'box.yaml'), encoding='utf-8') as stream:
    A100 = stream.read().replace('Toy', 'A100-SXM4-40GB').replace('16GiB', '40GB')
H100 = ['llama-2-7b', '2xdgx-h100']
ASK = ['plan'] + H100
ONE = ['predict'] + H100
SHOW = ['topologies', 'show']


def flag(name, code, *words):
    """One question about a 7B model on sixteen H100, with these options."""
    return code, 'typed: ' + name, nothing, ONE + list(words)


# What is typed in the wrong place, or under a name of no command's: each line says what to type.
PLACED = [
    (2, 'placed: ' + words, nothing, words.split()) for words in (
        'train', 'train plan.yaml corpus.txt', 'train gpt2-124m local', 'train --plan plan.yaml',
        'train plan.yaml --data tiny.yaml --epochs 1', 'train plan.yaml --data tiny.yaml --weight-decay 0.1',
        'train plan.yaml --data tiny.yaml --batch-size 8', 'train plan.yaml --data tiny.yaml --seq 64',
        'train plan.yaml --data tiny.yaml --save-interval 5', 'explain plan.yaml memory', 'explain plan.yaml tiny.yaml',
        'explain llama-2-7b dgx-h100', 'explain fsdp', 'explain plan.yaml --memory', 'explain plan.yaml --timeline',
        'explain plan.yaml --format html', 'explain plan.yaml -o x.txt', 'explain plan.yaml --measured tiny.yaml',
        'check plan.yaml', 'check plan.yaml --measured measured.json', 'diagnose plan.yaml --log tiny.yaml',
        'report plan.yaml --html', 'report plan.yaml --trace', 'report --plan plan.yaml', 'export plan.yaml deepspeed',
        'export llama-2-7b dgx-h100', 'import llama-2-7b dgx-h100 tiny.yaml', 'import deepspeed tiny.yaml',
        'plan llama-2-7b dgx-h100 8', 'plan llama-2-7b 8 h100', 'plan llama-2-7b dgx-h100 help',
        'plan llama-2-7b dgx-h100 tiny.yaml', 'plan llama-2-7b dgx-h100 more', 'plan -m llama-2-7b',
        'plan llama-2-7b dgx-h100 --mem 40', 'plan llama-2-7b dgx-h100 --verbose',
        'plan llama-2-7b dgx-h100 --tokens 1T', 'predict llama-2-7b dgx-h100 --csv', 'calibrate 2xdgx-h100',
        'calibrate local --gpus 8', 'topologies dgx-h100', 'topologies add x', 'models llama-2-7b')
] + [(3, 'placed: a plan as a model', nothing, ['plan', 'plan.yaml', 'dgx-h100'])]

# Names of other tools that are taken.
TAKEN = [
    (0, 'taken: ' + words, nothing, words.split()) for words in (
        'models ls', 'export plan.yaml --target torch', 'export plan.yaml --for megatron-lm',
        'explain plan.yaml --view timeline', 'plan llama-2-7b dgx-h100 --for transformers')
] + [
    (3, 'taken, no checkpoint: ' + words, nothing, ['train', 'plan.yaml', *words.split()]) for words in (
        '--data tiny.yaml --resume-from-checkpoint ckpt', '--data tiny.yaml --load ckpt --save ckpt2')
] + [(2, 'taken: gpu', nothing, ['calibrate', 'local', '--device', 'gpu'])]

# What people type who know other tools: taken with a note, or refused with what to type.
TYPED = [
    flag('8k', 0, '--seq-len', '8k', '--activation-checkpointing', 'full'),
    flag('4,096', 0, '--seq-len', '4,096'),
    flag('two batches', 2, '--global-batch', '1k,2k'),
    flag('80G', 0, '--memory-limit', '80G'),
    flag('80GB', 0, '--memory-limit', '80GB'),
    flag('70 bytes', 2, '--memory-limit', '70'),
    flag('80 Gbit of memory', 2, '--memory-limit', '80Gbit'),
    (2, 'typed: headroom of 4 bytes', nothing, ASK + ['--headroom', '4']),
    flag('full_shard', 0, '--strategy', 'full_shard'),
    flag('fullshard', 0, '--strategy', 'fullshard'),
    flag('fsdp', 0, '--strategy', 'fsdp'),
    flag('ddp', 1, '--strategy', 'DDP'),
    flag('hsdp', 0, '--strategy', 'hsdp'),
    flag('zero3 of DeepSpeed', 0, '--strategy', 'zero3', '--runtime', 'deepspeed'),
    flag('zero3', 2, '--strategy', 'ZeRO-3'),
    flag('zero2', 2, '--strategy', 'zero2'),
    flag('zero1', 2, '--strategy', 'zero1'),
    flag('zero stage', 0, '--zero-stage', '1', '--runtime', 'deepspeed'),
    flag('bfloat16', 0, '--precision', 'bfloat16'),
    flag('fp8', 2, '--fp8'),
    flag('fp8 as a data type', 2, '--precision', 'FP8'),
    flag('bf16', 2, '--bf16'),
    flag('BACKWARD_PRE', 0, '--backward-prefetch', 'BACKWARD_PRE'),
    flag('sdpa', 0, '--attn-implementation', 'sdpa'),
    flag('yes', 0, '--compile', 'yes'),
    flag('True', 0, '--compile', 'True', '--forward-prefetch', 'OFF'),
    flag('recompute', 0, '--recompute', 'true'),
    flag('gradient checkpointing', 2, '--gradient-checkpointing'),
    flag('underscores', 0, '--seq_len', '2048'),
    flag('micro-batch of Megatron', 0, '--micro-batch-size', '2'),
    flag('mbs', 0, '--mbs=2'),
    flag('gbs', 0, '--gbs', '32'),
    flag('accumulation of HF', 0, '--gradient_accumulation_steps', '2'),
    flag('batch size', 2, '--batch-size', '32'),
    flag('network bandwidth', 2, '--network-bandwidth', '200Gbit/s'),
    flag('nic', 2, '--nic', '200Gbit/s'),
    flag('tensor parallel', 0, '--tensor-parallel', '8'),
    flag('tp', 0, '--tp', '8'),
    flag('ep', 2, '--ep', '8'),
    flag('pipeline of Megatron', 0, '--pipeline-model-parallel-size', '4'),
    flag('pipeline', 0, '--pp', '2', '--pp-schedule', 'Interleaved1F1B', '--global-batch', '64'),
    flag('a pipeline of compiled parts', 2, '--pipeline', '2', '--pipeline-schedule', 'zb-h1',
         '--compile', 'on'),
    flag('parts that are computed again', 2, '--pipeline', '2', '--pipeline-schedule', 'zbv',
         '--activation-checkpointing', 'full'),
    flag('parts that DDP does not see', 2, '--pipeline', '2', '--pipeline-schedule', 'zbv',
         '--strategy', 'NO_SHARD'),
    flag('a pipeline of more ranks than there are', 2, '--pipeline', '32'),
    flag('stages without a pipeline', 2, '--layers-per-stage', '16,16'),
    flag('balanced stages without a pipeline', 2, '--layers-per-stage', 'auto'),
    flag('nodes', 2, '--nodes', '2'),
    flag('dp', 2, '--dp', '4'),
    flag('vpp', 2, '--pp', '4', '--vpp', '2', '--grad-accum', '8', '--gpus', '8'),
    flag('sp', 0, '--tp', '2', '--sp', 'off', '--gpus', '4'),
    (2, 'typed: a picture as a report', nothing, ['report', *H100, '-o', 'page.svg']),
    (2, 'typed: a folder as a report', nothing, ['report', *H100, '-o', 'pages/']),
    flag('model as an option', 2, '--model', 'llama-2-7b'),
    flag('GPUs', 0, '--num-gpus', '8'),
    flag('clip of HF', 0, '--max-grad-norm', '1'),
    flag('nothing near', 2, '--quux', '1'),
    (2, 'typed: swapped', nothing, ['plan', '2xdgx-h100', 'llama-2-7b']),
    (2, 'typed: no words', nothing, ['plan']),
    (2, 'typed: a hybrid as answers name it', nothing, ['plan', *H100, '--strategy', 'HYBRID_SHARD/8']),
    (2, 'typed: the same for one plan', nothing, ['predict', *H100, '--strategy', 'HYBRID_SHARD/8']),
    (2, 'typed: two commas', nothing, ['plan', *H100, '--strategy', 'FULL_SHARD,,HYBRID_SHARD']),
    (2, 'typed: no room for groups', nothing,
     ['plan', *H100, '--strategy', 'HYBRID_SHARD', '--tensor', '8']),
    (2, 'typed: a group larger than what axes leave', nothing,
     ['predict', *H100, '--strategy', 'HYBRID_SHARD', '--shard-group', '8', '--tensor', '8']),
    (2, 'typed: tokens as a batch', nothing, ['plan', *H100, '--global-batch', '4M']),
    (2, 'typed: QLoRA', nothing, ['plan', *H100, '--load-in-4bit']),
    (2, 'typed: QLoRA by its name', nothing, ['plan', *H100, '--qlora']),
    (2, 'typed: weights of 8 bits', nothing, ['plan', *H100, '--load-in-8bit']),
    (2, 'typed: the rank of LoRA', nothing, ['plan', *H100, '--lora-rank', '16']),
    (2, 'typed: the rank of peft', nothing, ['plan', *H100, '--lora-r', '16']),
    (2, 'typed: alpha of peft', nothing, ['plan', *H100, '--lora_alpha', '16']),
    (2, 'typed: QLoRA as what is trained', nothing, ['plan', *H100, '--trainable', 'qlora:16']),
    (3, 'typed: a family, no such preset', nothing, ['models', 'show', 'qwen3-moe']),
    (2, 'typed: swapped, one by its id', nothing, ['predict', 'local', 'meta-llama/Llama-2-7b-hf']),
    (3, 'typed: a topology as a model', nothing, ['models', 'show', '2xdgx-h100']),
    (3, 'typed: a model as a topology', nothing, SHOW + ['llama-2-7b']),
    (0, 'typed: id of Hugging Face', nothing, ['models', 'show', 'meta-llama/Llama-3.1-8B']),
    (0, 'typed: id with Meta and Instruct', nothing,
     ['models', 'show', 'meta-llama/Meta-Llama-3-70B-Instruct']),
    (0, 'typed: no dashes', nothing, ['models', 'show', 'Llama2_7B']),
    (0, 'typed: gpt2-xl', nothing, ['models', 'show', 'openai-community/gpt2-xl']),
    (3, 'typed: an id that is no such preset', nothing, ['models', 'show', 'meta-llama/Llama-3.2-8B']),
    (3, 'typed: an id of nobody', nothing, ['models', 'show', 'someone/unheard-of']),
    (0, 'typed: capitals', nothing, SHOW + ['2xDGX-H100']),
    (3, 'typed: 16xh100', nothing, SHOW + ['16xh100']),
    (3, 'typed: h100x16', nothing, SHOW + ['h100x16']),
    (3, 'typed: nodes behind their name', nothing, SHOW + ['dgx-h100x2']),
    (3, 'typed: a number of GPUs alone', nothing, SHOW + ['16']),
    (3, 'typed: 4xh100', nothing, SHOW + ['4xh100']),
    (3, 'typed: 12xa100-80gb', nothing, SHOW + ['12xa100-80gb']),
    (3, 'typed: a GPU', nothing, SHOW + ['h200']),
    (3, 'typed: tcp', edited('box.yaml', 'kind: ethernet', 'kind: tcp'), TOPOLOGY),
    (3, 'typed: ib', edited('box.yaml', 'kind: ethernet', 'kind: IB'), TOPOLOGY),
    (3, 'typed: nics', edited('box.yaml', 'nics_per_node', 'nics'), TOPOLOGY),
    (3, 'typed: a key of nothing', edited('box.yaml', '  cores: 32', '  sockets: 2'), TOPOLOGY),
    (3, 'typed: a section misspelled', edited('box.yaml', 'network:', 'netwrok:'), TOPOLOGY),
    (3, 'typed: FLOPS without a unit', edited('box.yaml', '100TFLOPS', '312'), TOPOLOGY),
    (3, 'typed: memory without a unit', edited('box.yaml', '16GiB', '80'), TOPOLOGY),
    (3, 'typed: NICs without a unit', edited('box.yaml', '100Gbit/s', '100'), TOPOLOGY),
    (3, 'typed: latency without a unit', edited('box.yaml', '10us', '10'), TOPOLOGY),
    (3, 'typed: a link of 400G', edited('box.yaml', '100Gbit/s', '400G'), TOPOLOGY),
    (2, 'typed: tcp to import', given('hosts', 'a slots=8\nb slots=8\n'),
     ['topologies', 'import', 'hosts', '--gpu-name', 'A100-SXM4-40GB', '--network', 'tcp:1x100gbps']),
    (2, 'typed: a bare rate to import', nothing,
     ['topologies', 'import', 'hosts', '--gpu-name', 'a100-sxm4-40gb', '--network', 'ethernet:1x100']),
    (2, 'typed: a model where a plan is meant', nothing, ['explain', 'llama-2-7b']),
    (2, 'typed: an offload of another runtime', nothing,
     ['plan', 'tiny.yaml', 'box.yaml', '--cpu-offload', 'optimizer']),
    (2, 'typed: nothing to import', nothing, ['topologies', 'import']),
    (2, 'typed: a GPU to import, and how many not', nothing,
     ['topologies', 'import', '--gpu-name', 'L4-24GB']),
    (2, 'typed: a plan on CPUs for accelerate', nothing,
     ['plan', 'tiny.yaml', 'local', '--gpus', '2', '--for', 'accelerate']),
    (0, 'typed: 400gbps', edited('box.yaml', '100Gbit/s', '400gbps'), TOPOLOGY),
    (0, 'typed: a link unlike others', edited('box.yaml', '100Gbit/s', '10Gbit/s'), TOPOLOGY),
    (0, 'typed: GB of a device that has GiB', given('bad.yaml', A100), TOPOLOGY),
    (3, 'typed: a trailing comma',
     given('bad.json', '{"model_type": "llama", "hidden_size": 64,}'), CONFIG),
    (3, 'typed: YAML where JSON is meant', nothing, ['diagnose', 'plan.yaml', 'plan.yaml']),
    (3, 'typed: a page as a measurement', given('bad.html', '<html></html>\n'),
     ['check', 'plan.yaml', 'bad.html']),
    (3, 'typed: a page as a plan', nothing, ['explain', 'bad.html']),
    (3, 'typed: a measurement before its plan', nothing, ['check', 'measured.json', 'plan.yaml']),
    (3, 'typed: a plan to import', nothing, ['import', 'plan.yaml', *H100]),
    (3, 'typed: a page where JSON is meant', nothing, ['diagnose', 'plan.yaml', 'bad.html']),
    (3, 'typed: a picture to import', given('bad.png', b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR'),
     ['import', 'bad.png', *H100]),
    (3, 'typed: a workbook as cases', given('bad.csv', b'PK\x03\x04\x14\0\6\0'), CASES),
    (3, 'typed: a comment where JSON is meant', nothing, ['diagnose', 'plan.yaml', 'box.yaml']),
]

# Every reader of a file must name the place. These are about something else than one place in it.
WITHOUT_PLACE = ('no checkpoint', 'no such', 'no place', 'edited', 'a folder', 'of another version of the question',
                 'no nodes', 'too many nodes', 'no network', 'bad rows', 'empty', 'as a model',
                 'as a topology', 'an id', 'where JSON is meant', 'behind their', 'GPUs alone', 'h100x', 'xh100', 'xa100', 'a GPU')


def prepare(box):
    """plan.yaml, other.yaml and measured.json, which others are made of."""
    local = ['predict', 'tiny.yaml', 'laptop.yaml', '--gpus', '2', '--seq-len', '16']
    assert box.run(*local, '-o', 'plan.yaml').code == 0
    assert box.run(*local, '--prefetch', 'none', '-o', 'other.yaml').code == 0
    trained = box.run('train', 'plan.yaml', '--data', 'tiny.yaml', '--steps', '3')
    assert trained.code == 0, trained.err


def judge(code, name, words, result, problems):
    """What no golden file may excuse."""
    if result.code != code:
        problems.append(f'{name}: exit code {result.code}, expected {code}: {result.err}')
    # The lines that record a trace are no second message.
    messages = [line for line in result.messages() if not line.startswith('    ')]
    if code in (2, 3) and name != 'no command' and len(messages) != 1:
        problems.append(f'{name}: {len(messages)} lines, expected one: {result.err}')
    elif len(messages) == 1 and code == 3 and not any(part in name for part in WITHOUT_PLACE) and \
            not re.match(r'[^ :]+:\d+:\d+: ', messages[0]):
        problems.append(f'{name}: names no file:line:column: {messages[0]}')
    if code in (2, 3) and '--cases' not in words and result.out:
        problems.append(f'{name}: wrote to stdout: {result.out[:80]}')
    if any(ord(c) < 32 and c != '\n' for c in result.err):
        problems.append(f'{name}: a control character in the message')


def transcript(box, problems):
    lines = []
    for code, name, make, words in INPUT + USAGE + ENVIRONMENT + PLACED + TAKEN + TYPED:
        make(box)
        result = box.run(*words)
        judge(code, name, words, result, problems)
        lines += [f'# {name}', '$ shardplan ' + ' '.join(words), f'exit {result.code}']
        # The text for somebody who types nothing is not an error message.
        lines += [] if not words else [line for line in result.err.split('\n')
                                       if line and 'is not calibrated' not in line]
        lines.append('')
    return support.mask('\n'.join(lines))


def main(binary, update):
    problems = []
    with support.Sandbox(binary) as box:
        prepare(box)
        got = transcript(box, problems)
    if update:
        with open(GOLDEN, 'w', encoding='utf-8') as stream:
            stream.write(got)
        return problems
    with open(GOLDEN, encoding='utf-8') as stream:
        expected = stream.read()
    for wanted, found in zip(expected.split('\n\n'), got.split('\n\n')):
        if wanted != found:
            problems.append(f'expected:\n{wanted}\ngot:\n{found}\n')
    if expected.count('\n\n') != got.count('\n\n'):
        problems.append('the golden file has another number of cases; run with --update')
    return problems


if __name__ == '__main__':
    bad = main(sys.argv[1], '--update' in sys.argv)
    print('\n'.join(bad))
    print(f'{len(INPUT + USAGE + ENVIRONMENT + PLACED + TAKEN + TYPED)} cases')
    sys.exit(1 if bad else 0)
