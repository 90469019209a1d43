"""Weights on their way: train, checkpoint, export as safetensors, start again from them.

    weights.py BINARY
"""

import json
import os
import shutil
import struct
import sys

import support


def header(path):
    with open(path, 'rb') as stream:
        length = struct.unpack('<Q', stream.read(8))[0]
        return json.loads(stream.read(length)), os.path.getsize(path) - 8 - length


def check_adapters(box, model, expect):
    """The folder is one that peft loads: two files, the projections by name."""
    usual = {'gpt2-nano': ['c_attn'], 'llama-nano': ['q_proj', 'v_proj']}[model]
    for asked, names in ('lora:4', usual), ('lora:4:' + ','.join(usual[-1:]) + ':alpha=8', usual[-1:]):
        box.run('plan', model, 'local', '--gpus', '2', '--seq-len', '16', '--global-batch', '2',
                '--strategy', 'FULL_SHARD', '--trainable', asked, '-o', 'lora.yaml')
        done = box.run('train', 'lora.yaml', '--data', 'text.txt', '--steps', '1',
                       '--checkpoint', 'lora')
        expect(done.code == 0, done.err)
        out = box.run('export', 'lora', '--to', 'safetensors', '-o', 'adapter/')
        expect(out.code == 0, out.err)
        expect(sorted(os.listdir(box.path('adapter'))) ==
               ['adapter_config.json', 'adapter_model.safetensors'], 'other files')
        config = json.loads(box.read('adapter/adapter_config.json'))
        expect(config['target_modules'] == names, config)
        expect((config['peft_type'], config['r'], config['lora_alpha']) == ('LORA', 4, 8), config)
        expect(config['fan_in_fan_out'] == (model == 'gpt2-nano'), config)
        tensors, _ = header(box.path('adapter/adapter_model.safetensors'))
        tensors.pop('__metadata__')
        expect({name.split('.')[-3] for name in tensors} == set(names), list(tensors)[:4])
        shutil.rmtree(box.path('adapter'))
        shutil.rmtree(box.path('lora'))


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
            check_adapters(box, model, expect)
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
