/* Megatron-LM: options for pretrain_gpt.py, with Megatron-FSDP or with PyTorch's FSDP2.
 *
 * Options: Megatron-LM (megatron/training/arguments.py and its configuration classes); what they
 * demand of one another is asserted in validate_args there. CUDA_DEVICE_MAX_CONNECTIONS must not
 * be 1 for either. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define MEGATRON_COMMON                                                                            \
	{"wrap", SAYS_KEY, NULL, NULL},                                                            \
		{"prefetch", SAYS_ALWAYS, "*>pre", "the next layer is always gathered early"},     \
		{"forward_prefetch", SAYS_ALWAYS, "*>false",                                       \
			"there is no option for it; it gathers ahead by itself"},                  \
		{"limit_all_gathers", SAYS_ALWAYS, "*>false", "there is no rate limiter"},         \
		{"activation_checkpointing", SAYS_KEY, "none selective full *>full",               \
			"one granularity for all layers here"},                                    \
		ATTENTION_KEY,                                                                     \
		{"compile", SAYS_ALWAYS, "*>false", "Megatron-LM does not compile the model"},     \
		{"param_dtype", SAYS_KEY, NULL, NULL},                                             \
		{"cpu_offload", SAYS_ALWAYS, "*>none",                                             \
			"Megatron-LM's offload has conditions of its own"},                        \
		{"seq_len", SAYS_KEY, NULL, NULL}, {"micro_batch", SAYS_KEY, NULL, NULL},          \
		{"grad_accum", SAYS_KEY, NULL, NULL},                                              \
		{"sync_each_micro_batch", SAYS_ALWAYS, NULL, NULL},                                \
	{                                                                                          \
		"clip", SAYS_KEY, NULL, NULL                                                       \
	}

static const struct export_rule megatron_rules[] = {
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "optim_grads and optim_grads_params are the nearest"},
	{"shard_group", SAYS_KEY, NULL, NULL},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp *>pytorch-fsdp2",
		"Megatron-FSDP is predicted as FSDP2"},
	{"reshard_after_forward", SAYS_KEY, "true false *>true", "there are no group sizes"},
	MEGATRON_COMMON,
	{"master_dtype", SAYS_KEY, NULL, NULL},
	{"reduce_dtype", SAYS_KEY, NULL, NULL},
	{"optimizer", SAYS_KEY, "adamw-fused sgd *>adamw-fused", "Megatron-LM's Adam is fused"},
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static const struct export_rule torch_rules[] = {
	{"strategy", SAYS_KEY,
		"HYBRID_SHARD>FULL_SHARD HYBRID_SHARD_ZERO2>SHARD_GRAD_OP " ZERO_AS_FSDP,
		"--use-torch-fsdp2 shards over all ranks"},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp *>pytorch-fsdp2", "--use-torch-fsdp2 is FSDP2"},
	{"reshard_after_forward", SAYS_KEY, "true false *>true", "there are no group sizes"},
	MEGATRON_COMMON,
	{"master_dtype", SAYS_ALWAYS, "*>fp32", "the optimizer keeps fp32 parameters"},
	{"reduce_dtype", SAYS_KEY, NULL, NULL},
	{"optimizer", SAYS_KEY, "adamw-fused sgd *>adamw-fused", "Megatron-LM's Adam is fused"},
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

/* Its DDP reduces once a step, in fp32 or, when told so, in bf16; sharded gradients are reduced
 * after every micro-batch. */
static void adapt(struct exporting *exporting, struct plan *plan)
{
	bool sharded = plan->strategy != STRATEGY_NO_SHARD;
	bool low = plan->reduce_dtype == DTYPE_BF16 && plan->param_dtype == DTYPE_BF16;

	if (plan->grad_accum > 1)
		export_change(exporting, plan, "sync_each_micro_batch", sharded ? "true" : "false",
			sharded ? "sharded gradients are reduced after every micro-batch"
				: "DDP reduces after the last micro-batch");
	if (sharded)
		return;
	export_change(exporting, plan, "master_dtype", "fp32", "the optimizer keeps fp32");
	if (!low)
		export_change(exporting, plan, "reduce_dtype", "fp32", "DDP reduces in fp32");
}

