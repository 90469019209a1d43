"""What PyTorch itself does for a small Llama, on CPU with its fake process group (no GPU, no network).

    trace.py fsdp1|fsdp2 [FULL_SHARD|SHARD_GRAD_OP|NO_SHARD] [--ranks N] [--tied] [--checkpoint] [--accumulate N]
             [--size N] [--prefetch PRE|POST|NONE] [--root]

Prints the collectives of the third iteration, in the order in which they are issued:

    forward all_gather bf16 12345        elements of the whole payload
    backward reduce_scatter fp32 12345

Needs PyTorch 2.6 or later; tests/schedule/golden/torch holds what 2.15.0 printed, and tests/schedule/test_torch.c compares
the schedules with it. Neither the product nor its tests need PyTorch.
"""

import argparse
import functools
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import BackwardPrefetch
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from no_gpu import Stub, keep_versions, stub_streams

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, SEQUENCE = 3, 64, 4, 2, 160, 250, 16
NAMES = {torch.float32: 'fp32', torch.bfloat16: 'bf16', torch.int64: 'int64'}
PREFETCHES = {'PRE': BackwardPrefetch.BACKWARD_PRE, 'POST': BackwardPrefetch.BACKWARD_POST, 'NONE': None}
COLLECTIVES = {'_allgather_base_': 'all_gather', '_reduce_scatter_base_': 'reduce_scatter',
               'allreduce_': 'all_reduce', 'allgather_': 'all_gather'}


class Norm(nn.Module):
    """One kernel, as the fused norms that the model is predicted with."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return nn.functional.rms_norm(x, (HIDDEN,), self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        size = HIDDEN // HEADS
        self.q = nn.Linear(HIDDEN, HEADS * size, bias=False)
        self.k = nn.Linear(HIDDEN, KV_HEADS * size, bias=False)
        self.v = nn.Linear(HIDDEN, KV_HEADS * size, bias=False)
        self.o = nn.Linear(HEADS * size, HIDDEN, bias=False)

    def heads(self, x, n):
        return x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.heads(self.q(x), HEADS), self.heads(self.k(x), KV_HEADS), \
            self.heads(self.v(x), KV_HEADS)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, FFN, bias=False)
        self.up = nn.Linear(HIDDEN, FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm = Norm()
        self.attention = Attention()
        self.middle_norm = Norm()
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.attention(self.input_norm(x))
        return x + self.mlp(self.middle_norm(x))


class Model(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Tracer(TorchDispatchMode):
    """Collectives pass the dispatcher as operators of the namespace c10d."""

    phase, events = None, []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = COLLECTIVES.get(function._schema.name.split('::')[1])
        if function.namespace == 'c10d' and name and Tracer.phase:
            tensors = [t for t in torch.utils._pytree.tree_leaves(arguments)
                       if isinstance(t, torch.Tensor)]
            elements = max(t.numel() for t in tensors)
            if function._schema.name == 'c10d::allgather_': # a list of parts, as CPUs have it
                elements *= dist.get_world_size()
            Tracer.events.append(f'{Tracer.phase} {name} {NAMES[tensors[0].dtype]} {elements}')
        return function(*arguments, **(keywords or {}))


def sized(size, module):
    """FSDP2 has no policies: the modules that FSDP1's would wrap, innermost first."""
    chosen, left = [], lambda m: sum(p.numel() for p in m.parameters())
    for child in module.children():
        chosen += sized(size, child)
    inside = sum(left(m) for m in chosen if not any(m in set(o.modules()) - {o} for o in chosen))
    is_model = isinstance(module, (Model, nn.ModuleList))
    return chosen + ([module] if left(module) - inside >= size and not is_model else [])


def wrapped(options, model):
    if options.checkpoint:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        for i, layer in enumerate(model.layers):
            model.layers[i] = checkpoint_wrapper(layer)
    if options.kind == 'fsdp2':
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        stub_streams()
        keep_versions()
        keywords = {'mesh': init_device_mesh('cpu', (options.ranks,)),
                    'mp_policy': MixedPrecisionPolicy(torch.bfloat16, torch.float32),
                    'reshard_after_forward': options.strategy == 'FULL_SHARD'}
        for module in sized(options.size, model) if options.size else model.layers:
            fully_shard(module, **keywords)
        if options.strategy == 'FULL_SHARD' and not options.root:
            del keywords['reshard_after_forward']  # the root's default: it stays
        return fully_shard(model, **keywords)
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    units = set(model.layers)
    policy = lambda module, recurse, **_: recurse or module in units
    if options.size:
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=options.size)
    return FullyShardedDataParallel(
        model, device_id=torch.device('cpu'), use_orig_params=True,
        sharding_strategy=ShardingStrategy[options.strategy], auto_wrap_policy=policy,
        backward_prefetch=PREFETCHES[options.prefetch],
        mixed_precision=MixedPrecision(torch.bfloat16, torch.float32))


def set_sync(options, model, last):
    if options.kind == 'fsdp2':
        model.set_requires_gradient_sync(last)
    return model.no_sync() if options.kind != 'fsdp2' and not last else Stub()


def step(options, model, optimizer, tokens):
    for i in range(options.accumulate):
        with set_sync(options, model, i == options.accumulate - 1):
            Tracer.phase = 'forward'
            logits = model(tokens)
            Tracer.phase = 'backward'
            logits.float().logsumexp(-1).sum().backward()
    Tracer.phase = None
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('kind', choices=('fsdp1', 'fsdp2'))
    parser.add_argument('strategy', nargs='?', default='FULL_SHARD')
    parser.add_argument('--ranks', type=int, default=4)
    parser.add_argument('--tied', action='store_true')
    parser.add_argument('--checkpoint', action='store_true')
    parser.add_argument('--accumulate', type=int, default=1)
    parser.add_argument('--size', type=int, help='as size_based_auto_wrap_policy does')
    parser.add_argument('--root', action='store_true', help='FSDP2: reshard the root too')
    parser.add_argument('--prefetch', choices=PREFETCHES, default='PRE')
    options = parser.parse_args()
    warnings.filterwarnings('ignore')
    dist.init_process_group('fake', store=FakeStore(), rank=0, world_size=options.ranks)
    torch.manual_seed(0)
    model = wrapped(options, Model(options.tied))
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, VOCAB, (1, SEQUENCE))
    with Tracer():
        for _ in range(3):
            Tracer.events = []
            step(options, model, optimizer, tokens)
    print('\n'.join(Tracer.events))


if __name__ == '__main__':
    main()
