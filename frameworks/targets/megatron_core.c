/* Megatron-LM: options for pretrain_gpt.py with its own DDP and distributed optimizer, and with
 * every axis that divides the model.
 *
 * Options: Megatron-LM (megatron/training/arguments.py and its configuration classes, d98e8a64);
 * what they demand of one another is asserted in validate_args there. */
#include <string.h>

#include "frameworks/targets/megatron.h"
#include "schedule/pipeline/pipeline.h"

static const struct export_rule core_rules[] = {
	MEGATRON_RUNTIME,
	MEGATRON_COMMON,
	{KNOB_MASTER_DTYPE, FIXED, "*>fp32", "the optimizer keeps fp32 parameters"},
	MEGATRON_ADAM,
	OUTSIDE_BUT_LOSS,
};

void megatron_adapt_core(struct exporting *exporting, struct plan *plan)
{
	bool low = plan->reduce_dtype == plan->param_dtype;

	if (pipeline_splits_backward(plan->pipeline_schedule))
		export_change(exporting, plan, KNOB_PIPELINE_SCHEDULE,
			plan_pipeline(plan).chunks > 1 ? "interleaved" : "1f1b",
			"backward is not split there");
	if (plan->strategy != STRATEGY_NO_SHARD)
		export_change(exporting, plan, KNOB_STRATEGY, "ZERO_1",
			"the distributed optimizer shards optimizer state alone");
	export_change(exporting, plan, KNOB_RUNTIME, "megatron", "this is Megatron-LM");
	if (exporting->model->architecture.experts > 0 && plan->mesh.tensor > 1)
		export_change(exporting, plan, KNOB_SEQUENCE_PARALLEL, "true",
			"experts are trained beside tensor ranks with it alone");
	if (plan->grad_accum > 1)
		export_change(exporting, plan, KNOB_SYNC_EACH_MICRO_BATCH, "false",
			"gradients are reduced in the last micro-batch");
	if (!low)
		export_change(exporting, plan, KNOB_REDUCE_DTYPE, "fp32",
			"gradients accumulate in fp32 or in the dtype of the parameters");
}

static void write_core(struct exporting *exporting)
{
	megatron_write(exporting, false);
}

/* --- keys ----------------------------------------------------------------------------------- */

static const char *distributed(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->strategy == STRATEGY_ZERO_1);
}

static const char *instances(struct exporting *exporting)
{
	bool several =
		exporting->plan->strategy == STRATEGY_ZERO_1 && exporting->plan->mesh.replicate > 1;

	return several ? value_replicas(exporting) : NULL;
}

static const char *overlaps_reductions(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->overlap != OVERLAP_NONE);
}

bool megatron_overlaps_gathers(const struct plan *plan)
{
	return plan->overlap == OVERLAP_ALL && plan->strategy == STRATEGY_ZERO_1;
}

static const char *overlaps_gathers(struct exporting *exporting)
{
	return megatron_if_true(megatron_overlaps_gathers(exporting->plan));
}

static const char *cuts_sequence(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->sequence_parallel);
}

static const char *exchanges_beside(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->async_tensor);
}

/* --cp-comm-type; p2p is the framework's default. */
static const char *const context_methods[] = {
	[CONTEXT_ALL_GATHER] = "all_gather", [CONTEXT_RING] = "p2p", [CONTEXT_ALL_TO_ALL] = "a2a"};

const char *megatron_context_method(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->mesh.context > 1 ? context_methods[plan->context_method] : NULL;
}

/* The framework's default is 0.1. */
static const char *without_dropout(struct exporting *exporting)
{
	return exporting->plan->dropout ? NULL : "0.0";
}

static const char *fuses_loss(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->loss != LOSS_PARALLEL);
}

static const char *loss_kernel(struct exporting *exporting)
{
	return exporting->plan->loss == LOSS_PARALLEL ? NULL
	       : exporting->plan->loss == LOSS_FUSED  ? "te"
						      : "native";
}

