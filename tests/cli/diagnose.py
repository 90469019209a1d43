"""`diagnose`: of our own measurements and of profiler traces, plain, gzipped, damaged.

    diagnose.py BINARY
"""

import gzip
import json
import os
import sys

import support

US = 1e6


def trace(gathers, steps=3, step_s=2.0, kernel='ampere_bf16_gemm', wait=0, beside=0):
    """A profiler's trace: kernels back to back, with `gathers` all-gathers of 404 MB exposed.

    A step begins with `wait` s in the data loader; each kernel runs `beside` s longer."""
    events = []
    for step in range(steps):
        start = 1.7e15 + step * step_s * US
        events.append({'ph': 'X', 'cat': 'user_annotation', 'name': f'ProfilerStep#{step}',
                       'pid': 1, 'tid': 1, 'ts': start, 'dur': step_s * US})
        if wait:
            events.append({'ph': 'X', 'cat': 'user_annotation', 'pid': 1, 'tid': 1, 'ts': start, 'dur': wait * US,
                           'name': 'enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__'})
            start += wait * US
        each = (step_s - wait) * US / (gathers + 33)
        for i in range(gathers + 33):
            gather = i < gathers
            args = {'stream': 7, 'correlation': step * 1000 + i}
            if gather:
                args.update({'dtype': 'BFloat16', 'In msg nelems': 12648960,
                             'Out msg nelems': 202383360})
            events.append({'ph': 'X', 'cat': 'kernel', 'pid': 0, 'tid': 7,
                           'name': 'ncclDevKernel_AllGather_RING_LL' if gather else
                                   'ncclDevKernel_ReduceScatter_Sum_f32_RING_LL' if i % 2 else
                                   kernel,
                           'ts': start + i * each, 'dur': each * 0.99 + (0 if gather else beside * US),
                           'args': args})
    return json.dumps({'schemaVersion': 1, 'distributedInfo': {'rank': 0, 'world_size': 16},
                       'traceEvents': events}).encode()


