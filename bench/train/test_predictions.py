#!/usr/bin/env python3
"""predictions.py on plans that nobody trains: what is drawn, what is trained, what the figures are."""
import os
import random
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
import predictions


class FakeBench:
    """The open question has the answer of ZERO_2. A round takes a tenth of a second longer than the one before it."""

    def __init__(self):
        self.trained, self.round = [], 0

    def predict(self, words, path):
        if words[-1] == 'FULL_SHARD':
            raise RuntimeError('exit 1')
        return {'schedule_digest': 'ZERO_2' if path == 'question-0-chosen.yaml' else words[-1], 'step_time_s': 1.0,
                'uncertainty': {'step_time_low_s': 0.9, 'step_time_high_s': 1.15, 'step_time_best_s': 0.95}}

    def train(self, path, predicted):
        expect(predicted == 1.0, predicted)
        self.trained.append(path)
        seconds = 1 + self.round / 10 + (0.25 if 'chosen' in path else 0)
        return {'step_time_p50_s': seconds, 'yardstick_before_s': 2.2, 'yardstick_after_s': 2.6}


def expect(condition, what):
    if not condition:
        sys.exit(str(what))


def near(value, other):
    return abs(value - other) < 1e-12


# A seed draws the same again, another one something else; nothing twice.
first, again, other = (predictions.draw_different(predictions.draw, random.Random(seed), 16) for seed in (1, 1, 2))
expect(len(first) == 16 and first == again and first != other, first)
expect(len(predictions.draw_different(predictions.draw_question, random.Random(1), 10)) == 10, 'questions')

bench, plans = FakeBench(), predictions.plans_of_question(['model'], 0)
predictions.predict_all(bench, plans)
expect('FULL_SHARD' not in plans and len(plans) == 5, list(plans))
for bench.round in range(3):
    predictions.run_round(bench, plans)
# The answer and ZERO_2 are one plan.
expect(len(bench.trained) == 3 * 4 and 'question-0-ZERO_2.yaml' not in bench.trained, bench.trained)

chosen, rest = plans['chosen'], plans['NO_SHARD']
expect(chosen.once() == 1.25 and near(chosen.middle(), 1.35) and chosen.fastest() == 1.25, chosen.measurements)
expect(near(predictions.behind(plans, predictions.Plan.once), 0.25), 'behind')
expect(near(predictions.behind(plans, predictions.Plan.middle), 1.35 / 1.1 - 1), 'behind in the middle')
expect(rest.is_inside(1.15) and not rest.is_inside(1.16), 'inside')
expect(near(rest.slower(2.0), 1.2) and rest.slower(0) == 1, rest.slower(2.0))
expect(rest.best_case() == 0.95, rest.best_case())

# The user's figure comes first: of the first round, whatever others were.
lines = predictions.user_figure({'a': rest, 'b': chosen}, {'q': plans}, 2.0)
expect(lines[0] == 'One calibration, one run each: median error 10.0 %, bias -10.0 %, 1 of 2 within 10 %, largest 20.0 %; '
       '1 of 2 inside the 80 % interval', lines[0])
expect('took 25.0 % longer than the fastest measured, in the median of 1 questions' in lines[1], lines[1])
# A slower machine explains all but 4 % of the chosen plan.
expect('median error 12.0 %, bias +8.0 %' in lines[2], lines[2])
lines = predictions.rounds_figure({'a': rest}, {}, 3)
expect('Middle of 3 rounds: median error 9.1 %' in lines[0], lines[0])
expect('Best of 3 rounds, against the best case: median error 5.0 %' in lines[1], lines[1])
