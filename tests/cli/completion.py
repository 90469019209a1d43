"""Completion in the shells themselves, as far as they are installed: completion.py BINARY"""

import os
import re
import shutil
import subprocess
import sys
import unittest

import support

BINARY = sys.argv.pop(1)
DRIVER = '''
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_shardplan
printf '%s\\n' "${COMPREPLY[@]}"
'''


class Case(unittest.TestCase):
    def setUp(self):
        self.box = support.Sandbox(BINARY).__enter__()
        self.addCleanup(self.box.__exit__)

    def script(self, shell):
        result = self.box.run('help', 'completion', shell)
        self.assertEqual(result.code, 0, result.err)
        self.box.write('completion', result.out)
        return self.box.path('completion')

    def check_syntax(self, shell):
        program = shutil.which(shell)
        script = self.script(shell)
        if program is None:
            self.skipTest(f'no {shell}')
        done = subprocess.run([program, '-n', script], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ''))


class Bash(Case):
    def complete(self, *words):
        done = subprocess.run(['bash', '-c', DRIVER, 'driver', self.script('bash'), 'shardplan',
                               *words], capture_output=True, text=True, cwd=self.box.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return done.stdout.split()

    def test_syntax(self):
        self.check_syntax('bash')

    def test_commands(self):
        named = re.findall(r'^  ([a-z]+)  +', self.box.run('help').out, re.M)
        self.assertGreater(len(named), 8)
        self.assertEqual(self.complete(''), named + ['--help', '--version'])
        self.assertEqual(self.complete('rep'), ['report'])

    def test_options(self):
        """Every option that the help of a command names, and no other."""
        for command in re.findall(r'^  ([a-z]+)  +', self.box.run('help').out, re.M):
            page = self.box.run('help', command).out
            named = re.findall(r'^  (?:-\w, )?(--[a-z0-9-]+)', page, re.M)
            self.assertEqual(self.complete(command, '--'), named, command)

    def test_values(self):
        self.assertEqual(self.complete('plan', 'x', 'y', '--strategy', 'HYB'),
                         ['HYBRID_SHARD', 'HYBRID_SHARD_ZERO2'])
        self.assertEqual(self.complete('plan', '--strategy', '=', 'FULL'), ['FULL_SHARD'])
        self.assertEqual(self.complete('plan', '--strategy', '='),
                         self.complete('plan', '--strategy', ''))
        self.assertEqual(self.complete('plan', '--prefetch', ''), ['none', 'pre', 'post'])
        self.assertEqual(self.complete('plan', '--wrap', ''), ['block', 'model'])
        self.assertEqual(self.complete('plan', '--gpus', ''), [])
        self.assertIn('layout', self.complete('explain', 'plan.yaml', '--view', 'l'))

    def test_operands(self):
        self.assertIn('llama-2-7b', self.complete('plan', 'llama'))
        self.assertIn('dgx-h100', self.complete('predict', 'llama-2-7b', 'dgx'))
        self.assertIn('tiny.yaml', self.complete('train', 'ti'))
        self.assertIn('settings', self.complete('help', ''))
        self.assertEqual(self.complete('help', 'completion', 'b'), ['bash'])
        self.assertEqual(self.complete('help', 'shard'), ['shard-group'])
        self.assertIn('show', self.complete('models', ''))


class Others(Case):
    def test_zsh(self):
        self.check_syntax('zsh')

    def test_fish(self):
        self.check_syntax('fish')

    def test_same_options(self):
        """The three scripts come from one table."""
        bash = set(re.findall(r"--[a-z-]+", self.box.run('help', 'completion', 'bash').out))
        zsh = set(re.findall(r"'(--[a-z-]+)", self.box.run('help', 'completion', 'zsh').out))
        fish = {'--' + name for name in
                re.findall(r" -l ([a-z-]+)", self.box.run('help', 'completion', 'fish').out)}
        self.assertEqual(zsh, fish)
        self.assertEqual(bash - {'--version', '--'}, zsh)

    def test_fish_completes(self):
        program = shutil.which('fish')
        if program is None:
            self.skipTest('no fish')
        done = subprocess.run([program, '--no-config', '-c',
                               f'source {self.script("fish")}; complete -C "shardplan plan --strategy FU"'],
                              capture_output=True, text=True, cwd=self.box.folder,
                              env={**os.environ, 'HOME': self.box.folder})
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()],
                         ['FULL_SHARD'])

    def test_unknown_shell(self):
        result = self.box.run('help', 'completion', 'csh')
        self.assertEqual(result.code, 2)
        self.assertIn('expected bash, zsh or fish', result.err)
        self.assertEqual(self.box.run('help', 'plan', 'bash').code, 2)


if __name__ == '__main__':
    unittest.main()
