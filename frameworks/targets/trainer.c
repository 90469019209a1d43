/* Hugging Face Trainer: one JSON file of TrainingArguments, fsdp_config in it (version 2 or 1).
 *
 * HfArgumentParser.parse_json_file and TrainingArguments(**json.load(file)) take it. Keys:
 * Transformers 5 (src/transformers/training_args.py: _process_fsdp_args). JSON has no comments and
 * TrainingArguments refuses keys that it does not know: what cannot be expressed goes to stderr
 * alone. FSDP1's strategy is a variable of the environment: accelerate takes FULL_SHARD without it,
 * whatever reshard_after_forward of the file says. */
#include <string.h>
#include <strings.h>

#include "frameworks/targets/shared.h"

#define TRAINER_COMMON                                                                             \
	{KNOB_ACTIVATION_CHECKPOINTING, IN_FILE, "none full *>full",                               \
		"the Trainer checkpoints every block whole"},                                      \
		MASTER_FP32, REDUCE_AS_PARAMETERS, FSDP_OFFLOAD, ATTENTION_IN_SCRIPT, TORCH_ADAMW, \
		{KNOB_SEQ_LEN, ELSEWHERE, NULL,                                                    \
			"tokens in a sequence, of the tokenized data set"},                        \
		LOSS_OF_TRANSFORMERS, OUTSIDE_BUT_LOSS

static const struct export_rule fsdp2_rules[] = {
	{KNOB_STRATEGY, IN_FILE, GROUPS_AS_FLAT,
		"the file has no mesh; `accelerate launch --use_parallelism_config "
		"--parallelism_config_dp_replicate_size N --parallelism_config_dp_shard_size M` "
		"gives one"},
	{KNOB_RUNTIME, FIXED, "pytorch-ddp *>pytorch-fsdp2", "this is the Trainer's FSDP2"},
	{KNOB_RESHARD_AFTER_FORWARD, IN_FILE, "true false *>true",
		"the Trainer takes true or false, no group size"},
	FSDP2_PREFETCH,
	FSDP2_FORWARD,
	FSDP2_LIMITER,
	TRAINER_COMMON,
};

static const struct export_rule fsdp1_rules[] = {
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP, "FSDP1 is the nearest"},
	{KNOB_RUNTIME, FIXED, "pytorch-ddp pytorch-fsdp1 *>pytorch-fsdp1",
		"this is the Trainer's FSDP1"},
	{KNOB_SHARD_GROUP, FIXED, "*>@node", "the Trainer's FSDP1 shards inside each node"},
	FSDP1_RESHARD,
	TRAINER_COMMON,
};

/* --- keys: the whole arguments, or fsdp_config alone ---------------------------------------- */

static const char *is_fsdp(struct exporting *exporting)
{
	return export_is_sharded(exporting) ? "true" : "false";
}

static const char *strategy(struct exporting *exporting)
{
	char *name = arena_strdup(exporting->arena, strategy_names[exporting->plan->strategy]);

	for (char *c = name; *c != '\0'; c++)
		*c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
	return name;
}

#define FSDP(name)  "fsdp_config." name
#define LIGER(name) "liger_kernel_config." name

