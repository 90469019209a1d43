"""Files that people bring and edit: own_files.py BINARY"""

import csv
import io
import json
import os
import re
import sys
import unittest

import support

BINARY = os.path.abspath(sys.argv.pop(1))

CLUSTER = """shardplan: topology/1
name: ours
nodes: 2
devices_per_node: 4
device: {name: A100-SXM4-40GB, kind: gpu, generation: ampere, memory: 40GiB, memory_bandwidth: 1.555TB/s,
         fp32: 19.5TFLOPS, bf16: 312TFLOPS}
fabric: {kind: nvswitch, bandwidth: 240GB/s, latency: 3.4us}
network: {kind: infiniband, nics_per_node: 1, nic_bandwidth: 100Gbit/s, latency: 14us}
host: {memory: 1TiB, memory_bandwidth: 400GB/s, cores: 64, pcie_bandwidth: 24GB/s, cpu: amd}
"""


class OwnFiles(unittest.TestCase):
    def setUp(self):
        self.box = support.Sandbox(BINARY).__enter__()
        self.addCleanup(self.box.__exit__)
        self.box.write('ours.yaml', CLUSTER)

    def run_well(self, *words, code=0):
        done = self.box.run(*words)
        self.assertEqual(done.code, code, done.err)
        return done

    def edit(self, name, old, new):
        text = self.box.read(name)
        self.assertIn(old, text)
        self.box.write('edited.yaml', text.replace(old, new))


class Calibrated(OwnFiles):
    """The cache of a calibration may be of other cores, or of another machine."""

    def note(self, pattern, other):
        here = self.run_well('topologies', 'show', 'local').out
        self.box.write('cache/shardplan/local.yaml', re.sub(pattern, other, here, count=1))
        return self.run_well('predict', 'gpt2-nano', 'local').err

    def test_other_cores_are_told(self):
        self.assertRegex(self.note(r'cores: \d+', 'cores: 1000'), r'note: it was calibrated with 1000 cores, here are \d+, in /')

    def test_another_machine_is_told(self):
        self.assertIn('note: another machine was calibrated in /', self.note(r'  name: .*', '  name: Other'))


class Imported(OwnFiles):
    WORDS = ['import', 'accelerate.yaml', 'llama-2-7b', '2xdgx-a100-80gb', '--micro-batch', '1']

    def test_json_has_what_the_text_says_of_the_planner(self):
        self.box.write('accelerate.yaml', 'distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\n'
                       'fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true}\n')
        text = self.run_well(*self.WORDS).out
        document = json.loads(self.run_well(*self.WORDS, '--json').out)
        file, planned = document['prediction']['step_time_s'], document['planned']['prediction']['step_time_s']
        self.assertLess(planned, file)
        self.assertIn(f'{100 * (1 - planned / file):.1f} % less time a step', text)
        self.assertEqual(document['planned']['plan']['global_batch'], document['plan']['global_batch'])

    def test_none_fits(self):
        self.box.write('accelerate.yaml', 'distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\n'
                       'fsdp_config: {fsdp_version: 2}\n')
        document = json.loads(self.run_well(*self.WORDS, '--json', '--memory-limit', '2GiB', code=1).out)
        self.assertIsNone(document['planned'])


