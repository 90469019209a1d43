"""Models and topologies of other tools, through the commands: imports.py BINARY FAKE_NVML"""

import json
import os
import struct
import sys
import unittest

import support

BINARY = sys.argv.pop(1)
FAKE_NVML = sys.argv.pop(1) if len(sys.argv) > 1 else None

MIXTURE = {'model_type': 'mixtral', 'hidden_size': 256, 'num_hidden_layers': 4,
           'num_attention_heads': 8, 'num_key_value_heads': 4, 'intermediate_size': 512,
           'vocab_size': 1000, 'max_position_embeddings': 512, 'num_local_experts': 8,
           'num_experts_per_tok': 2}
LLAMA = {'model_type': 'llama', 'hidden_size': 8, 'num_hidden_layers': 1, 'vocab_size': 10,
         'num_attention_heads': 2, 'intermediate_size': 16, 'max_position_embeddings': 16}
T5 = {'model_type': 't5', 'd_model': 256, 'num_layers': 2, 'num_heads': 4, 'd_kv': 64,
      'd_ff': 512, 'vocab_size': 1000, 'n_positions': 512}
MATRIX = ('\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-3\nGPU1\tNV12\t X \t0-3\n')


def log(ranks, hosts, microseconds):
    """A log of all_gather_perf at 1, 4 and 16 MiB."""
    lines = ['# Collective test starting: all_gather_perf']
    for rank in range(ranks):
        lines.append(f'#  Rank {rank} Group 0 Pid 7 on host{rank * hosts // ranks} device '
                     f'{rank % (ranks // hosts)} [0x07] NVIDIA A100-SXM4-80GB')
    lines.append('# busbw')
    for size, time in zip((1 << 20, 1 << 22, 1 << 24), microseconds):
        rate = size / time / 1e3
        lines.append(f'{size} 1 float none -1 {time} {rate:.2f} {rate * (1 - 1 / ranks):.2f} 0 '
                     f'{time} {rate:.2f} {rate * (1 - 1 / ranks):.2f} 0')
    return '\n'.join(lines + ['# Avg bus bandwidth    : 3', ''])


def safetensors(shapes):
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text


class Case(unittest.TestCase):
    def setUp(self):
        self.box = support.Sandbox(BINARY).__enter__()
        self.addCleanup(self.box.__exit__)

    def good(self, *words, **environment):
        result = self.box.run(*words, **environment)
        self.assertEqual(result.code, 0, result.err)
        return result

    def fails(self, code, message, *words, **environment):
        result = self.box.run(*words, **environment)
        self.assertEqual(result.code, code, result.err)
        self.assertEqual(len(result.messages()), 1, result.err)
        self.assertIn(message, result.err)

    def write_json(self, name, value):
        self.box.write(name, json.dumps(value))


class Models(Case):
    def test_plan_but_do_not_train_a_mixture(self):
        self.write_json('moe/config.json', dict(MIXTURE, model_type='olmoe', num_experts=8))
        self.good('plan', 'moe', '2xdgx-a100-80gb', '--seq-len', '256', '-o', 'a.yaml')
        self.good('plan', 'moe/config.json', 'local', '--gpus', '2', '--seq-len', '64', '-o',
                  'plan.yaml')
        self.box.write('text', 'to be or not to be ' * 1000)
        self.fails(3, 'can be planned but not trained here: the kernels lack this mixture of '
                   'experts',
                   'train', 'plan.yaml', '--data', 'text', '--steps', '1')

    def test_all_experts_are_stored_and_the_active_ones_computed(self):
        self.write_json('moe/config.json', MIXTURE)
        self.write_json('dense/config.json', dict(MIXTURE, model_type='mistral'))
        of = {}
        for name in ('moe', 'dense'):
            of[name] = json.loads(self.good('predict', name, '2xdgx-a100-80gb', '--json',
                                            '--strategy', 'FULL_SHARD').out)['prediction']
        model = json.loads(self.good('models', 'show', 'moe', '--json').out)
        self.assertLess(model['active_parameters'], model['parameters'])
        states = [of[n]['model_states_bytes']['optimizer_state'] for n in ('moe', 'dense')]
        self.assertGreater(states[0], 3 * states[1])
        # A token meets two experts of eight.
        compute = [of[n]['time_s']['compute'] for n in ('moe', 'dense')]
        self.assertLess(compute[0], 4 * compute[1])
        self.assertGreater(compute[0], compute[1])

    def test_encoder_decoder(self):
        self.write_json('t5/config.json', T5)
        self.good('predict', 't5', '2xdgx-a100-80gb', '--strategy', 'FULL_SHARD',
                  '--activation-checkpointing', 'full')
        self.fails(2, '--attention flash3: its kernels add no bias to the scores',
                   'predict', 't5', 'dgx-h100', '--attention', 'flash3')

    def test_part_of_a_wrapper_is_said(self):
        self.write_json('w/config.json', {'model_type': 'wrapper', 'text_config': LLAMA})
        self.assertIn('note: w/config.json: this is the text part of wrapper',
                      self.good('models', 'show', 'w').err)

    def test_weights_beside_the_config(self):
        h, f, v = 8, 16, 10
        block = 'model.layers.0.'
        shapes = {'model.embed_tokens.weight': [v, h], 'lm_head.weight': [v, h],
                  'model.norm.weight': [h], block + 'mlp.weights': [3 * f, h],
                  block + 'self_attn.qkvo': [4 * h, h], block + 'norms': [2, h]}
        self.write_json('m/config.json', LLAMA)
        self.box.write('m/model.safetensors', safetensors(shapes))
        self.assertIn('equal to the config', self.good('models', 'show', 'm').out)
        self.good('models', 'show', 'm/model.safetensors')
        self.box.write('m/model.safetensors', safetensors(dict(shapes, more=[3])))
        result = self.box.run('models', 'show', 'm')
        self.assertEqual(result.code, 1)
        self.assertIn("NOT the config's", result.err)
        self.box.write('m/model.safetensors', safetensors(shapes)[:50])
        self.fails(3, 'the header is cut off', 'models', 'show', 'm')
        self.box.write('y/x.safetensors', safetensors(shapes))
        self.fails(3, 'expected y/config.json beside', 'models', 'show', 'y/x.safetensors')

    def test_hostile_names_stay_text(self):
        name = '\\u001b[31m<script>alert(1)</script>"\'; rm -rf /'
        self.box.write('n/config.json', json.dumps(LLAMA)[:-1] +
                       ', "_name_or_path": "%s"}' % name.replace('"', '\\"'))
        self.fails(3, 'control characters', 'models', 'show', 'n')