static const char *low_reduction(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->reduce_dtype == DTYPE_BF16 &&
				exporting->plan->param_dtype == DTYPE_BF16);
}

static const char *high_reduction(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->reduce_dtype == DTYPE_FP32 &&
				exporting->plan->param_dtype == DTYPE_FP16);
}

static const struct config_key core_keys[] = {
	TRAINING_KEYS,
	{"fp8-format", KEY_READ, NO_KNOB, NULL, 0, megatron_fp8_format},
	{"fp8-recipe", KEY_READ, KNOB_FP8, NULL, 0, megatron_fp8_recipe},
	{"fp8-param-gather", KEY_READ, KNOB_FP8_PARAM_GATHER, NULL, 0, megatron_gathers_fp8},
	{"fp4-format", KEY_READ, KNOB_FP8, NULL, 0, megatron_fp4_format},
	{"fp4-recipe", KEY_READ, KNOB_FP8, NULL, 0, megatron_fp4_recipe},
	{"fp4-param-gather", KEY_READ, KNOB_FP8_PARAM_GATHER, NULL, 0, megatron_gathers_fp4},
	{"reuse-grad-buf-for-mxfp8-param-ag", KEY_READ, NO_KNOB, NULL, 0,
		megatron_gathers_in_gradients},
	{"tensor-model-parallel-size", KEY_COUNT, KNOB_TENSOR},
	{"sequence-parallel", KEY_READ, KNOB_SEQUENCE_PARALLEL, NULL, 0, cuts_sequence},
	{"tp-comm-overlap", KEY_READ, KNOB_ASYNC_TENSOR, NULL, 0, exchanges_beside},
	{"cuda-graph-impl", KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, 0, megatron_graphs},
	{"cuda-graph-modules", KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, 0, megatron_graph_scopes},
	{"cuda-graph-scope", KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, ONLY_READ},
	{"enable-cuda-graph", KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, ONLY_READ},
	{"external-cuda-graph", KEY_READ, KNOB_CUDA_GRAPH_SCOPE, NULL, ONLY_READ},
	{"te-rng-tracker", KEY_PLAIN, NO_KNOB, NULL, 0, megatron_rng_tracker},
	{"no-check-for-nan-in-loss-and-grad", KEY_PLAIN, NO_KNOB, NULL, 0, megatron_leaves_nan},
	{"pipeline-model-parallel-size", KEY_COUNT, KNOB_PIPELINE},
	{"num-virtual-stages-per-pipeline-rank", KEY_READ, KNOB_VIRTUAL_STAGES, NULL, 0,
		megatron_virtual_stages},
	{"num-layers-per-virtual-pipeline-stage", KEY_READ, KNOB_VIRTUAL_STAGES, NULL, ONLY_READ},
	{"decoder-first-pipeline-num-layers", KEY_READ, KNOB_LAYERS_PER_STAGE, NULL, ONLY_READ},
	{"decoder-last-pipeline-num-layers", KEY_READ, KNOB_LAYERS_PER_STAGE, NULL, ONLY_READ},
	{"account-for-embedding-in-pipeline-split", KEY_READ, KNOB_LAYERS_PER_STAGE, NULL,
		ONLY_READ},
	{"account-for-loss-in-pipeline-split", KEY_READ, KNOB_LAYERS_PER_STAGE, NULL, ONLY_READ},
	{"pipeline-model-parallel-layout", KEY_READ, KNOB_LAYERS_PER_STAGE, NULL, 0,
		megatron_layout},
	{"context-parallel-size", KEY_COUNT, KNOB_CONTEXT},
	{"cp-comm-type", KEY_READ, KNOB_CONTEXT_METHOD, NULL, 0, megatron_context_method},
	{"expert-model-parallel-size", KEY_COUNT, KNOB_EXPERT, NULL, 0, megatron_experts},
	{"expert-tensor-parallel-size", KEY_READ, KNOB_EXPERT_TENSOR, NULL, 0,
		megatron_expert_tensor},
	{"moe-expert-capacity-factor", KEY_READ, KNOB_CAPACITY_FACTOR, NULL, 0, megatron_capacity},
	{"moe-pad-expert-input-to-capacity", KEY_READ, KNOB_CAPACITY_FACTOR, NULL, 0,
		megatron_pads},
	{"moe-token-dispatcher-type", KEY_READ, KNOB_EXPERT_DISPATCH, NULL, 0, megatron_dispatcher},
	{"moe-enable-deepep", KEY_READ, KNOB_EXPERT_DISPATCH, NULL, 0, megatron_deepep},
	{"moe-flex-dispatcher-backend", KEY_READ, KNOB_EXPERT_DISPATCH, NULL, ONLY_READ},
	{"overlap-moe-expert-parallel-comm", KEY_READ, KNOB_EXPERT_OVERLAP, NULL, 0,
		megatron_rows_beside},
	{"moe-grouped-gemm", KEY_READ, NO_KNOB, NULL, 0, megatron_grouped},
	{"moe-permute-fusion", KEY_READ, KNOB_UNFUSED_PERMUTE, NULL, 0, megatron_permute},
	{"moe-router-dtype", KEY_PLAIN, NO_KNOB, NULL, 0, megatron_router_dtype},
	{"use-distributed-optimizer", KEY_READ, KNOB_STRATEGY, NULL, 0, distributed},
	{"num-distributed-optimizer-instances", KEY_READ, KNOB_SHARD_GROUP, NULL, 0, instances},
	{"overlap-grad-reduce", KEY_READ, KNOB_OVERLAP, NULL, 0, overlaps_reductions},
	{"overlap-param-gather", KEY_READ, KNOB_OVERLAP, NULL, 0, overlaps_gathers},
	{"grad-reduce-in-bf16", KEY_READ, KNOB_REDUCE_DTYPE, NULL, 0, low_reduction},
	{"accumulate-allreduce-grads-in-fp32", KEY_READ, KNOB_REDUCE_DTYPE, NULL, 0,
		high_reduction},
	{"attention-dropout", KEY_READ, KNOB_DROPOUT, NULL, 0, without_dropout},
	{"hidden-dropout", KEY_READ, KNOB_DROPOUT, NULL, 0, without_dropout},
	{"cross-entropy-loss-fusion", KEY_READ, KNOB_LOSS, NULL, 0, fuses_loss},
	{"cross-entropy-fusion-impl", KEY_READ, KNOB_LOSS, NULL, 0, loss_kernel},
	{NULL},
};

