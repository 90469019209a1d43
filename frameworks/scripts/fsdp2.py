def shared_owners(model):
    """The modules of each weight that several modules share."""
    owners = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(module)
    return [modules for modules in owners.values() if len(modules) > 1]


def large_modules(module, least, shared):
    """As size_based_auto_wrap_policy picks them: bottom up, by parameters not taken yet. A module
    with one end of a shared weight stays with the root."""
    taken, units = 0, []
    for child in module.children():
        below_taken, below = large_modules(child, least, shared)
        taken, units = taken + below_taken, units + below
    rest = sum(p.numel() for p in module.parameters()) - taken
    inside = set(module.modules())
    splits = any(0 < sum(owner in inside for owner in owners) < len(owners) for owners in shared)
    if rest >= least and not splits and not isinstance(module, torch.nn.ModuleList):
        return taken + rest, units + [[module]]
    return taken, units


def grouped(model, blocks, policy):
    kind, _, argument = policy.partition(":")
    if kind == "block":
        return [[block] for block in blocks]
    if kind == "blocks":
        step = int(float(argument))
        return [blocks[i:i + step] for i in range(0, len(blocks), step)]
    if kind == "size":
        least, shared = int(float(argument)), shared_owners(model)
        return [unit for child in model.children()
                for unit in large_modules(child, least, shared)[1]]
    return []


def units_of(model, blocks):
    """Lists of modules, in forward order; what is left over is the root's."""
    policy, *apart = WRAP.split("+")
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    units = [unit for unit in grouped(model, blocks, policy)
             if unit[0] not in ([embedding] if "embedding" in apart else []) +
             ([head] if "head" in apart else [])]
    norms = [module for module in model.base_model.children()
             if "norm" in type(module).__name__.lower()]
    if "embedding" in apart:
        units.insert(0, [embedding])
    if "head" in apart:
        units.append((norms[-1:] if not policy.startswith("size") else []) + [head])
    return units


def reshards(count):
    """One value per unit, from True, 8, "all" or runs such as "20xtrue+12xfalse"."""
    if not isinstance(RESHARD_AFTER_FORWARD, str):
        return [RESHARD_AFTER_FORWARD] * count
    if RESHARD_AFTER_FORWARD == "all":
        return [True] * count
    values = {"true": True, "false": False}
    runs = [run.partition("x") for run in RESHARD_AFTER_FORWARD.split("+")]
    words = [word for number, _, word in runs for _ in range(int(number))]
    return [values[word] if word in values else int(word) for word in words]


def shard(model, blocks):
    if STRATEGY == "NO_SHARD":
        buffers = dict(model.named_buffers())
        return DistributedDataParallel(materialise(model, buffers).to(PARAM_DTYPE))
    mesh = init_device_mesh(DEVICE, (SHARD,), mesh_dim_names=("shard",))
    if REPLICATE > 1:
        mesh = init_device_mesh(DEVICE, (REPLICATE, SHARD), mesh_dim_names=("replicate", "shard"))
    options = dict(mesh=mesh,
                   mp_policy=MixedPrecisionPolicy(param_dtype=PARAM_DTYPE,
                                                  reduce_dtype=REDUCE_DTYPE),
                   offload_policy=CPUOffloadPolicy(pin_memory=DEVICE == "cuda")
                   if CPU_OFFLOAD else OffloadPolicy())
    buffers = dict(model.named_buffers())
    units = units_of(model, blocks)
    for unit, reshard in zip(units, reshards(len(units))):
        fully_shard(unit if len(unit) > 1 else unit[0], reshard_after_forward=reshard, **options)
    # The root is used first and last: PyTorch keeps it gathered until its backward, unless told.
    if RESHARD_AFTER_FORWARD == "all":
        options["reshard_after_forward"] = True
    fully_shard(model, **options)
    if FORWARD_PREFETCH:
        for unit, following in zip(units, units[1:]):
            unit[0].set_modules_to_forward_prefetch([following[0]])
    return materialise(model, buffers)


def synchronise(model, on, last):
    if STRATEGY == "NO_SHARD":
        return contextlib.nullcontext() if on else model.no_sync()
    model.set_requires_gradient_sync(on)
    model.set_requires_all_reduce(last or not LATE_ALL_REDUCE)
    return contextlib.nullcontext()


def clip(model):
    return torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
