/* Hugging Face Trainer: one JSON file of TrainingArguments, fsdp_config in it (version 2 or 1).
 *
 * HfArgumentParser.parse_json_file and TrainingArguments(**json.load(file)) take it. Keys:
 * Transformers 5 (src/transformers/training_args.py: _process_fsdp_args). JSON has no comments and
 * TrainingArguments refuses keys that it does not know: what cannot be said goes to stderr alone.
 */
#include <string.h>
#include <strings.h>

#include "frameworks/targets/shared.h"

#define TRAINER_COMMON                                                                             \
	{"wrap", SAYS_KEY, NULL, NULL},                                                            \
		{"activation_checkpointing", SAYS_KEY, "none full *>full",                         \
			"the Trainer checkpoints every block whole"},                              \
		{"compile", SAYS_KEY, NULL, NULL}, {"param_dtype", SAYS_KEY, NULL, NULL},          \
		MASTER_ALWAYS_FP32,                                                                \
		{"reduce_dtype", SAYS_ALWAYS, "*>@param_dtype",                                    \
			"bf16 and fp16 set the dtype of parameters and of the reduction alike"},   \
		{"cpu_offload", SAYS_KEY, "none parameters *>parameters",                          \
			"FSDP moves parameters, gradients and optimizer state together"},          \
		ATTENTION_BESIDE,                                                                  \
		{"optimizer", SAYS_KEY, "adamw-fused adamw-foreach sgd *>adamw-foreach",           \
			"adamw_torch is PyTorch's foreach implementation"},                        \
		{"seq_len", SAYS_BESIDE, NULL, "tokens in a sequence, of the tokenized data set"}, \
		{"micro_batch", SAYS_KEY, NULL, NULL}, {"grad_accum", SAYS_KEY, NULL, NULL},       \
		{"sync_each_micro_batch", SAYS_KEY, NULL, NULL},                                   \
	{                                                                                          \
		"clip", SAYS_KEY, NULL, NULL                                                       \
	}

static const struct export_rule fsdp2_rules[] = {
	{"strategy", SAYS_KEY,
		"HYBRID_SHARD>FULL_SHARD HYBRID_SHARD_ZERO2>SHARD_GRAD_OP " ZERO_AS_FSDP,
		"the file has no mesh; `accelerate launch --use_parallelism_config "
		"--parallelism_config_dp_replicate_size N --parallelism_config_dp_shard_size M` "
		"gives one"},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp *>pytorch-fsdp2", "this is the Trainer's FSDP2"},
	{"reshard_after_forward", SAYS_KEY, "true false *>true",
		"the Trainer takes true or false, no group size"},
	FSDP2_ALWAYS,
	TRAINER_COMMON,
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static const struct export_rule fsdp1_rules[] = {
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "FSDP1 is the nearest"},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp pytorch-fsdp1 *>pytorch-fsdp1",
		"this is the Trainer's FSDP1"},
	{"shard_group", SAYS_ALWAYS, "*>@node", "the Trainer's FSDP1 shards inside each node"},
	{"reshard_after_forward", SAYS_KEY, "true false *>true", "FSDP1 knows no group sizes"},
	{"prefetch", SAYS_KEY, NULL, NULL},
	{"forward_prefetch", SAYS_KEY, NULL, NULL},
	{"limit_all_gathers", SAYS_KEY, NULL, NULL},
	TRAINER_COMMON,
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static void write_wrap(struct exporting *exporting, struct writer *writer)
{
	int64_t least = export_min_parameters(exporting);
	bool blocks = export_wraps_blocks(exporting);
	const char *block = blocks ? export_class(exporting) : NULL;

	writer_string(writer, "auto_wrap_policy",
		least > 0 ? "SIZE_BASED_WRAP"
		: blocks  ? "TRANSFORMER_BASED_WRAP"
			  : "NO_WRAP");
	if (least > 0)
		writer_int(writer, "min_num_params", least);
	if (block == NULL)
		return;
	writer_begin_list(writer, "transformer_layer_cls_to_wrap");
	writer_string(writer, NULL, block);
	writer_end_list(writer);
}

static void lower(char *to, size_t size, const char *from)
{
	size_t i = 0;

	for (; from[i] != '\0' && i + 1 < size; i++)
		to[i] = (char)(from[i] >= 'A' && from[i] <= 'Z' ? from[i] - 'A' + 'a' : from[i]);
	to[i] = '\0';
}

static void write_fsdp1_keys(const struct plan *plan, struct writer *writer)
{
	static const char *const prefetches[] = {"NO_PREFETCH", "BACKWARD_PRE", "BACKWARD_POST"};
	char strategy[32];

	lower(strategy, sizeof(strategy), strategy_names[plan->strategy]);
	writer_string(writer, "reshard_after_forward", strategy);
	writer_string(writer, "backward_prefetch", prefetches[plan->prefetch]);
	writer_bool(writer, "forward_prefetch", plan->forward_prefetch);
	writer_bool(writer, "limit_all_gathers", plan->limit_all_gathers);
	writer_bool(writer, "use_orig_params", true);
	writer_bool(writer, "sync_module_states", true);
}

