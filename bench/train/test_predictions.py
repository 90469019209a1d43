#!/usr/bin/env python3
"""predictions.py on plans that nobody trains: which measurement counts, how often what is trained."""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
import predictions


class FakeBench:
    """Two questions have one answer until the third round, when a calibration changes its mind. A round takes a tenth
    of a second longer than the one before it."""

    def __init__(self):
        self.trained, self.round, self.schedule = [], 0, None

    def predict(self, words):
        if words == 'impossible':
            raise RuntimeError('exit 1')
        self.schedule = 'lean' if words == 'open' and self.round >= 2 else words if words != 'open' else 'fast'
        return {'schedule_digest': self.schedule, 'step_time_s': 1.0}

    def train(self, _):
        self.trained.append(self.schedule)
        return {'schedule_digest': self.schedule, 'step_time_p50_s': 1 + self.round / 10, 'round': self.round}


def questions():
    return {(words,): predictions.Plan(words) for words in ('open', 'fast', 'lean', 'impossible')}


def times(plan):
    return [m['step_time_p50_s'] for m in plan.measurements]


def expect(condition, what):
    if not condition:
        sys.exit(str(what))


bench, plans = FakeBench(), questions()
for bench.round in range(3):
    predictions.run_round(bench, plans)
expect(('impossible',) not in plans and len(plans) == 3, list(plans))
expect(bench.trained == ['fast', 'lean'] * 2 + ['lean', 'fast'], bench.trained)

# One more hour, in which a plan that was disturbed all the time was not.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'saved.json')
    with open(path, 'w', encoding='utf-8') as file:
        json.dump([[['lean'], [], [{'schedule_digest': 'lean', 'step_time_p50_s': 0.9}]],
                   [['fast'], [], [{'schedule_digest': 'slow', 'step_time_p50_s': 0.1}]],
                   [['gone'], [], []]], file)
    predictions.join(plans, path)
predictions.share(plans)
expect(sorted(times(plans[('lean',)])) == [0.9, 1, 1.1, 1.2], times(plans[('lean',)]))
expect(sorted(times(plans[('open',)])) == [0.9, 1, 1.1, 1.2], times(plans[('open',)]))
expect(sorted(times(plans[('fast',)])) == [1, 1.1, 1.2], times(plans[('fast',)]))
expect(len(plans[('open',)].predictions) == 1, plans[('open',)].predictions)
expect(plans[('open',)].measured() == 0.9 and plans[('open',)].middle() == 1.05, times(plans[('open',)]))
expect(abs(plans[('open',)].error() - 1 / 9) < 1e-12, plans[('open',)].error())

# Settled is whose fastest round was met twice.
plan = predictions.Plan('')
for seconds, settled in (1.0, False), (1.1, False), (1.02, True), (0.9, False), (0.92, True):
    plan.measurements.append({'step_time_p50_s': seconds})
    expect(plan.is_settled() == settled, times(plan))
