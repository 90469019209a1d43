def wrap_policy(blocks):
    kind, _, argument = WRAP.partition(":")
    if kind == "block":
        return ModuleWrapPolicy({type(block) for block in blocks})
    if kind == "size":
        return functools.partial(size_based_auto_wrap_policy, min_num_params=int(float(argument)))
    return None


def shard(model, blocks):
    buffers = dict(model.named_buffers())
    if STRATEGY == "NO_SHARD":
        return DistributedDataParallel(materialise(model, buffers).to(PARAM_DTYPE))
    hybrid = STRATEGY.startswith("HYBRID")
    strategy = "_HYBRID_SHARD_ZERO2" if STRATEGY == "HYBRID_SHARD_ZERO2" else STRATEGY
    prefetches = {"none": None, "pre": BackwardPrefetch.BACKWARD_PRE,
                  "post": BackwardPrefetch.BACKWARD_POST}
    mesh = init_device_mesh(DEVICE, (REPLICATE, SHARD), mesh_dim_names=("replicate", "shard"))
    # Every rank starts from real weights here: with large models give rank 0 alone the weights,
    # sync_module_states=True and a param_init_fn that calls to_empty.
    torch.manual_seed(0)
    model = materialise(model, buffers)
    return FSDP(model,
                device_mesh=mesh if hybrid else None,
                sharding_strategy=ShardingStrategy[strategy],
                auto_wrap_policy=wrap_policy(blocks),
                mixed_precision=MixedPrecision(param_dtype=PARAM_DTYPE, reduce_dtype=REDUCE_DTYPE,
                                               buffer_dtype=PARAM_DTYPE),
                backward_prefetch=prefetches[PREFETCH],
                forward_prefetch=FORWARD_PREFETCH,
                limit_all_gathers=LIMIT_ALL_GATHERS,
                cpu_offload=CPUOffload(offload_params=CPU_OFFLOAD),
                use_orig_params=True,
                device_id=torch.cuda.current_device() if DEVICE == "cuda" else torch.device("cpu"))


def synchronise(model, on, last):
    return contextlib.nullcontext() if on else model.no_sync()


def clip(model):
    if isinstance(model, FSDP):
        return model.clip_grad_norm_(CLIP)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
