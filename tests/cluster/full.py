#!/usr/bin/env python3
"""Every strategy on two nodes x two ranks at 200 Mbit/s and 1 Gbit/s, against its prediction.

    full.py SHARDPLAN TEXT [-o TABLE.md] [--rate RATE] [--only CASE]

Checked: bits equal those of shared memory; bytes on the NIC are within 2 % of the plan's; steps
whose compute is held to its predicted time take within 10 % of the prediction; and where two plans
differ by more than 5 %, the planner ranks them as they measure. The former run at real-time priority,
since a rank that wakes up late holds up all others. Steps that really compute are only
shown: the nodes of one machine share its memory and its other users. A figure that does not hold is
measured once more, because a busy machine makes steps longer, never shorter.
Exit 77: this machine cannot do it."""
import argparse
import os
import sys
import tempfile

import network
import runs

RATES = ('200mbit', '1gbit')
TIME, BYTES, RANK = 0.10, 0.02, 0.05


class Row:
    def __init__(self, case, predicted):
        self.case = case
        self.predicted = predicted['step_time_s']
        self.planned = predicted['wire_bytes']['node_egress']
        self.paced = self.real = self.real_predicted = self.sent = 0.0
        self.same = False

    def error(self):
        return self.paced / self.predicted - 1

    def faults(self):
        if not self.same:
            yield 'other bits than shared memory'
        if abs(self.sent / self.planned - 1) > BYTES:
            yield f'{self.sent:.0f} bytes on the NIC, {self.planned} planned'
        if abs(self.error()) > TIME:
            yield f'{1e3 * self.paced:.1f} ms, {1e3 * self.predicted:.1f} ms predicted'


def paced_step(bench, cluster):
    cluster.urgent = True
    measured = bench.train(cluster, '--device', 'null', '--pace', 'compute', '--steps',
                           str(runs.STEPS))
    cluster.urgent = False
    return measured['step_time_p50_s']


def measure(bench, cluster, case):
    row = Row(case, bench.plan(case, 'paced.yaml'))
    row.paced = paced_step(bench, cluster)
    if abs(row.error()) > TIME:
        row.paced = min(row.paced, paced_step(bench, cluster))
    row.sent = bench.bytes_per_step(cluster)
    row.real_predicted = bench.plan(case, 'cluster.yaml')['step_time_s']
    there = bench.train(cluster, '--steps', '6')
    row.real = there['step_time_p50_s']
    row.same = there['weights_digest'] == bench.train_here('--steps', '6')['weights_digest']
    print(f'{cluster.rate} {case}: {1e3 * row.predicted:.1f} ms predicted, '
          f'{1e3 * row.paced:.1f} ms measured ({100 * row.error():+.1f} %)', flush=True)
    return row


def misranked(rows):
    """Pairs of one batch whose measured times differ by more than RANK the other way."""
    rows = [row for row in rows if '--grad-accum' not in runs.CASES[row.case]]
    return [(a.case, b.case) for a in rows for b in rows
            if a.paced * (1 + RANK) < b.paced and a.predicted > b.predicted]


def table(rate, rows):
    lines = [f'## {rate}', '',
             '| case | predicted, ms | paced, ms | error | NIC / plan | bits | '
             'real compute: predicted, ms | measured, ms | error |',
             '|---|---:|---:|---:|---:|---|---:|---:|---:|']
    for row in sorted(rows, key=lambda row: row.predicted):
        lines.append(
            f'| {row.case} | {1e3 * row.predicted:.1f} | {1e3 * row.paced:.1f} | '
            f'{100 * row.error():+.1f} % | {row.sent / row.planned:.4f} | '
            f'{"equal" if row.same else "DIFFER"} | {1e3 * row.real_predicted:.1f} | '
            f'{1e3 * row.real:.1f} | {100 * (row.real / row.real_predicted - 1):+.1f} % |')
    pairs = misranked(rows)
    lines += ['', 'Pairs ranked otherwise than measured, where they differ by more than 5 %: ' +
              ('; '.join(f'{a} before {b}' for a, b in pairs) or 'none') + '.', '']
    return lines


def write(path, parts):
    with open('/proc/loadavg', encoding='ascii') as file:
        load = file.read().split()[0]
    head = ['# Two nodes over a slow link', '',
            'Two network namespaces of one machine, two ranks each, a veth pair shaped by tbf;',
            f'{os.cpu_count()} CPUs, load average {load} at the end. "paced": compute is held to '
            'its predicted time and',
            'not carried out, collectives are real. "real compute" shares one core between the two '
            'ranks of a node, and the', 'machine with whoever else uses it. Repeat:', '',
            '    python3 tests/cluster/full.py build/cli/shardplan data/paradise-lost.txt -o '
            'build/cluster.md', '']
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(head + [line for part in parts for line in part]))


def run(options, folder):
    bench = runs.Bench(options.shardplan, folder, os.path.abspath(options.text))
    parts, faults = [], []
    for rate in options.rate or RATES:
        with network.Cluster(rate) as cluster:
            cluster.urgent = True
            bench.calibrate(cluster)
            cluster.urgent = False
            rows = [measure(bench, cluster, case) for case in options.only or runs.CASES]
        parts.append(table(rate, rows))
        faults += [f'{rate} {row.case}: {fault}' for row in rows for fault in row.faults()]
        faults += [f'{rate}: {a} is faster than {b}, and planned slower'
                   for a, b in misranked(rows)]
    if options.output:
        write(options.output, parts)
    else:
        print('\n'.join(line for part in parts for line in part))
    print('\n'.join(faults) if faults else 'all hold')
    return 1 if faults else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('shardplan')
    parser.add_argument('text')
    parser.add_argument('-o', '--output')
    parser.add_argument('--rate', action='append', choices=RATES)
    parser.add_argument('--only', action='append', choices=runs.CASES, metavar='CASE')
    options = parser.parse_args()
    try:
        network.require()
    except network.Unavailable as reason:
        print(f'SKIPPED: {reason}')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        return run(options, folder)


if __name__ == '__main__':
    sys.exit(main())
