"""One row of a table of bench/gpu, in PyTorch itself: the code paths of FSDP2 and DDP over a world of one.

    torch_step.py '{"model": "gpt2-124m", ...}' [--device cuda|cpu] [--steps N]

The row is a JSON object: a row of rows.csv, of retries.csv. Prints one JSON line: the steps' seconds, the most that was
allocated and reserved in the first three steps and since, how often the allocator had to try again, or that memory was
short. What each knob stands for is what docs/runtimes.md says of it.
"""

import argparse
import functools
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'train'))
WARM_UP = 5
# layers, hidden size, heads, width of a SwiGLU (0: GPT-2), vocabulary
SHAPES = {'gpt2-nano': (6, 384, 6, 0, 50257), 'gpt2-124m': (12, 768, 12, 0, 50257), 'gpt2-355m': (24, 1024, 16, 0, 50257),
          'gpt2-774m': (36, 1280, 20, 0, 50257), 'gpt2-1.5b': (48, 1600, 25, 0, 50257),
          'llama-7b-4l': (4, 4096, 32, 11008, 32000), 'llama-7b-8l': (8, 4096, 32, 11008, 32000)}


def read():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('row')
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--steps', type=int, default=20)
    options = parser.parse_args()
    row = json.loads(options.row)
    expandable = row.get('allocator') == 'expandable'
    # Read when PyTorch is imported.
    os.environ['PYTORCH_CUDA_ALLOC_CONF'] = f'expandable_segments:{expandable}'
    return row, options


def model_of(row, torch_train):
    layers, hidden, heads, ffn, vocabulary = SHAPES[row['model']]
    shape = argparse.Namespace(layers=layers, hidden=hidden, heads=heads, llama=ffn, vocabulary=vocabulary,
                               tokens=int(row['seq_len']))
    return (torch_train.Llama if ffn else torch_train.GPT2)(shape)


def fused_loss(torch):
    """One pass that leaves the gradient beside the logits, as flash-attn's kernel does: 4 bytes a logit in bf16."""
    functional = torch.nn.functional

    def piece(logits, targets, scale):
        wide = logits.float()
        sums = torch.logsumexp(wide, dim=-1)
        gradient = torch.exp(wide - sums[:, None])
        gradient = gradient - functional.one_hot(targets, logits.shape[-1])
        return sums - wide.gather(1, targets[:, None])[:, 0], (gradient * scale).to(logits.dtype)

    if torch.cuda.is_available():
        piece = torch.compile(piece, dynamic=False)

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(context, logits, targets):
            rows = logits.shape[0]
            gradient, losses = torch.empty_like(logits), []
            for part in torch.arange(rows).split(4096):
                chosen = slice(int(part[0]), int(part[-1]) + 1)
                loss, gradient[chosen] = piece(logits[chosen], targets[chosen], 1.0 / rows)
                losses.append(loss)
            context.save_for_backward(gradient)
            return torch.cat(losses).mean()

        @staticmethod
        def backward(context, above):
            return context.saved_tensors[0].mul_(above), None

    return Fused.apply


def loss_of(row, torch):
    """From logits as the head leaves them; autocast is off here."""
    functional = torch.nn.functional
    if row['loss'] == 'fused':
        return fused_loss(torch)
    if row['loss'] == 'native':
        return functional.cross_entropy
    return lambda logits, targets: functional.cross_entropy(logits.float(), targets)


