"""Weights on their way: train, checkpoint, export as safetensors, start again from them.

    weights.py BINARY
"""

import json
import os
import struct
import sys

import support


def header(path):
    with open(path, 'rb') as stream:
        length = struct.unpack('<Q', stream.read(8))[0]
        return json.loads(stream.read(length)), os.path.getsize(path) - 8 - length


def main(binary):
    expect = support.Expectations()
    with support.Sandbox(binary) as box:
        box.write_text('text.txt')
        for model in 'gpt2-nano', 'llama-nano':
            box.run('plan', model, 'local', '--gpus', '2', '--seq-len', '16', '--global-batch', '2',
                    '--strategy', 'FULL_SHARD', '-o', 'p.yaml')
            done = box.run('train', 'p.yaml', '--data', 'text.txt', '--steps', '2', '--checkpoint', model)
            expect(done.code == 0, done.err)
            out = box.run('export', model, '--to', 'safetensors', '-o', f'hf-{model}/')
            expect(out.code == 0, out.err)
            tensors, room = header(box.path(f'hf-{model}/model.safetensors'))
            tensors.pop('__metadata__')
            expect(max(t['data_offsets'][1] for t in tensors.values()) == room, 'data ends early')
            # The folder is a model by itself, with the counts of the preset.
            shown = json.loads(box.run('models', 'show', f'hf-{model}', '--json').out)
            preset = json.loads(box.run('models', 'show', model, '--json').out)
            for key in 'parameters', 'layers', 'hidden', 'kv_heads', 'vocab', 'context', 'tied_head':
                expect(shown[key] == preset[key], f'{model}: {key} {shown[key]} {preset[key]}')
            again = box.run('train', 'p.yaml', '--data', 'text.txt', '--steps', '1', '--weights',
                            f'hf-{model}', '--json')
            expect(again.code == 0, again.err)
            # After two steps the loss is below that of random weights.
            expect(json.loads(again.out)['measurement']['loss'][0] < 5,
                   'the weights are not the trained ones')
        # The other model's weights are refused by name.
        wrong = box.run('train', 'p.yaml', '--data', 'text.txt', '--steps', '1', '--weights',
                        'hf-gpt2-nano')
        expect(wrong.code == 3 and 'is missing' in wrong.err, wrong.err)
        expect(box.run('export', 'text.txt', '--to', 'safetensors', '-o', 'x').code == 3,
               'a text is no checkpoint')
        expect(box.run('export', 'gpt2-nano', '--to', 'safetensors').code == 2, 'without -o')
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
