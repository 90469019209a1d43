/* Megatron-LM: options for pretrain_gpt.py, with its own DDP and distributed optimizer, with
 * Megatron-FSDP or with PyTorch's FSDP2.
 *
 * Options: Megatron-LM (megatron/training/arguments.py and its configuration classes); what they
 * demand of one another is asserted in validate_args there. CUDA_DEVICE_MAX_CONNECTIONS must not
 * be 1 for the last two. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define MEGATRON_COMMON                                                                            \
	{KNOB_PREFETCH, FIXED, "*>pre", "the next layer is always gathered early"},                \
		{KNOB_FORWARD_PREFETCH, FIXED, "*>false",                                          \
			"there is no option for it; it gathers ahead by itself"},                  \
		{KNOB_LIMIT_ALL_GATHERS, FIXED, "*>false", "there is no rate limiter"},            \
		{KNOB_ACTIVATION_CHECKPOINTING, IN_FILE, "none selective full *>full",             \
			"one granularity for all layers here"},                                    \
		ATTENTION_FLASH,                                                                   \
		{KNOB_COMPILE, FIXED, "*>false", "Megatron-LM does not compile the model"},        \
		{KNOB_CPU_OFFLOAD, FIXED, "*>none",                                                \
			"Megatron-LM's offload has conditions of its own"},                        \
		{KNOB_WRAP, IN_FILE}, {KNOB_GRAD_ACCUM, IN_FILE},                                  \
		ROW(KNOB_SYNC_EACH_MICRO_BATCH, FIXED)
#define MEGATRON_ADAM                                                                              \
	ROW(KNOB_OPTIMIZER, IN_FILE, "adamw-fused sgd *>adamw-fused", "Megatron-LM's Adam is fused")
#define MEGATRON_RESHARD                                                                           \
	ROW(KNOB_RESHARD_AFTER_FORWARD, IN_FILE, "true false *>true", "there are no group sizes")

static const struct export_rule megatron_rules[] = {
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP,
		"optim_grads and optim_grads_params are the nearest"},
	{KNOB_RUNTIME, FIXED, "pytorch-ddp *>pytorch-fsdp2", "Megatron-FSDP is predicted as FSDP2"},
	MEGATRON_RESHARD,
	MEGATRON_COMMON,
	MEGATRON_ADAM,
	OUTSIDE_OF_FILES,
};

static const struct export_rule torch_rules[] = {
	{KNOB_STRATEGY, IN_FILE, GROUPS_AS_FLAT, "--use-torch-fsdp2 shards over all ranks"},
	{KNOB_RUNTIME, FIXED, "pytorch-ddp *>pytorch-fsdp2", "--use-torch-fsdp2 is FSDP2"},
	MEGATRON_RESHARD,
	MEGATRON_COMMON,
	{KNOB_MASTER_DTYPE, FIXED, "*>fp32", "the optimizer keeps fp32 parameters"},
	MEGATRON_ADAM,
	OUTSIDE_OF_FILES,
};

static const struct export_rule core_rules[] = {
	{KNOB_RUNTIME, FIXED},
	{KNOB_RESHARD_AFTER_FORWARD, FIXED},
	{KNOB_LOSS, IN_FILE, "parallel upcast fused *>parallel",
		"the loss of models whose vocabulary is cut over tensor ranks"},
	{KNOB_LAYERS_PER_STAGE, ELSEWHERE, NULL,
		"--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers, where "
		"only these stages differ"},
	{KNOB_PIPELINE_SCHEDULE, IN_FILE, "1f1b interleaved *>1f1b",
		"several stages a rank are interleaved there"},
	{KNOB_ACTIVATION_OFFLOAD, FIXED, "*>none", "saved tensors stay on the GPU"},
	MEGATRON_COMMON,
	{KNOB_MASTER_DTYPE, FIXED, "*>fp32", "the optimizer keeps fp32 parameters"},
	MEGATRON_ADAM,
	OUTSIDE_BUT_LOSS,
};

/* Its DDP reduces once a step, in fp32 or, when told so, in bf16; sharded gradients are reduced
 * after every micro-batch. */
