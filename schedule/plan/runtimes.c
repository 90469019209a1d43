/* The table of runtimes. What each entry says was read in the runtime's source (PyTorch 2.6.0 for
 * the pytorch ones) or measured; docs/runtimes.md lists the sources. [U] = not verified,
 * overridable by a calibration. */
#include "schedule/plan/runtimes.h"

#include "schedule/plan/plan.h"

#define BIT(x) (1u << (x))

enum {
	ZERO_STRATEGIES = BIT(STRATEGY_ZERO_1) | BIT(STRATEGY_ZERO_2) | BIT(STRATEGY_ZERO_3),
	FSDP_STRATEGIES = (BIT(STRATEGY_COUNT) - 1) & ~ZERO_STRATEGIES,
	SHARDED_STRATEGIES = FSDP_STRATEGIES & ~BIT(STRATEGY_NO_SHARD),
	MIB = 1 << 20,
};

/* Counts a ring of 24 channels, each of 10 MiB for what comes and 2 MiB for what goes: 9,633,792 B
 * of buffers (NCCL, init.cc) in pages of 2 MiB, as NCCL's log of an H100 shows them (NVIDIA/nccl
 * issue 1685). */
#define NCCL_COMMUNICATOR (24 * 12LL * MIB)

/* All runtimes have this from PyTorch itself. Context and host costs are [U]. */
#define PYTORCH_ITSELF                                                                             \
	.synchronises_step = true, .tensor_alignment = 1, .caching_allocator = true,               \
	.host_per_micro_batch = 500e-6, .context_bytes = 500 * MIB,                                \
	.batch_token_bytes = 16, /* int64 ids and labels */                                        \
		.communicator_bytes = NCCL_COMMUNICATOR
/* Most runtimes also have this, from PyTorch's modules and its checkpoint. */
#define PYTORCH                                                                                    \
	PYTORCH_ITSELF, .host_per_kernel = 6e-6, .recompute_stops_early = true,                    \
			.keeps_activated_gate = true

/* From deepspeed/runtime/zero/config.py; overlap_comm is on for stage 3 only. */
static const struct zero_rules deepspeed_rules = {
	.reduces_late = BIT(1),
	.overlaps = BIT(3),
	.each_micro_batch = BIT(2) | BIT(3),
	.doubles_norm = true, /* get_grad_norm_direct */
	.bucket_elements = 500000000,
	.buffer_elements = 500000000,
	.prefetch_elements = 50000000,
	.persistent_elements = 100000,
	.live_elements = 1000000000,
	.reuse_elements = 1000000000,
	.group_elements = 1000000000,
};

/* Stage 0 is nanotron's DDP: its buckets are 25 MiB in bf16, and its hook reduces the fp32 copy. */
static const struct zero_rules nanotron_rules = {
	.reduces_late = BIT(1),
	.overlaps = BIT(0),
	.fp32_gradients = true,
	.sums_alike = true,      /* sync_tied_weights_gradients */
	.copies_gathered = true, /* distributed.py, all_gather_coalesced */
};

/* From configs/7B_*.py: overlap_sync_grad, reduce_bucket_size. */
static const struct zero_rules internevo_rules = {
	.overlaps = BIT(1),
	.groups = BIT(1),
	.copies_back = true, /* unflatten_and_copy */
	.bucket_elements = 512 * MIB,
};

#define CAST_RECIPES    (BIT(FP8_OFF) | BIT(FP8_TENSORWISE) | BIT(FP8_ROWWISE))
#define TORCHAO_RECIPES (CAST_RECIPES | BIT(FP8_MXFP8))
#define ENGINE_RECIPES                                                                             \
	(BIT(FP8_OFF) | BIT(FP8_TENSORWISE) | BIT(FP8_DELAYED) | BIT(FP8_BLOCKWISE) |              \
		BIT(FP8_MXFP8) | BIT(FP8_NVFP4))
#define LINEAR_ORDERS   (BIT(PIPELINE_1F1B) | BIT(PIPELINE_GPIPE))
#define WHOLE_BACKWARDS (BIT(PIPELINE_1F1B) | BIT(PIPELINE_GPIPE) | BIT(PIPELINE_INTERLEAVED))

/* From megatron/core/distributed: the buffers of DDP and of the distributed optimizer. */
static const struct zero_rules megatron_rules = {
	.overlaps = BIT(0) | BIT(1),
	.groups = BIT(1),
	.fp32_gradients = true,
	.adds_at_once = true,
	.sums_alike = true, /* finalize_model_grads.py */
	.shares_biases = true,
	.filled_elements = 40000000,
	.filled_elements_a_rank = 1000000,
};

