"""What PyTorch allocates in a step of torchtitan: its own code, without a GPU.

    memory.py memory.csv [--case NAME]... [--shardplan BINARY] [--top N] [--collectives]

torchtitan's models and its parallelize functions run on fake tensors (shapes without data) over a fake process group. Every
storage is followed from birth to death, rounded up to 512 bytes as the caching allocator does; the peak is that of the
second step. The columns of the cases are those of `shardplan predict --cases`; --shardplan predicts them beside (the
ledger's peak, which is in the order of the host too). Every pipeline rank is run; the worst counts.

What a GPU has otherwise is put in its place: flash attention's operator, the fused norm's, streams, the workspace of cuBLAS.
What kernels allocate inside of an operator is not seen. Experts get equal shares of rows. Without tensor ranks the logits are
kept until backward is over, as scripts do that `--loss upcast` describes (--release-logits: as torchtitan's trainer).

Needs torch 2.15 and torchtitan 0.3. Neither the product nor its tests need them.
"""

import argparse
import collections
import csv
import json
import logging
import os
import subprocess
import sys
import traceback
import types
import warnings
import weakref

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from titan import FAMILIES, become_gpu, read_model

ROUND = 512
WORKSPACE = 33554432  # of cuBLAS, from Hopper on
GIB = 2**30
STEPS = 2  # the optimizer's state comes at the end of the first


