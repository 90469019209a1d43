/* torchtitan, three ways: the Python function that returns a Trainer.Config (since 2026-02-23), the
 * frozen command-line flags, and the TOML file of before.
 *
 * Keys: torchtitan (torchtitan/config/configs.py, components/optimizer, distributed/
 * activation_checkpoint.py), and config/job_config.py as of the commit before 9810191bb. Batches
 * are counted in tokens now. "default" reshards every block but the last; "never" none. Gradients
 * are reduced in fp32 after every micro-batch. */
#include <string.h>

#include "frameworks/targets/shared.h"

static const struct export_rule rules[] = {
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "FSDP2 is the nearest"},
	{"shard_group", SAYS_KEY, NULL, NULL},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp *>pytorch-fsdp2", "torchtitan is FSDP2"},
	{"reshard_after_forward", SAYS_KEY, "true false *>true",
		"torchtitan takes default, always or never, no group size"},
	{"wrap", SAYS_KEY, NULL, NULL},
	FSDP2_ALWAYS,
	{"activation_checkpointing", SAYS_KEY, "none selective full *>full",
		"one policy for all blocks"},
	{"attention", SAYS_BESIDE, NULL, "model_registry(flavor, attn_backend=...)"},
	{"compile", SAYS_KEY, NULL, NULL},
	{"param_dtype", SAYS_KEY, "bf16 fp32 fp16>bf16", "mixed_precision_param has no float16"},
	{"master_dtype", SAYS_KEY, "bf16 fp32 fp16>bf16", "training.dtype has no float16"},
	{"reduce_dtype", SAYS_ALWAYS, "*>fp32", "mixed_precision_reduce can only be float32"},
	{"optimizer", SAYS_KEY, "sgd>adamw-foreach", "torchtitan's optimizer is AdamW"},
	{"cpu_offload", SAYS_KEY, "none parameters *>parameters",
		"FSDP moves parameters, gradients and optimizer state together"},
	{"seq_len", SAYS_KEY, NULL, NULL},
	{"micro_batch", SAYS_KEY, NULL, NULL},
	{"grad_accum", SAYS_KEY, NULL, NULL},
	{"sync_each_micro_batch", SAYS_ALWAYS, "*>true",
		"torchtitan reduces after every micro-batch"},
	{"clip", SAYS_KEY, NULL, NULL},
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

/* Configurations that torchtitan ships, by the shape of their model. */
static const struct {
	const char *module, *config, *flavor, *family;
	int64_t layers, hidden, vocab;
} flavors[] = {
	{"llama3", "llama3_8b", "8B", "llama", 32, 4096, 128256},
	{"llama3", "llama3_70b", "70B", "llama", 80, 8192, 128256},
	{"llama3", "llama3_405b", "405B", "llama", 126, 16384, 128256},
	{"qwen3", "qwen3_0_6b", "0.6B", "qwen3", 28, 1024, 151936},
	{"qwen3", "qwen3_1_7b", "1.7B", "qwen3", 28, 2048, 151936},
	{"qwen3", "qwen3_14b", "14B", "qwen3", 40, 5120, 151936},
	{"qwen3", "qwen3_32b", "32B", "qwen3", 64, 5120, 151936},
};

/* The first one stands in for what is not there, with a note. */
static int flavor_of(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;

	for (int i = 0; i < COUNT_OF(flavors); i++) {
		if (strcmp(flavors[i].family, model_family_names[model->family]) == 0 &&
			flavors[i].layers == model->layers && flavors[i].hidden == model->hidden &&
			flavors[i].vocab == model->vocab)
			return i;
	}
	export_add_note(exporting, "model", SAYS_BESIDE,
		"torchtitan ships no configuration of this shape: put your model in the place of "
		"%s",
		flavors[0].config);
	return 0;
}

/* --- the settings, once for flags and Python ------------------------------------------------- */

struct setting {
	const char *key, *value; /* "training.max_norm"; the value as Python writes it */
};

enum { SETTINGS_MOST = 16 };

static const char *number(struct exporting *exporting, int64_t value)
{
	return arena_printf(exporting->arena, "%lld", (long long)value);
}

static const char *quoted(struct exporting *exporting, const char *value)
{
	return arena_printf(exporting->arena, "\"%s\"", value);
}

static const char *clip_text(struct exporting *exporting, const char *unlimited)
{
	struct text text = {0};

	if (exporting->plan->clip <= 0)
		return unlimited;
	text_number(&text, exporting->plan->clip);
	const char *copy = arena_strdup(exporting->arena, text_string(&text));
	text_finish(&text);
	return copy;
}

