"""What FSDP asks of a GPU and a CPU has not (trace.py, titan.py)."""

import torch


class Stub:
    """Streams and events of a device that has none."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __getattr__(self, _):
        return lambda *_, **__: Stub()


def stub_streams():
    for name in ('Stream', 'Event', 'current_stream', 'stream'):
        setattr(torch.cpu, name, lambda *_, **__: Stub())


def keep_versions():
    """On CPU the copy out of the gathered buffer bumps versions that autograd looks at."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as group
    copy_out = group.foreach_all_gather_copy_out

    def copied(result, parameters, *rest, **keywords):
        tensors = [t for p in parameters for t in p.all_gather_outputs]
        tensors += [p._unsharded_param for p in parameters if hasattr(p, '_unsharded_param')]
        versions = [(t, t._version) for t in tensors]
        copy_out(result, parameters, *rest, **keywords)
        for tensor, version in versions:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))

    group.foreach_all_gather_copy_out = copied