static const char core_unpriced[] =
	"use-nccl-ub optimizer-cpu-offload "
	"fine-grained-activation-offloading "
	"cpu-offloading-num-layers tp-comm-overlap-cfg "
	"no-create-attention-mask-in-dataloader use-precision-aware-optimizer "
	"overlap-param-gather-with-optimizer-step defer-embedding-wgrad-compute ddp-bucket-size "
	"pad-buckets-for-high-nccl-busbw moe-shared-expert-overlap "
	"delay-wgrad-compute moe-latent-size";

/* --- import -------------------------------------------------------------------------------- */

static void finish_core_dtypes(struct importing *importing)
{
	bool bf16 = import_find(importing, "bf16") != NULL;
	bool fp16 = import_find(importing, "fp16") != NULL;
	const char *low = bf16 ? "grad-reduce-in-bf16" : "accumulate-allreduce-grads-in-fp32";
	bool named = import_find(importing, low) != NULL;

	import_set(importing, KNOB_PARAM_DTYPE,
		bf16   ? "bf16"
		: fp16 ? "fp16"
		       : "fp32",
		bf16   ? "bf16"
		: fp16 ? "fp16"
		       : NULL);
	import_set(importing, KNOB_REDUCE_DTYPE,
		bf16 && named    ? "bf16"
		: fp16 && !named ? "fp16"
				 : "fp32",
		named ? low : NULL);
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
}