static void adapt(struct exporting *exporting, struct plan *plan)
{
	bool sharded = plan->strategy != STRATEGY_NO_SHARD;
	bool low = plan->reduce_dtype == DTYPE_BF16 && plan->param_dtype == DTYPE_BF16;

	if (plan->grad_accum > 1)
		export_change(exporting, plan, KNOB_SYNC_EACH_MICRO_BATCH,
			sharded ? "true" : "false",
			sharded ? "sharded gradients are reduced after every micro-batch"
				: "DDP reduces after the last micro-batch");
	if (sharded)
		return;
	export_change(exporting, plan, KNOB_MASTER_DTYPE, "fp32", "the optimizer keeps fp32");
	if (!low)
		export_change(exporting, plan, KNOB_REDUCE_DTYPE, "fp32", "DDP reduces in fp32");
}

static void adapt_torch(struct exporting *exporting, struct plan *plan)
{
	adapt(exporting, plan);
	if (plan->strategy != STRATEGY_NO_SHARD)
		export_change(exporting, plan, KNOB_REDUCE_DTYPE, dtype_name(plan->param_dtype),
			"--use-torch-fsdp2 reduces in the dtype of the parameters");
}

static void adapt_core(struct exporting *exporting, struct plan *plan)
{
	bool low = plan->reduce_dtype == plan->param_dtype;

	if (plan->strategy != STRATEGY_NO_SHARD)
		export_change(exporting, plan, KNOB_STRATEGY, "ZERO_1",
			"the distributed optimizer shards optimizer state alone");
	export_change(exporting, plan, KNOB_RUNTIME, "megatron", "this is Megatron-LM");
	if (plan->grad_accum > 1)
		export_change(exporting, plan, KNOB_SYNC_EACH_MICRO_BATCH, "false",
			"gradients are reduced in the last micro-batch");
	if (!low)
		export_change(exporting, plan, KNOB_REDUCE_DTYPE, "fp32",
			"gradients accumulate in fp32 or in the dtype of the parameters");
}

static void flag(struct exporting *exporting, const char *name)
{
	text_printf(exporting->text, "--%s\n", name);
}

static void word(struct exporting *exporting, const char *name, const char *value)
{
	text_printf(exporting->text, "--%s %s\n", name, value);
}

static void number(struct exporting *exporting, const char *name, double value)
{
	text_printf(exporting->text, "--%s ", name);
	text_number(exporting->text, value);
	text_add_char(exporting->text, '\n');
}

static void write_model(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;

	number(exporting, "num-layers", (double)model->layers);
	number(exporting, "hidden-size", (double)model->hidden);
	number(exporting, "ffn-hidden-size", (double)model->ffn);
	number(exporting, "num-attention-heads", (double)model->heads);
	number(exporting, "kv-channels", (double)model->head_dim);
	if (model->kv_heads != model->heads) {
		flag(exporting, "group-query-attention");
		number(exporting, "num-query-groups", (double)model->kv_heads);
	}
	number(exporting, "max-position-embeddings", (double)model->context);
	number(exporting, "vocab-size", (double)model->vocab);
	if (model->positions == POSITIONS_ROPE) {
		word(exporting, "position-embedding-type", "rope");
		number(exporting, "rotary-base", model->rope_theta);
	} else if (model->positions == POSITIONS_LEARNED) {
		word(exporting, "position-embedding-type", "learned_absolute");
	}
	word(exporting, "normalization", model->norm == NORM_RMSNORM ? "RMSNorm" : "LayerNorm");
	if (model->mlp == MLP_SWIGLU)
		flag(exporting, "swiglu");
	if (!model->mlp_bias && !model->output_bias)
		flag(exporting, "disable-bias-linear");
	if (model->qk_norm)
		flag(exporting, "qk-layernorm");
	if (!model->tied_head)
		flag(exporting, "untie-embeddings-and-output-weights");
}

