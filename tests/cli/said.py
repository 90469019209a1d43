"""Plans that a target's file can say.

    said.py BINARY            a few questions
    said.py BINARY slow       200
    said.py BINARY FIRST END  these of them

With --for TARGET a plan goes out and comes back as it is, with its time. Without, what the export
changes is named, and the changed plan is not a better one for the same work: else the planner
should have found it."""

import random
import re
import sys
import unittest

import contract

SEED = 20261124
MODELS = ['gpt2-124m', 'gpt2-355m', 'gpt2-774m', 'gpt2-1.5b', 'mpt-1b', 'llama-2-7b',
          'llama-3.1-8b', 'mistral-7b', 'llama-2-13b']
TOPOLOGIES = ['dgx-a100-80gb', '2xdgx-a100-80gb', '2xdgx-h100', '4xp4d.24xlarge', 'rtx4090-8x',
              '2xg5.48xlarge', '8xdgx-h100', 'dgx-v100', 'gb200-nvl72']
# Each with the chance of being asked.
OPTIONS = [
    (0.5, '--seq-len', ['512', '1024', '2048']),
    (0.5, '--global-batch', ['144', '288', '576', '1152']),
    (0.3, '--strategy', ['FULL_SHARD', 'SHARD_GRAD_OP', 'HYBRID_SHARD', 'NO_SHARD']),
    (0.2, '--activation-checkpointing', ['full', 'none', 'selective']),
    (0.2, '--attention', ['eager', 'flash2']),
    (0.2, '--compile', ['on']),
    (0.2, '--loss', ['fused', 'native', 'fused-linear']),
    (0.2, '--param-dtype', ['fp32']),
    (0.2, '--reduce-dtype', ['bf16']),
    (0.2, '--optimizer', ['adamw-fused', 'adamw', 'sgd']),
    (0.2, '--clip', ['1']),
    (0.2, '--memory-limit', ['14GiB', '20GiB', '28GiB']),
    (0.2, '--objective', ['memory', 'network']),
]
# Follow from the strategy, the runtime or the batch, which have notes of their own.
FOLLOW = {'global_batch', 'reshard_after_forward', 'prefetch', 'forward_prefetch',
          'limit_all_gathers', 'mesh'}
# What the script or the user decides: plans that differ in it do other work. Loss, allocator and
# versions are levers of the script.
WORK = ['attention', 'compile', 'param_dtype', 'master_dtype', 'reduce_dtype', 'gelu', 'optimizer',
        'clip', 'loss', 'allocator']
BETTER = 0.01  # the planner's own close call
TARGETS_OF_EACH = 3


def draw(rng):
    words = [rng.choice(MODELS), rng.choice(TOPOLOGIES)]
    for chance, option, values in OPTIONS:
        if rng.random() < chance:
            words += [option, rng.choice(values)]
    return words


def plain(words):
    """The question without what the target may have no word for."""
    pairs = zip(words[2::2], words[3::2])
    return words[:2] + [word for pair in pairs for word in pair
                        if pair[0] in ('--seq-len', '--global-batch')]


class Plan:
    def __init__(self, text):
        body = text.split('\nplan:\n')[1].split('\nprediction:')[0]
        self.knobs = {name: value.strip('"')
                      for name, value in re.findall(r'^  (\w+): *(.*)$', body, re.M)}
        mesh = re.findall(r'^    (\w+): (\d+)$', body, re.M)
        self.knobs['mesh'] = tuple(mesh)
        self.shard_group = dict(mesh)['shard']
        self.time = float(re.search(r'^  step_time_s: (\S+)$', text, re.M).group(1))
        self.fits = re.search(r'^  fits: "?(\w+)', text, re.M).group(1)

    def option(self, name):
        value = self.shard_group if name == 'shard_group' else self.knobs.get(name)
        return [] if value is None else ['--' + name.replace('_', '-'), value]

    def differs(self, other):
        """What is of no effect on this plan aside: when to reduce with one micro-batch."""
        moot = {'sync_each_micro_batch'} if self.knobs['grad_accum'] == '1' else set()
        return sorted(name for name in set(self.knobs) - moot
                      if self.knobs[name] != other.knobs.get(name))

    def wraps_as(self, other):
        """But for embedding and head apart, which is a lever of the script."""
        return self.knobs['wrap'].split('+')[0] == other.knobs['wrap'].split('+')[0]


