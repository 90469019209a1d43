"""`topologies fit`: runs of a cluster whose links and clock are not those of its file. What is printed
is compared with golden/fit.txt; the file that is written predicts the runs.

    fit.py BINARY           compares
    fit.py BINARY --update  writes the golden file anew (read the difference!)
"""

import csv
import io
import json
import os
import sys

import support

GOLDEN = os.path.join(support.HERE, 'golden', 'fit.txt')
HEAD = 'case,model,gpus,strategy,micro_batch,seq_len\n'
RUNS = [('one node', 'gpt2-124m,4,FULL_SHARD,8,1024'), ('few tokens', 'gpt2-124m,4,FULL_SHARD,1,128'),
        ('both nodes', 'gpt2-124m,8,FULL_SHARD,4,1024'), ('hybrid', 'gpt2-355m,8,HYBRID_SHARD,2,1024'),
        ('larger', 'gpt2-355m,8,FULL_SHARD,1,1024'), ('one GPU', 'gpt2-124m,1,NO_SHARD,4,1024')]
FIT = ['topologies', 'fit', 'box.yaml']


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def steps(box, topology):
    """Predicted seconds by case."""
    box.write('cases.csv', HEAD + ''.join(f'{name},{knobs}\n' for name, knobs in RUNS))
    out = box.run('predict', 'gpt2-124m', topology, '--cases', 'cases.csv').out
    return {row['case']: float(row['step_time_s']) for row in rows(out)}


def write_runs(box, name, measured, chosen=RUNS):
    box.write(name, HEAD.replace('\n', ',step_time_s\n') +
              ''.join(f'{run},{knobs},{measured[run]}\n' for run, knobs in chosen))


def prepare(box):
    """box.yaml is what somebody wrote, truth.yaml what the cluster does."""
    truth = box.read('box.yaml').replace('  latency: 10us', '  latency: 10us\n  oversubscription: 1.5')
    box.write('truth.yaml', truth + 'calibration:\n  sustained_clock: 0.8\n')
    measured = steps(box, 'truth.yaml')
    write_runs(box, 'runs.csv', measured)
    write_runs(box, 'one.csv', measured, [run for run in RUNS if ',8,FULL' not in run[1] and ',8,HY' not in run[1]])
    return measured


def check_files(box, expect, measured):
    written = box.run(*FIT, 'runs.csv', '-o', 'fitted.yaml')
    expect(written.code == 0 and written.messages() == [], f'-o: {written.code}, {written.err}')
    fitted = box.read('fitted.yaml')
    piped = box.run(*FIT, 'runs.csv', '--threads', '2')
    expect(piped.out == fitted, 'the file on stdout is that of -o, whatever the threads')
    expect(piped.err == written.out, 'without -o the tables are on stderr')
    expect(box.run('topologies', 'show', 'fitted.yaml').out == fitted, 'a fitted file is read as it was written')
    before, after = steps(box, 'box.yaml'), steps(box, 'fitted.yaml')
    for run, seconds in measured.items():
        was, now = abs(before[run] / seconds - 1), abs(after[run] / seconds - 1)
        expect(now < max(0.5 * was, 0.02), f'{run}: off by {was:.3f} before, {now:.3f} after')
    planned = box.run('plan', 'gpt2-124m', 'fitted.yaml')
    expect(planned.code == 0, f'a fitted topology is planned for: {planned.err}')


def check_document(box, expect):
    document = json.loads(box.run(*FIT, 'runs.csv', '--json').out)
    constants = {constant['id']: constant for constant in document['constants']}
    expect(document['schema'] == 'shardplan/fit/1', document['schema'])
    network = constants['network']
    expect(network['verdict'] == 'told' and network['low'] < 12.5e9 / 1.5 < network['high'],
           f'the NICs deliver 8.3 GB/s, fitted: {network}')
    expect(document['topology']['network']['oversubscription'] > 1.2, 'the topology is in the document')
    expect(document['errors']['after'] < document['errors']['before'], document['errors'])
    one = json.loads(box.run(*FIT, 'one.csv', '--json').out)
    expect({c['id']: c['verdict'] for c in one['constants']}['network'] == 'cannot tell', 'one node tells no NICs')
    expect('oversubscription' not in one['topology']['network'] or
           one['topology']['network']['oversubscription'] == 1, 'and changes none')