static void note_model(struct exporting *exporting, bool torch)
{
	const struct architecture *model = &exporting->model->architecture;

	if (model->positions == POSITIONS_ALIBI)
		export_note_elsewhere(exporting, "model", "Megatron-LM has no ALiBi positions");
	if (torch && model->tied_head && export_is_sharded(exporting))
		export_note_elsewhere(exporting, "model",
			"--use-torch-fsdp2 demands --untie-embeddings-and-output-weights; this "
			"model's are tied");
	if (torch && exporting->plan->param_dtype == DTYPE_FP16)
		export_note_elsewhere(exporting, "param_dtype", "--use-torch-fsdp2 refuses fp16");
}

static void write_file(struct exporting *exporting, bool torch)
{
	struct settings settings;

	note_model(exporting, torch);
	export_settings(exporting, &settings);
	export_header(exporting);
	write_model(exporting);
	export_add_settings(exporting, &settings, "");
}

static void write_megatron(struct exporting *exporting)
{
	write_file(exporting, false);
}

static void write_core(struct exporting *exporting)
{
	write_file(exporting, false);
}

static void write_torch(struct exporting *exporting)
{
	write_file(exporting, true);
}

/* --- keys ----------------------------------------------------------------------------------- */

static const char *granularity(struct exporting *exporting)
{
	const char *value =
		export_knob(exporting->plan, KNOB_ACTIVATION_CHECKPOINTING, exporting->arena);

	return strcmp(value, "none") == 0 ? NULL : value;
}

static const char *of_full(struct exporting *exporting, const char *text)
{
	const char *value = granularity(exporting);

	return value != NULL && strcmp(value, "selective") != 0 ? text : NULL;
}

static const char *recompute_method(struct exporting *exporting)
{
	return of_full(exporting, "uniform");
}

static const char *recompute_layers(struct exporting *exporting)
{
	return of_full(exporting, "1");
}

static const char *reduces_in_bf16(struct exporting *exporting)
{
	return exporting->plan->reduce_dtype == DTYPE_BF16 ? "true" : NULL;
}

static const char *sharding(struct exporting *exporting)
{
	return strategy_reshards(exporting->plan->strategy) ? "optim_grads_params" : "optim_grads";
}

static const char *keeps_parameters(struct exporting *exporting)
{
	return strategy_reshards(exporting->plan->strategy) ? NULL : "true";
}

#define TRAINING_KEYS                                                                              \
	{"seq-length", KEY_COUNT, KNOB_SEQ_LEN},                                                   \
		{"micro-batch-size", KEY_COUNT, KNOB_MICRO_BATCH},                                 \
		{"global-batch-size", KEY_COUNT, KNOB_GLOBAL_BATCH},                               \
		{"clip-grad", KEY_NUMBER, KNOB_CLIP},                                              \
		{"optimizer", KEY_WORD, KNOB_OPTIMIZER, "adam>adamw-fused sgd"},                   \
		{"attention-backend", KEY_WORD, KNOB_ATTENTION,                                    \
			"flash fused>flash auto>flash unfused>eager local>eager"},                 \
		{"use-flash-attn", KEY_WORD, KNOB_ATTENTION, "true>flash", ONLY_READ},             \
		{"bf16", KEY_READ, KNOB_PARAM_DTYPE, "true>bf16", IF_BF16},                        \
		{"fp16", KEY_READ, KNOB_PARAM_DTYPE, "true>fp16", IF_FP16},                        \
		{"recompute-granularity", KEY_WORD, KNOB_ACTIVATION_CHECKPOINTING,                 \
			"full selective", 0, granularity},                                         \
		{"recompute-activations", KEY_WORD, KNOB_ACTIVATION_CHECKPOINTING,                 \
			"true>selective", ONLY_READ},                                              \
		{"recompute-method", KEY_PLAIN, NO_KNOB, NULL, 0, recompute_method},               \
		{"recompute-num-layers", KEY_PLAIN, NO_KNOB, NULL, 0, recompute_layers},           \
		ROW("expert-model-parallel-size", KEY_ONE, NO_KNOB)
#define DATA_PARALLEL_KEYS                                                                         \
	TRAINING_KEYS, {"tensor-model-parallel-size", KEY_ONE, NO_KNOB, "1"},                      \
		{"pipeline-model-parallel-size", KEY_ONE, NO_KNOB, "1"},                           \
		ROW("context-parallel-size", KEY_ONE, NO_KNOB)
