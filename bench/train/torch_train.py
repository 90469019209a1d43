"""GPT-2 and Llama in plain PyTorch, the reference of bench_train.py and of scripts/gpu: one process, weights and AdamW
in fp32.

    torch_train.py LAYERS HIDDEN HEADS BATCH TOKENS fp32|bf16 STEPS THREADS [cpu|cuda] [--llama FFN] [--vocabulary N]
                   [--compile] [--halve]

bf16 is autocast, as PyTorch users train in bf16 with fp32 weights. --llama: RMSNorm, RoPE, SwiGLU of that width, a head
of its own. --compile: torch.compile of every block and of the head with the loss. --halve: a batch that does not fit is
halved until it does. One JSON line per step: CPU seconds and wall seconds, the batch, the most memory allocated on a GPU.
"""

import argparse
import gc
import json
import os
import time

# Set before the import: less memory is lost between blocks, which lets larger batches fit.
os.environ.setdefault('PYTORCH_CUDA_ALLOC_CONF', 'expandable_segments:True')

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def attend(q, k, v):
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).flatten(2)


class GPT2Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        q, k, v = (split_heads(part, self.heads)
                   for part in self.qkv(self.norm_1(x)).split(x.shape[-1], dim=2))
        x = x + self.out(attend(q, k, v))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate='tanh'))


class GPT2(nn.Module):
    def __init__(self, options):
        super().__init__()
        hidden = options.hidden
        self.tokens = nn.Embedding(options.vocabulary, hidden)
        self.positions = nn.Embedding(max(options.tokens, 1024), hidden)
        self.blocks = nn.Sequential(*(GPT2Block(hidden, options.heads) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(hidden)
        self.head = self.tokens

    def embed(self, ids):
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))


class LlamaBlock(nn.Module):
    def __init__(self, hidden, heads, ffn, tokens):
        super().__init__()
        self.heads = heads
        width = hidden // heads
        turned = torch.outer(torch.arange(tokens), 10000.0 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
        self.register_buffer('cosine', turned.cos(), persistent=False)
        self.register_buffer('sine', turned.sin(), persistent=False)
        self.norm_1, self.norm_2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def turn(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.cosine.to(x.dtype) + torch.cat((-second, first), dim=-1) * self.sine.to(x.dtype)

    def forward(self, x):
        y = self.norm_1(x)
        q, k, v = (split_heads(part(y), self.heads) for part in (self.q, self.k, self.v))
        x = x + self.out(attend(self.turn(q), self.turn(k), v))
        y = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tokens = nn.Embedding(options.vocabulary, options.hidden)
        self.blocks = nn.Sequential(*(LlamaBlock(options.hidden, options.heads, options.llama, options.tokens)
                                      for _ in range(options.layers)))
        self.norm = nn.RMSNorm(options.hidden, eps=1e-5)
        self.head = nn.Linear(options.hidden, options.vocabulary, bias=False)

    def embed(self, ids):
        return self.tokens(ids)


def head_loss(x, weight, targets):
    logits = functional.linear(x, weight)
    return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


class Trainer:
    def __init__(self, options):
        torch.manual_seed(0)
        self.options, self.head_loss = options, head_loss
        with torch.device(options.device):
            self.model = (Llama if options.llama else GPT2)(options)
        for parameter in self.model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
        if options.compile:
            # Block by block: one compilation serves all of them.
            for block in self.model.blocks:
                block.compile()
            self.head_loss = torch.compile(head_loss)

    def loss(self, ids):
        model, options = self.model, self.options
        with torch.autocast(options.device, torch.bfloat16, enabled=options.dtype == 'bf16'):
            x = model.norm(model.blocks(model.embed(ids[:, :-1])))
            return self.head_loss(x, model.head.weight, ids[:, 1:])

    def step(self, ids):
        cpu, wall = time.process_time(), time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(ids)
        loss.backward()
        self.optimizer.step()
        if self.options.device == 'cuda':
            torch.cuda.synchronize()
        return {'cpu_s': time.process_time() - cpu, 'wall_s': time.perf_counter() - wall,
                'loss': loss.item()}


def train(options, batch):
    trainer = Trainer(options)
    ids = torch.randint(0, 256, (batch, options.tokens + 1)).to(options.device)
    for _ in range(options.steps):
        record = trainer.step(ids)
        memory = torch.cuda.max_memory_allocated() if options.device == 'cuda' else 0
        print(json.dumps({**record, 'batch': batch, 'memory_bytes': memory, 'version': torch.__version__}),
              flush=True)


def fits(options, batch):
    """False where there was no room: whoever reads the lines takes those of the last batch."""
    try:
        train(options, batch)
    except torch.OutOfMemoryError:
        if not options.halve or batch == 1:
            raise
        return False
    return True


def main():
    parser = argparse.ArgumentParser()
    for name in 'layers', 'hidden', 'heads', 'batch', 'tokens':
        parser.add_argument(name, type=int)
    parser.add_argument('dtype', choices=['fp32', 'bf16'])
    parser.add_argument('steps', type=int)
    parser.add_argument('threads', type=int)
    parser.add_argument('device', nargs='?', default='cpu')
    parser.add_argument('--llama', type=int, metavar='FFN')
    parser.add_argument('--vocabulary', type=int, default=50257)
    parser.add_argument('--compile', action='store_true')
    parser.add_argument('--halve', action='store_true')
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batch = options.batch
    while not fits(options, batch):
        batch //= 2
        # Only here has what failed let go of its tensors.
        gc.collect()
        if options.compile:
            # A second shape would be compiled for any shape.
            torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == '__main__':
    main()