static void write_fsdp(struct exporting *exporting, bool fsdp2, struct writer *writer)
{
	const struct plan *plan = exporting->plan;

	writer_begin_map(writer, "fsdp_config");
	writer_int(writer, "version", fsdp2 ? 2 : 1);
	if (fsdp2)
		writer_bool(writer, "reshard_after_forward",
			strcmp(plan->reshard_after_forward, "false") != 0);
	else
		write_fsdp1_keys(plan, writer);
	write_wrap(exporting, writer);
	writer_bool(writer, "cpu_offload", plan_offloads_any(plan));
	writer_bool(writer, "cpu_ram_efficient_loading", true);
	writer_string(writer, "state_dict_type", "SHARDED_STATE_DICT");
	writer_bool(writer, "activation_checkpointing", export_checkpoints(exporting));
	writer_end_map(writer);
}

static void write_synchronisation(const struct plan *plan, struct writer *writer)
{
	if (plan->grad_accum == 1)
		return;
	writer_begin_map(writer, "accelerator_config");
	writer_begin_map(writer, "gradient_accumulation_kwargs");
	writer_bool(writer, "sync_each_batch", plan->sync_each_micro_batch);
	writer_end_map(writer);
	writer_end_map(writer);
}

static void write_file(struct exporting *exporting, bool fsdp2)
{
	static const char *const optimizers[] = {
		"adamw_torch_fused", "adamw_torch", "adamw_torch", "sgd"};
	const struct plan *plan = exporting->plan;
	struct writer writer;

	writer_init(&writer, exporting->text, WRITER_JSON);
	writer_string(&writer, "output_dir", "output");
	writer_int(&writer, "per_device_train_batch_size", plan->micro_batch);
	writer_int(&writer, "gradient_accumulation_steps", plan->grad_accum);
	writer_bool(&writer, "bf16", plan->param_dtype == DTYPE_BF16);
	writer_bool(&writer, "fp16", plan->param_dtype == DTYPE_FP16);
	writer_string(&writer, "optim", optimizers[plan->optimizer]);
	writer_number(&writer, "max_grad_norm", plan->clip);
	writer_bool(&writer, "torch_compile", plan->compile);
	write_synchronisation(plan, &writer);
	writer_bool(&writer, "fsdp", export_is_sharded(exporting));
	if (export_is_sharded(exporting))
		write_fsdp(exporting, fsdp2, &writer);
	else
		writer_bool(&writer, "gradient_checkpointing", export_checkpoints(exporting));
	writer_finish(&writer);
}

static void write_fsdp2_file(struct exporting *exporting)
{
	write_file(exporting, true);
}

static void write_fsdp1_file(struct exporting *exporting)
{
	write_file(exporting, false);
}

/* --- import: the whole arguments, or fsdp_config alone ------------------------------------ */

/* A key of fsdp_config, wherever the file has it. */
#define EITHER(name, kind, option, values)                                                         \
	{"fsdp_config." name, kind, option, values},                                               \
		{"fsdp_config.fsdp_" name, kind, option, values},                                  \
	{                                                                                          \
		name, kind, option, values                                                         \
	}