/* From torch/distributed/tensor/experimental/_context_parallel/_attention.py (2.15; _attention.py
 * 2.6). Blocks are put together for each message, and results are merged in fp32 operation by
 * operation (_SDPAMerger: two results in fp32, the new one, and two intermediate ones). Compiled,
 * one kernel reads what there is and the new result, and _functional_collectives.py waits for a
 * collective where it is traced. _AllGatherRotater gathers before the first round; beside it too
 * gradients go round by all-to-all. */
static const struct ring_rules torch_ring = {
	.copies_blocks = true,
	.sends_sums_apart = true,
	.fp32_sums = true,
	.result_bytes = 18,
	.gathers_blocks = true,
	.waits_when_compiled = true,
	.eager = {38, 18, 10},
	.fused = {10, 10, 3},
};

/* From Transformer Engine's AttnFuncWithCPAndKVP2P (commit d0067d0). Blocks and results of all
 * rounds live until the last one has been merged. */
static const struct ring_rules transformer_engine_ring = {
	.keeps_blocks = true,
	.keeps_results = true,
	.result_bytes = 2,
	.eager = {6, 6, 3},
	.fused = {6, 6, 3},
};

/* From executor/compute/ring.c. Results so far are fp32. A round reads and writes them; in backward
 * it does so with the gradients of queries, and sets those of keys to zero. */
static const struct ring_rules own_ring = {
	.sends_sums_apart = true,
	.keeps_own_sums = true,
	.result_bytes = 4,
	.eager = {8, 8, 1},
	.fused = {8, 8, 1},
};

