/* Megatron-LM: options for pretrain_gpt.py, with Megatron-FSDP or with PyTorch's FSDP2; and what
 * megatron_core.c has with them.
 *
 * Options: Megatron-LM (megatron/training/arguments.py and its configuration classes); what they
 * demand of one another is asserted in validate_args there. CUDA_DEVICE_MAX_CONNECTIONS must not
 * be 1 for these two. */
#include <string.h>

#include "frameworks/targets/megatron.h"

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

static void note_model(struct exporting *exporting, bool torch)
{
	const struct architecture *model = &exporting->model->architecture;

	if (model->positions == POSITIONS_ALIBI)
		export_note_elsewhere(exporting, "model", "Megatron-LM has no ALiBi positions");
	if (torch && model->tied_head && export_is_sharded(exporting))
		export_note_elsewhere(exporting, "model",
			"--use-torch-fsdp2 demands --untie-embeddings-and-output-weights; "
			"this model's are tied");
	if (torch && exporting->plan->param_dtype == DTYPE_FP16)
		export_note_elsewhere(exporting, "param_dtype", "--use-torch-fsdp2 refuses fp16");
}

void megatron_write(struct exporting *exporting, bool torch)
{
	struct settings settings;

	note_model(exporting, torch);
	export_settings(exporting, &settings);
	export_header(exporting);
	megatron_write_model(exporting);
	export_add_settings(exporting, &settings, "");
}

static void write_megatron(struct exporting *exporting)
{
	megatron_write(exporting, false);
}

static void write_torch(struct exporting *exporting)
{
	megatron_write(exporting, true);
}

/* --- keys ----------------------------------------------------------------------------------- */

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

#define DATA_PARALLEL_KEYS                                                                         \
	TRAINING_KEYS, {"tensor-model-parallel-size", KEY_ONE, NO_KNOB, "1"},                      \
		{"pipeline-model-parallel-size", KEY_ONE, NO_KNOB, "1"},                           \
		{"context-parallel-size", KEY_ONE, NO_KNOB},                                       \
		ROW("expert-model-parallel-size", KEY_ONE, NO_KNOB)
#define MASTER_DTYPES "fp32 bf16 fp16"

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
/* Hundreds of options are the model's and the data's. */
const char megatron_plain[] = "*";

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
bool megatron_finish(struct importing *importing, struct error *error)
{
	struct import_shape *shape = &importing->imported->shape;

	if (!finish_ranks(importing, error) ||
		!import_count(importing, "num-layers", &shape->layers, 0, error) ||
		!import_count(importing, "hidden-size", &shape->hidden, 0, error) ||
		!import_count(importing, "num-attention-heads", &shape->heads, 0, error) ||
		!import_count(importing, "num-query-groups", &shape->kv_heads, 0, error) ||
		!import_count(importing, "ffn-hidden-size", &shape->ffn, 0, error))
		return false;
	if (!megatron_read_model(importing, error))
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

	if (!megatron_finish(importing, error) || !finish_strategy(importing, error))
		return false;
	finish_dtypes(importing);
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, sharded ? "on" : "off", NULL);
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

static const struct config_format torch_format = {
	recognizes_torch, torch_keys, megatron_plain, unpriced, finish};
static const struct config_format megatron_format = {
	recognizes_megatron, megatron_keys, megatron_plain, unpriced, finish};

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
	.title = "Megatron-LM with PyTorch FSDP2",
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
