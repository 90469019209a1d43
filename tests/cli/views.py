"""Views of plans whose axes divide the model, as text of 100 columns and as pictures, compared with
golden/views.txt; the page and the trace have every stage.

    views.py BINARY           compares
    views.py BINARY --update  writes the golden file anew (read the difference!)
"""

import json
import os
import re
import sys

import screens
import support

COLUMNS = 100
BATCH = ['--seq-len', '1024', '--micro-batch', '1']
PLANS = {
    'stages': ['llama-2-7b', '2xdgx-a100-80gb', '--pipeline', '4', '--strategy', 'FULL_SHARD',
               '--grad-accum', '6'],
    'chunks': ['llama-2-7b', '2xdgx-a100-80gb', '--pipeline', '2', '--pipeline-schedule',
               'interleaved', '--virtual-stages', '2', '--tensor', '4', '--strategy', 'NO_SHARD',
               '--grad-accum', '28'],
    'experts': ['qwen3-30b-a3b', '2xdgx-h100', '--expert', '8', '--context', '2', '--strategy',
                'HYBRID_SHARD', '--shard-group', '4', '--grad-accum', '2'],
    'names': ['mixtral-8x7b', '4xdgx-h100', '--expert', '8', '--activation-checkpointing', 'full'],
    'hybrid': ['llama-3-70b', '16xdgx-h100', '--strategy', 'HYBRID_SHARD', '--grad-accum', '2',
               '--activation-checkpointing', 'full'],
    'flat': ['gpt2-1.5b', '2xdgx-a100-80gb', '--runtime', 'pytorch-fsdp1'],
    'alone': ['gpt2-124m', 'dgx-a100-80gb', '--gpus', '1'],
}
AXES = {'stages': 2, 'chunks': 3, 'experts': 4, 'alone': 0}
SHOWN = [('stages', 'pipeline'), ('stages', 'pipeline --svg'), ('stages', 'mesh'),
         ('stages', 'mesh --svg'), ('chunks', 'pipeline'), ('chunks', 'pipeline --svg'),
         ('chunks', 'mesh'), ('experts', 'pipeline'), ('experts', 'mesh'), ('experts', 'mesh --svg'),
         ('alone', 'mesh')]


def flows(events):
    """By id: the phases of messages between stages, and how long they are on their way."""
    found = {}
    for event in events:
        if event.get('cat') == 'message':
            found.setdefault(event['id'], {})[event['ph']] = event['ts']
    return found


def check_trace(box, expect):
    box.run('report', 'stages.yaml', '-o', 's.trace.json')
    events = json.loads(box.read('s.trace.json'))['traceEvents']
    names = [event['args']['name'] for event in events if event['name'] == 'process_name']
    expect(len(names) == 4 and all(f'stage {s}' in names[s] for s in range(4)), f'processes {names}')
    arrows = flows(events)
    expect(len(arrows) == 2 * 3 * 6 and all(set(arrow) == {'s', 'f'} for arrow in arrows.values()),
           f'{len(arrows)} messages')
    expect(all(arrow['f'] >= arrow['s'] for arrow in arrows.values()), 'messages go forward in time')


def check_page(box, expect):
    for plan, pictures in (('stages', 2), ('experts', 1), ('alone', 0)):
        box.run('report', f'{plan}.yaml', '--no-alternatives', '-o', 'page.html')
        page = box.read('page.html')
        found = sum(page.count(f'<figcaption>{caption}') for caption in
                    ('Which micro-batch every stage computes', 'Which ranks form which group'))
        expect(found == pictures, f'{plan}: {found} pictures')
        box.run('report', f'{plan}.yaml', '--no-alternatives', '-o', 'page.md')
        text = box.read('page.md')
        expect(('| axis ' in text) == (pictures > 0), f'{plan}: axes in Markdown')
    box.run('predict', 'gpt2-124m', '2xdgx-a100-80gb', '--tensor', '2', '--grad-accum', '2', *BATCH,
            '-o', 'tensor.yaml')
    box.run('report', 'tensor.yaml', '-o', 'page.md')
    asked = [line for line in box.read('page.md').split('\n') if line.startswith('| 2 \\(asked')]
    expect(asked and '| - ' not in asked[0], f'as many nodes as asked for: {asked}')


def check_axes(box, plan, expect):
    prediction = json.loads(box.run('explain', f'{plan}.yaml', '--json').out)['prediction']
    axes, time = prediction.get('axes', {}), prediction['time_s']
    expect(len(axes) == AXES[plan], f'{plan}: {axes}')
    communicated = sum(time.get(key, 0) for key in
                       ('all_gather', 'reduce_scatter', 'all_reduce', 'all_to_all', 'messages'))
    total = sum(axis['time_s'] for axis in axes.values())
    expect(abs(total - communicated) <= 1e-9 * communicated, f'{plan}: {total} of {communicated} s')


def check_said_alike(box, plan, expect):
    """Two views of one plan have one figure of what a rank sends, and lines that a screen holds."""
    summary = box.run('explain', f'{plan}.yaml').out
    sent = re.search(r'^network +(.*?) sent by each rank', summary, re.M).group(1)
    view = box.run('explain', f'{plan}.yaml', '--view', 'communication').out
    own = [line for line in view.split('\n') if ' * ' in line]
    expect(own and own[0].endswith(' ' + sent), f'{plan}: {sent} sent, the view has {own}')
    wide = [line for line in summary.split('\n') if len(line) > COLUMNS]
    expect(not wide, f'{plan} summary: {wide}')


def check_width(box, plan, expect):
    """Every view that is for people fits the terminal, and names no less there than in a pipe."""
    views = re.findall(r'^  (\w+) +[a-z].*\?$', box.run('help', 'explain').out, re.M)
    expect(len(views) == 10, f'views: {views}')
    for view in views:
        words = ['explain', f'{plan}.yaml', '--view', view]
        for columns in (screens.LEAST, COLUMNS):
            shown = screens.on_terminal(box, columns, *words)
            wide = [line for line in shown.split('\n') if len(line) > columns]
            expect(shown and not wide, f'{plan} {view}: {wide[:3]}')
        if view not in ('streams', 'layout', 'pipeline', 'summary'):  # drawn as wide as there is room
            letters = [sorted(re.sub(r'\s', '', text)) for text in (shown, box.run(*words).out)]
            expect(letters[0] == letters[1], f'{plan} {view}: other words in a pipe')


def main(binary, update):
    expect = support.Expectations()
    found = ''
    with support.Sandbox(binary) as box:
        for name, words in PLANS.items():
            done = box.run('predict', *words, *BATCH, '-o', f'{name}.yaml')
            expect(done.code in (0, 1), f'{name}: {done.err}')
            if name in AXES:
                check_axes(box, name, expect)
            check_said_alike(box, name, expect)
            check_width(box, name, expect)
        for name, view in SHOWN:
            done = box.run('explain', f'{name}.yaml', '--view', *view.split())
            expect(done.code == 0 and not done.messages(), f'{name} {view}: {done.err}')
            wide = [line for line in done.out.split('\n') if len(line) > COLUMNS]
            expect('svg' in view or not wide, f'{name} {view}: {wide}')
            found += f'$ shardplan explain {name}.yaml --view {view}\n{done.out}\n'
        check_trace(box, expect)
        check_page(box, expect)
    expect.golden('views', found, update)
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], '--update' in sys.argv))
