"""The gradient of every tensor against PyTorch's, from the program as users run it: weights from a safetensors file, one step
of SGD, weights into a safetensors file; the difference is the gradient.

    gradients.py BINARY [--update]

PyTorch's gradients (torch_gradients.py, fp64) are kept as a norm and two projections a tensor in data/torch_gradients.json.
With an interpreter that has torch ($TORCH_PYTHON, or this one) they are computed again and compared element by element;
--update then writes the file."""

import array
import fnmatch
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys

import support

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = os.path.join(HERE, 'data', 'torch_gradients.json')
SEQ_LEN, BATCH, RATE, DECAY = 16, 4, 64, 0.1
# fp32 here, fp64 there: of a tensor's norm.
ALLOWED = 1e-5

SIZES = 'layers: 2\nhidden: 20\nheads: 4\nffn: 31\nvocab: 257\ncontext: 24\n'
GROUPED = SIZES + 'kv_heads: 2\nhead_dim: 6\n'
# Name: model, and how it is trained; every strategy gives the same bits (tests/executor).
MODELS = {
    'gpt2': ('family: gpt2\n' + SIZES, ['--strategy', 'FULL_SHARD', '--micro-batch', '2']),
    'llama': ('family: llama\n' + GROUPED, ['--strategy', 'SHARD_GRAD_OP', '--micro-batch', '1',
                                            '--activation-checkpointing', 'full']),
    'qwen3': ('family: qwen3\ntied_head: true\nqkv_bias: true\n' + GROUPED, ['--strategy', 'NO_SHARD', '--micro-batch', '2']),
}
# Name: whose weights, and what of it is trained.
PARTS = {
    'gpt2-lora': ('gpt2', 'lora:3:all-linear', ['--strategy', 'FULL_SHARD', '--activation-checkpointing', 'full']),
    'llama-lora': ('llama', 'lora:3:all-linear', ['--strategy', 'NO_SHARD', '--activation-checkpointing', 'selective']),
    'gpt2-part': ('gpt2', '*.h.1.*,*ln_f.bias', ['--strategy', 'SHARD_GRAD_OP']),
    'llama-part': ('llama', '*up_proj*,*.1.input_layernorm*', ['--strategy', 'FULL_SHARD', '--wrap', 'size:100']),
}


def read(path):
    """{name: (shape, floats)}"""
    with open(path, 'rb') as stream:
        length = struct.unpack('<Q', stream.read(8))[0]
        header, data = json.loads(stream.read(length)), stream.read()
    header.pop('__metadata__', None)
    return {name: (entry['shape'], array.array('f', data[slice(*entry['data_offsets'])]))
            for name, entry in header.items()}


def write(path, tensors):
    header, data = {}, b''
    for name, (shape, values) in tensors.items():
        header[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + 4 * len(values)]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    with open(path, 'wb') as stream:
        stream.write(struct.pack('<Q', len(text)) + text + data)


def is_norm(name, shape):
    """Whose weights are ones at first."""
    return len(shape) == 1 and name.endswith('.weight')


def enlarge(tensors):
    """Of weights as small as those that training starts with most gradients vanish."""
    draw = random.Random(5)
    return {name: (shape, array.array('f', [is_norm(name, shape) + draw.gauss(0, 0.25) for _ in values]))
            for name, (shape, values) in tensors.items()}


def step(box, *words):
    """One step of all windows of the text; the checkpoint's weights, and the loss."""
    for folder in 'run', 'hf':
        shutil.rmtree(box.path(folder), ignore_errors=True)
    done = box.run('train', 'p.yaml', '--data', 'text.txt', '--steps', '1', '--lr', str(RATE), '--checkpoint', 'run', '--json',
                   *words)
    out = box.run('export', 'run', '--to', 'safetensors', '-o', 'hf/')
    if done.code != 0 or out.code != 0:
        raise RuntimeError(done.err + out.err)
    adapters = box.path('hf/adapter_model.safetensors')
    file = adapters if os.path.exists(adapters) else box.path('hf/model.safetensors')
    return read(file), json.loads(done.out)['measurement']['loss'][0]


def gradients(box):
    """w' = w - rate * (g + decay * w), the latter of matrices."""
    start = enlarge(step(box)[0])
    os.makedirs(box.path('start'), exist_ok=True)
    shutil.copy(box.path('hf/config.json'), box.path('start'))  # adapters alone have none
    write(box.path('start/model.safetensors'), start)
    end, loss = step(box, '--weights', 'start')
    return loss, {name: [(a - b) / RATE - DECAY * a * (len(shape) == 2) for a, b in zip(values, end[name][1])]
                  for name, (shape, values) in start.items()}


def part_gradients(box, base):
    """Of what is trained alone; the rest stays as it was. Adapters come beside the weights of `base`."""
    start = dict(base)
    found, _ = step(box)
    prefix = 'base_model.model.'
    adapters = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
    start.update(enlarge(adapters))
    write(box.path('start/model.safetensors'), start)
    end, loss = step(box, '--weights', 'start')
    end = {name.removeprefix(prefix): tensor for name, tensor in end.items()}
    return loss, {name: [(a - b) / RATE - DECAY * a * (len(shape) == 2) for a, b in zip(start[name][1], values)]
                  for name, (shape, values) in end.items() if start[name][1] != values}


