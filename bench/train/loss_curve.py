"""The loss of a model of 10.8 million parameters on real text, as a curve and a table.

    loss_curve.py SHARDPLAN FOLDER [--steps N] [--ranks N] [--micro-batch N] [--dtype fp32|bf16 ...]

Plans and trains gpt2-nano on data/paradise-lost.txt with each dtype, the same tokens in the same order, and writes
FOLDER/loss-curve.svg; prints a Markdown table. Beside the curve stands what the text itself says: the entropy of its
bytes, alone and given the byte before. A model that learns goes below the first within tens of steps and to the second
within hundreds.
"""

import argparse
import collections
import json
import math
import os
import statistics
import subprocess

TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'data', 'paradise-lost.txt')
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 360, 56, 36, 6.0
COLOURS = {'fp32': '#1f5fa8', 'bf16': '#c4501b'}


def entropies(path):
    """Nats per byte: of bytes alone, and of a byte given the one before."""
    with open(path, 'rb') as file:
        text = file.read()
    singles, pairs = collections.Counter(text), collections.Counter(zip(text, text[1:]))
    alone = -sum(n / len(text) * math.log(n / len(text)) for n in singles.values())
    pair = -sum(n / (len(text) - 1) * math.log(n / (len(text) - 1)) for n in pairs.values())
    return alone, pair - alone


def train(options, dtype):
    """The loss of each step."""
    plan = os.path.join(options.folder, f'{dtype}.yaml')
    subprocess.run([options.program, 'plan', 'gpt2-nano', 'local', '--gpus', str(options.ranks), '--strategy',
                    'FULL_SHARD', '--seq-len', '128', '--micro-batch', str(options.micro_batch), '--param-dtype', dtype,
                    '--activation-checkpointing', 'none', '-o', plan], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    measured = os.path.join(options.folder, f'{dtype}-measured.json')
    lines = subprocess.run([options.program, 'train', plan, '--data', TEXT, '--steps', str(options.steps), '--lr',
                            '1e-3', '--warmup', '20', '--json-lines', '--measured', measured], check=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.splitlines()
    return [record['loss'] for record in map(json.loads, lines) if 'loss' in record]


def place(step, steps, loss):
    return LEFT + (WIDTH - LEFT - 12) * step / steps, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 12) * loss / TOP


def draw(curves, steps, marks, path):
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for loss in range(int(TOP) + 1):
        x, y = place(0, steps, loss)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - 12}" stroke="#ddd"/><text x="{x - 10:.1f}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{loss}</text>')
    for i in range(6):
        x, y = place(steps * i / 5, steps, 0)
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{round(steps * i / 5)}</text>')
    for name, loss in marks:
        x, y = place(0, steps, loss)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - 12}" stroke="#555" stroke-dasharray="5 4"/><text '
                     f'x="{WIDTH - 16}" y="{y - 4:.1f}" text-anchor="end" fill="#555">{name}: {loss:.2f}</text>')
    for row, (dtype, losses) in enumerate(curves.items()):
        points = ' '.join('{:.1f},{:.1f}'.format(*place(i + 1, steps, loss)) for i, loss in enumerate(losses))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[dtype]}" stroke-width="1.2"/><text '
                     f'x="{WIDTH - 60}" y="{24 + 16 * row}" fill="{COLOURS[dtype]}">{dtype}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 4}">step; loss in nats per byte</text></svg>')
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(parts) + '\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program')
    parser.add_argument('folder')
    parser.add_argument('--steps', type=int, default=300)
    parser.add_argument('--ranks', type=int, default=2)
    parser.add_argument('--micro-batch', type=int, default=4)
    parser.add_argument('--dtype', nargs='+', choices=['fp32', 'bf16'], default=['fp32', 'bf16'])
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    alone, given = entropies(TEXT)
    curves = {dtype: train(options, dtype) for dtype in options.dtype}
    draw(curves, options.steps, [('bytes alone', alone), ('given the byte before', given)],
         os.path.join(options.folder, 'loss-curve.svg'))
    print(f"| steps | {' | '.join(curves)} |")
    print(f"|---|{'---|' * len(curves)}")
    edges = [0, 1, 10, 20, 50, 100, 150, 200, 250, 300, 400, 500]
    for first, end in zip(edges, edges[1:]):
        if end <= options.steps:
            print(f'| {first + 1}-{end} | ' +
                  ' | '.join(f'{statistics.mean(losses[first:end]):.3f}' for losses in curves.values()) + ' |')
    print(f'\nMeans over the steps, nats per byte. The text: {alone:.3f} by bytes alone, {given:.3f} given the byte '
          'before.')


if __name__ == '__main__':
    main()
