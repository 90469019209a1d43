@contextlib.contextmanager
def parameters_on_meta():
    """Parameters take no memory while the model is built; buffers are real."""
    register = torch.nn.Module.register_parameter

    def on_meta(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:
            module._parameters[name] = torch.nn.Parameter(parameter.to("meta"),
                                                          requires_grad=parameter.requires_grad)

    torch.nn.Module.register_parameter = on_meta
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def build_model():
    """The model without weights: load your own after sharding, or train from scratch."""
    config = AutoConfig.for_model(**CONFIG) if CONFIG else AutoConfig.from_pretrained(MODEL)
    config.use_cache = False
    config._attn_implementation = ATTENTION if DEVICE == "cuda" else "eager"
    with parameters_on_meta():
        model = AutoModelForCausalLM.from_config(config)
    return model.to(MASTER_DTYPE)


def is_block(module):
    return type(module).__name__ == BLOCK_CLASS


def modes(count):
    """One word per block, from "full" or from runs such as "8xfull+24xnone"."""
    words = []
    for run in ACTIVATION_CHECKPOINTING.split("+"):
        number, mark, word = run.partition("x")
        words += [word] * int(number) if mark and number.isdigit() else [run] * count
    return words[:count]


def save_products(context, operation, *args, **kwargs):
    """Selective checkpointing: matrix products are kept, the rest is computed again."""
    kept = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if operation in kept else CheckpointPolicy.PREFER_RECOMPUTE


def checkpoint(block, mode):
    if mode == "none":
        return block
    if mode == "full":
        return checkpoint_wrapper(block)
    contexts = functools.partial(create_selective_checkpoint_contexts, save_products)
    return checkpoint_wrapper(block, context_fn=contexts)


def offload(block, mode):
    """save_on_cpu(pin_memory=True): what the block saves, or its input where it is checkpointed."""
    leaves = ACTIVATION_OFFLOAD == "all" or (ACTIVATION_OFFLOAD == "checkpoints" and mode != "none")
    return offload_wrapper(block) if leaves else block


def checkpoint_blocks(model):
    """Puts the wrappers in and returns the blocks, in order."""
    places = [(parent, name) for parent in model.modules()
              for name, child in parent.named_children() if is_block(child)]
    blocks = []
    for (parent, name), mode in zip(places, modes(len(places))):
        block = offload(checkpoint(getattr(parent, name), mode), mode)
        if COMPILE:
            block.compile()
        setattr(parent, name, block)
        blocks.append(block)
    return blocks


def initialise(model):
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.02)
        else:
            torch.nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)


def materialise(model, buffers):
    """Memory for the parameters of this rank; buffers as they were built."""
    model.to_empty(device="cpu" if CPU_OFFLOAD else DEVICE)
    model.tie_weights()  # to_empty makes two of what embedding and head share
    for name, module in model.named_modules():
        for key in module._buffers:
            value = buffers.get(f"{name}.{key}" if name else key)
            module._buffers[key] = value.to(DEVICE) if value is not None else None
    initialise(model)
    return model