class EditedPlans(OwnFiles):
    """A plan's digest does not cover what the machine can do."""

    def setUp(self):
        super().setUp()
        self.run_well('predict', 'gpt2-1.5b', 'ours.yaml', '-o', 'plan.yaml')

    def explained(self, name):
        done = self.run_well('explain', name)
        return re.search(r'step time +([^,]*),', done.out)[1], done

    def test_as_written_it_is_shown_without_a_note(self):
        self.assertNotIn('note', self.explained('plan.yaml')[1].err)
        self.run_well('predict', 'gpt2-1.5b', 'ours.yaml', '--memory-limit', '60GiB', '-o', 'larger.yaml')
        self.assertNotIn('note', self.explained('larger.yaml')[1].err)

    def test_a_faster_network_is_what_is_shown(self):
        slow = self.explained('plan.yaml')[0]
        self.edit('plan.yaml', 'nic_bandwidth: 12.5GB/s', 'nic_bandwidth: 50GB/s')
        now, done = self.explained('edited.yaml')
        self.box.write('ours.yaml', CLUSTER.replace('100Gbit/s', '400Gbit/s'))
        self.run_well('predict', 'gpt2-1.5b', 'ours.yaml', '-o', 'plan.yaml')
        self.assertEqual(now, self.explained('plan.yaml')[0])
        self.assertNotEqual(now, slow)
        self.assertIn(f'note: edited.yaml predicts {slow} a step, ', done.err)
        self.assertIn(f'it is now {now} a step, ', done.err)

    def test_a_verdict_is_judged_again(self):
        self.edit('plan.yaml', 'fits: "yes"', 'fits: "no"')
        done = self.explained('edited.yaml')[1]
        self.assertIn('(fits)', done.out)
        self.assertIn('note: edited.yaml predicts', done.err)

    def test_no_edited_figure_is_shown(self):
        with open(self.box.path('plan.yaml'), encoding='utf-8') as file:
            written = re.search(r'\nprediction:\n(.*?)\nschedule_digest', file.read(), re.S)[1].split('\n')

        def rounded(text):
            return re.sub(r'\d+\.\d+(e-?\d+)?', lambda number: f'{float(number[0]):.4g}', text)

        true = rounded(self.run_well('explain', 'plan.yaml', '--json').out)
        for line in written:
            key, value = line.split(':', 1)
            number = re.fullmatch(r' ([0-9.e+-]+)', value)
            # Of one class, the figures above are shown.
            if not value or line.startswith('      ') or key.strip() in ('schedule_digest', 'rank_class', '- name'):
                continue
            other = f' {float(number[1]) * 2 + 1:g}' if number and 'e' not in number[1] else ' "tight"' \
                if key.strip() == 'fits' else ' "other"'
            if number and '.' not in number[1]:
                other = f' {int(number[1]) + 7000000000 + int(number[1]) // 2}'
            self.edit('plan.yaml', f'{line}\n', f'{key}:{other}\n')
            done = self.box.run('explain', 'edited.yaml', '--json')
            if done.code != 3:
                self.assertEqual((done.code, rounded(done.out)), (0, true), line)
                self.assertIn('note: edited.yaml predicts ', done.err, line)
        self.edit('plan.yaml', '    exposed_communication: ', '    exposed_communication: 3')
        done = self.run_well('explain', 'edited.yaml')
        self.assertRegex(done.err, r'^note: edited.yaml predicts time_s exposed_communication 3[0-9.]+; it is now [0-9.]+: '
                         'it was edited, or made by another version; plan again\n$')

    def test_an_export_is_compared_with_what_it_is(self):
        self.edit('plan.yaml', 'nic_bandwidth: 12.5GB/s', 'nic_bandwidth: 50GB/s')
        now = self.explained('edited.yaml')[0]
        done = self.run_well('export', 'edited.yaml', '--to', 'deepspeed', '-o', 'ds.json')
        self.assertIn(f'the plan: {now}, ', done.err)

    def test_less_memory_is_what_is_judged(self):
        self.edit('plan.yaml', 'memory: 40GiB', 'memory: 5GiB')
        done = self.explained('edited.yaml')[1]
        self.assertIn('of 5.00 GiB (does not fit)', done.out)
        self.assertIn('it was edited', done.err)


class OddBatches(OwnFiles):
    """Twelve sequences are no multiple of eight devices; with two tensor ranks they are of four."""

    def setUp(self):
        super().setUp()
        self.run_well('predict', 'llama-3-8b', 'ours.yaml', '--tensor', '2', '--micro-batch', '3',
                      '--activation-checkpointing', 'full', '-o', 'plan.yaml')

    def test_a_plan_is_compared(self):
        done = self.run_well('plan', '--compare', 'plan.yaml')
        self.assertIn('Your plan: TP 2 x FULL_SHARD', done.out)
        self.assertRegex(done.out, r'Use +TP 2 x ')

    def test_a_file_is_compared(self):
        self.run_well('export', 'plan.yaml', '--to', 'torchtitan', '-o', 'config.py')
        done = self.run_well('import', 'config.py', 'llama-3-8b', 'ours.yaml')
        self.assertIn('--tensor                   2 ', done.out)
        self.assertIn('The planner', done.out)


class ReportsOfTargets(OwnFiles):
    """What is planned again is the question that was asked, with its --for."""

    def test_a_plan_and_a_question_keep_to_the_target(self):
        words = ['gpt2-124m', 'ours.yaml', '--global-batch', '64', '--strategy', 'FULL_SHARD', '--for', 'accelerate']
        planned = self.run_well('plan', *words, '-o', 'plan.yaml').out
        for report in ['plan.yaml'], words:
            page = self.run_well('report', *report, '--format', 'markdown').out
            step = re.search(r'\n([0-9.]+ m?s) per step', page)[1]
            self.assertIn(f'Time     {step} a step', planned)
            self.assertIn(f'takes {step} per step', page)

    def test_rows_have_names_of_their_own(self):
        done = self.run_well('report', 'gpt2-1.5b', 'ours.yaml', '--gpus', '2', '--format', 'csv')
        rows = list(csv.DictReader(io.StringIO(done.out)))
        names = [row['case'] for row in rows]
        self.assertGreater(len(names), 5)
        self.assertEqual(len(set(names)), len(names), names)