static const char *optimizer_text(const struct plan *plan)
{
	return plan->optimizer == OPTIMIZER_ADAMW_FUSED     ? "fused"
	       : plan->optimizer == OPTIMIZER_ADAMW_FOREACH ? "foreach"
							    : "for-loop";
}

static const char *reshard_text(const struct plan *plan)
{
	return strcmp(plan->reshard_after_forward, "false") == 0 &&
			       plan->strategy != STRATEGY_NO_SHARD
		       ? "never"
		       : "default";
}

static int64_t tokens(struct exporting *exporting, int64_t sequences)
{
	return sequences * exporting->plan->seq_len;
}

static int list_settings(struct exporting *exporting, struct setting *settings)
{
	const struct plan *plan = exporting->plan;
	const struct setting all[] = {
		{"parallelism.data_parallel_replicate_degree",
			number(exporting, plan->mesh.replicate)},
		{"parallelism.data_parallel_shard_degree", number(exporting, plan->mesh.shard)},
		{"parallelism.fsdp_reshard_after_forward", quoted(exporting, reshard_text(plan))},
		{"training.num_tokens_per_microbatch_per_dp_rank",
			number(exporting, tokens(exporting, plan->micro_batch))},
		{"training.num_tokens_per_train_step",
			number(exporting, tokens(exporting, plan->global_batch))},
		{"training.max_context_length", number(exporting, plan->seq_len)},
		{"training.max_norm", clip_text(exporting, "float(\"inf\")")},
		{"training.dtype", quoted(exporting, export_torch_dtype(plan->master_dtype))},
		{"training.mixed_precision_param",
			quoted(exporting, export_torch_dtype(plan->param_dtype))},
		{"training.mixed_precision_reduce",
			quoted(exporting, export_torch_dtype(plan->reduce_dtype))},
		{"training.enable_cpu_offload", plan_offloads_any(plan) ? "True" : "False"},
		{"optimizer.implementation", quoted(exporting, optimizer_text(plan))},
		{"compile.enable", plan->compile ? "True" : "False"},
	};

	_Static_assert(COUNT_OF(all) <= SETTINGS_MOST, "settings have room");
	memcpy(settings, all, sizeof(all));
	return COUNT_OF(all);
}

static const char *checkpointing_of(struct exporting *exporting)
{
	return export_knob(exporting->plan, "activation_checkpointing", exporting->arena);
}

static void write_python(struct exporting *exporting)
{
	int flavor = flavor_of(exporting);
	const char *checkpointing = checkpointing_of(exporting);
	const char *policy = strcmp(checkpointing, "full") == 0        ? "FullAC"
			     : strcmp(checkpointing, "selective") == 0 ? "SelectiveAC"
								       : NULL;
	struct setting settings[SETTINGS_MOST];
	struct text *text = exporting->text;

	export_header(exporting);
	if (policy != NULL)
		text_printf(text, "from torchtitan.distributed.activation_checkpoint import %s\n",
			policy);
	text_printf(text, "from torchtitan.models.%s.config_registry import %s\n\n\n",
		flavors[flavor].module, flavors[flavor].config);
	text_printf(text, "def plan():\n    cfg = %s()\n", flavors[flavor].config);
	int n = list_settings(exporting, settings);
	for (int i = 0; i < n; i++)
		text_printf(text, "    cfg.%s = %s\n", settings[i].key, settings[i].value);
	if (policy != NULL)
		text_printf(text, "    cfg.activation_checkpoint = %s.Config()\n", policy);
	else
		text_add(text, "    cfg.activation_checkpoint = None\n");
	text_add(text, "    return cfg\n");
}

/* Flags that are off by default need no words when they are off. */
static void write_flags(struct exporting *exporting)
{
	struct setting settings[SETTINGS_MOST];
	int n = list_settings(exporting, settings);

	flavor_of(exporting);
	export_header(exporting);
	for (int i = 0; i < n; i++) {
		const char *value = settings[i].value;
		size_t length = strlen(value);
		if (strcmp(value, "False") == 0)
			continue;
		if (strcmp(value, "float(\"inf\")") == 0)
			value = "inf", length = 3;
		bool quotes = value[0] == '"';
		text_printf(exporting->text, "--%s", settings[i].key);
		if (strcmp(value, "True") != 0)
			text_printf(exporting->text, " %.*s", (int)(length - 2 * quotes),
				value + quotes);
		text_add_char(exporting->text, '\n');
	}
	text_printf(exporting->text, "activation-checkpoint:%s\n", checkpointing_of(exporting));
}

