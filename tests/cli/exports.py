"""Exports judged by each framework's own list of keys, and imported again: exports.py BINARY"""

import ast
import json
import re
import unittest

import contract
import targets

try:
    import tomllib
except ImportError:
    tomllib = None

TARGETS = {
    'accelerate': targets.ACCELERATE, 'accelerate-fsdp1': targets.ACCELERATE,
    'accelerate-deepspeed': targets.ACCELERATE, 'trl': targets.ACCELERATE,
    'hf-trainer': targets.TRAINER, 'hf-trainer-fsdp1': targets.TRAINER,
    'deepspeed': targets.DEEPSPEED, 'axolotl': targets.AXOLOTL,
    'llm-foundry': targets.LLM_FOUNDRY, 'nanotron': targets.NANOTRON,
    'torchtitan': targets.TITAN, 'torchtitan-flags': targets.TITAN,
    'torchtitan-toml': targets.TITAN_TOML, 'megatron': targets.MEGATRON,
    'megatron-bridge': targets.BRIDGE, 'megatron-fsdp': targets.MEGATRON, 'megatron-torch-fsdp2': targets.MEGATRON,
    'pytorch': None, 'pytorch-fsdp1': None,
}
QUESTIONS = [
    [],
    ['--strategy', 'NO_SHARD', '--activation-checkpointing', 'full'],
    ['--strategy', 'HYBRID_SHARD', '--clip', '1', '--compile', 'on'],
    ['--strategy', 'SHARD_GRAD_OP', '--param-dtype', 'fp32', '--wrap', 'size:1000'],
    ['--runtime', 'pytorch-fsdp1', '--strategy', 'HYBRID_SHARD_ZERO2', '--prefetch', 'post',
     '--grad-accum', '4', '--optimizer', 'adamw-fused'],
    ['--reshard-after-forward', '2', '--wrap', 'blocks:2', '--forward-prefetch', 'on'],
    ['--runtime', 'pytorch-fsdp2', '--reshard-after-forward', 'all'],
    ['--activation-checkpointing', 'selective', '--attention', 'eager', '--wrap', 'model'],
    ['--runtime', 'deepspeed', '--strategy', 'ZERO_2', '--grad-accum', '2'],
    ['--runtime', 'megatron', '--grad-accum', '2', '--loss', 'fused', '--overlap', 'none',
     '--cuda-graph-scope', 'attn+mlp'],
    ['--runtime', 'megatron', '--cuda-graph-scope', 'full_iteration'],
]