class Topologies(Case):
    def test_log_changes_the_plan(self):
        self.box.write('slow.log', log(4, 2, (1000, 4000, 16000)))
        self.box.write('fast.log', log(4, 2, (100, 400, 1600)))
        times = []
        for name in ('slow', 'fast'):
            self.good('topologies', 'import', name + '.log', '-o', name + '.yaml')
            document = self.good('predict', 'gpt2-124m', name + '.yaml', '--strategy',
                                 'FULL_SHARD', '--json').out
            times.append(json.loads(document)['prediction']['time_s']['all_gather'])
        self.assertAlmostEqual(times[0] / times[1], 10, delta=0.2)

    def test_written_file_says_what_was_assumed(self):
        self.box.write('smi.txt', MATRIX)
        self.box.write('hosts', 'a slots=2\nb slots=2\n')
        out = self.good('topologies', 'import', 'smi.txt', 'hosts', '--gpu-name',
                        'A100-SXM4-80GB', '--network', 'roce:2x100Gbit/s').out
        for line in ('nodes: 2', 'kind: roce', 'nodes: host file', 'the option --network',
                     '"assumed: like dgx-a100-80gb"'):
            self.assertIn(line, out)
        self.assertNotIn(self.box.folder, out)

    def test_slips(self):
        self.box.write('smi.txt', MATRIX)
        words = ('topologies', 'import', 'smi.txt')
        self.fails(2, 'which GPU this is: add --gpu-name', *words)
        self.fails(2, '--nodes 0: expected', *words, '--nodes', '0')
        self.fails(2, 'infiniband:8x200Gbit/s', *words, '--gpu-name', 'A100-SXM4-80GB',
                   '--network', 'fast')
        self.fails(3, 'cannot be opened', 'topologies', 'import', 'nothing.xml')
        self.fails(2, 'expected FILE..., or --gpu-name NAME', 'topologies', 'import')

    def test_secrets_of_an_environment_are_not_kept(self):
        self.box.write('job.env', 'WORLD_SIZE=4\nLOCAL_WORLD_SIZE=2\nTOKEN=hunter2\n')
        out = self.good('topologies', 'import', 'job.env', '--gpu-name', 'A100-SXM4-80GB').out
        self.assertIn('nodes: 2', out)
        self.assertNotIn('hunter2', out)


@unittest.skipUnless(FAKE_NVML, 'no fake driver was built')
class ThisMachine(Case):
    def driver(self, **environment):
        return dict(environment, LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(FAKE_NVML)))

    def test_gpus_by_the_driver(self):
        out = self.good('topologies', 'import', 'local', **self.driver(SLURM_NNODES='3')).out
        for line in ('nodes: 3', 'devices_per_node: 4', 'kind: nvswitch', 'bandwidth: 240GB/s',
                     'host.memory: this machine'):
            self.assertIn(line, out)
        out = self.good('topologies', 'import', 'local', **self.driver(FAKE_NVML='pcie')).out
        self.assertIn('kind: pcie', out)

    def test_drivers_that_do_not_work(self):
        self.fails(4, 'does not start', 'topologies', 'import', 'local',
                   **self.driver(FAKE_NVML='broken'))
        self.fails(4, 'sees no GPU', 'topologies', 'import', 'local',
                   **self.driver(FAKE_NVML='empty'))


if __name__ == '__main__':
    unittest.main()
