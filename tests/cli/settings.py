"""What is typed wins over the environment, that over the file of settings, that over the defaults:
settings.py BINARY"""

import json
import sys
import unittest

import support

BINARY = sys.argv.pop(1)
PREDICT = ['predict', 'tiny.yaml', 'box.yaml', '--json']


class Case(unittest.TestCase):
    def setUp(self):
        self.box = support.Sandbox(BINARY).__enter__()
        self.addCleanup(self.box.__exit__)

    def settings(self, content):
        self.box.write('config/shardplan/config.yaml', content)
        return {'XDG_CONFIG_HOME': self.box.path('config')}

    def plan(self, *words, **environment):
        result = self.box.run(*PREDICT, *words, **environment)
        self.assertIn(result.code, (0, 1), result.err)
        return json.loads(result.out)

    def fails(self, code, message, *words, **environment):
        result = self.box.run(*(words or PREDICT), **environment)
        self.assertEqual(result.code, code, result.err)
        self.assertEqual(result.out, '')
        self.assertIn(message, result.err)

    def test_precedence(self):
        default = self.plan()['plan']['micro_batch']
        config = self.settings('# mine\nmicro_batch: 3\n')
        variable = {'SHARDPLAN_MICRO_BATCH': '5'}
        self.assertNotIn(default, (3, 5, 7))
        self.assertEqual(self.plan(**config)['plan']['micro_batch'], 3)
        self.assertEqual(self.plan(**config, **variable)['plan']['micro_batch'], 5)
        self.assertEqual(
            self.plan('--micro-batch', '7', **config, **variable)['plan']['micro_batch'], 7)
        self.assertEqual(
            self.plan(SHARDPLAN_MICRO_BATCH='', **config)['plan']['micro_batch'], 3)

    def test_question_has_them(self):
        """A plan file says what it answered, whoever asked."""
        document = self.plan(**self.settings('micro_batch: 3\n'))
        self.assertEqual(document['question']['options'], '--micro-batch 3')

    def test_home(self):
        self.box.write('.config/shardplan/config.yaml', 'micro_batch: 3\n')
        self.assertEqual(self.plan()['plan']['micro_batch'], 3)

    def test_commands_without_the_option(self):
        result = self.box.run('models', SHARDPLAN_MICRO_BATCH='5')
        self.assertEqual(result.code, 0, result.err)

    def test_cases(self):
        """A row's cell wins, like what is typed."""
        self.box.write('cases.csv', 'case,micro_batch\na,7\nb,\n')
        result = self.box.run('predict', 'tiny.yaml', 'box.yaml', '--cases', 'cases.csv',
                              SHARDPLAN_MICRO_BATCH='x')
        rows = result.out.split('\n')
        self.assertNotIn('expected', rows[1])
        self.assertIn('SHARDPLAN_MICRO_BATCH', rows[2])

    def test_empty_file(self):
        for content in ('', '\n', '# only a comment\n'):
            self.plan(**self.settings(content))

    def test_bad_file(self):
        place = self.box.path('config/shardplan/config.yaml')
        for content, message in (
                ('micro_batsch: 3\n', ':1:15: micro_batsch: no option that can be set'),
                ('a: b\nmicro-batch: 3\n', ':1:4: a: no option'),
                ('micro-batch: 3\n', 'did you mean micro_batch?'),
                ('output: x\n', ':1:9: output: no option that can be set'),
                ('json: true\n', 'json: no option that can be set'),
                ('micro_batch: [1, 2]\n', 'expected one value'),
                ('- a\n', 'expected options and values'),
                ('micro_batch: {\n', ':')):
            config = self.settings(content)
            with self.subTest(content=content):
                self.fails(3, message, **config)
                self.fails(3, place, **config)
        self.fails(2, 'config.yaml:1:14: micro_batch: expected a whole number',
                   **self.settings('micro_batch: x\n'))

    def test_bad_variable(self):
        self.fails(2, 'SHARDPLAN_MICRO_BATSCH: no option that can be set', 'models',
                   SHARDPLAN_MICRO_BATSCH='3')
        self.fails(2, 'did you mean SHARDPLAN_MICRO_BATCH?', SHARDPLAN_MICRO_BATSCH='3')
        self.fails(2, 'SHARDPLAN_MICRO_BATCH: expected a whole number', SHARDPLAN_MICRO_BATCH='x')
        self.fails(2, 'SHARDPLAN_OUTPUT: no option', SHARDPLAN_OUTPUT='x')

    def test_help(self):
        """The help works whatever is set, and says where a value comes from."""
        config = self.settings('seq_len: 64\n')
        page = self.box.run('help', 'settings', SHARDPLAN_MICRO_BATCH='5', **config).out
        self.assertRegex(page, r'SHARDPLAN_MICRO_BATCH +5  \(SHARDPLAN_MICRO_BATCH\)')
        self.assertRegex(page, r'SHARDPLAN_SEQ_LEN +64  \(.*config.yaml:1:10: seq_len\)')
        self.assertNotIn('SHARDPLAN_OUTPUT', page)
        self.assertEqual(self.box.run('help', SHARDPLAN_X='1').code, 0)
        self.fails(2, 'SHARDPLAN_X', 'help', 'settings', SHARDPLAN_X='1')

    def test_colour(self):
        colored = self.box.run('predict', 'tiny.yaml', 'box.yaml', SHARDPLAN_COLOR='always',
                               NO_COLOR='1').out
        plain = self.box.run('predict', 'tiny.yaml', 'box.yaml', '--color', 'never',
                             SHARDPLAN_COLOR='always').out
        self.assertNotIn('\033', plain)
        self.assertGreaterEqual(len(colored), len(plain))


if __name__ == '__main__':
    unittest.main()