/* Members are in the order of struct runtime, which groups them by subject. */
static const struct runtime runtimes[RUNTIME_COUNT] = {
	[RUNTIME_PYTORCH_FSDP1] =
		{
			PYTORCH,
			.skips_windows = true,
			.values[KNOB_STRATEGY] = FSDP_STRATEGIES,
			.values[KNOB_CPU_OFFLOAD] = BIT(OFFLOAD_NONE) | BIT(OFFLOAD_PARAMETERS),
			.layout = LAYOUT_FLAT,
			.alignment_bytes = 16,
			.one_rank_is_unsharded = true,
			.reshards_per_unit = true,
			.casts_shard = true,
			.defers_frees = true,
			.flattens_gradients = true,
			.delays_post_backward = true,
			.divides_separately = true,
			.stages_again = true,
			.keeps_host_gradient = true,
			.recomputes_by_unit = true,
			.experts = {.adds_by_index = true},
			.host_per_hook = 150e-6,
		},
	[RUNTIME_PYTORCH_FSDP2] =
		{
			PYTORCH,
			.skips_windows = true,
			.values[KNOB_FP8] = TORCHAO_RECIPES,
			.values[KNOB_STRATEGY] = SHARDED_STRATEGIES,
			.values[KNOB_PREFETCH] = BIT(PREFETCH_PRE),
			.values[KNOB_CPU_OFFLOAD] = BIT(OFFLOAD_NONE) | BIT(OFFLOAD_PARAMETERS),
			.values[KNOB_CONTEXT_METHOD] = BIT(CONTEXT_ALL_GATHER) | BIT(CONTEXT_RING),
			.layout = LAYOUT_PER_PARAMETER,
			.has_reshard_group = true,
			.reshards_per_unit = true,
			.reshards_root = true,
			.casts_shard = true,
			.copies_out = true,
			.accumulates_on_host = true,
			.keeps_gathered_input = true,
			.ring = &torch_ring,
			.ends_are_blocks = true,
			.names_stages = true, /* module_fqns_per_model_part */
			.keeps_stage_output = true,
			.waits_for_batch = true, /* torchtitan */
			.experts = {.routes_stream_of_whole = true,
				.routes_in_fp32 = true,
				.adds_by_index = true},
			.host_per_hook = 150e-6,
			/* [U]: taken to cost what a hook of FSDP costs */
			.host_per_exchange = 150e-6,
		},
	[RUNTIME_PYTORCH_DDP] =
		{
			PYTORCH,
			.skips_windows = true,
			.values[KNOB_FP8] = TORCHAO_RECIPES,
			.values[KNOB_STRATEGY] = BIT(STRATEGY_NO_SHARD),
			.values[KNOB_CPU_OFFLOAD] = BIT(OFFLOAD_NONE),
			.layout = LAYOUT_WHOLE,
			.ends_are_blocks = true,
			.names_stages = true, /* module_fqns_per_model_part */
			.keeps_stage_output = true,
			.experts = {.adds_by_index = true},
			.host_per_hook = 30e-6,
			.host_per_exchange = 150e-6,
		},
	[RUNTIME_SHARDPLAN] =
		{
			.values[KNOB_FP8] = CAST_RECIPES,
			.values[KNOB_OPTIMIZER] = BIT(OPTIMIZER_ADAMW_FUSED) | BIT(OPTIMIZER_SGD),
			.values[KNOB_ATTENTION] = BIT(ATTENTION_FLASH),
			.values[KNOB_PIPELINE_SCHEDULE] = WHOLE_BACKWARDS,
			.values[KNOB_CONTEXT_METHOD] = BIT(CONTEXT_ALL_GATHER) | BIT(CONTEXT_RING) |
						       BIT(CONTEXT_ALL_TO_ALL),
			.values[KNOB_CPU_OFFLOAD] = BIT(OFFLOAD_NONE) | BIT(OFFLOAD_OPTIMIZER) |
						    BIT(OFFLOAD_PARAMETERS),
			.values[KNOB_LOSS] = BIT(LOSS_FUSED) | BIT(LOSS_FUSED_LINEAR),
			.layout = LAYOUT_FLAT,
			.stage3_layout = LAYOUT_FLAT,
			.alignment_bytes = 64,
			.has_reshard_group = true,
			.reshards_per_unit = true,
			.casts_shard = true,
			.limits_gradients = true,
			.fp32_gradient_shards = true,
			.measures_norm = true,
			.exact_norm = true,
			.clips_in_update = true,
			.optimizer_per_unit = true,
			.own_copy_streams = true,
			.accumulates_on_host = true,
			.two_communicators = true,
			.one_engine = true,
			.hierarchical = true,
			.fused_kernels = true,
			.fused_activations = true,
			.needed_tensors_only = true,
			.keeps_unread = true,
			.keeps_backward_work = true,
			.tensor_alignment = 64,
			.adds_in_compute = true,
			.ring = &own_ring,
			.experts = {.keeps_room = true},
			.ties_stages = true,
			.logits_row = 64,
			.loss_in_place = true,
			.chunks_head = true,
			.keeps_losses = true,
			.batch_token_bytes = 4,
			.chunk_has_window = true,
			.synchronises_step = true,
			.step_exchange_bytes = 552, /* an exact sum of losses, and a flag */
			.host_is_compute = true,
			.host_per_kernel = 1e-6,
			.host_per_hook = 1e-6,
			.host_per_micro_batch = 5e-6,
			.context_bytes = 544 * MIB, /* 541 to 547 on an H100, CUDA 13.0 */
			.process_bytes = 24 * MIB,
			.nccl_bytes = 580 * MIB, /* more in use by a world of one, same GPU */
			.communicator_bytes = NCCL_COMMUNICATOR,
			.workspace_bytes = 16 * MIB,
		},
	[RUNTIME_DEEPSPEED] =
		{
			PYTORCH,
			.skips_windows = true,
			.values[KNOB_STRATEGY] = ZERO_STRATEGIES,
			.values[KNOB_PREFETCH] = BIT(PREFETCH_PRE),
			.values[KNOB_CPU_OFFLOAD] = BIT(OFFLOAD_NONE) | BIT(OFFLOAD_OPTIMIZER),
			.values[KNOB_ACTIVATION_OFFLOAD] =
				BIT(ACTIVATIONS_STAY) | BIT(ACTIVATIONS_CHECKPOINTS),
			.layout = LAYOUT_WHOLE,
			.stage3_layout = LAYOUT_PARTITIONED,
			.zero = &deepspeed_rules,
			.defers_frees = true,
			.measures_norm = true,
			.accumulates_on_host = true,
			.waits_for_batch = true, /* ThroughputTimer.start, in forward */
			.host_per_hook = 60e-6,
		},
	[RUNTIME_NANOTRON] =
		{
			PYTORCH,
			.values[KNOB_STRATEGY] = BIT(STRATEGY_NO_SHARD) | BIT(STRATEGY_ZERO_1),
			.values[KNOB_PIPELINE_SCHEDULE] = BIT(PIPELINE_1F1B) | BIT(PIPELINE_GPIPE),
			.values[KNOB_CPU_OFFLOAD] = BIT(OFFLOAD_NONE),
			.values[KNOB_PREFETCH] = BIT(PREFETCH_PRE),
			.layout = LAYOUT_WHOLE,
			.zero = &nanotron_rules,
			.defers_frees = true,
			.by_parameter = true,
			/* README.md of 2024 names PyTorch 2.1.2. */
			.nccl_version = LIBRARY_VERSION(2, 18) + 1,
			.one_launch_queue = true, /* assert_cuda_max_connections_set_to_1 */
			.fused_kernels = true,
			/* In models/llama.py q, k and v are brought into the order of heads, k and
			 * v are put together, then brought into the order of tokens; lengths of
			 * sequences come out of a mask. Backward puts the gradients of k and v
			 * together, then those of all three, brings them into the order of the
			 * projection, and puts those of gate and up together. */
			.attention_copies = {{14, 16}, {11, 3}},
			.activation_copies = {{0, 4}, {0, 1}},
			.keeps_products_whole = true,
			.gather_buffers = 2,        /* parallel/utils.py, MemoryBuffer */
			.overlaps_exchanges = true, /* tp_linear_async_communication */
			.cuts_by_cost = true,
			.keeps_stage_output = true,
			.waits_for_messages = LINEAR_ORDERS, /* p2p.py reads their shapes */
			.ties_stages = true,
			.parallel_loss = true,
			.host_per_hook = 30e-6,
			/* This is for eight ranks, which take 32 MiB each: 4.4 ms a block whatever
			 * the GPU does (ultrascale playbook, 8.86B, the calibrating part). */
			.host_per_exchange = 390e-6,
		},
	[RUNTIME_INTERNEVO] =
		{
			/* InternEvo's own checkpoint calls the whole block again, whatever
			 * PyTorch's does (internlm/solver/activation_checkpoint.py,
			 * CheckpointFunction). */
			PYTORCH_ITSELF,
			.values[KNOB_STRATEGY] = BIT(STRATEGY_ZERO_1),
			.values[KNOB_PIPELINE_SCHEDULE] = WHOLE_BACKWARDS,
			.values[KNOB_CPU_OFFLOAD] = BIT(OFFLOAD_NONE),
			.values[KNOB_PREFETCH] = BIT(PREFETCH_PRE),
			.layout = LAYOUT_WHOLE,
			.gathers_by_broadcast = true,
			.zero = &internevo_rules,
			.measures_norm = true,
			.fused_kernels = true,
			.keeps_activated_gate = true,
			.overlaps_exchanges = true,          /* its FusedDenseFunc */
			.waits_for_messages = LINEAR_ORDERS, /* p2p.py; others are not modelled */
			.loss_in_place = true,               /* flash-attn's, inplace_backward */
			.host_per_hook = 30e-6,
			.host_per_exchange = 150e-6,
		},
	[RUNTIME_MEGATRON] =
		{
			PYTORCH_ITSELF,
			.values[KNOB_STRATEGY] = BIT(STRATEGY_NO_SHARD) | BIT(STRATEGY_ZERO_1),
			.values[KNOB_PIPELINE_SCHEDULE] = WHOLE_BACKWARDS,
			.values[KNOB_CPU_OFFLOAD] = BIT(OFFLOAD_NONE),
			.values[KNOB_PREFETCH] = BIT(PREFETCH_PRE),
			.values[KNOB_FP8] = ENGINE_RECIPES,
			.layout = LAYOUT_WHOLE,
			.zero = &megatron_rules,
			.measures_norm = true,
			.fused_kernels = true,
			.fused_activations = true,
			.recomputes_modules = true,
			.projection_keeps_input = true,
			.softmax_in_kernel = true,
			.keeps_fp8_copies = true,
			.gather_buffers = 1,
			.skips_windows = true,
			.overlaps_exchanges = true,
			.layers_exchange = true,
			.sum_multiprocessors = 16, /* module/base.py, get_default_config */
			.ring = &transformer_engine_ring,
			.goes_by_ring = true,
			.ring_sees_all = true, /* Transformer Engine, context_parallel.py */
			.experts = {.routes_stream = true,
				.weighs_activations = true,
				.drops_rows = true,
				.clamp = {{8, 10}, {3, 3}},
				.bias = {{6, 7}, {2, 4}}},
			.predicts_next = true,
			.names_stages = true, /* --pipeline-model-parallel-layout */
			/* Set by batch_p2p_sync; interleaved stages set overlap_p2p_comm (October
			 * 2023). */
			.waits_for_messages = LINEAR_ORDERS,
			.ties_stages = true,
			.keeps_messages = true,
			.vocab_multiple = 128,
			.loss_in_place = true,
			.compiles_loss = true,
			.parallel_loss = true,
			.batch_has_mask = true,
			/* Its functional tests on H100 take 2.3 ms (dense, no tensor ranks) to 8 ms
			 * (experts) for a block and micro-batch, whatever the GPU does; an exchange
			 * adds 30 us (docs/runtimes.md). */
			.host_per_kernel = 80e-6,
			.host_per_hook = 30e-6,
			.host_per_exchange = 30e-6,
			.three_workspaces = true,
		},
};

const struct runtime *runtime_of(enum runtime_kind kind)
{
	return &runtimes[kind];
}