static const struct config_key keys[] = {
	{"output_dir", KEY_PLAIN, NO_KNOB, "output"},
	{"per_device_train_batch_size", KEY_COUNT, KNOB_MICRO_BATCH},
	{"gradient_accumulation_steps", KEY_COUNT, KNOB_GRAD_ACCUM},
	{"bf16", KEY_READ, KNOB_PARAM_DTYPE, "true>bf16 false>fp16 false>fp32"},
	{"fp16", KEY_READ, KNOB_PARAM_DTYPE, "true>fp16 false>bf16 false>fp32"},
	{"optim", KEY_WORD, KNOB_OPTIMIZER, TORCH_OPTIMIZERS},
	{"deepspeed*", KEY_READ, NO_KNOB, NULL, ONLY_READ},
	{"max_grad_norm", KEY_NUMBER, KNOB_CLIP},
	{"torch_compile", KEY_SWITCH, KNOB_COMPILE},
	{"use_liger_kernel", KEY_READ, KNOB_LIGER, NULL, 0, value_liger},
	{LIGER("rms_norm"), KEY_READ, NO_KNOB, NULL, 0, value_liger_model},
	{LIGER("rope"), KEY_READ, NO_KNOB, NULL, 0, value_liger_model},
	{LIGER("swiglu"), KEY_READ, NO_KNOB, NULL, 0, value_liger_model},
	{LIGER("fused_linear_cross_entropy"), KEY_READ, KNOB_LOSS, NULL, 0, value_liger_loss},
	{"accelerator_config.gradient_accumulation_kwargs.sync_each_batch", KEY_SWITCH,
		KNOB_SYNC_EACH_MICRO_BATCH, NULL, IF_ACCUMULATED},
	{"fsdp", KEY_READ, NO_KNOB, NULL, 0, is_fsdp},
	{FSDP("version"), KEY_READ, NO_KNOB, NULL, IF_SHARDED, value_fsdp_version},
	{FSDP("reshard_after_forward"), KEY_READ, KNOB_RESHARD_AFTER_FORWARD, NULL,
		IF_SHARDED | IF_FSDP2, value_reshards},
	{"fsdp_config.reshard_after_forward", KEY_READ, KNOB_STRATEGY, NULL, IF_SHARDED | IF_FSDP1,
		strategy},
	{FSDP("backward_prefetch"), KEY_READ, KNOB_PREFETCH,
		"BACKWARD_PRE>pre BACKWARD_POST>post NO_PREFETCH>none", IF_SHARDED | IF_FSDP1},
	{FSDP("forward_prefetch"), KEY_READ, KNOB_FORWARD_PREFETCH, NULL, IF_SHARDED | IF_FSDP1},
	{FSDP("limit_all_gathers"), KEY_READ, KNOB_LIMIT_ALL_GATHERS, NULL, IF_SHARDED | IF_FSDP1},
	{FSDP("use_orig_params"), KEY_PLAIN, NO_KNOB, "true", IF_SHARDED | IF_FSDP1},
	{FSDP("sync_module_states"), KEY_PLAIN, NO_KNOB, "true", IF_SHARDED | IF_FSDP1},
	{FSDP("auto_wrap_policy"), KEY_READ, KNOB_WRAP, NULL, IF_SHARDED, value_wrap_policy},
	{FSDP("min_num_params"), KEY_READ, NO_KNOB, NULL, IF_SHARDED, value_wrap_least},
	{"fsdp_config.transformer_layer_cls_to_wrap[]", KEY_READ, NO_KNOB, NULL, IF_SHARDED,
		value_wrap_class},
	{FSDP("transformer_layer_cls_to_wrap*"), KEY_READ, NO_KNOB, NULL, ONLY_READ},
	{FSDP("cpu_offload"), KEY_READ, KNOB_CPU_OFFLOAD, PARAMETERS_OR_NONE, IF_SHARDED},
	{FSDP("cpu_ram_efficient_loading"), KEY_PLAIN, NO_KNOB, "true", IF_SHARDED},
	{FSDP("state_dict_type"), KEY_PLAIN, NO_KNOB, "SHARDED_STATE_DICT", IF_SHARDED},
	{FSDP("activation_checkpointing"), KEY_READ, KNOB_ACTIVATION_CHECKPOINTING, FULL_OR_NONE,
		IF_SHARDED},
	{"gradient_checkpointing", KEY_READ, KNOB_ACTIVATION_CHECKPOINTING, FULL_OR_NONE,
		IF_REPLICATED},
	{NULL},
};
static const char unpriced[] = "fsdp_config.xla* fsdp_config.fsdp_xla* xla*";
static const char plain[] =
	"accelerator_config.* tf32 learning_rate weight_decay adam_* lr_scheduler* warmup_* "
	"logging_* save_* eval_* max_steps num_train_epochs seed report_to*";

/* --- import -------------------------------------------------------------------------------- */

static bool finish_fsdp1(struct importing *importing, struct error *error)
{
	const char *path = FSDP("reshard_after_forward");

	import_set(importing, KNOB_RUNTIME, "pytorch-fsdp1", NULL);
	if (!import_key(importing, FSDP("backward_prefetch"), "none", error) ||
		!import_fsdp1_strategy(
			importing, path, import_text(importing, "fsdp", "FULL_SHARD"), error) ||
		!import_key(importing, FSDP("forward_prefetch"), "off", error) ||
		!import_key(importing, FSDP("limit_all_gathers"), "on", error))
		return false;
	if (strcmp(import_value(importing, KNOB_STRATEGY), "FULL_SHARD") != 0)
		import_note(importing, import_find(importing, path) != NULL ? path : "fsdp",
			"accelerate runs FULL_SHARD unless FSDP_SHARDING_STRATEGY=%s is set",
			import_value(importing, KNOB_STRATEGY));
	return true;
}

static bool finish_fsdp2(struct importing *importing, struct error *error)
{
	const char *path = FSDP("reshard_after_forward");
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
	bool bf16, fp16, given = import_find(importing, "bf16") || import_find(importing, "fp16");

	if (!import_switch(importing, "bf16", &bf16, false, error) ||
		!import_switch(importing, "fp16", &fp16, false, error))
		return false;
	if (!given)
		return true; /* fsdp_config alone: the precision is not in this file */
	const char *dtype = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
	import_set(importing, KNOB_PARAM_DTYPE, dtype, bf16 || !fp16 ? "bf16" : "fp16");
	import_set(importing, KNOB_REDUCE_DTYPE, dtype, NULL);
	import_set(importing, KNOB_MASTER_DTYPE, "fp32", NULL);
	return true;
}

