"""Writes golden/pipeline: the orders of torch.distributed.pipelining and of Megatron-Core, and the
splits of torchtitan.

    pipeline_orders.py FOLDER MEGATRON TORCHTITAN

Run by hand, where torch is installed; it needs no GPU. MEGATRON and TORCHTITAN are checkouts, of
which only the functions that decide are taken.
"""

import ast
import sys
import types

import torch
from torch.distributed.pipelining import schedules

RANKS, CHUNKS, MICRO_BATCHES = 8, 4, 32
TORCH = {
    'gpipe': (schedules.ScheduleGPipe, [1]),
    '1f1b': (schedules.Schedule1F1B, [1]),
    'interleaved': (schedules.ScheduleInterleaved1F1B, range(2, CHUNKS + 1)),
    'zb-h1': (schedules.ScheduleInterleavedZeroBubble, range(1, CHUNKS + 1)),
    'zbv': (schedules.ScheduleZBVZeroBubble, [2]),
    'dualpipev': (schedules.ScheduleDualPipeV, [2]),
}
# (schedule, p, v, m, g, pairs) written in full for readers.
IN_FULL = [('gpipe', 3, 1, 4, 0, 0), ('1f1b', 4, 1, 6, 0, 0), ('interleaved', 4, 2, 8, 0, 0),
           ('interleaved', 4, 2, 10, 0, 0), ('interleaved', 2, 2, 5, 3, 0),
           ('interleaved', 4, 2, 8, 4, 1), ('zb-h1', 4, 1, 8, 0, 0), ('zb-h1', 2, 2, 4, 0, 0),
           ('zbv', 4, 2, 8, 0, 0), ('dualpipev', 4, 2, 10, 0, 0)]


class FakeStage:
    """What the schedules ask of a stage; it sends nothing and writes down what it computes."""

    def __init__(self, index, ranks, chunks):
        self.group_size, self.group_rank = ranks, 0
        self.num_stages, self.stage_index = ranks * chunks, index
        self.is_first, self.is_last = index == 0, index == ranks * chunks - 1
        self.submod = torch.nn.Identity()
        self.computed = []

    def forward_one_chunk(self, micro_batch, *_, **__):
        self.computed.append(f'{self.stage_index}F{micro_batch}')

    def backward_one_chunk(self, micro_batch, *_, **__):
        self.computed.append(f'{self.stage_index}B{micro_batch}')

    def __getattr__(self, name):
        return lambda *_, **__: []


def words(action):
    if action.sub_actions:
        return '+'.join(words(part) for part in action.sub_actions)
    return f'{action.stage_index}{action.computation_type.value}{action.microbatch_index}'


def run_single(kind, rank, ranks, micro_batches):
    """Schedules of one stage a rank have no list that they follow: they are run. (The list that
    1F1B shows numbers the forwards of the last rank from 1 on.)"""
    stage = FakeStage(rank, ranks, 1)
    made = kind(stage, micro_batches, loss_fn=lambda *_: None)
    made._initialize_stage = lambda *_: None
    made._step_microbatches(target_mbs=[None] * micro_batches)
    return stage.computed


def of_torch(name, ranks, chunks, micro_batches):
    """{rank: words}, or None where torch refuses."""
    kind = TORCH[name][0]
    try:
        if issubclass(kind, schedules.PipelineScheduleSingle):
            return {rank: run_single(kind, rank, ranks, micro_batches) for rank in range(ranks)}
        stages = [FakeStage(chunk * ranks, ranks, chunks) for chunk in range(chunks)]
        made = kind(stages, micro_batches, loss_fn=lambda *_: None)
    except ValueError:
        return None
    return {rank: [words(action) for action in actions
                   if action is not None and (action.sub_actions or action.is_compute_op)]
            for rank, actions in made.pipeline_order.items()}


def functions(path, wanted, names):
    """Functions of a file, without what it imports."""
    with open(path, encoding='utf-8') as stream:
        tree = ast.parse(stream.read())
    tree.body = [node for node in tree.body
                 if isinstance(node, ast.FunctionDef) and node.name in wanted]
    exec(compile(tree, path, 'exec'), names)  # pylint: disable=exec-used
    return [names[name] for name in wanted]