/* Ranks in a group, where their number is known; else it is settled with it. */
static bool finish_instances(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	static const int axes[] = {KNOB_TENSOR, KNOB_PIPELINE, KNOB_CONTEXT};
	const char *gpus = import_value(importing, KEY_GPUS), *path = names->instances;
	int64_t n, ranks, beside = 1, size;

	if (!import_count(importing, path, &n, 1, error))
		return false;
	if (n == 1)
		return true;
	for (int i = 0; i < COUNT_OF(axes); i++) {
		const char *axis = import_value(importing, axes[i]);
		if (axis != NULL && parse_int(axis, &size) && size > 0 &&
			!checked_mul(beside, size, &beside))
			return import_fail(importing, path, error, "too many ranks");
	}
	if (gpus == NULL || !parse_int(gpus, &ranks))
		return checked_mul(n, beside, &importing->imported->replicas) ||
		       import_fail(importing, path, error, "too many ranks");
	if (ranks / beside % n != 0)
		return import_fail(importing, path, error,
			"%lld data-parallel ranks do not make %lld groups",
			(long long)(ranks / beside), (long long)n);
	import_set_count(importing, KNOB_SHARD_GROUP, ranks / beside / n, path);
	return true;
}

static void finish_overlap(struct importing *importing)
{
	bool reductions = import_find(importing, "overlap-grad-reduce") != NULL;
	bool gathers = import_find(importing, "overlap-param-gather") != NULL ||
		       import_find(importing, "use-distributed-optimizer") == NULL;

	import_set(importing, KNOB_OVERLAP,
		!reductions ? "none"
		: gathers   ? "all"
			    : "gradients",
		reductions ? "overlap-grad-reduce" : NULL);
}

/* Either is enough for its masks. */
static bool finish_dropout(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	const char *const paths[] = {names->attention_dropout, names->hidden_dropout};
	bool on = false;

	for (int i = 0; i < COUNT_OF(paths); i++) {
		const char *text = import_text(importing, paths[i], NULL);
		double rate = names->dropout;
		if (text != NULL && (!parse_number(text, &rate) || rate < 0 || rate >= 1))
			return import_fail(importing, paths[i], error,
				"expected a probability, got \"%.40s\"", text);
		on = on || rate > 0;
	}
	import_set(importing, KNOB_DROPOUT, on ? "on" : "off",
		import_find(importing, paths[1]) != NULL ? paths[1] : NULL);
	return true;
}

/* Hierarchical: all-to-all inside of groups, a ring over them. */
static bool finish_context(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	const char *path = names->context_method;
	const char *text = import_text(importing, path, "p2p");
	int64_t ranks;
	int i = 0;

	if (!import_count(importing, names->context, &ranks, 1, error))
		return false;
	if (strcmp(text, "a2a+p2p") == 0) {
		import_note(importing, path, "a2a+p2p: predicted as p2p");
		text = "p2p";
	}
	while (i < COUNT_OF(context_methods) && strcmp(text, context_methods[i]) != 0)
		i++;
	if (i == COUNT_OF(context_methods))
		return import_fail(importing, path, error,
			"expected one of p2p, all_gather, a2a and a2a+p2p for all blocks, got "
			"\"%.40s\"",
			text);
	if (ranks > 1)
		import_set(importing, KNOB_CONTEXT_METHOD, knob_name(KNOB_CONTEXT_METHOD, i),
			import_find(importing, path) != NULL ? path : NULL);
	return true;
}

static void finish_loss(struct importing *importing)
{
	bool fused = import_find(importing, "cross-entropy-loss-fusion") != NULL;
	bool te = strcmp(import_text(importing, "cross-entropy-fusion-impl", "native"), "te") == 0;

	import_set(importing, KNOB_LOSS,
		!fused ? "parallel"
		: te   ? "fused"
		       : "upcast",
		fused ? "cross-entropy-loss-fusion" : NULL);
}

bool megatron_finish_core(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	return finish_context(importing, names, error) && finish_dropout(importing, names, error) &&
	       megatron_finish_experts(importing, names, error) &&
	       megatron_finish_stages(importing, names, error) &&
	       megatron_finish_recomputation(importing, names, error) &&
	       megatron_finish_graphs(importing, names, error) &&
	       finish_instances(importing, names, error);
}