/* --- TOML ------------------------------------------------------------------------------------ */

static void toml_string(struct text *text, const char *key, const char *value)
{
	text_printf(text, "%s = ", key);
	json_escape(text, value);
	text_add_char(text, '\n');
}

static void toml_int(struct text *text, const char *key, int64_t value)
{
	text_printf(text, "%s = %lld\n", key, (long long)value);
}

static void toml_bool(struct text *text, const char *key, bool value)
{
	text_printf(text, "%s = %s\n", key, value ? "true" : "false");
}

static void write_toml_training(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	struct text *text = exporting->text;

	text_add(text, "\n[training]\n");
	toml_int(text, "local_batch_size", plan->micro_batch);
	toml_int(text, "global_batch_size", plan->global_batch);
	toml_int(text, "seq_len", plan->seq_len);
	text_printf(text, "max_norm = %s\n", clip_text(exporting, "inf"));
	toml_string(text, "dtype", export_torch_dtype(plan->master_dtype));
	toml_string(text, "mixed_precision_param", export_torch_dtype(plan->param_dtype));
	toml_string(text, "mixed_precision_reduce", export_torch_dtype(plan->reduce_dtype));
	toml_bool(text, "enable_cpu_offload", plan_offloads_any(plan));
	text_add(text, "\n[optimizer]\nname = \"AdamW\"\n");
	toml_string(text, "implementation", optimizer_text(plan));
}

static void write_toml(struct exporting *exporting)
{
	int flavor = flavor_of(exporting);
	const struct plan *plan = exporting->plan;
	struct text *text = exporting->text;

	export_header(exporting);
	text_add(text, "\n[model]\n");
	toml_string(text, "name", flavors[flavor].module);
	toml_string(text, "flavor", flavors[flavor].flavor);
	write_toml_training(exporting);
	text_add(text, "\n[parallelism]\n");
	toml_int(text, "data_parallel_replicate_degree", plan->mesh.replicate);
	toml_int(text, "data_parallel_shard_degree", plan->mesh.shard);
	toml_string(text, "fsdp_reshard_after_forward", reshard_text(plan));
	toml_int(text, "tensor_parallel_degree", 1);
	toml_int(text, "pipeline_parallel_degree", 1);
	toml_int(text, "context_parallel_degree", 1);
	text_add(text, "\n[activation_checkpoint]\n");
	toml_string(text, "mode", checkpointing_of(exporting));
	if (strcmp(plan->activation_checkpointing, "selective") == 0)
		toml_string(text, "selective_ac_option", "op");
	text_add(text, "\n[compile]\n");
	toml_bool(text, "enable", plan->compile);
}

const struct export_target export_torchtitan = {
	.name = "torchtitan",
	.title = "torchtitan: a function that returns a Trainer.Config",
	.file = "shardplan_config.py",
	.source = "torchtitan (b5bcd76c, 2026-08-21)",
	.syntax = SYNTAX_PYTHON,
	.wraps = "block",
	.wraps_apart = true,
	.rules = rules,
	.launch =
		"NGPU=%g MODULE=shardplan_config CONFIG=plan ./run_train.sh (on each of %n nodes; "
		"COMM_MODE=fake_backend tries it without GPUs)",
	.write = write_python,
	.import = &import_torchtitan,
};

const struct export_target export_torchtitan_flags = {
	.name = "torchtitan-flags",
	.title = "torchtitan: its frozen command-line flags",
	.file = "torchtitan.args",
	.source = "torchtitan (b5bcd76c, 2026-08-21)",
	.syntax = SYNTAX_ARGUMENTS,
	.wraps = "block",
	.wraps_apart = true,
	.rules = rules,
	.launch = "NGPU=%g MODULE=llama3 CONFIG=llama3_8b ./run_train.sh $(grep -v '^#' %f)",
	.write = write_flags,
	.import = &import_torchtitan_flags,
};

const struct export_target export_torchtitan_toml = {
	.name = "torchtitan-toml",
	.title = "torchtitan before 2026-02-23: TOML",
	.file = "torchtitan.toml",
	.source = "torchtitan (9810191b^, 2026-02-23)",
	.syntax = SYNTAX_TOML,
	.wraps = "block",
	.wraps_apart = true,
	.rules = rules,
	.launch = "CONFIG_FILE=%f NGPU=%g ./run_train.sh",
	.write = write_toml,
	.import = &import_torchtitan_toml,
};