def check_slips(box, expect, measured):
    """Milliseconds for seconds tell nothing, and the file stays as it was."""
    write_runs(box, 'slip.csv', {run: 1000 * seconds for run, seconds in measured.items()})
    done = box.run(*FIT, 'slip.csv', '-o', 'slip.yaml')
    expect(done.code == 1 and done.out.startswith('Nothing was fitted: ') and 'Look at ' in done.out and
           'times as long as predicted, and 6 of 6 runs were more than 3 times' in done.out, f'{done.code}: {done.out}')
    expect('the topology is in slip.yaml, as it was' in done.err, done.err)
    expect(box.read('slip.yaml') == box.run('topologies', 'show', 'box.yaml').out, 'nothing told changes nothing')
    write_runs(box, 'slip.csv', dict(measured, hybrid=measured['hybrid'] / 50))
    done = box.run(*FIT, 'slip.csv')
    expect('Look at hybrid: it was ' in done.err and 'times as fast as predicted. Is' in done.err, done.err)
    expect('Look at' not in box.run(*FIT, 'runs.csv').err, 'runs that are as they may be')


def check_measured(box, expect):
    """Plans with what was measured of each count as rows do."""
    box.run('predict', 'gpt2-124m', 'box.yaml', '--gpus', '4', '-o', 'p.yaml')
    seconds = json.loads(box.run('predict', 'gpt2-124m', 'box.yaml', '--gpus', '4', '--json').out)['prediction']['step_time_s']
    box.run('report', 'p.yaml', '--no-alternatives', '-o', 'p.trace.json')
    box.write('p.log', ''.join(f'step {i} | step_time {2 * seconds:.6f}\n' for i in range(8)))
    for measured, expected in (('p.trace.json', seconds), ('p.log', 2 * seconds)):
        done = box.run(*FIT, 'runs.csv', 'p.yaml', measured, '--json')
        run = json.loads(done.out)['runs'][-1] if done.out else {'measured_s': 0, 'name': done.err}
        expect(run['name'] == 'p.yaml' and abs(run['measured_s'] / expected - 1) < 0.02, f'{measured}: {run}')
    box.plan_small()
    trained = box.run('train', 'p.yaml', '--data', 'text.txt', '--steps', '5')
    expect(trained.code == 0, trained.err)
    done = box.run('topologies', 'fit', 'local', *['p.yaml', 'measured.json'] * 3, '--json')
    expect(done.code in (0, 1) and len(json.loads(done.out)['runs']) == 3, done.err)
    # A prediction is of a run's median step.
    median = json.loads(box.read('measured.json'))['measurement']['step_time_p50_s']
    expect(json.loads(done.out)['runs'][0]['measured_s'] == median, f'not the median {median}: {done.out[:300]}')


def printed(box):
    parts = [f'$ shardplan {" ".join(FIT)} {name} -o fitted.yaml\n' +
             box.run(*FIT, name, '-o', 'fitted.yaml').out for name in ('runs.csv', 'one.csv')]
    return '\n'.join(parts)


def main(binary, update):
    expect = support.Expectations()
    with support.Sandbox(binary) as box:
        measured = prepare(box)
        text = printed(box)
        if update:
            with open(GOLDEN, 'w', encoding='utf-8') as stream:
                stream.write(text)
        expect(text == support.content(GOLDEN), f'not as in {GOLDEN}:\n{text}')
        check_files(box, expect, measured)
        check_document(box, expect)
        check_slips(box, expect, measured)
        check_measured(box, expect)
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], '--update' in sys.argv))