static void adapt_torch(struct exporting *exporting, struct plan *plan)
{
	adapt(exporting, plan);
	if (plan->strategy != STRATEGY_NO_SHARD)
		export_change(exporting, plan, "reduce_dtype", dtype_name(plan->param_dtype),
			"--use-torch-fsdp2 reduces in the dtype of the parameters");
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

static void write_training(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	number(exporting, "seq-length", (double)plan->seq_len);
	number(exporting, "micro-batch-size", (double)plan->micro_batch);
	number(exporting, "global-batch-size", (double)plan->global_batch);
	number(exporting, "clip-grad", plan->clip);
	word(exporting, "optimizer", plan->optimizer == OPTIMIZER_SGD ? "sgd" : "adam");
	word(exporting, "attention-backend",
		plan->attention == ATTENTION_EAGER ? "unfused" : "flash");
	if (plan->param_dtype != DTYPE_FP32)
		flag(exporting, dtype_name(plan->param_dtype));
	if (strcmp(plan->activation_checkpointing, "selective") == 0) {
		word(exporting, "recompute-granularity", "selective");
	} else if (export_checkpoints(exporting)) {
		word(exporting, "recompute-granularity", "full");
		word(exporting, "recompute-method", "uniform");
		word(exporting, "recompute-num-layers", "1");
	}
	word(exporting, "tensor-model-parallel-size", "1");
	word(exporting, "pipeline-model-parallel-size", "1");
}

static void note_model(struct exporting *exporting, bool torch)
{
	const struct architecture *model = &exporting->model->architecture;

	if (model->positions == POSITIONS_ALIBI)
		export_add_note(
			exporting, "model", SAYS_BESIDE, "Megatron-LM has no ALiBi positions");
	if (torch && model->tied_head && export_is_sharded(exporting))
		export_add_note(exporting, "model", SAYS_BESIDE,
			"--use-torch-fsdp2 demands --untie-embeddings-and-output-weights; this "
			"model's are tied");
	if (torch && exporting->plan->param_dtype == DTYPE_FP16)
		export_add_note(
			exporting, "param_dtype", SAYS_BESIDE, "--use-torch-fsdp2 refuses fp16");
}

static void write_megatron(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	bool sharded = export_is_sharded(exporting);

	note_model(exporting, false);
	export_header(exporting);
	write_model(exporting);
	write_training(exporting);
	flag(exporting, "use-distributed-optimizer");
	flag(exporting, "overlap-grad-reduce");
	flag(exporting, "overlap-param-gather");
	if (!sharded && plan->reduce_dtype == DTYPE_BF16)
		flag(exporting, "grad-reduce-in-bf16");
	if (!sharded)
		return;
	flag(exporting, "use-megatron-fsdp");
	word(exporting, "data-parallel-sharding-strategy",
		strategy_reshards(plan->strategy) ? "optim_grads_params" : "optim_grads");
	if (export_is_hybrid(exporting)) {
		number(exporting, "num-distributed-optimizer-instances",
			(double)plan->mesh.replicate);
		word(exporting, "outer-dp-sharding-strategy", "no_shard");
	}
	word(exporting, "megatron-fsdp-main-params-dtype", dtype_name(plan->master_dtype));
	word(exporting, "megatron-fsdp-main-grads-dtype", "fp32");
	word(exporting, "megatron-fsdp-grad-comm-dtype", dtype_name(plan->reduce_dtype));
	flag(exporting, "no-gradient-accumulation-fusion");
	flag(exporting, "init-model-with-meta-device");
	word(exporting, "ckpt-format", "fsdp_dtensor");
}

static void write_torch(struct exporting *exporting)
{
	note_model(exporting, true);
	export_header(exporting);
	write_model(exporting);
	write_training(exporting);
	if (!export_is_sharded(exporting)) {
		if (exporting->plan->reduce_dtype == DTYPE_BF16)
			flag(exporting, "grad-reduce-in-bf16");
		return;
	}
	flag(exporting, "use-torch-fsdp2");
	if (!strategy_reshards(exporting->plan->strategy))
		flag(exporting, "torch-fsdp2-no-reshard-after-forward");
	flag(exporting, "no-gradient-accumulation-fusion");
	word(exporting, "ckpt-format", "torch_dist");
}

/* --- import -------------------------------------------------------------------------------- */

static const struct import_key keys[] = {
	{"seq-length", IMPORT_COUNT, "seq-len", NULL},
	{"micro-batch-size", IMPORT_COUNT, "micro-batch", NULL},
	{"global-batch-size", IMPORT_COUNT, "global-batch", NULL},
	{"clip-grad", IMPORT_NUMBER, "clip", NULL},
	{"optimizer", IMPORT_WORD, "optimizer", "adam>adamw-fused sgd"},
	{"attention-backend", IMPORT_WORD, "attention",
		"flash fused>flash auto>flash unfused>eager local>eager"},
	{"use-flash-attn", IMPORT_WORD, "attention", "true>flash"},
	{"recompute-granularity", IMPORT_WORD, "activation-checkpointing", "full selective"},
	{"recompute-activations", IMPORT_WORD, "activation-checkpointing", "true>selective"},
	{"recompute-*", IMPORT_PLAIN, NULL, NULL},
	{"use-megatron-fsdp", IMPORT_READ, NULL, NULL},
	{"use-torch-fsdp2", IMPORT_READ, NULL, NULL},
	{"data-parallel-sharding-strategy", IMPORT_READ, NULL, NULL},
	{"num-distributed-optimizer-instances", IMPORT_READ, NULL, NULL},
	{"torch-fsdp2-no-reshard-after-forward", IMPORT_READ, NULL, NULL},
	{"outer-dp-sharding-strategy", IMPORT_READ, NULL, NULL},
	{"enable-full-sharding-in-hsdp", IMPORT_UNPRICED, NULL, NULL},
	{"bf16", IMPORT_READ, NULL, NULL},
	{"fp16", IMPORT_READ, NULL, NULL},
	{"fp8-format", IMPORT_UNPRICED, NULL, NULL},
	{"fp4-format", IMPORT_UNPRICED, NULL, NULL},
	{"megatron-fsdp-main-params-dtype", IMPORT_WORD, "master-dtype", "fp32 bf16 fp16"},
	{"megatron-fsdp-grad-comm-dtype", IMPORT_READ, NULL, NULL},
	{"megatron-fsdp-version", IMPORT_PLAIN, NULL, NULL},
	{"grad-reduce-in-bf16", IMPORT_READ, NULL, NULL},
	{"tensor-model-parallel-size", IMPORT_ONE, NULL, NULL},
	{"pipeline-model-parallel-size", IMPORT_ONE, NULL, NULL},
	{"context-parallel-size", IMPORT_ONE, NULL, NULL},
	{"expert-model-parallel-size", IMPORT_ONE, NULL, NULL},
	{"use-nccl-ub", IMPORT_UNPRICED, NULL, NULL},
	{"fsdp-double-buffer", IMPORT_UNPRICED, NULL, NULL},
	{"suggested-communication-unit-size", IMPORT_UNPRICED, NULL, NULL},
	{"optimizer-cpu-offload", IMPORT_UNPRICED, NULL, NULL},
	{"nnodes", IMPORT_READ, NULL, NULL},
	{"nproc_per_node", IMPORT_READ, NULL, NULL},
	{"nproc-per-node", IMPORT_READ, NULL, NULL},
	{"*", IMPORT_PLAIN, NULL,
		NULL}, /* hundreds of options that are the model's and the data's */
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

static bool finish_ranks(struct importing *importing, struct error *error)
{
	const char *path = import_find(importing, "nproc_per_node") != NULL ? "nproc_per_node"
									    : "nproc-per-node";
	int64_t nodes, devices, ranks;

	if (!import_count(importing, "nnodes", &nodes, 1, error) ||
		!import_count(importing, path, &devices, 0, error))
		return false;
	if (devices > 0 && checked_mul(nodes, devices, &ranks))
		import_set_count(importing, "gpus", ranks, path);
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
		import_set(importing, "runtime", "pytorch-ddp", NULL);
		import_set(importing, "strategy", "NO_SHARD", NULL);
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
	import_set(importing, "param-dtype", dtype, bf16 ? "bf16" : fp16 ? "fp16" : NULL);
	import_set(importing, "reduce-dtype", reduce,
		import_find(importing, comm) != NULL ? comm : NULL);
	if (!import_was_set(importing, "master-dtype"))
		import_set(importing, "master-dtype", "fp32", NULL);
}

static bool finish(struct importing *importing, struct error *error)
{
	struct import_shape *shape = &importing->imported->shape;

	if (!finish_ranks(importing, error) || !finish_strategy(importing, error) ||
		!import_count(importing, "num-layers", &shape->layers, 0, error) ||
		!import_count(importing, "hidden-size", &shape->hidden, 0, error) ||
		!import_count(importing, "num-attention-heads", &shape->heads, 0, error) ||
		!import_count(importing, "num-query-groups", &shape->kv_heads, 0, error) ||
		!import_count(importing, "ffn-hidden-size", &shape->ffn, 0, error))
		return false;
	finish_dtypes(importing);
	if (!import_was_set(importing, "clip"))
		import_set(importing, "clip", "1", NULL);
	if (!import_was_set(importing, "optimizer"))
		import_set(importing, "optimizer", "adamw-fused", NULL);
	if (!import_was_set(importing, "activation-checkpointing"))
		import_set(importing, "activation-checkpointing", "none", NULL);
	import_set(importing, "wrap", "block", NULL);
	bool sharded = import_find(importing, "use-torch-fsdp2") != NULL ||
		       import_find(importing, "use-megatron-fsdp") != NULL;
	import_set(importing, "sync-each-micro-batch", sharded ? "on" : "off", NULL);
	return true;
}

static int recognizes_torch(const struct source *source)
{
	return source_has(source, "use-torch-fsdp2") ? 12 : 0;
}

static int recognizes_megatron(const struct source *source)
{
	return source_has(source, "use-megatron-fsdp") || source_has(source, "micro-batch-size")
		       ? 10
		       : 0;
}

static const struct import_format torch_import = {recognizes_torch, keys, finish};
static const struct import_format megatron_import = {recognizes_megatron, keys, finish};

const struct export_target export_megatron_fsdp = {
	.name = "megatron-fsdp",
	.title = "Megatron-LM with Megatron-FSDP",
	.file = "megatron-fsdp.args",
	.source = "Megatron-LM (d98e8a64, 2026-08-22)",
	.syntax = SYNTAX_ARGUMENTS,
	.adapt = adapt,
	.wraps = "block",
	.rules = megatron_rules,
	.launch = "torchrun --nnodes %n --nproc-per-node %g pretrain_gpt.py $(grep -v '^#' %f)",
	.write = write_megatron,
	.import = &megatron_import,
};

const struct export_target export_megatron_torch_fsdp2 = {
	.name = "megatron-torch-fsdp2",
	.title = "Megatron-LM with PyTorch's FSDP2",
	.file = "megatron-torch-fsdp2.args",
	.source = "Megatron-LM (d98e8a64, 2026-08-22)",
	.syntax = SYNTAX_ARGUMENTS,
	.adapt = adapt_torch,
	.wraps = "block",
	.wraps_apart = true,
	.rules = torch_rules,
	.launch = "torchrun --nnodes %n --nproc-per-node %g pretrain_gpt.py $(grep -v '^#' %f)",
	.write = write_torch,
	.import = &torch_import,
};