def scalar(text):
    if text in ('true', 'false'):
        return text == 'true'
    if text == 'null':
        return None
    if text[:1] == '"':
        return json.loads(text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def yaml(text):
    """The YAML that our writer writes: maps, lists of scalars, comments."""
    root, stack = {}, []
    stack.append((-1, root, None))
    for line in text.split('\n'):
        body = line.strip()
        if not body or body[0] == '#':
            continue
        depth = len(line) - len(line.lstrip())
        while stack[-1][0] >= depth:
            stack.pop()
        _, parent, key = stack[-1]
        if body.startswith('- '):
            owner = stack[-2][1]
            owner[key] = (owner[key] or []) + [scalar(body[2:])]
            continue
        name, _, value = body.partition(':')
        assert name not in parent, name
        parent[name] = scalar(value.strip()) if value.strip() else {}
        if not value.strip():
            stack.append((depth, parent[name], name))
    return root


def flags(text):
    found = {}
    for line in text.split('\n'):
        if line.startswith('--'):
            name, _, value = line[2:].partition(' ')
            assert name not in found, name
            found[name] = scalar(value) if value else True
    return found


def assignments(text):
    """cfg.a.b = literal"""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            name = ast.unparse(node.targets[0]).partition('.')[2]
            if name != 'activation_checkpoint':
                value = ast.unparse(node.value)
                found[name] = float('inf') if 'inf' in value else ast.literal_eval(value)
    return found


def toml(text):
    if tomllib is not None:
        return tomllib.loads(text)
    found, section = {}, None
    for line in text.split('\n'):
        if line.startswith('['):
            section = found.setdefault(line.strip('[]'), {})
        elif '=' in line and line[0] != '#':
            key, _, value = line.partition(' = ')
            section[key] = scalar(value)
    return found


def fits(value, kind):
    if isinstance(kind, dict):
        return isinstance(value, dict)
    if isinstance(kind, tuple):
        return any(value == k if isinstance(k, str) else fits(value, k) for k in kind)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def wrong(found, table, path=''):
    for key, value in found.items():
        if key not in table:
            yield f'{path}{key}: no such key'
        elif not fits(value, table[key]):
            yield f'{path}{key}: {value!r} is no {table[key]}'
        elif isinstance(table[key], dict):
            yield from wrong(value, table[key], f'{path}{key}.')


def parse(target, text):
    if target.startswith('hf-') or target == 'deepspeed':
        return json.loads(text)
    if target == 'torchtitan-toml':
        return toml(text)
    if target == 'torchtitan':
        return assignments(text)
    if TARGETS[target] is targets.MEGATRON or target == 'torchtitan-flags':
        return flags(text)
    return yaml(text)


class Exports(contract.Case):
    def go(self, *words):
        """0, or 1 for a plan that does not fit."""
        result = self.box.run(*words)
        self.assertIn(result.code, (0, 1), result.err)
        return result

    def plan(self, *words):
        self.go('predict', 'tiny.yaml', 'box.yaml', '--seq-len', '16', *words, '-o', 'plan.yaml')

    def test_every_key_is_the_target_s(self):
        listed = re.findall(r'^(\S+)', self.go('export', '--list').out, re.M)
        self.assertEqual(sorted(listed), sorted(TARGETS))
        for words in QUESTIONS:
            self.plan(*words)
            for target, table in TARGETS.items():
                text = self.go('export', 'plan.yaml', '--to', target).out
                if table is None:
                    compile(text, target, 'exec')
                else:
                    self.assertEqual(list(wrong(parse(target, text), table)), [],
                                     (target, words))

    def test_versions(self):
        self.plan()
        old = self.go('export', 'plan.yaml', '--to', 'torchtitan', '--for-version', 'main').out
        self.assertIn('num_tokens_per_train_step', old)
        self.assertIn('for torchtitan main', old.split('\n')[0])
        self.assertIn('for torchtitan 0.3.0',
                      self.go('export', 'plan.yaml', '--to', 'torchtitan').out.split('\n')[0])
        result = self.box.run('export', 'plan.yaml', '--to', 'torchtitan', '--for-version', '7')
        self.assertEqual(result.code, 2)
        self.assertIn('of torchtitan these are known: 0.3.0, main', result.err)

    def test_the_judge_judges(self):
        """Negative control: a key of another target, a wrong type, a wrong choice."""
        self.assertEqual(len(list(wrong({'bf16': 1, 'dp_shard_size': 8, 'optim': 'adam'},
                                        targets.TRAINER))), 3)
        self.assertEqual(list(wrong({'fsdp_config': {'version': True}}, targets.TRAINER)),
                         [f'fsdp_config.version: True is no {int}'])

    def test_rules_of_deepspeed(self):
        for words in QUESTIONS:
            self.plan(*words)
            found = json.loads(self.go('export', 'plan.yaml', '--to', 'deepspeed').out)
            ranks = 8
            self.assertEqual(found['train_batch_size'],
                             found['train_micro_batch_size_per_gpu'] *
                             found['gradient_accumulation_steps'] * ranks)

    def test_there_and_back(self):
        self.plan('--strategy', 'HYBRID_SHARD', '--micro-batch', '2')
        for target in TARGETS:
            self.run_ok('export', 'plan.yaml', '--to', target, '-o', 'plan.yaml/', code=4)
            self.box.write('there/here', '')
            self.go('export', 'plan.yaml', '--to', target, '-o', 'there/')
            result = self.box.run('import', 'there/' + self.file_of(target), 'tiny.yaml',
                                  'box.yaml', '-o', 'back.yaml', '--seq-len', '16')
            self.assertIn(result.code, (0, 1), result.err)
            self.assertIn('plan: ', self.box.read('back.yaml'))
            self.go('explain', 'back.yaml')
            self.box.write('back.yaml', '')

    def file_of(self, target):
        rows = dict(re.findall(r'^(\S+) +(\S+)', self.go('export', '--list').out, re.M))
        return rows[target]

    def test_import_asks_for_what_is_missing(self):
        self.box.write('a.yaml', 'distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n')
        result = self.go('import', 'a.yaml')
        self.assertIn('add MODEL TOPOLOGY', result.err)
        self.assertIn('--strategy', result.out)
        self.assertEqual(self.box.run('import', 'a.yaml', '-o', 'p.yaml').code, 2)

    def test_a_model_by_its_shape(self):
        """Llama 2 70B and 3 70B have the same shape; the sequence tells which."""
        for seq_len, model in ((4096, 'llama-2-70b'), (8192, 'llama-3-70b'), (131072, 'llama-3.1-70b')):
            self.box.write('nemo.yaml', 'model:\n  tensor_model_parallel_size: 8\n  num_layers: 80\n  hidden_size: 8192\n'
                                        '  num_attention_heads: 64\n  num_query_groups: 8\n  ffn_hidden_size: 28672\n'
                                        f'  encoder_seq_length: {seq_len}\n  optim: {{name: distributed_fused_adam}}\n')
            self.assertIn(f'the model is taken for {model}', self.go('import', 'nemo.yaml').err)

    def test_a_model_that_is_not_there_comes_first(self):
        """Whether stages are whole is asked of the model that is named beside the file."""
        self.box.write('args.txt', '--micro-batch-size 1 --pipeline-model-parallel-size 2 '
                                   '--num-layers-per-virtual-pipeline-stage 4\n')
        refused = self.box.run('import', 'args.txt', 'no-such-model', '2xdgx-h100')
        self.assertIn('no-such-model', refused.err)
        taken = self.box.run('import', 'args.txt', 'llama-2-7b', '2xdgx-h100', '--json')
        self.assertEqual(json.loads(taken.out)['plan']['virtual_stages'], 4)

    def test_options_override_the_file(self):
        self.box.write('a.yaml', 'distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\n'
                                 'fsdp_config: {fsdp_version: 2}\n')
        result = self.box.run('import', 'a.yaml', 'tiny.yaml', 'box.yaml', '--param-dtype', 'fp32',
                              '--seq-len', '16', '--json')
        self.assertIn("--param-dtype fp32 stands for the file's bf16", result.err)
        self.assertEqual(json.loads(result.out)['plan']['param_dtype'], 'fp32')

    def test_a_value_that_a_target_cannot_say_is_refused(self):
        for target, typed, use in (('torchtitan', ('--wrap', 'model'), 'block+embedding+head'),
                                   ('megatron-torch-fsdp2', ('--compile', 'on'), 'off')):
            result = self.box.run('plan', 'llama-2-7b', '2xdgx-h100', '--for', target, *typed)
            self.assertEqual(result.code, 2)
            self.assertIn(f'{" ".join(typed)}: {target} cannot say that; use {use}', result.err)

    def test_nanotron_s_environment(self):
        """Its layers assert the variable when communication runs beside products."""
        for serial, due in ('off', True), ('on', False):
            self.box.run('predict', 'llama-2-7b', '2xdgx-h100', '--runtime', 'nanotron',
                         '--strategy', 'ZERO_1', '--tensor', '4', '--serial-tensor', serial,
                         '-o', 'n.yaml')
            text = self.go('export', 'n.yaml', '--to', 'nanotron', '-o', '-').out
            self.assertIn(f'tp_linear_async_communication: {str(due).lower()}', text)
            self.assertEqual('CUDA_DEVICE_MAX_CONNECTIONS=1' in text, due)

    def test_an_export_that_does_not_fit_says_so(self):
        """Megatron-LM keeps whole parameters where the plan shards them."""
        self.box.run('predict', 'llama-3-8b', '2xdgx-h100', '--strategy', 'FULL_SHARD',
                     '--micro-batch', '2', '-o', 'f.yaml')
        for target, due in ('megatron', True), ('hf-trainer', False):
            notes = self.box.run('export', 'f.yaml', '--to', target, '-o', '-').err
            self.assertIn('as exported', notes)
            self.assertEqual('GiB, which does not fit; the plan:' in notes, due, notes)

    def test_errors_stand_where_the_file_says_it(self):
        self.box.write('a.yaml', 'distributed_type: FSDP\nnum_processes: 1024\n'
                                 'fsdp_config: {fsdp_version: 2}\n')
        result = self.box.run('import', 'a.yaml', 'tiny.yaml', 'box.yaml')
        self.assertEqual(result.code, 3)
        self.assertEqual([m[:17] for m in result.messages()], ['a.yaml:2:16: --gp'])


if __name__ == '__main__':
    unittest.main(verbosity=1)