class Ledger(TorchDispatchMode):
    """Bytes of all storages that are alive, and who made them."""

    def __init__(self):
        super().__init__()
        self.bytes = self.peak = 0
        self.live = {}  # storage -> (bytes, origin)
        self.where, self.at_peak, self.events = 'start', [], []
        self.peak_where = ''
        self.counting = False
        self.resize = torch.UntypedStorage.resize_

    def note(self, storage, origin):
        key = storage._cdata
        size = -(-storage.nbytes() // ROUND) * ROUND
        if key in self.live:
            old, origin = self.live[key]
        else:
            old = 0
            weakref.finalize(storage, self.forget, key)
        self.bytes += size - old
        self.live[key] = (size, origin)
        if self.counting and self.bytes > self.peak:
            self.peak, self.peak_where, self.at_peak = self.bytes, self.where, list(self.live.values())

    def forget(self, key):
        self.bytes -= self.live.pop(key, (0, None))[0]

    def collective(self, function, arguments, out):
        tensors = [t for t in tree_leaves((arguments, out)) if isinstance(t, torch.Tensor)]
        name = function._schema.name.split('::')[1]
        if function.namespace in ('c10d', '_c10d_functional') and tensors and 'wait' not in name:
            largest = max(tensors, key=lambda t: t.numel())
            self.events.append((self.where, name, str(largest.dtype)[6:], largest.numel()))

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # comes back as what it does to its parts
        out = function(*arguments, **(keywords or {}))
        self.collective(function, arguments, out)
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.device.type != 'meta':
                self.note(leaf.untyped_storage(),
                          (self.where, function._schema.name, tuple(leaf.shape), str(leaf.dtype)[6:]))
        return out


LEDGER = Ledger()


def resize(storage, size):
    LEDGER.resize(storage, size)
    LEDGER.note(storage, (LEDGER.where, 'resize', (size,), 'uint8'))
    return storage


SCHEDULES = {'1f1b': '1F1B', 'gpipe': 'GPipe', 'interleaved': 'Interleaved1F1B', '': '1F1B'}


class Run:
    """One rank of one case."""

    def __init__(self, case, options, folder, stage):
        from torchtitan.config import ParallelismConfig, TrainingConfig
        from torchtitan.distributed import ParallelDims, utils
        number = lambda key: int(case.get(key) or 1)
        self.case, self.options = case, options
        self.micro_batch, self.accumulate, self.seq_len = number('micro_batch'), number('grad_accum'), number('seq_len')
        self.context, self.pipeline, self.tensor = number('context'), number('pipeline'), number('tensor')
        self.sequence_parallel = case['sequence_parallel'] == 'on'
        ranks = number('gpus')
        dist.init_process_group('fake', store=FakeStore(), rank=stage * ranks // self.pipeline, world_size=ranks)
        reshards = case['strategy'] == 'FULL_SHARD'
        reshard = 'never' if not reshards else 'default' if self.pipeline == 1 else 'always'
        self.parallelism = ParallelismConfig(
            data_parallel_shard_degree=ranks // self.tensor // self.context // self.pipeline,
            fsdp_reshard_after_forward=reshard, tensor_parallel_degree=self.tensor,
            enable_sequence_parallel=self.sequence_parallel, spmd_backend=options.backend,
            pipeline_parallel_degree=self.pipeline, context_parallel_degree=self.context,
            expert_parallel_degree=number('expert'),
            pipeline_parallel_schedule=SCHEDULES[case['pipeline_schedule']],
            pipeline_parallel_microbatch_size=self.micro_batch)
        self.dims = ParallelDims.from_config(self.parallelism, ranks)
        utils.set_spmd_backend(options.backend)
        self.dims.build_mesh()
        self.training = TrainingConfig(seq_len=self.seq_len, local_batch_size=self.micro_batch * self.accumulate)
        self.model = read_model(os.path.join(folder, case['model']))
        self.context_manager = utils.get_spmd_context(parallel_dims=self.dims, spmd_typechecking=False)

    def keywords(self):
        from torchtitan.config import CompileConfig
        from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
        policy = {'none': None, 'selective': SelectiveAC.Config(), 'full': FullAC.Config()}
        return {'parallel_dims': self.dims, 'training': self.training, 'parallelism': self.parallelism,
                'compile_config': CompileConfig(), 'ac_config': policy[self.case['activation_checkpointing']],
                'dump_folder': ''}

    def loss(self, logits, labels, **_):
        from torchtitan.components.loss import cross_entropy_loss
        LEDGER.where = 'loss'
        self.logits = logits if self.tensor == 1 and not self.options.release_logits else None
        loss = cross_entropy_loss(logits, labels, global_vocab_size=self.model.vocab)
        LEDGER.where = 'backward'
        return loss, {}

    def tokens(self):
        return torch.zeros(self.micro_batch, self.seq_len // self.context, dtype=torch.int64)

    def stage_class(self):
        """Fake ranks cannot tell each other the shapes of messages."""
        from torch.distributed.pipelining import PipelineStage
        run, tokens = self, self.seq_len // self.context
        rows = tokens // self.tensor if self.sequence_parallel else tokens
        stream = torch.empty(self.micro_batch, rows, self.model.hidden, dtype=torch.bfloat16, device='meta',
                             requires_grad=True)
        logits = torch.empty(self.micro_batch, tokens, self.model.vocab // self.tensor, dtype=torch.bfloat16,
                             device='meta', requires_grad=True)
        ids = torch.empty(self.micro_batch, tokens, dtype=torch.int64, device='meta')

        class Stage(PipelineStage):
            def __init__(self, module, index, stages, device, **keywords):
                super().__init__(module, index, stages, device, input_args=stream if index else ids,
                                 output_args=logits if index == stages - 1 else stream, **keywords)

        return Stage

    def build(self):
        config, parallelize = FAMILIES[self.model.family](self.model, self.seq_len)
        config.update_from_config(config=types.SimpleNamespace(parallelism=self.parallelism))
        with torch.device('meta'):
            model = config.build()
        if self.pipeline == 1:
            self.parts = [parallelize(model, **self.keywords())]
        else:
            from torchtitan.distributed import pipeline_parallel as pipelines
            pipelines.PipelineStage = self.stage_class()
            self.schedule, self.parts, self.first, self.last = pipelines.pipeline_llm(
                model, device=torch.device('cpu'), model_config=config, parallelize_fn=parallelize, loss_fn=self.loss,
                **self.keywords())

    def fill(self):
        for part in self.parts:
            part.to_empty(device='cpu')
            part.train()
        kind = self.case['optimizer']
        parameters = [p for part in self.parts for p in part.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, fused='fused' in kind, foreach='foreach' in kind)

    def passes(self, tokens, labels):
        if self.pipeline == 1:
            for _ in range(self.accumulate):
                LEDGER.where = 'forward'
                self.loss(self.parts[0](tokens), labels)[0].backward()
                self.logits = None
            return
        many = [(tokens,)] * self.accumulate
        self.schedule.step(arg_mbs=many if self.first else None, kwarg_mbs=[{}] * self.accumulate,
                           target_mbs=[labels] * self.accumulate if self.last else None,
                           losses=[] if self.last else None, return_outputs=False)
        self.logits = None

    def steps(self):
        self.build()
        with FakeTensorMode(allow_non_fake_inputs=True), LEDGER:
            self.fill()
            for step in range(STEPS):
                LEDGER.counting, LEDGER.where = step == STEPS - 1, 'forward'
                LEDGER.events = []
                tokens, labels = self.tokens(), self.tokens()
                with self.context_manager():
                    self.passes(tokens, labels)
                LEDGER.where = 'optimizer'
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)


def show(options):
    groups = collections.Counter(), collections.Counter()
    for size, origin in LEDGER.at_peak:
        groups[0][origin] += size
        groups[1][origin] += 1
    for origin, size in groups[0].most_common(options.top):
        print(f'{size:>14} {groups[1][origin]:>4}  {origin}')
    if options.collectives:
        for event in LEDGER.events:
            print(*event)


def run_stage(case, options, folder, stage):
    """In a process of its own, because a process has one world."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            Run(case, options, folder, stage).steps()
            show(options)
            os.write(write, f'{LEDGER.peak} {LEDGER.peak_where}'.encode())
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    text = os.read(read, 1000).decode()
    os.close(read)
    os.waitpid(child, 0)
    return (int(text.split()[0]) + WORKSPACE, text.split()[1]) if text else (0, 'failed')


def predicted(binary, case, folder):
    """The peak that shardplan predicts, in bytes."""
    command = [binary, 'predict', os.path.join(folder, case['model']), case['topology'], '--runtime', 'pytorch-fsdp2',
               '--json']
    for key, value in case.items():
        if value and key not in ('case', 'axis', 'model', 'topology'):
            command += ['--' + key.replace('_', '-'), value]
    answer = subprocess.run(command, capture_output=True, text=True)
    if not answer.stdout:
        sys.exit(f"{case['case']}: {answer.stderr}")
    return json.loads(answer.stdout)['prediction']['ledger_peak_bytes']


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('cases')
    parser.add_argument('--case', action='append', help='only these, or those of an axis')
    parser.add_argument('--shardplan', help='the program that predicts')
    parser.add_argument('--backend', default='spmd_types', choices=('spmd_types', 'partial_dtensor'),
                        help="torchtitan's spmd_backend")
    parser.add_argument('--release-logits', action='store_true')
    parser.add_argument('--stage', type=int, action='append', help='only these pipeline ranks')
    parser.add_argument('--top', type=int, default=0, help='tensors at the peak')
    parser.add_argument('--collectives', action='store_true')
    options = parser.parse_args()
    warnings.filterwarnings('ignore')
    logging.disable(logging.WARNING)
    torch.UntypedStorage.resize_ = resize
    become_gpu(options.backend)
    folder = os.path.dirname(options.cases)
    print('case,at,allocated_gib,predicted_gib,error_percent', flush=True)
    for case in csv.DictReader(open(options.cases)):
        if options.case and not {case['case'], case['axis']} & set(options.case):
            continue
        stages = [s for s in range(int(case['pipeline'] or 1)) if not options.stage or s in options.stage]
        peak, where = max(run_stage(case, options, folder, s) for s in stages)
        row = [case['case'], where, f'{peak / GIB:.4f}']
        if options.shardplan and peak:
            expected = predicted(options.shardplan, case, folder)
            row += [f'{expected / GIB:.4f}', f'{100 * (expected / peak - 1):+.1f}']
        print(','.join(row), flush=True)


if __name__ == '__main__':
    main()
