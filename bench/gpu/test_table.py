#!/usr/bin/env python3
"""table.py without PyTorch and without a GPU: the lists and their predictions, what is measured when, and the bars."""
import contextlib
import io
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
import table


def expect(condition, what):
    if not condition:
        sys.exit(str(what))


rows, retries = (table.read(os.path.join(table.HERE, name)) for name in table.LISTS)
known = {p['case']: p for p in table.read(table.PREDICTED)}
expect(len(rows) == 60 and len(retries) == 20, (len(rows), len(retries)))
expect(sorted(known) == sorted(row['case'] for row in rows + retries), 'predictions are of other rows')
expect(all(float(p['step_time_low_s']) < float(p['step_time_s']) < float(p['step_time_high_s']) for p in known.values()),
       'an interval without its middle')
# What a limit leaves for the allocator.
for row in retries:
    p = known[row['case']]
    expect(int(row['memory_limit']) == int(p['fraction_bytes']) + int(p['overhead_bytes']), row)
expect(sum(p['fits'] == 'tight' for p in known.values()) >= 18 and any(p['fits'] == 'no' for p in known.values()), 'fits')


def judged(found):
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        path = os.path.join(folder, 'measured.csv')
        table.write(path, table.MEASUREMENTS, found)
        table.main(['judge', '--measured', path, '--rows', 'rows.csv'])
    return out.getvalue()


def measured(case, scale=1.0, **more):
    p = known[case]
    return {'case': case, 'outcome': 'yes', 'step_time_s': scale * float(p['step_time_s']),
            'allocated_bytes': p['peak_allocated_bytes'], 'reserved_bytes': p['peak_reserved_bytes'], 'retries_a_step': 0,
            'predictions': table.digest(), **more}


# As predicted, but for one that did not fit; then all ten per cent slower, and two that change places.
said = judged([measured(row['case']) for row in rows[:9]] + [measured('r10', outcome='no')])
expect('step time: n 9, median error 0.0 % (bar 3), bias +0.0 %: met' in said, said)
expect('misjudged whether they fit: r10; 51 of 60 rows lack a step' in said, said)
said = judged([measured(row['case'], 1 / 0.9) for row in rows[:9]])
expect('median error 10.0 % (bar 3), bias -10.0 %: missed' in said and 'allocated: n 9, median error 0.0 %' in said, said)
expect('in the right order: 35 of 35' in said, said)
said = judged([measured('r01', 10), measured('r02', 1)])
expect('in the right order: 0 of 1' in said, said)
try:
    judged([measured('r01', predictions='others')])
    sys.exit('judged beside other predictions')
except SystemExit as stop:
    expect('1 rows were measured beside other predictions' in str(stop), stop)

# What is there is kept, what failed is tried again, and nothing is measured beside predictions that may change.
asked = []


def stand_in(row, options, seconds):
    asked.append((row['case'], row['fraction_bytes']))
    return {'outcome': 'failed', 'said': 'busy'} if row['case'] == 'r02' and len(asked) < 3 else {
        'outcome': 'yes', 'step_time_s': 1, 'allocated_bytes': 1, 'reserved_bytes': 1, 'retries_a_step': 0}


table.measure_row = stand_in
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
    words = ['measure', '--measured', os.path.join(folder, 'measured.csv'), '--only', 'r01,r02,m01']
    table.is_committed = lambda: True
    table.main(words)
    table.main(words)
    expect([case for case, _ in asked] == ['r01', 'r02', 'm01', 'r02'], asked)
    expect(asked[0][1] == '' and asked[2][1] == known['m01']['fraction_bytes'], asked)
    table.is_committed = lambda: False
    try:
        table.main(words)
        sys.exit('measured before predictions were committed')
    except SystemExit as stop:
        expect('not committed' in str(stop), stop)
print('table.py: 60 rows and 20')