static const struct import_key keys[] = {
	{"per_device_train_batch_size", IMPORT_COUNT, "micro-batch", NULL},
	{"gradient_accumulation_steps", IMPORT_COUNT, "grad-accum", NULL},
	{"max_grad_norm", IMPORT_NUMBER, "clip", NULL},
	{"optim", IMPORT_WORD, "optimizer",
		"adamw_torch_fused>adamw-fused adamw_torch>adamw-foreach sgd"},
	{"torch_compile", IMPORT_SWITCH, "compile", NULL},
	{"accelerator_config.gradient_accumulation_kwargs.sync_each_batch", IMPORT_SWITCH,
		"sync-each-micro-batch", NULL},
	{"accelerator_config.*", IMPORT_PLAIN, NULL, NULL},
	{"bf16", IMPORT_READ, NULL, NULL},
	{"fp16", IMPORT_READ, NULL, NULL},
	{"fsdp", IMPORT_READ, NULL, NULL},
	{"gradient_checkpointing", IMPORT_READ, NULL, NULL},
	EITHER("version", IMPORT_READ, NULL, NULL),
	EITHER("reshard_after_forward", IMPORT_READ, NULL, NULL),
	EITHER("auto_wrap_policy", IMPORT_READ, NULL, NULL),
	EITHER("transformer_layer_cls_to_wrap*", IMPORT_READ, NULL, NULL),
	EITHER("min_num_params", IMPORT_READ, NULL, NULL),
	EITHER("backward_prefetch", IMPORT_READ, NULL, NULL),
	EITHER("forward_prefetch", IMPORT_READ, NULL, NULL),
	EITHER("limit_all_gathers", IMPORT_READ, NULL, NULL),
	EITHER("cpu_offload", IMPORT_READ, NULL, NULL),
	EITHER("activation_checkpointing", IMPORT_READ, NULL, NULL),
	EITHER("use_orig_params", IMPORT_PLAIN, NULL, NULL),
	EITHER("sync_module_states", IMPORT_PLAIN, NULL, NULL),
	EITHER("cpu_ram_efficient_loading", IMPORT_PLAIN, NULL, NULL),
	EITHER("state_dict_type", IMPORT_PLAIN, NULL, NULL),
	EITHER("xla*", IMPORT_UNPRICED, NULL, NULL),
	{"output_dir", IMPORT_PLAIN, NULL, NULL},
	{"tf32", IMPORT_PLAIN, NULL, NULL},
	{"learning_rate", IMPORT_PLAIN, NULL, NULL},
	{"weight_decay", IMPORT_PLAIN, NULL, NULL},
	{"adam_*", IMPORT_PLAIN, NULL, NULL},
	{"lr_scheduler*", IMPORT_PLAIN, NULL, NULL},
	{"warmup_*", IMPORT_PLAIN, NULL, NULL},
	{"logging_*", IMPORT_PLAIN, NULL, NULL},
	{"save_*", IMPORT_PLAIN, NULL, NULL},
	{"eval_*", IMPORT_PLAIN, NULL, NULL},
	{"max_steps", IMPORT_PLAIN, NULL, NULL},
	{"num_train_epochs", IMPORT_PLAIN, NULL, NULL},
	{"seed", IMPORT_PLAIN, NULL, NULL},
	{"report_to*", IMPORT_PLAIN, NULL, NULL},
	{"deepspeed*", IMPORT_UNPRICED, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

/* Where the file has a key of fsdp_config. */
static const char *place(const struct importing *importing, const char *name)
{
	static const char *const prefixes[] = {"fsdp_config.", "fsdp_config.fsdp_", ""};

	for (int i = 0; i < COUNT_OF(prefixes); i++) {
		const char *path = arena_printf(importing->arena, "%s%s", prefixes[i], name);
		if (import_find(importing, path) != NULL)
			return path;
	}
	return arena_printf(importing->arena, "fsdp_config.%s", name);
}

static bool set_switch(struct importing *importing, const char *name, const char *option,
	bool otherwise, const char *on, const char *off, struct error *error)
{
	const char *path = place(importing, name);
	bool value, said = import_find(importing, path) != NULL;

	if (!import_switch(importing, path, &value, otherwise, error))
		return false;
	import_set(importing, option, value ? on : off, said ? path : NULL);
	return true;
}

static bool finish_fsdp1(struct importing *importing, struct error *error)
{
	const char *path = place(importing, "backward_prefetch");
	const char *prefetch = import_text(importing, path, "NO_PREFETCH");
	bool pre = strcasecmp(prefetch, "BACKWARD_PRE") == 0;
	bool post = strcasecmp(prefetch, "BACKWARD_POST") == 0;

	if (!pre && !post && strcasecmp(prefetch, "NO_PREFETCH") != 0)
		return import_fail(importing, path, error,
			"expected backward_pre, backward_post or no_prefetch, got \"%.40s\"",
			prefetch);
	import_set(importing, "runtime", "pytorch-fsdp1", NULL);
	import_set(importing, "prefetch",
		pre    ? "pre"
		: post ? "post"
		       : "none",
		import_find(importing, path) != NULL ? path : NULL);
	return import_fsdp1_strategy(importing, place(importing, "reshard_after_forward"),
		       import_text(importing, "fsdp", "FULL_SHARD"), error) &&
	       set_switch(importing, "forward_prefetch", "forward-prefetch", false, "on", "off",
		       error) &&
	       set_switch(importing, "limit_all_gathers", "limit-all-gathers", true, "on", "off",
		       error);
}

static bool finish_fsdp2(struct importing *importing, struct error *error)
{
	const char *path = place(importing, "reshard_after_forward");
	bool grad_op = strstr(import_text(importing, "fsdp", ""), "shard_grad_op") != NULL;
	bool reshards;

	if (!import_switch(importing, path, &reshards, !grad_op, error))
		return false;
	import_fsdp2_strategy(
		importing, reshards, false, import_find(importing, path) != NULL ? path : NULL);
	return true;
}

static bool finish_dtype(struct importing *importing, struct error *error)
{
	bool bf16, fp16, said = import_find(importing, "bf16") || import_find(importing, "fp16");

	if (!import_switch(importing, "bf16", &bf16, false, error) ||
		!import_switch(importing, "fp16", &fp16, false, error))
		return false;
	if (!said)
		return true; /* fsdp_config alone: the precision is not in this file */
	const char *dtype = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
	import_set(importing, "param-dtype", dtype, bf16 || !fp16 ? "bf16" : "fp16");
	import_set(importing, "reduce-dtype", dtype, NULL);
	import_set(importing, "master-dtype", "fp32", NULL);
	return true;
}

static bool finish_sharded(struct importing *importing, struct error *error)
{
	int64_t version;

	if (!import_count(importing, place(importing, "version"), &version, 2, error))
		return false;
	if (!(version == 2 ? finish_fsdp2(importing, error) : finish_fsdp1(importing, error)) ||
		!import_wrap(importing, place(importing, "auto_wrap_policy"),
			place(importing, "transformer_layer_cls_to_wrap*"),
			place(importing, "min_num_params"), "TRANSFORMER_BASED_WRAP", error) ||
		!set_switch(importing, "cpu_offload", "cpu-offload", false, "parameters", "none",
			error) ||
		!set_switch(importing, "activation_checkpointing", "activation-checkpointing",
			false, "full", "none", error))
		return false;
	if (import_is(importing, "gradient_checkpointing", "true")) {
		import_set(importing, "activation-checkpointing", "full", "gradient_checkpointing");
		import_note(importing, "gradient_checkpointing",
			"gathers once more than fsdp_config.activation_checkpointing would; that "
			"is "
			"not predicted");
	}
	return true;
}

static bool finish(struct importing *importing, struct error *error)
{
	bool any = source_has(importing->source, "fsdp_config.*") ||
		   source_has(importing->source, place(importing, "reshard_after_forward"));
	const char *fsdp = import_text(importing, "fsdp", any ? "true" : "false");

	if (!finish_dtype(importing, error))
		return false;
	if (strcmp(fsdp, "false") != 0 && fsdp[0] != '\0')
		return finish_sharded(importing, error);
	import_set(importing, "runtime", "pytorch-ddp", NULL);
	import_set(importing, "strategy", "NO_SHARD", NULL);
	return set_switch(importing, "gradient_checkpointing", "activation-checkpointing", false,
		"full", "none", error);
}

static int recognizes(const struct source *source)
{
	static const char *const signs[] = {"fsdp_config.version",
		"fsdp_config.reshard_after_forward", "per_device_train_batch_size",
		"transformer_layer_cls_to_wrap*", "fsdp"};
	bool alone = source_has(source, "reshard_after_forward") &&
		     (source_has(source, "version") || source_has(source, "auto_wrap_policy"));
	bool other = source_has(source, "base_model") || source_has(source, "zero_optimization.*");

	for (int i = 0; i < COUNT_OF(signs) && !other; i++) {
		if (source_has(source, signs[i]))
			return 8;
	}
	return alone && !other ? 8 : 0;
}

/* Version 1 has a target of its own; version 2 is what is taken when the file does not say. */
static int recognizes_fsdp1(const struct source *source)
{
	static const char *const places[] = {
		"fsdp_config.version", "fsdp_config.fsdp_version", "version"};

	for (int i = 0; i < COUNT_OF(places); i++) {
		const struct node *node = source_find(source, places[i]);
		if (node != NULL && node->kind == NODE_SCALAR && strcmp(node->text, "1") == 0)
			return recognizes(source) > 0 ? 12 : 0;
	}
	return 0;
}

static const struct import_format fsdp2_import = {recognizes, keys, finish};
static const struct import_format fsdp1_import = {recognizes_fsdp1, keys, finish};

const struct export_target export_trainer_fsdp2 = {
	.name = "hf-trainer",
	.title = "Hugging Face Trainer: TrainingArguments with FSDP2",
	.file = "training_args.json",
	.source = "Transformers 5 (training_args.py, 2026-08)",
	.syntax = SYNTAX_JSON,
	.wraps = "block model size:*",
	.wraps_apart = true,
	.rules = fsdp2_rules,
	.launch = "torchrun --nnodes %n --nproc-per-node %g train.py %f",
	.write = write_fsdp2_file,
	.import = &fsdp2_import,
};

const struct export_target export_trainer_fsdp1 = {
	.name = "hf-trainer-fsdp1",
	.title = "Hugging Face Trainer: TrainingArguments with FSDP1",
	.file = "training_args-fsdp1.json",
	.source = "Transformers 5 (training_args.py, 2026-08)",
	.syntax = SYNTAX_JSON,
	.wraps = "block model size:*",
	.rules = fsdp1_rules,
	.launch = "torchrun --nnodes %n --nproc-per-node %g train.py %f",
	.write = write_fsdp1_file,
	.import = &fsdp1_import,
};