def reference(box, python):
    done = subprocess.run([python, os.path.join(HERE, 'torch_gradients.py'), box.path('start/config.json'),
                           box.path('start/model.safetensors'), box.path('text.txt'), str(SEQ_LEN)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def project(values):
    """The norm, and what a change of any element would move."""
    return [math.sqrt(math.fsum(v * v for v in values)), math.fsum(v * math.cos(i) for i, v in enumerate(values)),
            math.fsum(v * math.sin(1 + 2.3 * i) for i, v in enumerate(values))]


def worst(ours, theirs):
    """The largest deviation of a tensor, in its own norm (a bias of keys has no gradient: the norm is that of rounding)."""
    found = 0, ''
    for name, values in theirs.items():
        scale = max(math.sqrt(math.fsum(v * v for v in values)), 1e-3)
        off = math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(ours[name], values))) / scale
        found = max(found, (off, name))
    return found


def worst_projection(ours, kept):
    return max((max(abs(a - b) for a, b in zip(project(ours[name]), values)) / max(values[0], 1e-3) / math.sqrt(len(ours[name])),
                name) for name, values in kept.items())


def find_torch():
    for python in os.environ.get('TORCH_PYTHON'), sys.executable:
        if python and subprocess.run([python, '-c', 'import torch'], capture_output=True, check=False).returncode == 0:
            return python
    return None


def check(expect, box, model, python, kept, base=None):
    """What PyTorch has computed now; None without it."""
    loss, ours = gradients(box) if base is None else part_gradients(box, base)
    theirs = reference(box, python) if python else None
    if theirs and base is not None:
        theirs['gradients'] = {name: values for name, values in theirs['gradients'].items() if is_trained(name, model)}
    if theirs:
        expect(sorted(ours) == sorted(theirs['gradients']), f'{model}: other tensors')
        expect(abs(loss - theirs['loss']) < 1e-5, f'{model}: loss {loss}, PyTorch {theirs["loss"]}')
        off, name = worst(ours, theirs['gradients'])
        print(f'{model}: {len(ours)} tensors, PyTorch {theirs["torch"]}: at most {off:.1e} of the norm apart ({name})')
        expect(off < ALLOWED, f'{model}: {name} differs by {off:.1e} of its norm')
        return {'loss': theirs['loss'], 'gradients': {name: project(v) for name, v in theirs['gradients'].items()}}
    expect(sorted(ours) == sorted(kept['gradients']), f'{model}: other tensors')
    expect(abs(loss - kept['loss']) < 1e-5, f'{model}: loss {loss}, PyTorch {kept["loss"]}')
    off, name = worst_projection(ours, kept['gradients'])
    print(f'{model}: {len(ours)} tensors, kept projections: at most {off:.1e} of the norm apart ({name})')
    expect(off < ALLOWED, f'{model}: {name} differs by {off:.1e} of its norm')
    # The control: one element of a tensor that is 1 % of the norm off.
    name = max(ours)
    ours[name][len(ours[name]) // 2] += 0.01 * kept['gradients'][name][0]
    expect(worst_projection(ours, kept['gradients'])[0] > ALLOWED, f'{model}: a wrong element went unnoticed')
    return None


def is_trained(name, part):
    """Of PARTS, as fnmatch and peft have it."""
    what = PARTS[part][1]
    return 'lora_' in name if what.startswith('lora') else any(fnmatch.fnmatchcase(name, one) for one in what.split(','))


def check_parts(expect, box, base, start, python, kept):
    """The models of PARTS that begin with the weights of `base`."""
    computed = {}
    for part, (model, what, options) in PARTS.items():
        if model != base:
            continue
        done = box.run('plan', 'model.yaml', 'local', '--gpus', '2', '--seq-len', str(SEQ_LEN), '--global-batch', str(BATCH),
                       '--optimizer', 'sgd', '--trainable', what, '-o', 'p.yaml', *options)
        expect(done.code == 0, done.err)
        computed[part] = check(expect, box, part, python, kept.get(part), start)
    return computed


def main(binary, update=False):
    expect, python, computed = support.Expectations(), find_torch(), {}
    with open(KEPT, encoding='utf-8') if os.path.exists(KEPT) else open(os.devnull, encoding='utf-8') as stream:
        kept = json.loads(stream.read() or '{}')
    with support.Sandbox(binary) as box:
        box.write_text('text.txt', SEQ_LEN * BATCH + 1)
        for model, (text, options) in MODELS.items():
            box.write('model.yaml', f'shardplan: model/1\nname: tiny-{model}\n{text}')
            done = box.run('plan', 'model.yaml', 'local', '--gpus', '2', '--seq-len', str(SEQ_LEN), '--global-batch', str(BATCH),
                           '--optimizer', 'sgd', '-o', 'p.yaml', *options)
            expect(done.code == 0, done.err)
            computed[model] = check(expect, box, model, python, kept.get(model))
            computed |= check_parts(expect, box, model, read(box.path('start/model.safetensors')), python, kept)
    if update and python:
        with open(KEPT, 'w', encoding='utf-8') as stream:
            json.dump(computed, stream, indent=1)
            stream.write('\n')
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1]), '--update' in sys.argv))
