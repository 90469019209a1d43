/* The rows of the table of knobs. resolve.c fills in what depends on the model or other knobs. */
#include "schedule/plan/knob_fields.h"

/* Whole tensors of a plan may have these element types only. */
static const char *const dtypes[] = {
	[DTYPE_FP32] = "fp32", [DTYPE_BF16] = "bf16", [DTYPE_FP16] = "fp16", NULL};

const struct knob knob_table[KNOB_COUNT] = {
	[KNOB_STRATEGY] =
		{
			CHOICE(strategy, REQUIRED, strategy_names),
			.group = KNOB_GROUP_SHARDING,
			.roles = KNOB_NO_LOAD | KNOB_VARIED | KNOB_COMPARED,
			.gpu = STRATEGY_FULL_SHARD,
			.cpu = STRATEGY_FULL_SHARD,
			.metavar = "LIST",
			.help = "NO_SHARD, SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD, "
				"HYBRID_SHARD_ZERO2; ZERO_1, ZERO_2, ZERO_3 where the runtime has "
				"them; `plan` takes several, with commas",
			.remark = "searched by `plan`",
		},
	[KNOB_RESHARD_AFTER_FORWARD] =
		{
			DECODED(reshard_after_forward, REQUIRED, NULL, &reshard_decoded),
			.group = KNOB_GROUP_SHARDING,
			.roles = KNOB_NO_LOAD | KNOB_COMPARED | KNOB_FOLLOWS,
			.metavar = "true|false|N|all",
			.help = "free parameters after forward; N: keep them over groups of N; "
				"by unit: 20xtrue+12xfalse; all: true of the root too (FSDP2)",
			.remark = "as the strategy says",
		},
	[KNOB_WRAP] =
		{
			DECODED(wrap, REQUIRED, NULL, &wrap_decoded),
			.group = KNOB_GROUP_SHARDING,
			.roles = KNOB_LEVER | KNOB_NO_LOAD | COMPARABLE,
			.metavar = "block|blocks:K|size:N|model",
			.help = "what becomes one unit: every transformer block, K blocks, at "
				"least N parameters, or everything; +embedding, +head: these apart",
			.remark = "searched by `plan`",
		},
	[KNOB_PREFETCH] =
		{
			CHOICE(prefetch, REQUIRED, NAMES(PREFETCH_VALUES)),
			.group = KNOB_GROUP_SHARDING,
			.roles = MOVES_WORK | COMPARABLE | KNOB_FOLLOWS,
			.gpu = PREFETCH_PRE,
			.cpu = PREFETCH_PRE,
			.refusal = "it always prefetches; use pre",
			.help = "gather the next unit of backward before (pre) "
				"or after (post) this one's gradients, or not early",
			.remark = "searched by `plan`",
		},
	[KNOB_FORWARD_PREFETCH] =
		{
			SWITCH(forward_prefetch),
			.group = KNOB_GROUP_SHARDING,
			.roles = KNOB_LEVER | MOVES_WORK | COMPARABLE | KNOB_FOLLOWS,
			.levers = BIT(true),
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP1) | BIT(RUNTIME_PYTORCH_FSDP2) |
				    BIT(RUNTIME_SHARDPLAN),
			.refusal = "it has no such knob; use off",
			.help = "gather the next unit of forward early",
		},
	[KNOB_LIMIT_ALL_GATHERS] =
		{
			SWITCH(limit_all_gathers),
			.group = KNOB_GROUP_SHARDING,
			.roles = MOVES_WORK | COMPARABLE | KNOB_FOLLOWS,
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP1) | BIT(RUNTIME_SHARDPLAN),
			.gpu = true,
			.cpu = true,
			.refusal = "it has no rate limiter; use off",
			.help = "FSDP1's rate limiter",
			.remark = "on for runtimes that have a rate limiter",
		},
	[KNOB_ACTIVATION_CHECKPOINTING] =
		{
			DECODED(activation_checkpointing, REQUIRED, checkpointing_names,
				&rows_decoded),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_VARIED | KNOB_COMPARED,
			.refusal = "use none or full",
			.help = "what backward recomputes; by block: 8xfull+24xnone",
			.remark = "searched by `plan`",
		},
	[KNOB_ATTENTION] =
		{
			CHOICE(attention, REQUIRED, attention_kind_names),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_LEVER | KNOB_NEVER_WORSE,
			.levers = BIT(ATTENTION_FLASH3),
			.gpu = ATTENTION_FLASH,
			.cpu = ATTENTION_FLASH,
			.refusal = "its attention is blocked; use flash",
			.help = "attention kernel",
		},
	[KNOB_LOSS] =
		{
			CHOICE(loss, REQUIRED, NAMES(LOSS_VALUES)),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_LEVER | KNOB_NEVER_WORSE,
			.levers = BIT(LOSS_FUSED) | BIT(LOSS_FUSED_LINEAR),
			.gpu = LOSS_UPCAST,
			.cpu = LOSS_UPCAST,
			.refusal = "it has one kernel; use fused or fused-linear",
			.help = "how the script computes it: in the logits' dtype, in fp32, "
				"from fp32 logits, in one kernel, or with the head piece by piece",
			.remark = "as most scripts; MPT models, InternEvo and ours: fused",
		},
	[KNOB_COMPILE] =
		{
			SWITCH(compile),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_LEVER | KNOB_NEVER_WORSE,
			.levers = BIT(true),
			.runtimes = ON_PYTORCH & ~(BIT(RUNTIME_MEGATRON) | BIT(RUNTIME_NANOTRON)),
			.refusal = "it does not compile models; use off",
			.help = "torch.compile",
		},
	[KNOB_PARAM_DTYPE] =
		{
			CHOICE(param_dtype, REQUIRED, dtypes),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK,
			.help = "parameters that compute reads",
			.remark = "GPUs without bf16: fp16",
		},
	[KNOB_MASTER_DTYPE] =
		{
			CHOICE(master_dtype, REQUIRED, dtypes),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK,
			.gpu = DTYPE_FP32,
			.cpu = DTYPE_FP32,
			.help = "parameters and moments that the optimizer updates",
		},
	[KNOB_REDUCE_DTYPE] =
		{
			CHOICE(reduce_dtype, REQUIRED, dtypes),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_NO_LOAD | KNOB_VARIED | KNOB_IN_STUDY,
			.gpu = DTYPE_FP32,
			.cpu = DTYPE_FP32,
			.help = "gradients while they are reduced",
		},
	[KNOB_GRADIENT_SUMS] =
		{
			CHOICE(gradient_sums, FIELD_OMIT_ZERO, NAMES(GRADIENT_SUMS_VALUES)),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_ONE_VALUE,
			.runtimes = BIT(RUNTIME_SHARDPLAN),
			.refusal = "use runtime shardplan with fp32 parameters and reduction, "
				   "or tree",
			.help = "exact: 64-bit sums, "
				"the same bits on any number of ranks (runtime shardplan)",
		},
	[KNOB_GELU] =
		{
			CHOICE(gelu, FIELD_OMIT_ZERO, NAMES(GELU_VALUES)),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_ONE_VALUE,
			.runtimes = BIT(RUNTIME_SHARDPLAN),
			.refusal = "use runtime shardplan without exact gradient sums, or kernel",
			.help = "product: GPUs compute GELU with the product before it, "
				"in bits of this plan alone (runtime shardplan)",
		},
	[KNOB_OPTIMIZER] =
		{
			CHOICE(optimizer, REQUIRED, NAMES(OPTIMIZER_VALUES)),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_LEVER | KNOB_NEVER_WORSE | KNOB_WORK | KNOB_IN_STUDY |
				 KNOB_FOLLOWS,
			.levers = BIT(OPTIMIZER_ADAMW_FUSED),
			.gpu = OPTIMIZER_ADAMW_FOREACH,
			.cpu = OPTIMIZER_ADAMW_FUSED,
			.refusal = "use adamw-fused or sgd",
			.help = "optimizer and its implementation",
			.remark = "pytorch runtimes: as PyTorch does",
		},
	[KNOB_CPU_OFFLOAD] =
		{
			DECODED(cpu_offload, REQUIRED, offload_names, &rows_decoded),
			.group = KNOB_GROUP_SHARDING,
			.roles = COMPARABLE,
			.help = "what lives in host memory; by unit: 10xoptimizer+23xnone",
		},
	[KNOB_RUNTIME] =
		{
			CHOICE(runtime, REQUIRED, runtime_names),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_ONE_VALUE | KNOB_FOLLOWS,
			.gpu = RUNTIME_PYTORCH_FSDP2,
			.cpu = RUNTIME_SHARDPLAN,
			.metavar = "NAME",
			.help = "whose behaviour is predicted: "
				"pytorch-fsdp1, pytorch-fsdp2, pytorch-ddp, "
				"shardplan, deepspeed, nanotron, internevo or megatron",
			.remark = "NO_SHARD under pytorch-fsdp2 is priced as pytorch-ddp",
		},
	[KNOB_LIBRARIES] =
		{
			DECODED(libraries, 0, NULL, &libraries_decoded),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK,
			.metavar = "NAME:VERSION+...",
			.help = "versions below it, where known: pytorch:2.1.0+cuda:12.1, nccl, "
				"flash-attn, megatron-core; compile:unknown: perhaps torch.compile",
			.remark = "taken to be recent; the interval is wider than with versions",
		},
	[KNOB_ALLOCATOR] =
		{
			CHOICE(allocator, 0, NAMES(ALLOCATOR_VALUES)),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_LEVER | KNOB_NEVER_WORSE,
			.levers = BIT(ALLOCATOR_EXPANDABLE),
			.runtimes = ON_PYTORCH,
			.refusal = "only PyTorch on GPUs has it; use segments",
			.help = "PyTorch's, as it is or with expandable_segments:True",
			.remark = "PyTorch's unless PYTORCH_CUDA_ALLOC_CONF says otherwise",
		},
	[KNOB_SEQ_LEN] =
		{
			COUNT(seq_len),
			.group = KNOB_GROUP_BATCH,
			.roles = KNOB_WORK | KNOB_ONE_VALUE | KNOB_VARIED,
			.metavar = "N",
			.help = "tokens in a sequence",
			.shown = "min(context, 4096)",
			.remark = "context: of the model",
		},
	[KNOB_MICRO_BATCH] =
		{
			COUNT(micro_batch),
			.group = KNOB_GROUP_BATCH,
			.roles = KNOB_NO_SHAPE | KNOB_VARIED | KNOB_COMPARED,
			.gpu = 1,
			.cpu = 1,
			.metavar = "N",
			.help = "sequences per rank and forward pass",
			.remark = "searched by `plan` when only the global batch is given",
		},
	[KNOB_GRAD_ACCUM] =
		{
			COUNT(grad_accum),
			.group = KNOB_GROUP_BATCH,
			.roles = KNOB_NO_LOAD | KNOB_NO_SHAPE | KNOB_VARIED,
			.gpu = 1,
			.cpu = 1,
			.metavar = "N",
			.help = "micro-batches per step",
		},
	[KNOB_GLOBAL_BATCH] =
		{
			COUNT(global_batch),
			.group = KNOB_GROUP_BATCH,
			.roles = KNOB_WORK | KNOB_ONE_VALUE | KNOB_NO_LOAD | KNOB_NO_SHAPE |
				 KNOB_FOLLOWS,
			.metavar = "N",
			.help = "sequences per step: "
				"micro-batch x grad-accum x data-parallel ranks",
			.shown = "by the other two",
			.remark = "micro-batch x grad-accum x data-parallel ranks",
		},
	[KNOB_SYNC_EACH_MICRO_BATCH] =
		{
			SWITCH(sync_each_micro_batch),
			.group = KNOB_GROUP_BATCH,
			.roles = KNOB_NO_LOAD | KNOB_VARIED | KNOB_COMPARED,
			.gpu = true,
			.cpu = true,
			.help = "reduce gradients after every micro-batch, not only after the last",
		},
	[KNOB_CLIP] =
		{
			RATE(clip, FIELD_NOT_NEGATIVE),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_ONE_VALUE | KNOB_OF_TRAIN,
			.metavar = "NORM",
			.help = "clip gradients to this norm; 0: no clipping",
			.remark = "no clipping",
		},
	[KNOB_LOADER_RATE] =
		{
			RATE(loader_rate, FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_ONE_VALUE | KNOB_ZERO_UNSAID,
			.metavar = "TOKENS",
			.help = "a second that the data loader delivers to one GPU, "
				"all its workers together; 0: it is never waited for",
			.remark = "the data loader is never waited for",
		},
	[KNOB_LATE_ALL_REDUCE] =
		{
			OMITTED(late_all_reduce),
			.group = KNOB_GROUP_BATCH,
			.roles = KNOB_LEVER | KNOB_NO_LOAD | COMPARABLE | KNOB_FOLLOWS |
				 KNOB_ZERO_UNSAID,
			.levers = BIT(true),
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP2) | BIT(RUNTIME_SHARDPLAN),
			.refusal = "it reduces over all ranks at once; use off",
			.help = "hybrid strategies: reduce-scatter after every micro-batch, "
				"all-reduce only after the last (FSDP2's set_requires_all_reduce)",
		},
	[KNOB_TRAINABLE] =
		{
			OMITTED_TEXT(trainable),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_ONE_VALUE | KNOB_ZERO_UNSAID | KNOB_HAS_COMMAS,
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP2) | BIT(RUNTIME_PYTORCH_DDP) |
				    BIT(RUNTIME_MEGATRON) | BIT(RUNTIME_SHARDPLAN),
			.refusal = "frozen parameters of it are not modelled; use pytorch-fsdp2, "
				   "pytorch-ddp, megatron or shardplan, or all",
			.metavar = "all|lora:RANK[:MODULES][:alpha=A]|NAMES",
			.help = "what is trained: everything; "
				"adapters (LoRA) beside projections (q_proj,v_proj; all-linear); "
				"parameters by name, with * and ?; the rest is frozen",
			.shown = "all",
		},
	[KNOB_ACTIVATION_OFFLOAD] =
		{
			CHOICE(activation_offload, FIELD_OMIT_ZERO,
				NAMES(ACTIVATION_OFFLOAD_VALUES)),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_LEVER | COMPARABLE | KNOB_ZERO_UNSAID,
			.levers = BIT(ACTIVATIONS_CHECKPOINTS) | BIT(ACTIVATIONS_ALL),
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP1) | BIT(RUNTIME_PYTORCH_FSDP2) |
				    BIT(RUNTIME_PYTORCH_DDP) | BIT(RUNTIME_SHARDPLAN) |
				    BIT(RUNTIME_DEEPSPEED),
			.refusal = "use none (deepspeed: or checkpoints)",
			.help = "what waits for backward in host memory: "
				"the inputs of checkpointed blocks, or all that blocks save",
		},
	[KNOB_SEQUENCE_PARALLEL] =
		{
			OMITTED(sequence_parallel),
			.group = KNOB_GROUP_AXES,
			.roles = COMPARABLE | KNOB_ZERO_UNSAID,
			.runtimes = STAGED,
			.refusal = "it has no tensor parallelism; use off",
			.help = "the tokens of the residual stream are cut over the tensor ranks "
				"between linear layers",
			.remark = "on with tensor parallelism",
		},
	[KNOB_PIPELINE_SCHEDULE] =
		{
			CHOICE(pipeline_schedule, FIELD_OMIT_ZERO, pipeline_schedule_names),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_NO_LOAD | KNOB_NO_SHAPE | COMPARABLE | KNOB_ZERO_UNSAID,
			.runtimes = STAGED,
			.refusal = "use 1f1b",
			.help = "in which order a stage takes its micro-batches; "
				"the last three split backward",
			.remark = "with --pipeline",
		},
	[KNOB_VIRTUAL_STAGES] =
		{
			FIELD_INT(struct plan, virtual_stages, "virtual_stages",
				FIELD_OMIT_ZERO | FIELD_POSITIVE),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_NO_LOAD | KNOB_NO_SHAPE | COMPARABLE | KNOB_ZERO_UNSAID,
			.runtimes = STAGED,
			.metavar = "N",
			.help = "stages that each pipeline rank has; several are interleaved",
			.shown = "1 or 2",
			.remark = "as few as the schedule has",
		},
	[KNOB_LAYERS_PER_STAGE] =
		{
			DECODED(layers_per_stage, FIELD_OMIT_ZERO, NULL, &counts_decoded),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_ONE_VALUE | KNOB_NO_LOAD | KNOB_NO_SHAPE | KNOB_COMPARED |
				 KNOB_IN_STUDY | KNOB_ZERO_UNSAID | KNOB_HAS_COMMAS,
			.runtimes = STAGED,
			.metavar = "LIST|auto",
			.help = "blocks of each stage, the first one first: "
				"7,8,8,7 or 1x7+14x8+1x7; auto: balanced",
			.shown = "even",
			.remark = "as the framework cuts",
		},
	[KNOB_EXPERT_TENSOR] =
		{
			FIELD_INT(struct plan, expert_tensor, "expert_tensor",
				FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_VARIED | KNOB_IN_STUDY | KNOB_ZERO_UNSAID,
			.metavar = "N",
			.help = "with --expert: ranks that cut each expert, 1 or --tensor",
			.shown = "1",
			.remark = "runtime megatron: --tensor",
		},
	[KNOB_EXPERT_LOAD] =
		{
			RATE(expert_load, FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_ONE_VALUE | KNOB_ZERO_UNSAID,
			.metavar = "F",
			.help = "with --expert: rows of the fullest rank over the mean",
			.shown = "1.1",
			.remark = "runtime shardplan: none, room for all",
		},
	[KNOB_OVERLAP] =
		{
			CHOICE(overlap, FIELD_OMIT_ZERO, NAMES(OVERLAP_VALUES)),
			.group = KNOB_GROUP_SHARDING,
			.roles = KNOB_NO_LOAD | KNOB_NO_SHAPE | COMPARABLE | KNOB_ZERO_UNSAID,
			.runtimes = BIT(RUNTIME_MEGATRON),
			.refusal = "its strategy decides; use all",
			.help = "runtime megatron: what runs beside compute, "
				"reductions and gathers, reductions alone, or nothing",
		},
	[KNOB_DROPOUT] =
		{
			OMITTED(dropout),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_ONE_VALUE | KNOB_ZERO_UNSAID,
			.runtimes = BIT(RUNTIME_MEGATRON),
			.refusal = "its masks are not modelled; use off",
			.help = "runtime megatron: dropout, whose masks are kept for backward",
		},
	[KNOB_KEEP_GATHERED] =
		{
			SAID_ONLY(keep_gathered, AXES, BIT(RUNTIME_NANOTRON)),
			.refusal = "its tensor parallelism decides; use off",
			.help = "nanotron: gathered inputs stay (tp_recompute_allgather: false)",
		},
	[KNOB_CONTEXT_METHOD] =
		{
			CHOICE(context_method, FIELD_OMIT_ZERO, context_method_names),
			.group = KNOB_GROUP_AXES,
			.roles = COMPARABLE | KNOB_ZERO_UNSAID,
			.runtimes = CUTS_SEQUENCES,
			.refusal = "use all-gather (pytorch-fsdp2: or ring)",
			.help = "with --context: how keys and values reach other ranks",
			.remark = "runtime megatron: ring",
		},
	[KNOB_CAPACITY_FACTOR] =
		{
			RATE(capacity_factor, FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_ONE_VALUE | KNOB_ZERO_UNSAID,
			.metavar = "F",
			.help = "with --expert, runtime megatron: "
				"rows of each expert over the mean, dropped or padded",
			.shown = "none",
			.remark = "instead of --expert-load",
		},
	[KNOB_FP8] =
		{
			CHOICE(fp8, FIELD_OMIT_ZERO, NAMES(FP8_VALUES)),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_ZERO_UNSAID,
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP2) | BIT(RUNTIME_PYTORCH_DDP) |
				    BIT(RUNTIME_SHARDPLAN) | BIT(RUNTIME_MEGATRON),
			.refusal = "use off or tensorwise (shardplan: rowwise; pytorch-fsdp2, -ddp:"
				   " rowwise, mxfp8; megatron: delayed, blockwise, mxfp8, nvfp4)",
			.help = "how linear layers of blocks multiply in fp8 or fp4, by scales",
		},
	[KNOB_SCATTER_GATHER] =
		{
			SAID_ONLY(scatter_gather, AXES, BIT(RUNTIME_MEGATRON)),
			.refusal = "its stages send one another whole messages; use off",
			.help = "Megatron-LM until 2023: tensor ranks send parts of messages",
		},
	[KNOB_ASYNC_TENSOR] =
		{
			OMITTED(async_tensor),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_LEVER | COMPARABLE | KNOB_ZERO_UNSAID,
			.levers = BIT(true),
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP2) | BIT(RUNTIME_MEGATRON),
			.refusal = "its exchanges stand between products; use off",
			.help = "tensor ranks exchange beside products (fsdp2: with --compile on)",
		},
	[KNOB_SERIAL_TENSOR] =
		{
			SAID_ONLY(
				serial_tensor, AXES, BIT(RUNTIME_MEGATRON) | BIT(RUNTIME_NANOTRON)),
			.refusal = "its tensor parallelism decides; use off",
			.help = "megatron, nanotron: backward's products wait for exchanges",
		},
	[KNOB_FP8_PARAM_GATHER] =
		{
			OMITTED(fp8_param_gather),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_LEVER | KNOB_COMPARED | KNOB_IN_STUDY | KNOB_ZERO_UNSAID,
			.levers = BIT(true),
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP2) | BIT(RUNTIME_MEGATRON),
			.refusal = "it gathers parameters in --param-dtype; use off",
			.help = "with --fp8: gathers these weights in fp8 (megatron: keeps them "
				"so)",
		},
	[KNOB_EXPERT_DISPATCH] =
		{
			CHOICE(expert_dispatch, FIELD_OMIT_ZERO, expert_dispatch_names),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_LEVER | COMPARABLE | KNOB_ZERO_UNSAID,
			.levers = BIT(DISPATCH_DEEPEP),
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP2) | BIT(RUNTIME_MEGATRON),
			.refusal = "it exchanges rows by all-to-all; use all-to-all",
			.help = "with --expert: how rows reach experts of other ranks, a copy for "
				"each expert or one for each node (DeepEP)",
		},
	[KNOB_EXPERT_OVERLAP] =
		{
			OMITTED(expert_overlap),
			.group = KNOB_GROUP_AXES,
			.roles = KNOB_LEVER | COMPARABLE | KNOB_ZERO_UNSAID,
			.levers = BIT(true),
			.runtimes = BIT(RUNTIME_MEGATRON),
			.refusal = "its experts wait for their tokens; use off",
			.help = "with --expert: tokens travel while another micro-batch computes",
		},
	[KNOB_UNFUSED_PERMUTE] =
		{
			SAID_ONLY(unfused_permute, AXES, BIT(RUNTIME_MEGATRON)),
			.refusal = "its kernels for that are its own; use off",
			.help = "megatron: orders tokens by PyTorch, without --moe-permute-fusion",
		},
	[KNOB_RECOMPUTE_MODULES] =
		{
			NAMES_OF_MEGATRON(recompute_modules),
			.roles = COMPARABLE | KNOB_ZERO_UNSAID,
			.refusal = "selective checkpointing of it goes by operator; leave it out",
			.help = "what selective checkpointing recomputes (megatron): core_attn, "
				"layernorm, mla_up_proj, moe_act, mlp, moe, shared_experts",
			.remark = "searched by `plan`",
		},
	[KNOB_CUDA_GRAPH_SCOPE] =
		{
			NAMES_OF_MEGATRON(cuda_graph_scope),
			.roles = COMPARABLE | KNOB_ONE_VALUE | KNOB_ZERO_UNSAID,
			.refusal = "its kernels go one by one; use off, or --runtime megatron",
			.help = "what is launched as CUDA graphs (megatron): full_iteration, or of "
				"each block attn, mlp, moe, moe_router, moe_preprocess",
		},
	[KNOB_LIGER] =
		{
			OMITTED(liger),
			.group = KNOB_GROUP_COMPUTE,
			.roles = KNOB_WORK | KNOB_LEVER | KNOB_NEVER_WORSE | KNOB_ZERO_UNSAID,
			.levers = BIT(true),
			.runtimes = BIT(RUNTIME_PYTORCH_FSDP1) | BIT(RUNTIME_PYTORCH_FSDP2) |
				    BIT(RUNTIME_PYTORCH_DDP) | BIT(RUNTIME_DEEPSPEED),
			.refusal = "its models have kernels of their own; use off",
			.help = "Liger's kernels for norms, RoPE and MLPs (its loss: fused-linear)",
		},
	[KNOB_DOCUMENT_LEN] =
		{
			FIELD_INT(struct plan, document_len, "document_len",
				FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
			.group = KNOB_GROUP_BATCH,
			.roles = KNOB_WORK | KNOB_ONE_VALUE | KNOB_ZERO_UNSAID,
			.runtimes = ON_PYTORCH,
			.metavar = "N",
			.help = "tokens of a document, in the mean over tokens, where several fill "
				"a sequence and attention keeps them apart",
			.shown = "none",
			.remark = "attention sees the whole sequence",
		},
	[KNOB_TENSOR] =
		{
			RANKS(tensor),
			.runtimes = STAGED,
			.help = "ranks that heads, MLPs and vocabulary are cut over "
				"(tensor parallelism)",
		},
	[KNOB_CONTEXT] =
		{
			RANKS(context),
			.runtimes = CUTS_SEQUENCES,
			.help = "ranks that a sequence's tokens are cut over (context parallelism)",
		},
	[KNOB_PIPELINE] =
		{
			RANKS(pipeline),
			.runtimes = STAGED,
			.help = "ranks that blocks are cut over, in stages (pipeline parallelism)",
		},
	[KNOB_EXPERT] =
		{
			RANKS(expert),
			.runtimes = CUTS_SEQUENCES,
			.help = "ranks that share out experts and send one another tokens "
				"(expert parallelism)",
		},
	[KNOB_SHARD_GROUP] =
		{
			FIELD_INT(struct plan, mesh.shard, "shard_group", FIELD_POSITIVE),
			.group = KNOB_GROUP_SHARDING,
			.metavar = "N",
			.help = "ranks in a shard group of a hybrid strategy, "
				"or of ZeRO where it has groups",
			.shown = "a node's devices",
			.remark = "of hybrid strategies",
		},
};