#define MASTER_DTYPES "fp32 bf16 fp16"

/* --- of the runtime megatron --- */

static const char *if_true(bool is_so)
{
	return is_so ? "true" : NULL;
}

static const char *distributed(struct exporting *exporting)
{
	return if_true(exporting->plan->strategy == STRATEGY_ZERO_1);
}

static const char *instances(struct exporting *exporting)
{
	bool several =
		exporting->plan->strategy == STRATEGY_ZERO_1 && exporting->plan->mesh.replicate > 1;

	return several ? value_replicas(exporting) : NULL;
}

static const char *overlaps_reductions(struct exporting *exporting)
{
	return if_true(exporting->plan->overlap != OVERLAP_NONE);
}

/* Without a distributed optimizer nothing is gathered. */
static const char *overlaps_gathers(struct exporting *exporting)
{
	return if_true(exporting->plan->overlap == OVERLAP_ALL &&
		       exporting->plan->strategy == STRATEGY_ZERO_1);
}

static const char *cuts_sequence(struct exporting *exporting)
{
	return if_true(exporting->plan->sequence_parallel);
}

static const char *virtual_stages(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->pipeline_schedule == PIPELINE_INTERLEAVED
		       ? arena_printf(exporting->arena, "%lld",
				 (long long)max_i64(plan->virtual_stages, 2))
		       : NULL;
}

/* The framework's default is 0.1. */
static const char *without_dropout(struct exporting *exporting)
{
	return exporting->plan->dropout ? NULL : "0.0";
}

static const char *fuses_loss(struct exporting *exporting)
{
	return if_true(exporting->plan->loss != LOSS_PARALLEL);
}

static const char *loss_kernel(struct exporting *exporting)
{
	return exporting->plan->loss == LOSS_PARALLEL ? NULL
	       : exporting->plan->loss == LOSS_FUSED  ? "te"
						      : "native";
}

static const char *low_reduction(struct exporting *exporting)
{
	return if_true(exporting->plan->reduce_dtype == DTYPE_BF16 &&
		       exporting->plan->param_dtype == DTYPE_BF16);
}

static const char *high_reduction(struct exporting *exporting)
{
	return if_true(exporting->plan->reduce_dtype == DTYPE_FP32 &&
		       exporting->plan->param_dtype == DTYPE_FP16);
}