class Said(contract.Case):
    def setUp(self):
        super().setUp()
        lines = self.run_ok('export', '--knobs').out.strip().split('\n')
        rows = [[cell.strip(' `') for cell in line.strip('|').split('|')] for line in lines]
        self.targets = rows[0][1:]
        self.cells = {target: {row[0]: row[1 + i] for row in rows[2:]}
                      for i, target in enumerate(self.targets)}
        self.files = dict(re.findall(r'^(\S+) +(\S+)', self.run_ok('export', '--list').out, re.M))

    def plan(self, words, *more):
        """None: nothing fits, or the question contradicts itself or the target."""
        result = self.box.run('plan', *words, *more, '-o', 'plan.yaml')
        self.assertIn(result.code, (0, 1, 2), result.err)
        if result.code != 0:
            return None
        plan = Plan(self.box.read('plan.yaml'))
        said = re.search(r'Says it unchanged: ([\w, \n-]+)\.', self.run_ok('explain', 'plan.yaml').out)
        plan.said_by = re.split(r',\s+', said[1]) if said else []
        return plan

    def export(self, target):
        """None: the framework cannot do what the plan does."""
        self.box.write('out/here', '')
        result = self.box.run('export', 'plan.yaml', '--to', target, '-o', 'out/')
        if result.code == 2 and 'adds no reduced gradients' in result.err:
            return None
        self.assertEqual(result.code, 0, result.err)
        return (re.findall(r'^note: changed: (\w+)', result.err, re.M),
                re.findall(r'^note: not in the file: (\w+)', result.err, re.M), result.err)

    def back(self, words, target, plan, beside, work=False):
        """The plan that the file and what stands beside it say; `work`: doing the plan's work."""
        cells = self.cells[target]
        names = set(beside) | {name for name in cells if cells[name] in ('no', 'beside')}
        names -= {'global_batch', 'trainable', 'shard_group', 'libraries'}
        names |= set(WORK) if work else set()
        options = [word for name in sorted(names) for word in plan.option(name)]
        if cells['shard_group'] == 'fixed' and 'HYBRID' in plan.knobs['strategy']:
            options += plan.option('shard_group')
        if '--memory-limit' in words:
            options += words[words.index('--memory-limit'):][:2]
        result = self.box.run('import', 'out/' + self.files[target], words[0], words[1],
                              '--from', target, *options, '-o', 'back.yaml')
        if work and result.code not in (0, 1):
            return None  # this runtime does not do that work: there is nothing to compare
        self.assertIn(result.code, (0, 1), f'{target} {words} {options}: {result.err}')
        return Plan(self.box.read('back.yaml'))

    def check_for(self, words, target):
        plan = self.plan(words, '--for', target) or self.plan(plain(words), '--for', target)
        if plan is None:
            return False
        changed, beside, notes = self.export(target)
        self.assertEqual(changed, [], notes)
        self.assertIn(target, plan.said_by)
        self.assertNotIn('as exported', notes)
        back = self.back(words, target, plan, beside)
        self.assertEqual(plan.differs(back), [], (plan.knobs, back.knobs))
        self.assertEqual(plan.time, back.time)
        return True

    def check_export(self, words, target, plan):
        exported = self.export(target)
        if exported is None:
            self.assertNotIn(target, plan.said_by)
            return
        changed, beside, notes = exported
        # A plan without a clip leaves clipping to the framework.
        self.assertEqual(target in plan.said_by, not set(changed) - {'clip'}, notes)
        back = self.back(words, target, plan, beside)
        differs = set(plan.differs(back))
        if not {'strategy', 'runtime'} & set(changed):
            self.assertEqual(differs - set(changed) - FOLLOW, set(), notes)
        if back.time >= plan.time * (1 - BETTER) or back.fits != 'yes' or not differs:
            return
        if '--strategy' in words and 'strategy' in changed:
            return  # the user would have none but that one
        # Another framework's own sharding is another question: --for asks it.
        if back.knobs['runtime'] not in (plan.knobs['runtime'], 'pytorch-ddp'):
            return
        wrap = {'wrap'} if plan.wraps_as(back) else set()
        same = self.back(words, target, plan, set(beside) | wrap, work=True)
        only_wraps = same is not None and plan.wraps_as(same) and not (
            set(plan.differs(same)) - {'wrap', 'reshard_after_forward'})
        if same is not None and same.fits == 'yes' and not only_wraps:
            self.assertGreaterEqual(same.time, plan.time * (1 - BETTER),
                                    f'{sorted(plan.differs(same))}\n{notes}')

    def test_questions(self):
        said = asked = 0
        for number in QUESTIONS:
            rng = random.Random(f'{SEED} {number}')
            words, targets = draw(rng), rng.sample(self.targets, TARGETS_OF_EACH)
            for target in targets:
                with self.subTest(number=number, words=words, said_for=target):
                    said += self.check_for(words, target)
                    asked += 1
            plan = self.plan(words)
            if plan is None or 'memory' in words or 'network' in words:
                continue
            for target in targets:
                with self.subTest(number=number, words=words, exported=target):
                    self.check_export(words, target, plan)
        print(f'{len(QUESTIONS)} questions, {asked} with --for, {said} of them with a plan')
        self.assertGreater(said, asked / 2)


if __name__ == '__main__':
    SLOW = sys.argv[1:] == ['slow']
    QUESTIONS = range(200) if SLOW else range(3)
    if len(sys.argv) == 3:
        QUESTIONS = range(int(sys.argv[1]), int(sys.argv[2]))
    unittest.main(argv=['said'], verbosity=1)
