"""What exported scripts make of their plans: observe.py JOBS.json

A job is {"script", "output", "ranks"}. Its ranks are forked from one process, which has imported
what takes longest. Counts the collectives of the second step by hooks, and looks at units and
parameters."""

import json
import os
import runpy
import sys
import traceback

import torch
import torch.distributed as dist

step, seen = 0, []


def size(tensor):
    if isinstance(tensor, list):  # FSDP1's all-gather on CPUs
        return sum(size(part) for part in tensor)
    return tensor.numel() * tensor.element_size()


def spy(name, kind, place, keywords):
    original = getattr(dist, name, None)

    def call(*args, **kwargs):
        tensor = next((kwargs[k] for k in keywords if k in kwargs), None)
        seen.append((step, kind, size(args[place] if tensor is None else tensor)))
        return original(*args, **kwargs)
    if original is not None:
        setattr(dist, name, call)


def spy_step(kind):
    original = kind.step

    def call(self, *args, **kwargs):
        global step
        result = original(self, *args, **kwargs)
        step += 1
        return result
    kind.step = call


def look(model):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    found = {'checkpointed': sum(isinstance(m, CheckpointWrapper) for m in model.modules())}
    if isinstance(model, DistributedDataParallel):
        def hook(_, bucket):
            seen.append((step, 'all_reduce', size(bucket.buffer())))
            future = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()),
                                     async_op=True).get_future()
            seen.pop()  # the call of the hook itself
            return future.then(lambda f: f.value()[0])
        model.register_comm_hook(None, hook)
        found['parameters'] = sum(p.numel() for p in model.parameters())
        return found
    if isinstance(model, FullyShardedDataParallel):
        handles = [m._handle for m in model.modules()
                   if isinstance(m, FullyShardedDataParallel) and m._handle is not None]
        found['units'] = len(handles)
        found['parameters'] = sum(h.flat_param._unpadded_unsharded_size.numel() for h in handles)
        return found
    states = {id(s): s for s in (m._get_fsdp_state() for m in model.modules()
                                 if isinstance(m, FSDPModule))}
    found['units'] = sum(bool(s._fsdp_param_group) for s in states.values())
    found['parameters'] = sum(p.numel() for p in model.parameters())
    return found


def be_rank(script, output):
    for name in ('all_gather_into_tensor', 'all_gather_single'):
        spy(name, 'all_gather', 0, ('output_tensor', 'output'))
    for name in ('reduce_scatter_tensor', 'reduce_scatter_single'):
        spy(name, 'reduce_scatter', 1, ('input',))
    spy('all_gather', 'all_gather', 0, ('tensor_list',))
    spy('all_reduce', 'all_reduce', 0, ('tensor',))
    for kind in (torch.optim.AdamW, torch.optim.SGD):
        spy_step(kind)
    program = runpy.run_path(script, run_name='observed')
    inside = program['main'].__globals__
    shard, found = inside['shard'], {}

    def watched(*args):
        model = shard(*args)
        found.update(look(model))
        return model
    inside['shard'] = watched
    sys.argv = [script, '--steps', '2']
    rank = []
    destroy = dist.destroy_process_group
    dist.destroy_process_group = lambda: (rank.append(dist.get_rank()), destroy())
    program['main']()
    found['collectives'] = sorted(f'{kind} {count}' for at, kind, count in seen if at == 1)
    if rank == [0]:
        with open(output, 'w') as file:
            json.dump(found, file)



def start(job, rank, port):
    child = os.fork()
    if child != 0:
        return child
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job['ranks']),
                      MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    status = 1
    try:
        be_rank(job['script'], job['output'])
        status = 0
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main():
    import transformers.models.gpt2.modeling_gpt2  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401

    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    for number, job in enumerate(jobs):
        for child in [start(job, rank, 29520 + number) for rank in range(job['ranks'])]:
            os.waitpid(child, 0)


main()
