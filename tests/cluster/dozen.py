#!/usr/bin/env python3
"""A dozen of the laboratory's plans on two links with a latency.

    dozen.py SHARDPLAN RELAY TEXT

Steps must be within a third of what was predicted before they were trained, either way, and plans that differ by more
than 30 % must be in the predicted order: a busy machine holds that, a part of the model that is missing does not. Exit
77: this machine cannot do it."""
import argparse
import sys
import tempfile

import laboratory
import network
import verdict

# Deals a link of 0.3 ms and one of 4 ms; neither loses frames.
SEED, LINKS, QUESTIONS, PLANS = 26, 2, 1, 6
LONGER, PAIR = 1 / 3, 0.30


def faults(questions):
    for rows in questions:
        for row in rows:
            if not 1 / (1 + LONGER) <= row.predicted() / row.took() <= 1 + LONGER:
                yield (f'{row.link["text"]}, {row.knobs()}: {1e3 * row.predicted():.1f} ms predicted, '
                       f'{1e3 * row.took():.1f} measured')
        yield from (f'{rows[0].link["text"]}: {fast.knobs()} is faster than {slow.knobs()}, and predicted slower'
                    for fast in rows for slow in rows
                    if slow.took() > (1 + PAIR) * fast.took() and fast.predicted() > slow.predicted())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('shardplan')
    parser.add_argument('relay')
    parser.add_argument('text')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vars(options).update(folder=folder, seed=SEED, links=LINKS, questions=QUESTIONS, plans=PLANS, mpi=False)
        try:
            network.require()
            bench = laboratory.Laboratory(options)
            bench.predict()
            bench.measure()
        except network.Unavailable as reason:
            print(f'SKIPPED: {reason}')
            return 77
        questions = verdict.read(folder)
        found = list(faults(questions))
    print('\n'.join(found) if found else f'{sum(map(len, questions))} plans hold')
    return 1 if found or not questions else 0


if __name__ == '__main__':
    sys.exit(main())
