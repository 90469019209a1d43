"""GPT-2, Llama and Qwen3 in plain PyTorch, in fp64: the reference of gradients.py.

    torch_gradients.py CONFIG.json WEIGHTS.safetensors TEXT SEQ_LEN

Weights with Hugging Face's names. The text's windows of SEQ_LEN + 1 bytes, which overlap by one, are one batch. Prints one
JSON document: the loss, and the gradient of each tensor, flat."""

import json
import math
import struct
import sys

import torch
from torch.nn import functional


SCALE = 2  # alpha / r


def load(path):
    with open(path, 'rb') as stream:
        length = struct.unpack('<Q', stream.read(8))[0]
        header, data = json.loads(stream.read(length)), stream.read()
    tensors = {}
    for name, entry in header.items():
        if name != '__metadata__':
            begin, end = entry['data_offsets']
            flat = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
            tensors[name] = flat.double().reshape(entry['shape']).requires_grad_()
    return tensors


def attend(q, k, v):
    """[batch, heads, tokens, head]; groups of query heads share a key head."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ v


def heads(x, n):
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


def adapted(w, x, name, y):
    """peft's LoRA: y + alpha/r (x A^T) B^T where the projection has an adapter."""
    a, b = w.get(name + '.lora_A.weight'), w.get(name + '.lora_B.weight')
    return y if a is None else y + SCALE * (x @ a.T) @ b.T


def gpt2(w, config, ids):
    def norm(x, name):
        return functional.layer_norm(x, x.shape[-1:], w[name + '.weight'], w[name + '.bias'], config['layer_norm_epsilon'])

    def linear(x, name):  # stored [in, out]
        return adapted(w, x, name, x @ w[name + '.weight'] + w[name + '.bias'])

    x = w['transformer.wte.weight'][ids] + w['transformer.wpe.weight'][:ids.shape[1]]
    for i in range(config['n_layer']):
        at = f'transformer.h.{i}.'
        q, k, v = linear(norm(x, at + 'ln_1'), at + 'attn.c_attn').chunk(3, -1)
        seen = attend(*(heads(t, config['n_head']) for t in (q, k, v))).transpose(1, 2).flatten(-2)
        x = x + linear(seen, at + 'attn.c_proj')
        hidden = functional.gelu(linear(norm(x, at + 'ln_2'), at + 'mlp.c_fc'), approximate='tanh')
        x = x + linear(hidden, at + 'mlp.c_proj')
    return norm(x, 'transformer.ln_f') @ w['transformer.wte.weight'].T


def llama(w, config, ids):
    def norm(x, name):
        return x * (x.pow(2).mean(-1, keepdim=True) + config['rms_norm_eps']).rsqrt() * w[name + '.weight']

    def linear(x, name):
        return adapted(w, x, name, functional.linear(x, w[name + '.weight'], w.get(name + '.bias')))

    def turn(x):
        half = x.shape[-1] // 2
        speeds = config['rope_theta'] ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speeds
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)

    x = w['model.embed_tokens.weight'][ids]
    for i in range(config['num_hidden_layers']):
        at = f'model.layers.{i}.'
        y = norm(x, at + 'input_layernorm')
        q = heads(linear(y, at + 'self_attn.q_proj'), config['num_attention_heads'])
        k = heads(linear(y, at + 'self_attn.k_proj'), config['num_key_value_heads'])
        v = heads(linear(y, at + 'self_attn.v_proj'), config['num_key_value_heads'])
        if at + 'self_attn.q_norm.weight' in w:
            q, k = norm(q, at + 'self_attn.q_norm'), norm(k, at + 'self_attn.k_norm')
        seen = attend(turn(q), turn(k), v).transpose(1, 2).flatten(-2)
        x = x + linear(seen, at + 'self_attn.o_proj')
        y = norm(x, at + 'post_attention_layernorm')
        gate, up = linear(y, at + 'mlp.gate_proj'), linear(y, at + 'mlp.up_proj')
        x = x + linear(functional.silu(gate) * up, at + 'mlp.down_proj')
    x = norm(x, 'model.norm')
    return linear(x, 'model.embed_tokens' if config['tie_word_embeddings'] else 'lm_head')


def main(config, weights, text, seq_len):
    with open(config, encoding='utf-8') as stream:
        config = json.load(stream)
    with open(text, 'rb') as stream:
        tokens = torch.tensor(list(stream.read()))
    windows = tokens.unfold(0, seq_len + 1, seq_len)
    tensors = load(weights)
    model = gpt2 if config['model_type'] == 'gpt2' else llama
    logits = model(tensors, config, windows[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    loss.backward()
    json.dump({'loss': loss.item(), 'torch': torch.__version__,
               'gradients': {name: t.grad.flatten().tolist() for name, t in tensors.items()}}, sys.stdout)


if __name__ == '__main__':
    main(*sys.argv[1:4], int(sys.argv[4]))