static const struct config_key core_keys[] = {
	TRAINING_KEYS,
	{"tensor-model-parallel-size", KEY_COUNT, KNOB_TENSOR},
	{"sequence-parallel", KEY_READ, KNOB_SEQUENCE_PARALLEL, NULL, 0, cuts_sequence},
	{"pipeline-model-parallel-size", KEY_COUNT, KNOB_PIPELINE},
	{"num-virtual-stages-per-pipeline-rank", KEY_READ, KNOB_VIRTUAL_STAGES, NULL, 0,
		virtual_stages},
	{"num-layers-per-virtual-pipeline-stage", KEY_READ, KNOB_VIRTUAL_STAGES, NULL, ONLY_READ},
	{"decoder-first-pipeline-num-layers", KEY_READ, KNOB_LAYERS_PER_STAGE, NULL, ONLY_READ},
	{"decoder-last-pipeline-num-layers", KEY_READ, KNOB_LAYERS_PER_STAGE, NULL, ONLY_READ},
	{"context-parallel-size", KEY_COUNT, KNOB_CONTEXT},
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

static const struct config_key megatron_keys[] = {
	DATA_PARALLEL_KEYS,
	{"use-distributed-optimizer", KEY_PLAIN, NO_KNOB, "true"},
	{"overlap-grad-reduce", KEY_PLAIN, NO_KNOB, "true"},
	{"overlap-param-gather", KEY_PLAIN, NO_KNOB, "true"},
	{"grad-reduce-in-bf16", KEY_READ, KNOB_REDUCE_DTYPE, NULL, IF_REPLICATED, reduces_in_bf16},
	{"use-megatron-fsdp", KEY_READ, NO_KNOB, "true", IF_SHARDED},
	{"data-parallel-sharding-strategy", KEY_READ, KNOB_STRATEGY, NULL, IF_SHARDED, sharding},
	{"num-distributed-optimizer-instances", KEY_READ, KNOB_SHARD_GROUP, NULL, IF_HYBRID,
		value_replicas},
	{"outer-dp-sharding-strategy", KEY_READ, NO_KNOB, "no_shard", IF_HYBRID},
	{"megatron-fsdp-main-params-dtype", KEY_WORD, KNOB_MASTER_DTYPE, MASTER_DTYPES, IF_SHARDED},
	{"megatron-fsdp-main-grads-dtype", KEY_PLAIN, NO_KNOB, "fp32", IF_SHARDED},
	{"megatron-fsdp-grad-comm-dtype", KEY_READ, KNOB_REDUCE_DTYPE, NULL, IF_SHARDED},
	{"no-gradient-accumulation-fusion", KEY_PLAIN, NO_KNOB, "true", IF_SHARDED},
	{"init-model-with-meta-device", KEY_PLAIN, NO_KNOB, "true", IF_SHARDED},
	{"ckpt-format", KEY_PLAIN, NO_KNOB, "fsdp_dtensor", IF_SHARDED},
	{NULL},
};

static const struct config_key torch_keys[] = {
	DATA_PARALLEL_KEYS,
	{"grad-reduce-in-bf16", KEY_READ, KNOB_REDUCE_DTYPE, NULL, IF_REPLICATED, reduces_in_bf16},
	{"use-torch-fsdp2", KEY_READ, NO_KNOB, "true", IF_SHARDED},
	{"torch-fsdp2-no-reshard-after-forward", KEY_READ, NO_KNOB, NULL, IF_SHARDED,
		keeps_parameters},
	{"no-gradient-accumulation-fusion", KEY_PLAIN, NO_KNOB, "true", IF_SHARDED},
	{"ckpt-format", KEY_PLAIN, NO_KNOB, "torch_dist", IF_SHARDED},
	{"megatron-fsdp-main-params-dtype", KEY_WORD, KNOB_MASTER_DTYPE, MASTER_DTYPES, ONLY_READ},
	{NULL},
};
static const char unpriced[] =
	"enable-full-sharding-in-hsdp fp8-format fp4-format use-nccl-ub fsdp-double-buffer "
	"suggested-communication-unit-size optimizer-cpu-offload";
static const char core_unpriced[] =
	"fp8-format fp4-format use-nccl-ub optimizer-cpu-offload "
	"fine-grained-activation-offloading "
	"cpu-offloading-num-layers tp-comm-overlap account-for-embedding-in-pipeline-split "
	"account-for-loss-in-pipeline-split pipeline-model-parallel-layout recompute-modules "
	"no-create-attention-mask-in-dataloader use-precision-aware-optimizer "
	"overlap-param-gather-with-optimizer-step defer-embedding-wgrad-compute ddp-bucket-size "
	"pad-buckets-for-high-nccl-busbw multi-latent-attention";
/* Hundreds of options are the model's and the data's. */
static const char plain[] = "*";

/* --- import -------------------------------------------------------------------------------- */

static bool finish_ranks(struct importing *importing, struct error *error)
{
	const char *path = import_find(importing, "nproc_per_node") != NULL ? "nproc_per_node"
									    : "nproc-per-node";
	int64_t nodes, devices, ranks;

	if (!import_count(importing, "nnodes", &nodes, 1, error) ||
		!import_count(importing, path, &devices, 0, error))
		return false;
	if (devices > 0 && checked_mul(nodes, devices, &ranks))
		import_set_count(importing, KEY_GPUS, ranks, path);
	return true;
}

static bool finish_strategy(struct importing *importing, struct error *error)
{
	static const char path[] = "data-parallel-sharding-strategy";
	const char *text = import_text(importing, path, "no_shard");
	int64_t replicas;

	if (import_find(importing, "use-torch-fsdp2") != NULL) {
		import_fsdp2_strategy(importing,
			import_find(importing, "torch-fsdp2-no-reshard-after-forward") == NULL,
			false, "use-torch-fsdp2");
		return true;
	}
	if (!import_count(importing, "num-distributed-optimizer-instances", &replicas, 1, error))
		return false;
	if (import_find(importing, "use-megatron-fsdp") == NULL || strcmp(text, "no_shard") == 0) {
		if (import_find(importing, "use-distributed-optimizer") != NULL)
			import_note(importing, "use-distributed-optimizer",
				"shards optimizer state; predicted as plain DDP");
		import_set(importing, KNOB_RUNTIME, "pytorch-ddp", NULL);
		import_set(importing, KNOB_STRATEGY, "NO_SHARD", NULL);
		return true;
	}
	if (strcmp(text, "optim") == 0)
		import_note(importing, path, "optim: predicted as optim_grads");
	else if (strncmp(text, "optim_grads", 11) != 0)
		return import_fail(importing, path, error,
			"expected no_shard, optim, optim_grads or optim_grads_params, got "
			"\"%.40s\"",
			text);
	bool hybrid = replicas > 1;
	if (hybrid && !import_mesh(importing, replicas, 0, "num-distributed-optimizer-instances",
			      &hybrid, error))
		return false;
	import_fsdp2_strategy(importing, strcmp(text, "optim_grads_params") == 0, hybrid, path);
	import_note(importing, "use-megatron-fsdp", "Megatron-FSDP is predicted as FSDP2");
	return true;
}

static void finish_dtypes(struct importing *importing)
{
	static const char comm[] = "megatron-fsdp-grad-comm-dtype";
	bool bf16 = import_find(importing, "bf16") != NULL;
	bool fp16 = import_find(importing, "fp16") != NULL;
	const char *dtype = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
	bool torch = import_find(importing, "use-torch-fsdp2") != NULL;
	bool low = torch || import_find(importing, "grad-reduce-in-bf16") != NULL;
	const char *reduce = import_text(importing, comm, low ? dtype : "fp32");

	if (strcmp(reduce, "auto") == 0)
		reduce = "fp32";
	import_set(importing, KNOB_PARAM_DTYPE, dtype, bf16 ? "bf16" : fp16 ? "fp16" : NULL);
	import_set(importing, KNOB_REDUCE_DTYPE, reduce,
		import_find(importing, comm) != NULL ? comm : NULL);
	import_set_default(importing, KNOB_MASTER_DTYPE, "fp32");
}

/* What all three have. */
static bool finish_common(struct importing *importing, struct error *error)
{
	struct import_shape *shape = &importing->imported->shape;

	if (!finish_ranks(importing, error) ||
		!import_count(importing, "num-layers", &shape->layers, 0, error) ||
		!import_count(importing, "hidden-size", &shape->hidden, 0, error) ||
		!import_count(importing, "num-attention-heads", &shape->heads, 0, error) ||
		!import_count(importing, "num-query-groups", &shape->kv_heads, 0, error) ||
		!import_count(importing, "ffn-hidden-size", &shape->ffn, 0, error))
		return false;
	import_set_default(importing, KNOB_CLIP, "1");
	import_set_default(importing, KNOB_OPTIMIZER, "adamw-fused");
	import_set_default(importing, KNOB_ACTIVATION_CHECKPOINTING, "none");
	import_set(importing, KNOB_WRAP, "block", NULL);
	return true;
}

static bool finish(struct importing *importing, struct error *error)
{
	bool sharded = import_find(importing, "use-torch-fsdp2") != NULL ||
		       import_find(importing, "use-megatron-fsdp") != NULL;

	if (!finish_common(importing, error) || !finish_strategy(importing, error))
		return false;
	finish_dtypes(importing);
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, sharded ? "on" : "off", NULL);
	return true;
}