def main(binary):
    problems = []

    def expect(result, code, *parts):
        text = result.out + result.err
        for part in parts:
            if part not in text:
                problems.append(f'expected "{part}" in: {text}')
        if result.code != code:
            problems.append(f'expected exit code {code}, got {result.code}: {text}')

    with support.Sandbox(binary) as box:
        def save(name, content):
            with open(os.path.join(box.folder, name), 'wb') as stream:
                stream.write(content)

        box.run('plan', 'llama-2-7b', '2xdgx-a100-80gb', '--strategy', 'FULL_SHARD', '--micro-batch',
                '1', '-o', 'plan.yaml')
        save('trace.json', trace(200))
        save('trace.json.gz', gzip.compress(trace(200)))
        plain = box.run('diagnose', 'plan.yaml', 'trace.json')
        expect(plain, 0, 'gathered-again', 'all-gathers a step, planned 65',
               'The largest loss: exposed communication', 'Of the step 92 % is exposed communication', 'MFU ')
        packed = box.run('diagnose', 'plan.yaml', 'trace.json.gz')
        if packed.out != plain.out:
            problems.append('a gzipped trace gives another diagnosis')
        found = json.loads(box.run('diagnose', 'plan.yaml', 'trace.json', '--json').out)
        if found['measured']['activities'][1]['count'] != 200:
            problems.append(f'200 gathers counted as {found["measured"]["activities"][1]}')
        # Planted, each beside the same control: one kernel overlaps, nothing waits, nothing is in fp32.
        for cause, planted in {
                'fp32-parameters': trace(65, kernel='ampere_sgemm_128x64_tn'),
                'eager-attention': trace(65, kernel='void softmax_warp_forward<c10::BFloat16, 10, false, true>()'),
                'data-bound': trace(65, wait=0.5),
                'no-overlap': trace(65)}.items():
            save('planted.json', planted)
            expect(box.run('diagnose', 'plan.yaml', 'planted.json'), 0, f'[{cause}]')
            save('control.json', trace(65, beside=0.2))
            control = box.run('diagnose', 'plan.yaml', 'control.json')
            if control.code != 0 or f'[{cause}]' in control.out:
                problems.append(f'{cause} without a reason: {control.out}')
        save('cut.json.gz', gzip.compress(trace(200))[:2000])
        expect(box.run('diagnose', 'plan.yaml', 'cut.json.gz'), 3, 'cut.json.gz')
        save('cut.json', trace(200)[:5000])
        expect(box.run('diagnose', 'plan.yaml', 'cut.json'), 3, 'cut.json:1:', 'without a closing quote')
        expect(box.run('diagnose', 'plan.yaml', 'none.json'), 3, 'none.json: cannot be read: No such file or directory')
        # Without a gather it is no step of that plan.
        save('other.json', trace(0))
        expect(box.run('diagnose', 'plan.yaml', 'other.json'), 0, 'does not look like a step')

        # A folder of the profiler; what is neither a trace nor anything else that was measured.
        os.makedirs(os.path.join(box.folder, 'traces'))
        expect(box.run('diagnose', 'plan.yaml', 'traces'), 3, 'no trace', 'export_chrome_trace')
        save('traces/host_2.pt.trace.json', trace(0))
        save('traces/host_1.pt.trace.json.gz', gzip.compress(trace(200)))
        of_folder = box.run('diagnose', 'plan.yaml', 'traces')
        expect(of_folder, 0, 'host_1.pt.trace.json.gz, the first of 2 traces')
        if of_folder.out != plain.out:
            problems.append('a trace of a folder gives another diagnosis')
        save('odd.json', b'{"answer": 42}')
        odd = box.run('diagnose', 'plan.yaml', 'odd.json')
        expect(odd, 3, 'begins with `{"answer": 42}`', 'profiler.step()')
        if len(odd.err.splitlines()) != 9:
            problems.append(f'expected a line and eight of Python: {odd.err}')
        expect(box.run('diagnose', 'plan.yaml', 'plan.yaml'), 3, 'begins with `shardplan: plan/1`')
        expect(box.run('diagnose', 'plan.yaml', 'cut.json'), 3)
        expect(box.run('help', 'diagnose'), 0, 'profiler.export_chrome_trace', '--step-time TIME')

        # Figures alone, and a log.
        given = box.run('diagnose', 'plan.yaml', '--mfu', '31', '--step-time', '2.9s')
        expect(given, 0, '2.90 s a step, predicted', 'MFU, by what it counts', 'eager-attention', 'offload',
               'no-overlap', 'slow-link', 'data-bound')
        same = box.run('diagnose', 'plan.yaml', '--mfu', '0.31', '--step-time', '2900ms')
        if same.out != given.out:
            problems.append('units of --mfu and --step-time change the answer')
        save('figures.json', b'{"step_time": 2.9, "mfu": 0.31}')
        if box.run('diagnose', 'plan.yaml', 'figures.json').out != given.out:
            problems.append('a file of two figures gives another answer')
        save('train.log', b''.join(b'step %d: step time %d ms\n' % (i, 9000 if i < 2 else 2900 if i % 2 else 5200)
                                   for i in range(20)))
        expect(box.run('diagnose', 'plan.yaml', 'train.log'), 0, 'a log of 20 steps', 'busy-machine')
        quiet = box.run('diagnose', 'plan.yaml', '--step-time', '1')
        expect(quiet, 0, 'Nothing to explain')
        if 'eager' in quiet.out or 'busy' in given.out:
            problems.append(f'a cause without a reason: {quiet.out} {given.out}')
        # What nothing can reach is a slip, not a success.
        expect(box.run('diagnose', 'plan.yaml', '--step-time', '3ms'), 0, 'No step of this plan can be shorter than')
        # What is rounded away has no sign.
        alike = box.run('predict', 'llama-2-7b', 'dgx-a100-80gb', '--tensor', '8', '--json')
        step = 0.9999 * json.loads(alike.out)['prediction']['step_time_s']
        box.run('predict', 'llama-2-7b', 'dgx-a100-80gb', '--tensor', '8', '-o', 'tensor.yaml')
        expect(box.run('diagnose', 'tensor.yaml', '--step-time', f'{step:.9f}s'), 0, '(+0.0 %)')
        # Tensor ranks share a batch: tokens are counted by GPU.
        rate = json.loads(alike.out)
        save('rate.log', b'step: 1 tps: %d\n' % rate['prediction']['tokens_per_s_per_gpu'] * 5)
        expect(box.run('diagnose', 'tensor.yaml', 'rate.log'), 0, '(+0.0 %)', 'Nothing to explain')
        document = json.loads(box.run('diagnose', 'plan.yaml', '--mfu', '31', '--json').out)
        if document['schema'] != 'shardplan/figures/1' or abs(document['mfu'][0]['measured'] - 0.31) > 1e-9:
            problems.append(f'{document}')
        expect(box.run('diagnose', 'plan.yaml'), 2, 'expected what was measured')
        expect(box.run('diagnose', 'plan.yaml', '--mfu', 'high'), 2, '--mfu: expected percent')
        expect(box.run('diagnose', 'plan.yaml', '--step-time', '0'), 2, '--step-time: expected a time')
        expect(box.run('diagnose', 'plan.yaml', 'trace.json', '--mfu', '31'), 2, 'tells its own step time')

        # A measurement of our own.
        box.write_text('text.txt')
        box.run('plan', 'gpt2-nano', 'local', '--gpus', '2', '--seq-len', '32', '--global-batch', '2',
                '--strategy', 'FULL_SHARD', '-o', 'small.yaml')
        trained = box.run('train', 'small.yaml', '--data', 'text.txt', '--steps', '4')
        expect(trained, 0)
        expect(box.run('diagnose', 'small.yaml', 'measured.json'), 0, 'a step, predicted',
               'compute')
        # Of another schedule its step time still compares.
        expect(box.run('diagnose', 'plan.yaml', 'measured.json'), 0, 'of another schedule', 'a step, predicted')
    print('\n'.join(problems))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