def of_megatron(deciders, ranks, chunks, micro_batches, group, pairs):
    """forward_backward_pipelining_with_interleaving, or _without_ where chunks is 1."""
    count, table = deciders
    orders = {}
    for rank in range(ranks):
        here = types.SimpleNamespace(size=lambda: ranks, rank=lambda rank=rank: rank)
        p2p = types.SimpleNamespace(pp_group=here, virtual_pipeline_model_parallel_size=chunks
                                    if chunks > 1 else None)
        total, _, warmup, remaining = count(micro_batches, chunks, group, False, bool(pairs), p2p)
        turn = table(micro_batches, chunks, group)
        forward = [f'{chunk * ranks + rank}F{batch}' for batch, chunk in turn]
        # Of a chunk, backward takes the oldest micro-batch whose forward is done.
        oldest = [0] * chunks
        backward = []
        for _, chunk in turn:
            chunk = chunks - 1 - chunk
            backward.append(f'{chunk * ranks + rank}B{oldest[chunk]}')
            oldest[chunk] += 1
        order = forward[:warmup]
        for k in range(remaining):
            both = [forward[k + warmup], backward[k]]
            order += ['+'.join(both)] if pairs else both
        orders[rank] = order + backward[remaining:total]
    return orders


def megatron_accepts(ranks, micro_batches, group):
    rest = micro_batches % group
    return ranks <= group <= micro_batches and (rest == 0 or rest >= ranks)


def fnv(text):
    value = 0x811c9dc5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xffffffff
    return value


def questions():
    """(schedule, p, v, m, g, pairs): g is 0 for torch, else Megatron's."""
    for name, (_, every) in TORCH.items():
        for ranks in range(1, RANKS + 1):
            for chunks in every:
                for micro_batches in range(1, MICRO_BATCHES + 1):
                    yield name, ranks, chunks, micro_batches, 0, 0
    for ranks in range(2, RANKS + 1):
        for micro_batches in range(1, MICRO_BATCHES + 1):
            yield '1f1b', ranks, 1, micro_batches, ranks, 0
            for chunks in range(2, CHUNKS + 1):
                for group in (ranks, ranks + 1, 2 * ranks):
                    for pairs in (0, 1) if group == ranks else (0,):
                        if megatron_accepts(ranks, micro_batches, group):
                            yield 'interleaved', ranks, chunks, micro_batches, group, pairs


def split_even(split, blocks, ranks, chunks, embedding, head):
    """torchtitan's names of modules, counted."""
    try:
        return [sum(name.startswith('layers.') for name in names)
                for names in split(ranks * chunks, blocks, embedding, head)]
    except ValueError:
        return None


def splits(of_torchtitan):
    """(rule, blocks, p, v, embedding, head, counts or None)."""
    for blocks in (2, 12, 31, 32, 61, 78, 80):
        for ranks in range(1, 9):
            for chunks in range(1, 5):
                for ends in ((0, 0), (1, 1), (2, 1)):
                    where = blocks, ranks, chunks, *ends
                    yield 'even', *where, split_even(of_torchtitan, *where)


def main(folder, megatron, torchtitan):
    typing = {'Optional': __import__('typing').Optional, 'P2PCommunicator': object,
              'TransformerConfig': object}
    deciders = functions(f'{megatron}/megatron/core/pipeline_parallel/schedules.py',
                         ['get_pp_rank_microbatches', 'get_schedule_table'], dict(typing))
    titan, = functions(f'{torchtitan}/torchtitan/distributed/pipeline_parallel.py',
                       ['_generate_llm_fqn_per_model_part'], {})

    def order(name, ranks, chunks, micro_batches, group, pairs):
        if group == 0:
            return of_torch(name, ranks, chunks, micro_batches)
        return of_megatron(deciders, ranks, chunks, micro_batches, group, pairs)

    with open(f'{folder}/hashes.txt', 'w', encoding='utf-8') as stream:
        for question in questions():
            orders = order(*question)
            hashes = ' '.join(f'{fnv(" ".join(orders[rank])):08x}'
                              for rank in sorted(orders)) if orders else 'refused'
            print(*question, hashes, file=stream)
    with open(f'{folder}/orders.txt', 'w', encoding='utf-8') as stream:
        for question in IN_FULL:
            print(*question, file=stream)
            for rank, actions in sorted(order(*question).items()):
                print(rank, *actions, file=stream)
    with open(f'{folder}/splits.txt', 'w', encoding='utf-8') as stream:
        for *question, counts in splits(titan):
            print(*question, *(counts or ['refused']), file=stream)


if __name__ == '__main__':
    main(*sys.argv[1:])