class Slips(OwnFiles):
    """What was typed wrongly is named, where it has consequences."""

    def test_a_key_of_a_section_that_is_passed_over(self):
        self.box.write('job.toml', '[training]\nlocal_batch_size = 1\nseq_length = 2048\nsteps = 10\ndataset = "c4"\n'
                       '[parallelism]\ndata_parallel_shard_degree = -1\n')
        said = self.run_well('import', 'job.toml').err
        self.assertIn('note: job.toml:3: training.seq_length: unknown key, ignored; did you mean training.seq_len?\n',
                      said)
        self.assertNotIn('training.steps', said)
        self.assertNotIn('training.dataset', said)

    def test_a_version_that_accelerate_refuses(self):
        self.box.write('a.yaml', 'distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 3\n')
        self.assertEqual(self.run_well('import', 'a.yaml', code=3).err,
                         'a.yaml:3:17: fsdp_version: expected 1 or 2, got "3"\n')

    def test_quotes_are_blamed_where_they_are_to_blame(self):
        for value, end in ('"4"', 'got "4", remove the quotes'), ('"4:1"', 'got "4:1"'):
            self.box.write('bad.yaml', CLUSTER.replace('latency: 14us', f'latency: 14us, oversubscription: {value}'))
            self.assertTrue(self.run_well('predict', 'gpt2-124m', 'bad.yaml', code=3).err.endswith(end + '\n'))

    def test_a_new_folder_is_told(self):
        words = 'predict', 'gpt2-124m', 'ours.yaml', '-o', 'new/plan.yaml'
        self.assertIn('note: made the folder new\n', self.run_well(*words).err)
        self.assertNotIn('folder', self.run_well(*words).err)


class Windows(OwnFiles):
    """Where blocks that see a part of the sequence cost as if they saw all of it, a note says so."""

    def said(self, length, *words, **keys):
        config = {'model_type': 'qwen3', 'num_hidden_layers': 2, 'hidden_size': 256, 'num_attention_heads': 4,
                  'head_dim': 64, 'intermediate_size': 512, 'vocab_size': 1000, 'max_position_embeddings': 8192}
        self.box.write('config.json', json.dumps({**config, **keys}))
        return self.run_well('predict', './config.json', 'ours.yaml', '--seq-len', str(length), *words).err

    def test_it_is_said_where_sequences_are_longer(self):
        window = {'sliding_window': 1024, 'use_sliding_window': True, 'max_window_layers': 0}
        eager = '--attention', 'eager'
        self.assertEqual(self.said(2048, *eager, **window), 'note: config has blocks that see 1024 tokens back; '
                         'eager attention computes all 2048\n')
        self.assertEqual(self.said(2048, **window), '')
        self.assertEqual(self.said(1024, *eager, **window), '')
        self.assertEqual(self.said(2048, *eager, **{**window, 'use_sliding_window': False}), '')
        self.assertEqual(self.said(2048, *eager, **{**window, 'max_window_layers': 28}), '')
        self.assertEqual(self.said(2048, *eager, sliding_window=1024), '')
        self.assertEqual(self.said(2048, *eager, sliding_window=None), '')
        self.assertIn('see 512 tokens', self.said(2048, *eager, model_type='mistral', sliding_window=512))
        self.assertIn('nanotron computes', self.said(
            2048, '--runtime', 'nanotron', model_type='mistral', sliding_window=512))


class OneGroup(OwnFiles):
    """Where the ranks are one group, HYBRID_SHARD has nothing to replicate."""

    def figures(self, *words):
        done = self.run_well('predict', 'gpt2-1.5b', 'ours.yaml', '--json', *words)
        prediction = json.loads(done.out)['prediction']
        return prediction['step_time_s'], prediction['peak_memory_bytes'], done.err

    def test_it_is_the_flat_strategy_and_says_so(self):
        for hybrid, flat in ('HYBRID_SHARD', 'FULL_SHARD'), ('HYBRID_SHARD_ZERO2', 'SHARD_GRAD_OP'):
            time, peak, said = self.figures('--gpus', '4', '--strategy', hybrid)
            self.assertEqual((time, peak, ''), self.figures('--gpus', '4', '--strategy', flat))
            self.assertEqual(said, f'note: {hybrid} in one group of 4 ranks is the same as {flat}\n')
            self.assertEqual(self.figures('--strategy', hybrid)[2], '')

    def test_stages_leave_smaller_groups(self):
        done = self.run_well('predict', 'llama-3-8b', 'ours.yaml', '--gpus', '4', '--pipeline', '2', '--strategy',
                             'HYBRID_SHARD', '--activation-checkpointing', 'full', code=1)
        self.assertIn('in one group of 2 ranks', done.err)


if __name__ == '__main__':
    unittest.main(verbosity=1)