def make_step(row, torch, torch_train, device):
    """A module whose forward is embedding, blocks, head and loss: what FSDP2 and DDP wrap."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.utils import checkpoint

    autocast = row['runtime'] == 'pytorch-ddp' and row['param_dtype'] == 'bf16'

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model_of(row, torch_train)
            loss = loss_of(row, torch)

            def head(x, weight, targets):
                # Outside of autocast: the loss has the dtype that the row says.
                with torch.autocast(device, torch.bfloat16, enabled=autocast):
                    logits = torch.nn.functional.linear(x, weight)
                return loss(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

            self.head = torch.compile(head) if row['compile'] == 'on' else head

        def forward(self, ids):
            model = self.model
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                x = model.norm(model.blocks(model.embed(ids[:, :-1])))
            return self.head(x, model.head.weight, ids[:, 1:])

    def keep(count, context, operation, *_, **__):
        """torchtitan's policy: every second product, and attention."""
        if operation == torch.ops.aten.mm.default:
            key = 'again' if context.is_recompute else 'once'
            count[key] = count.get(key, 0) + 1
            return (checkpoint.CheckpointPolicy.PREFER_RECOMPUTE if count[key] % 2 == 0
                    else checkpoint.CheckpointPolicy.MUST_SAVE)
        kept = {torch.ops.aten._scaled_dot_product_flash_attention.default,
                torch.ops.aten._scaled_dot_product_efficient_attention.default,
                torch.ops.aten._scaled_dot_product_cudnn_attention.default}
        return checkpoint.CheckpointPolicy.MUST_SAVE if operation in kept else checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    with torch.device(device):
        step = Step()
    for parameter in step.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    blocks, way = step.model.blocks, row['activation_checkpointing']
    for i, block in enumerate(blocks):
        if way == 'full':
            blocks[i] = checkpoint_wrapper(block, preserve_rng_state=False)
        elif way == 'selective':
            blocks[i] = checkpoint_wrapper(
                block, preserve_rng_state=False,
                context_fn=lambda: checkpoint.create_selective_checkpoint_contexts(functools.partial(keep, {})))
    if row['compile'] == 'on':
        for block in blocks:
            block.compile()
    return step


def wrap(step, row, torch, device):
    if row['runtime'] == 'pytorch-ddp':
        from torch.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(step, device_ids=[0] if device == 'cuda' else None, gradient_as_bucket_view=False)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    mesh = init_device_mesh(device, (1,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) \
        if row['param_dtype'] == 'bf16' else MixedPrecisionPolicy()
    for block in step.model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=row['strategy'] == 'FULL_SHARD')
    fully_shard(step, mesh=mesh, mp_policy=policy)
    return step


def limit_memory(row, torch):
    """The prediction's limit holds what the process has beside the allocator too; the fraction does not."""
    if row.get('fraction_bytes'):
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(float(row['fraction_bytes']) / total)


def memory(torch, device):
    if device != 'cuda':
        return {'allocated_bytes': 0, 'reserved_bytes': 0, 'retries': 0}
    stats = torch.cuda.memory_stats()
    return {'allocated_bytes': torch.cuda.max_memory_allocated(), 'reserved_bytes': torch.cuda.max_memory_reserved(),
            'retries': stats.get('num_alloc_retries', 0)}


def train(row, options, torch, torch_train):
    device = options.device
    step = wrap(make_step(row, torch, torch_train, device), row, torch, device)
    optimizer = torch.optim.AdamW(step.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=row['optimizer'] == 'adamw-fused', foreach=row['optimizer'] == 'adamw-foreach')
    micro, parts, tokens = int(row['micro_batch']), int(row['grad_accum']), int(row['seq_len'])
    seconds, first, before = [], None, 0
    for number in range(options.steps):
        begun = time.perf_counter()
        for part in range(parts):
            ids = torch.randint(0, 256, (micro, tokens + 1)).to(device)
            (step(ids) / parts).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device == 'cuda':
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
        if number == 2:
            first = memory(torch, device)
        if number == WARM_UP - 1:
            before = memory(torch, device)['retries']
    last = memory(torch, device)
    steady = max(1, options.steps - WARM_UP)
    return {'seconds': seconds, **(first or last), 'allocated_later_bytes': last['allocated_bytes'],
            'reserved_later_bytes': last['reserved_bytes'], 'retries_a_step': (last['retries'] - before) / steady}


def main():
    row, options = read()
    import torch
    import torch_train
    torch.set_float32_matmul_precision('highest')
    if options.device == 'cpu':
        torch.set_num_threads(1)
    os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    os.environ.setdefault('MASTER_PORT', '29571')
    torch.distributed.init_process_group('nccl' if options.device == 'cuda' else 'gloo', rank=0, world_size=1)
    report = {'version': torch.__version__}
    try:
        if options.device == 'cuda':
            report['gpu'] = torch.cuda.get_device_name(0)
            limit_memory(row, torch)
        report.update(train(row, options, torch, torch_train))
    except torch.OutOfMemoryError as error:
        report.update({'short': str(error).split('\n', maxsplit=1)[0]})
    print(json.dumps(report), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == '__main__':
    main()
