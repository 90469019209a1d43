"""plan -> train -> check -> explain -> report, with real ranks: round_trip.py BINARY"""

import ast
import json
import os
import re
import sys
import unittest

import contract
import support

LOCAL = ['tiny.yaml', 'local', '--gpus', '2', '--seq-len', '16', '--global-batch', '8']

MIXTURE = {'model_type': 'mixtral', 'vocab_size': 259, 'hidden_size': 24, 'intermediate_size': 20,
           'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2,
           'num_local_experts': 4, 'num_experts_per_tok': 2, 'max_position_embeddings': 16}


class RoundTrip(contract.Case):
    def setUp(self):
        super().setUp()
        verses = ''.join(f'line {n} of a text that is long enough\n' for n in range(60))
        self.box.write('corpus.txt', verses)

    def train(self, plan, *words, code=0, **rest):
        return self.run_ok('train', plan, '--data', 'corpus.txt', '--steps', '4', *words, code=code,
                           **rest)

    def check(self, plan, measured):
        """Every byte and count is equal. How a process of a tiny model grows is another question:
        pages that no kernel touched do not count."""
        result = self.box.run('check', plan, measured, '--json')
        document = json.loads(result.out)
        lines = {line['what']: line for line in document['lines']}
        wrong = [what for what, line in lines.items() if line['exact'] and not line['ok']]
        self.assertEqual(wrong, [])
        self.assertGreater(sum(line['exact'] for line in lines.values()), 12)
        self.assertGreater(lines['ledger peak']['measured'], 100000)
        judged = [line['ok'] for line in lines.values() if line['judged']]
        self.assertEqual(result.code, 0 if all(judged) else 1)
        if contract.SCHEMAS is not None:
            contract.SCHEMAS[document['schema']].validate(document)

    def test_from_the_question_to_the_checked_answer(self):
        self.run_ok('plan', *LOCAL, '-o', 'out/plan.yaml')
        trained = self.train('out/plan.yaml')
        self.assertIn('weights digest', trained.out)
        self.assertIn('step 4/4', trained.err)
        self.check('out/plan.yaml', 'out/measured.json')
        text = self.box.run('check', 'out/plan.yaml', 'out/measured.json').out
        self.assertRegex(text, r'ledger peak +(\d+) bytes +\1 bytes')
        self.run_ok('check', 'out/plan.yaml', 'out/measured.json', '--tolerance-time', '1e-9',
                    code=1)
        for view in ('summary', 'operations', 'streams', 'memory', 'critical', 'units'):
            out = self.run_ok('explain', 'out/plan.yaml', '--view', view, '--analyze',
                              'out/measured.json').out
            self.assertTrue(out, view)
        self.run_ok('report', 'out/plan.yaml', 'out/measured.json', '-o', 'out/report.html')
        page = self.box.read('out/report.html')
        self.assertIn('measured', page)
        self.assertNotRegex(page, r'(?:src|href)="https?:')

    def test_a_wrong_byte_fails_the_check(self):
        self.run_ok('predict', *LOCAL, '-o', 'plan.yaml')
        self.train('plan.yaml')
        document = json.loads(self.box.read('measured.json'))
        document['measurement']['ledger_peak_bytes'] += 1
        self.box.write('measured.json', json.dumps(document))
        self.assertIn('DIFFERS', self.run_ok('check', 'plan.yaml', 'measured.json', code=1).out)

    def test_an_undeclared_buffer_fails_the_check(self):
        self.run_ok('predict', *LOCAL, '-o', 'plan.yaml')
        result = self.box.run('train', 'plan.yaml', '--data', 'corpus.txt', '--steps', '4',
                              '--fault', 'undeclared_buffer')
        if result.code == 0:
            result = self.box.run('check', 'plan.yaml', 'measured.json')
            self.assertEqual(result.code, 1, result.out + result.err)
        else:
            self.assertEqual(result.code, 6, result.err)

    def test_what_train_prints_is_what_it_writes(self):
        self.run_ok('predict', *LOCAL, '-o', 'plan.yaml')
        out = self.train('plan.yaml', '--json', '--measured', 'm.json').out
        self.assertEqual(out, self.box.read('m.json'))
        document = json.loads(out)
        self.assertEqual(len(document['measurement']['loss']), 4)
        if contract.SCHEMAS is not None:
            contract.SCHEMAS[document['schema']].validate(document)
        lines = [json.loads(line) for line in
                 self.train('plan.yaml', '--json-lines').out.splitlines()]
        self.assertEqual([line['step'] for line in lines], [1, 2, 3, 4])
        again = json.loads(self.box.read('measured.json'))
        self.assertEqual([line['loss'] for line in lines], again['measurement']['loss'])
        self.assertEqual(document['measurement']['weights_digest'],
                         again['measurement']['weights_digest'])

    def test_options_of_training_change_the_training(self):
        self.run_ok('predict', *LOCAL, '-o', 'plan.yaml')
        digests = set()
        for words in ([], ['--seed', '1'], ['--lr', '0.01'], ['--warmup', '3']):
            self.train('plan.yaml', *words)
            digests.add(json.loads(self.box.read('measured.json'))
                        ['measurement']['weights_digest'])
        self.assertEqual(len(digests), 4)

    def test_a_plan_for_another_machine_is_recompiled(self):
        self.run_ok('predict', 'tiny.yaml', 'box.yaml', '--gpus', '4', '--seq-len', '16',
                    '--strategy', 'HYBRID_SHARD', '--shard-group', '2', '-o', 'gpu.yaml')
        result = self.train('gpu.yaml')
        for change in ('runtime: pytorch-fsdp2 -> shardplan', 'param_dtype: bf16 -> fp32',
                       'topology: 4 x Toy -> 4 x '):
            self.assertIn(change, result.err)
        self.run_ok('check', 'gpu.yaml', 'measured.json', code=3)
        self.check('measured.plan.yaml', 'measured.json')
        self.run_ok('report', 'measured.plan.yaml', 'measured.json', '-o', 'r.html')
        hint = re.search(r'shardplan check (\S+) (\S+)', result.err)
        self.check(hint.group(1), hint.group(2))

    def test_expert_ranks_train_what_one_rank_trains(self):
        """Of a mixture. How many rows go where is told, and not judged."""
        self.box.write('m/config.json', json.dumps(MIXTURE))
        norms = []
        for words in (['--gpus', '1'], ['--gpus', '2', '--expert', '2']):
            self.run_ok('predict', 'm', 'local', *words, '--seq-len', '16', '--global-batch', '8',
                        '--strategy', 'FULL_SHARD', '-o', 'plan.yaml')
            result = self.train('plan.yaml')
            self.assertNotIn('->', result.err)
            self.check('plan.yaml', 'measured.json')
            measured = json.loads(self.box.read('measured.json'))['measurement']
            norms.append(measured['gradient_norm'])
        for one, several in zip(*norms):
            self.assertAlmostEqual(several / one, 1, delta=1e-6)
        lines = json.loads(self.box.run('check', 'plan.yaml', 'measured.json', '--json').out)
        rows = {line['what']: line for line in lines['lines']}['rows to and from experts']
        self.assertFalse(rows['judged'])
        self.assertEqual(rows['measured'], measured['wire_bytes']['rows'])
        self.assertTrue(0 < rows['measured'] <= 2 * rows['predicted'])
        self.assertIn('--expert-load', self.box.run('check', 'plan.yaml', 'measured.json').out)
        for view in ('operations', 'streams', 'memory', 'mesh'):
            self.assertTrue(self.run_ok('explain', 'plan.yaml', '--view', view, '--analyze',
                                        'measured.json').out)

    def test_offload_and_mixed_choices_keep_the_bits(self):
        """Wherever states live and whatever is recomputed: one digest, two equal ledgers."""
        digests = set()
        for words in ([], ['--cpu-offload', 'parameters'], ['--cpu-offload', 'optimizer'],
                      ['--cpu-offload', '1xparameters+1xnone+1xoptimizer',
                       '--activation-checkpointing', '1xfull+1xnone',
                       '--reshard-after-forward', '1xtrue+1xfalse']):
            self.run_ok('predict', *LOCAL, '--strategy', 'FULL_SHARD', *words, '-o', 'plan.yaml')
            self.train('plan.yaml')
            self.check('plan.yaml', 'measured.json')
            measured = json.loads(self.box.read('measured.json'))['measurement']
            digests.add(measured['weights_digest'])
            out = self.run_ok('check', 'plan.yaml', 'measured.json').out
            self.assertEqual('ledger peak, host memory' in out, bool(words))
            self.assertEqual(measured.get('ledger_host_peak_bytes', 0) > 0, bool(words))
            for view in ('operations', 'streams', 'memory', 'units'):
                self.assertTrue(self.run_ok('explain', 'plan.yaml', '--view', view, '--analyze',
                                            'measured.json').out)
        self.assertEqual(len(digests), 1)

    def test_a_padded_vocabulary_is_planned_trained_and_exported(self):
        """The plan's model has the rows: what follows needs no option."""
        self.run_ok('plan', *LOCAL, '--vocab', '320', '-o', 'padded.yaml')
        self.assertRegex(self.box.read('padded.yaml'), r'(?m)^  vocab: 320$')
        self.train('padded.yaml', '--measured', 'padded.json')
        self.check('padded.yaml', 'padded.json')
        script = self.run_ok('export', 'padded.yaml', '--to', 'pytorch').out
        self.assertIn('vocab_size=320,', script)
        self.run_ok('import', '-', 'tiny.yaml', 'local', '--gpus', '2', '--from', 'pytorch', '--vocab',
                    '320', '-o', 'back.yaml', stdin=script)
        self.assertRegex(self.box.read('back.yaml'), r'(?m)^  vocab: 320$')
        fewer = self.run_ok('predict', *LOCAL, '--vocab', '8', code=2)
        self.assertIn('it can only be padded', fewer.err)

    def test_what_is_trained_is_exported_as_plain_modules(self):
        """torch is not here to run it: the file is Python, names what is trained, and reads back."""
        for trained, words in (('lora:2', ['RANK = 2', 'ALPHA = 4', 'ADAPTED = ["c_attn"]']),
                               ('*h.1.*', ['RANK = 0', 'ADAPTED = []'])):
            self.run_ok('plan', *LOCAL, '--runtime', 'pytorch-fsdp2', '--strategy', 'FULL_SHARD',
                        '--trainable', trained, '-o', 'part.yaml')
            result = self.run_ok('export', 'part.yaml', '--to', 'pytorch')
            self.assertNotIn('trainable', result.err)
            names = {node.name for node in ast.parse(result.out).body
                     if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
            self.assertTrue({'Adapted', 'is_trained', 'build_model', 'shard'} <= names, names)
            for word in [f'TRAINABLE = "{trained}"'] + words:
                self.assertIn(word, result.out)
            self.run_ok('import', '-', 'tiny.yaml', 'local', '--gpus', '2', '--from', 'pytorch', '-o',
                        'back.yaml', stdin=result.out)
            self.assertIn(f'trainable: {trained}' if trained[0] != '*' else f'trainable: "{trained}"',
                          self.box.read('back.yaml'))
        self.run_ok('plan', *LOCAL, '--runtime', 'pytorch-fsdp2', '-o', 'whole.yaml')
        self.assertNotIn('RANK =', self.run_ok('export', 'whole.yaml', '--to', 'pytorch').out)

    def test_a_gpu_plan_with_offload_is_recompiled(self):
        self.run_ok('predict', 'tiny.yaml', 'box.yaml', '--gpus', '4', '--seq-len', '16',
                    '--cpu-offload', 'all', '--reshard-after-forward', '2', '-o', 'gpu.yaml')
        self.assertIn('cpu_offload: parameters', self.box.read('gpu.yaml'))
        result = self.train('gpu.yaml', '--ranks', '2')
        self.assertIn('reshard_after_forward: 2 -> true', result.err)
        self.assertNotIn('cpu_offload', result.err)
        self.check('measured.plan.yaml', 'measured.json')

    def test_other_ranks_and_clipping_are_recompiled(self):
        self.run_ok('predict', *LOCAL, '-o', 'plan.yaml')
        for words, change, knobs in ((['--ranks', '4'], 'mesh shard: 2 -> 4', ['topology', 'grad_accum', 'mesh shard']),
                                     (['--ranks', '3'], 'global_batch: 8 -> ', ['topology', 'global_batch', 'mesh shard']),
                                     (['--clip', '1'], 'clip: 0', ['clip'])):
            result = self.train('plan.yaml', *words)
            self.assertIn(change, result.err)
            # Nothing else changes, or is said to.
            changed = re.findall(r'^note:   ([a-z_ ]+): .* -> ', result.err, re.M)
            self.assertEqual(changed, knobs)
            self.check('measured.plan.yaml', 'measured.json')

    def test_a_fault_is_exit_6_with_one_line(self):
        self.run_ok('predict', *LOCAL, '-o', 'plan.yaml')
        result = self.train('plan.yaml', '--fault', 'kill_rank=1@step=2', code=6)
        messages = [line for line in result.messages() if not line.startswith('step ')]
        self.assertEqual(len(messages), 1, result.err)
        self.assertIn('rank 1', messages[0])

    def test_what_does_not_fit_is_not_trained(self):
        self.run_ok('predict', *LOCAL, '--memory-limit', '1MiB', '-o', 'plan.yaml', code=1)
        self.assertIn('does not fit', self.train('plan.yaml', code=1).err)

    def test_what_does_not_fit_writes_nothing(self):
        self.run_ok('predict', 'llama-3.1-405b', '64xdgx-h100', '--activation-checkpointing', 'full', '-o', 'plan.yaml')
        before = sorted(os.listdir(self.box.folder))
        self.assertIn('does not fit', self.train('plan.yaml', '--ranks', '1', '--checkpoint', 'runs', code=1).err)
        self.assertEqual(sorted(os.listdir(self.box.folder)), before)


if __name__ == '__main__':
    contract.SCHEMAS = contract.schemas()
    unittest.main(verbosity=1)