static const struct megatron_names option_names = {
	.pipeline = "pipeline-model-parallel-size",
	.chunks = "num-virtual-stages-per-pipeline-rank",
	.chunk_blocks = "num-layers-per-virtual-pipeline-stage",
	.first = "decoder-first-pipeline-num-layers",
	.last = "decoder-last-pipeline-num-layers",
	.layout = "pipeline-model-parallel-layout",
	.counts_embedding = "account-for-embedding-in-pipeline-split",
	.counts_loss = "account-for-loss-in-pipeline-split",
	.instances = "num-distributed-optimizer-instances",
	.context = "context-parallel-size",
	.context_method = "cp-comm-type",
	.attention_dropout = "attention-dropout",
	.hidden_dropout = "hidden-dropout",
	.dropout = 0.1,
	.granularity = "recompute-granularity",
	.method = "recompute-method",
	.pieces = "recompute-num-layers",
	.modules = "recompute-modules",
	.next = "mtp-num-layers",
	.experts_again = "moe-layer-recompute",
	.graphs = "cuda-graph-impl",
	.graph_modules = "cuda-graph-modules",
	.graph_scope = "cuda-graph-scope",
	.local_graphs = "enable-cuda-graph",
	.external_graphs = "external-cuda-graph",
	.tensor = "tensor-model-parallel-size",
	.experts = "num-experts",
	.expert = "expert-model-parallel-size",
	.expert_tensor = "expert-tensor-parallel-size",
	.capacity = "moe-expert-capacity-factor",
	.pads = "moe-pad-expert-input-to-capacity",
	.dispatcher = "moe-token-dispatcher-type",
	.backend = "moe-flex-dispatcher-backend",
	.grouped = "moe-grouped-gemm",
	.permute = "moe-permute-fusion",
	.rows_beside = "overlap-moe-expert-parallel-comm",
};

static bool finish_core(struct importing *importing, struct error *error)
{
	int64_t tensor;

	if (!megatron_finish(importing, error) ||
		!import_count(importing, "tensor-model-parallel-size", &tensor, 1, error) ||
		!megatron_finish_core(importing, &option_names, error))
		return false;
	bool shards = import_find(importing, "use-distributed-optimizer") != NULL;
	import_set(importing, KNOB_RUNTIME, "megatron", NULL);
	import_set(importing, KNOB_STRATEGY, shards ? "ZERO_1" : "NO_SHARD",
		shards ? "use-distributed-optimizer" : NULL);
	if (tensor > 1)
		import_set(importing, KNOB_SEQUENCE_PARALLEL,
			import_find(importing, "sequence-parallel") != NULL ? "on" : "off",
			import_find(importing, "sequence-parallel") != NULL ? "sequence-parallel"
									    : NULL);
	if (tensor > 1 && import_find(importing, "tp-comm-overlap") != NULL)
		import_set(importing, KNOB_ASYNC_TENSOR, "on", "tp-comm-overlap");
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, "off", NULL);
	finish_overlap(importing);
	finish_loss(importing);
	finish_core_dtypes(importing);
	megatron_finish_fp8(importing);
	return true;
}

static int recognizes_core(const struct source *source)
{
	return source_has(source, "micro-batch-size") ? 10 : 0;
}

static const struct config_format core_format = {
	recognizes_core, core_keys, megatron_plain, core_unpriced, finish_core};

const struct export_target export_megatron = {
	.name = "megatron",
	.title = "Megatron-LM with its own DDP",
	.file = "megatron.args",
	.program = "Megatron-LM",
	.versions = "main",
	.syntax = SYNTAX_ARGUMENTS,
	.adapt = megatron_adapt_core,
	.wraps = "block",
	.clips = true,
	.has_own_ddp = true,
	.rules = core_rules,
	.launch = TORCHRUN "pretrain_gpt.py $(grep -v '^#' %f)",
	.write = write_core,
	.format = &core_format,
};
