import fnmatch


class Adapted(torch.nn.Module):
    """LoRA: y = base(x) + ALPHA / RANK B A x. GPT-2's projections (Conv1D) lie transposed."""

    def __init__(self, base):
        super().__init__()
        sizes = base.weight.shape
        outputs, inputs = sizes if isinstance(base, torch.nn.Linear) else sizes[::-1]
        options = dict(bias=False, device="meta", dtype=MASTER_DTYPE)
        self.base = base
        self.lora_A = torch.nn.Linear(inputs, RANK, **options)
        self.lora_B = torch.nn.Linear(RANK, outputs, **options)

    def forward(self, x):
        return self.base(x) + ALPHA / RANK * self.lora_B(self.lora_A(x))


def is_adapted(name):
    """As peft's target_modules: the last part of a name, or more of it."""
    return any(name == part or name.endswith("." + part) for part in ADAPTED)


def is_trained(name):
    """The adapters, or what TRAINABLE's globs name."""
    if RANK > 0:
        return ".lora_" in name
    return any(fnmatch.fnmatchcase(name, glob) for glob in TRAINABLE.split(","))


def add_adapters(model):
    for name, module in list(model.named_modules()):
        if is_adapted(name):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Adapted(module))


build_base = build_model
initialise_base = initialise


def build_model():
    """What is frozen is kept in the dtype that computes."""
    model = build_base()
    add_adapters(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_trained(name))
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(PARAM_DTYPE)
    return model


def initialise(model):
    """With B at zero an adapter adds nothing at first."""
    initialise_base(model)
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.zeros_(parameter)
