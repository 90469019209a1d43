"""GPT-2 in plain PyTorch, the reference of bench_train.py: eager, one process, weights and AdamW in fp32.

    torch_gpt2.py LAYERS HIDDEN HEADS BATCH TOKENS fp32|bf16 STEPS THREADS [cpu|cuda]

bf16 is autocast, as PyTorch users train in bf16 with fp32 weights. One JSON line per step: CPU seconds and wall seconds.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 50257


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, tokens, hidden = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).split(hidden, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate='tanh'))


class GPT2(nn.Module):
    def __init__(self, layers, hidden, heads, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, hidden), nn.Embedding(context, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        logits = functional.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def main():
    layers, hidden, heads, batch, tokens = map(int, sys.argv[1:6])
    dtype, steps, threads = sys.argv[6], int(sys.argv[7]), int(sys.argv[8])
    device = sys.argv[9] if len(sys.argv) > 9 else 'cpu'
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = GPT2(layers, hidden, heads, max(tokens, 1024)).to(device)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(0, 256, (batch, tokens + 1)).to(device)
    for _ in range(steps):
        cpu, wall = time.process_time(), time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=dtype == 'bf16'):
            loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        if device == 'cuda':
            torch.cuda.synchronize()
        print(json.dumps({'cpu_s': time.process_time() - cpu, 'wall_s': time.perf_counter() - wall,
                          'loss': loss.item(), 'version': torch.__version__}), flush=True)


if __name__ == '__main__':
    main()