/* --- the runtime megatron --- */

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

/* Ranks in a group, where their number is known. */
static bool finish_instances(struct importing *importing, struct error *error)
{
	static const char path[] = "num-distributed-optimizer-instances";
	static const int axes[] = {KNOB_TENSOR, KNOB_PIPELINE, KNOB_CONTEXT};
	const char *gpus = import_value(importing, KEY_GPUS);
	int64_t n, ranks, size;

	if (!import_count(importing, path, &n, 1, error))
		return false;
	if (n == 1)
		return true;
	if (gpus == NULL || !parse_int(gpus, &ranks)) {
		import_note(importing, path, "add --gpus, or --shard-group");
		return true;
	}
	for (int i = 0; i < COUNT_OF(axes); i++) {
		const char *axis = import_value(importing, axes[i]);
		if (axis != NULL && parse_int(axis, &size) && size > 0)
			ranks /= size;
	}
	if (ranks % n != 0)
		return import_fail(importing, path, error,
			"%lld data-parallel ranks do not make %lld groups", (long long)ranks,
			(long long)n);
	import_set_count(importing, KNOB_SHARD_GROUP, ranks / n, path);
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

/* Either is enough for its masks; the framework's default is 0.1. */
static bool finish_dropout(struct importing *importing, struct error *error)
{
	static const char *const paths[] = {"attention-dropout", "hidden-dropout"};
	bool on = false;

	for (int i = 0; i < COUNT_OF(paths); i++) {
		const char *text = import_text(importing, paths[i], "0.1");
		double rate;
		if (!parse_number(text, &rate) || rate < 0 || rate >= 1)
			return import_fail(importing, paths[i], error,
				"expected a probability, got \"%.40s\"", text);
		on = on || rate > 0;
	}
	import_set(importing, KNOB_DROPOUT, on ? "on" : "off",
		import_find(importing, paths[1]) != NULL ? paths[1] : NULL);
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

/* Blocks of the first and of the last stage; the others share the rest. */
static bool finish_split(struct importing *importing, int64_t stages, struct error *error)
{
	static const char first_path[] = "decoder-first-pipeline-num-layers";
	static const char last_path[] = "decoder-last-pipeline-num-layers";
	int64_t layers = importing->imported->shape.layers, first, last;

	if (!import_count(importing, first_path, &first, 0, error) ||
		!import_count(importing, last_path, &last, 0, error))
		return false;
	const char *path = first > 0 ? first_path : last_path;
	int64_t others = stages - (first > 0) - (last > 0), rest = layers - first - last;
	if (first == 0 && last == 0)
		return true;
	if (layers == 0 || others < 1 || rest < others || rest % others != 0)
		return import_fail(importing, path, error,
			"expected blocks that leave as many to each other stage");
	const char *text = arena_printf(
		importing->arena, "%lldx%lld", (long long)others, (long long)(rest / others));
	if (first > 0)
		text = arena_printf(importing->arena, "1x%lld+%s", (long long)first, text);
	if (last > 0)
		text = arena_printf(importing->arena, "%s+1x%lld", text, (long long)last);
	import_set(importing, KNOB_LAYERS_PER_STAGE, text, path);
	return true;
}

static bool finish_pipeline(struct importing *importing, struct error *error)
{
	static const char a_rank[] = "num-virtual-stages-per-pipeline-rank";
	static const char a_stage[] = "num-layers-per-virtual-pipeline-stage";
	int64_t layers = importing->imported->shape.layers, ranks, chunks, blocks;

	if (!import_count(importing, "pipeline-model-parallel-size", &ranks, 1, error) ||
		!import_count(importing, a_rank, &chunks, 1, error) ||
		!import_count(importing, a_stage, &blocks, 0, error))
		return false;
	if (ranks == 1)
		return true;
	if (blocks > 0 && (layers == 0 || layers % (ranks * blocks) != 0))
		return import_fail(importing, a_stage, error,
			"expected a size that makes whole stages of %lld blocks on %lld ranks",
			(long long)layers, (long long)ranks);
	if (blocks > 0)
		chunks = layers / (ranks * blocks);
	import_set(importing, KNOB_PIPELINE_SCHEDULE, chunks > 1 ? "interleaved" : "1f1b", NULL);
	if (chunks > 1)
		import_set_count(
			importing, KNOB_VIRTUAL_STAGES, chunks, blocks > 0 ? a_stage : a_rank);
	return finish_split(importing, ranks * chunks, error);
}

/* The method "uniform" with one layer a piece is every block; else not what was asked for. */
static bool finish_recomputation(struct importing *importing, struct error *error)
{
	const char *method = import_text(importing, "recompute-method", "uniform");
	int64_t layers = importing->imported->shape.layers, pieces;

	if (!import_count(importing, "recompute-num-layers", &pieces, 1, error))
		return false;
	if (!import_is(importing, "recompute-granularity", "full"))
		return true;
	if (strcmp(method, "uniform") == 0 && pieces > 1)
		import_note(importing, "recompute-num-layers",
			"%lld: predicted as pieces of one layer", (long long)pieces);
	if (strcmp(method, "block") == 0 && pieces < layers &&
		import_value(importing, KNOB_PIPELINE) == NULL)
		import_set(importing, KNOB_ACTIVATION_CHECKPOINTING,
			arena_printf(importing->arena, "%lldxfull+%lldxnone", (long long)pieces,
				(long long)(layers - pieces)),
			"recompute-num-layers");
	else if (strcmp(method, "block") == 0 && pieces < layers)
		import_note(importing, "recompute-num-layers",
			"%lld of each stage: predicted as all of them", (long long)pieces);
	return true;
}

static bool finish_core(struct importing *importing, struct error *error)
{
	int64_t tensor;

	if (!finish_common(importing, error) ||
		!import_count(importing, "tensor-model-parallel-size", &tensor, 1, error) ||
		!finish_dropout(importing, error) || !finish_pipeline(importing, error) ||
		!finish_recomputation(importing, error) || !finish_instances(importing, error))
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
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, "off", NULL);
	finish_overlap(importing);
	finish_loss(importing);
	finish_core_dtypes(importing);
	return true;
}

static int recognizes_torch(const struct source *source)
{
	return source_has(source, "use-torch-fsdp2") ? 12 : 0;
}

static int recognizes_megatron(const struct source *source)
{
	return source_has(source, "use-megatron-fsdp") ? 12 : 0;
}

static int recognizes_core(const struct source *source)
{
	return source_has(source, "micro-batch-size") ? 10 : 0;
}

static const struct config_format torch_format = {
	recognizes_torch, torch_keys, plain, unpriced, finish};
static const struct config_format core_format = {
	recognizes_core, core_keys, plain, core_unpriced, finish_core};
static const struct config_format megatron_format = {
	recognizes_megatron, megatron_keys, plain, unpriced, finish};

const struct export_target export_megatron = {
	.name = "megatron",
	.title = "Megatron-LM with its own DDP or distributed optimizer",
	.file = "megatron.args",
	.program = "Megatron-LM",
	.versions = "main",
	.syntax = SYNTAX_ARGUMENTS,
	.adapt = adapt_core,
	.wraps = "block",
	.clips = true,
	.has_own_ddp = true,
	.rules = core_rules,
	.launch = TORCHRUN "pretrain_gpt.py $(grep -v '^#' %f)",
	.write = write_core,
	.format = &core_format,
};

const struct export_target export_megatron_fsdp = {
	.name = "megatron-fsdp",
	.title = "Megatron-LM with Megatron-FSDP",
	.file = "megatron-fsdp.args",
	.program = "Megatron-LM",
	.versions = "main",
	.syntax = SYNTAX_ARGUMENTS,
	.adapt = adapt,
	.wraps = "block",
	.clips = true,
	.rules = megatron_rules,
	.launch = TORCHRUN "pretrain_gpt.py $(grep -v '^#' %f)",
	.write = write_megatron,
	.format = &megatron_format,
};

const struct export_target export_megatron_torch_fsdp2 = {
	.name = "megatron-torch-fsdp2",
	.title = "Megatron-LM with PyTorch's FSDP2",
	.file = "megatron-torch-fsdp2.args",
	.program = "Megatron-LM",
	.versions = "main",
	.syntax = SYNTAX_ARGUMENTS,
	.adapt = adapt_torch,
	.wraps = "block",
	.wraps_apart = true,
	.clips = true,
	.rules = torch_rules,
	.launch = TORCHRUN "pretrain_gpt.py $(grep -v '^#' %f)",
	.write = write_torch,
	.format = &torch_format,
};