static bool finish_sharded(struct importing *importing, struct error *error)
{
	int64_t version;

	if (!import_count(importing, FSDP("version"), &version, 2, error))
		return false;
	if (!(version == 2 ? finish_fsdp2(importing, error) : finish_fsdp1(importing, error)) ||
		!import_wrap(importing, FSDP("auto_wrap_policy"), FSDP("min_num_params"),
			"TRANSFORMER_BASED_WRAP", error) ||
		!import_key(importing, FSDP("cpu_offload"), "none", error) ||
		!import_key(importing, FSDP("activation_checkpointing"), "none", error))
		return false;
	if (import_is(importing, "gradient_checkpointing", "true")) {
		import_set(
			importing, KNOB_ACTIVATION_CHECKPOINTING, "full", "gradient_checkpointing");
		import_note(importing, "gradient_checkpointing",
			"gathers once more than fsdp_config.activation_checkpointing would; "
			"that is not predicted");
	}
	return true;
}

/* All of Liger's kernels are on unless the file says otherwise, its loss too. */
static void finish_liger(struct importing *importing)
{
	const char *model = LIGER("rms_norm"), *loss = LIGER("fused_linear_cross_entropy");
	bool any = import_is(importing, "use_liger_kernel", "true");
	bool fuses = any && !import_is(importing, loss, "false");

	import_set(importing, KNOB_LIGER,
		any && !import_is(importing, model, "false") ? "on" : "off", model);
	import_set(importing, KNOB_LOSS, fuses ? "fused-linear" : "upcast", loss);
}

static bool finish(struct importing *importing, struct error *error)
{
	bool any = source_has(importing->source, "fsdp_config.*") ||
		   import_find(importing, FSDP("reshard_after_forward")) != NULL;
	const char *fsdp = import_text(importing, "fsdp", any ? "true" : "false");

	if (!import_shards_itself(importing, error) || !finish_dtype(importing, error))
		return false;
	if (source_has(importing->source, "per_device_train_batch_size"))
		finish_liger(importing);
	import_set_default(importing, KNOB_SYNC_EACH_MICRO_BATCH, "off"); /* accelerate's no_sync */
	if (import_find(importing, "bf16") != NULL || import_find(importing, "fp16") != NULL)
		import_set_default(importing, KNOB_CLIP, "1"); /* all arguments, not fsdp_config */
	if (strcmp(fsdp, "false") != 0 && fsdp[0] != '\0')
		return finish_sharded(importing, error);
	import_set(importing, KNOB_RUNTIME, "pytorch-ddp", NULL);
	import_set(importing, KNOB_STRATEGY, "NO_SHARD", NULL);
	return import_key(importing, "gradient_checkpointing", "none", error);
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

/* Version 1 has a target of its own; version 2 is what is taken when the file has no version. */
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

/* fsdp_config may be a file of its own. */
#define ALIASES "fsdp_config.fsdp_>fsdp_config. >fsdp_config."

static const struct config_format fsdp2_format = {
	recognizes, keys, plain, unpriced, finish, .aliases = ALIASES};
static const struct config_format fsdp1_format = {
	recognizes_fsdp1, keys, plain, unpriced, finish, .aliases = ALIASES};

const struct export_target export_trainer_fsdp2 = {
	.name = "hf-trainer",
	.title = "Hugging Face Trainer with FSDP2",
	.file = "training_args.json",
	.program = "Transformers",
	.versions = "5.23.0",
	.syntax = SYNTAX_JSON,
	.gpus_only = true,
	.wraps = "block model size:*",
	.wraps_apart = true,
	.tail = TAIL_STAYS,
	.clips = true,
	.rules = fsdp2_rules,
	.launch = TORCHRUN "train.py %f",
	.format = &fsdp2_format,
};

const struct export_target export_trainer_fsdp1 = {
	.name = "hf-trainer-fsdp1",
	.title = "Hugging Face Trainer with FSDP1",
	.file = "training_args-fsdp1.json",
	.program = "Transformers",
	.versions = "5.23.0",
	.syntax = SYNTAX_JSON,
	.gpus_only = true,
	.wraps = "block model size:*",
	.clips = true,
	.rules = fsdp1_rules,
	.launch = "FSDP_SHARDING_STRATEGY=%S " TORCHRUN "train.py %f",
	.format = &fsdp1_format,
};
