/* torchtitan, three ways: the Python function that returns a Trainer.Config (since 0.3), the frozen
 * flags, and the TOML file of before. Keys: 0.3.0 and main b5bcd76c (config/configs.py,
 * distributed/activation_checkpoint.py), 0.2.2 (config/job_config.py). main counts batches in
 * tokens. "default" reshards all but the last unit, "always" that too, "never" none, as in
 * pipelines (distributed/fsdp.py), whose gradients are reduced once a step. */
#include <string.h>

#include "frameworks/targets/torchtitan.h"

#define RULES                                                                                      \
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP, "FSDP2 is the nearest"},                            \
		{KNOB_RUNTIME, FIXED, "pytorch-ddp *>pytorch-fsdp2", "torchtitan is FSDP2"},       \
		{KNOB_RESHARD_AFTER_FORWARD, IN_FILE, "true false *>true",                         \
			"torchtitan takes default, always or never, no group size"},               \
		FSDP2_PREFETCH, {KNOB_FORWARD_PREFETCH, FIXED}, FSDP2_LIMITER,                     \
		{KNOB_ACTIVATION_CHECKPOINTING, IN_FILE, "none selective full *>full",             \
			"one policy for all blocks"},                                              \
		{KNOB_ATTENTION, ELSEWHERE, NULL,                                                  \
			"attn_backend of model_registry: flex or varlen, which mask documents"},   \
		{KNOB_PARAM_DTYPE, IN_FILE, "bf16 fp32 fp16>bf16",                                 \
			"mixed_precision_param has no float16"},                                   \
		{KNOB_MASTER_DTYPE, IN_FILE, "bf16 fp32 fp16>bf16",                                \
			"training.dtype has no float16"},                                          \
		{KNOB_REDUCE_DTYPE, FIXED, "*>fp32", "mixed_precision_reduce is float32"},         \
		{KNOB_OPTIMIZER, IN_FILE, "sgd>adamw-foreach", "torchtitan's optimizer is AdamW"}, \
		FSDP_OFFLOAD, {KNOB_WRAP, IN_FILE}, {KNOB_MICRO_BATCH, IN_FILE},                   \
		{KNOB_GRAD_ACCUM, IN_FILE},                                                        \
		{KNOB_EXPERT_LOAD, ELSEWHERE, NULL,                                                \
			"what the router makes of the data is measured, not set"},                 \
		{KNOB_SEQUENCE_PARALLEL, FIXED, "*>true",                                          \
			"its tensor parallelism cuts the sequence too"},                           \
		{KNOB_SYNC_EACH_MICRO_BATCH, FIXED}, OUTSIDE_OF_FILES

/* The model is converted where it is chosen; up to 0.2 by the file. */
static const struct export_rule rules[] = {
	{KNOB_FP8, ELSEWHERE, NULL,
		"model_registry(flavor, converters=[...]) with MXFP8LinearConverter.Config("
		"fqns=[\"attention\", \"feed_forward\", \"shared_experts\"]) for mxfp8, else "
		"Float8LinearConverter.Config(recipe_name=..., filter_fqns=[\"lm_head\"]), "
		"of which main has rowwise alone"},
	{KNOB_EXPERT_DISPATCH, ELSEWHERE, NULL, "model_registry(flavor, moe_comm_backend=...)"},
	RULES,
};
static const struct export_rule toml_rules[] = {{KNOB_FP8, IN_FILE},
	{KNOB_FP8_PARAM_GATHER, IN_FILE}, {KNOB_EXPERT_DISPATCH, IN_FILE}, RULES};

/* It takes no word of prefetching. It has no float16, some devices no units for bfloat16. */
static void adapt(struct exporting *exporting, struct plan *plan)
{
	if (plan->strategy != STRATEGY_NO_SHARD)
		export_change(exporting, plan, KNOB_FORWARD_PREFETCH,
			plan->mesh.expert > 1 ? "true" : "false",
			"torchtitan prefetches in forward with expert ranks, and only then");
	if (plan->param_dtype == DTYPE_FP16 && exporting->topology->device.bf16_flops <= 0)
		export_change(exporting, plan, KNOB_PARAM_DTYPE, "fp32",
			"mixed_precision_param has no float16, the device has no bf16 units");
	titan_adapt_float8(exporting, plan);
	titan_adapt_stages(exporting, plan);
	titan_adapt_context(exporting, plan);
}

/* Configurations that torchtitan ships, by the shape of their model; our name of it. */
static const struct {
	const char *module, *config, *flavor, *family, *model;
	int64_t layers, hidden, vocab;
} flavors[] = {
	{"llama3", "llama3_8b", "8B", "llama", "llama-3.1-8b", 32, 4096, 128256},
	{"llama3", "llama3_70b", "70B", "llama", "llama-3.1-70b", 80, 8192, 128256},
	{"llama3", "llama3_405b", "405B", "llama", "llama-3.1-405b", 126, 16384, 128256},
	{"qwen3", "qwen3_0_6b", "0.6B", "qwen3", "qwen3-0.6b", 28, 1024, 151936},
	{"qwen3", "qwen3_1_7b", "1.7B", "qwen3", "qwen3-1.7b", 28, 2048, 151936},
	{"qwen3", "qwen3_14b", "14B", "qwen3", "qwen3-14b", 40, 5120, 151936},
	{"qwen3", "qwen3_32b", "32B", "qwen3", "qwen3-32b", 64, 5120, 151936},
	{"qwen3", "qwen3_30b_a3b", "30B-A3B", "qwen3_moe", "qwen3-30b-a3b", 48, 2048, 151936},
	{"gpt_oss", "gpt_oss_20b", "20b", "gpt_oss", "gpt-oss-20b", 24, 2880, 201088},
	{"gpt_oss", "gpt_oss_120b", "120b", "gpt_oss", "gpt-oss-120b", 36, 2880, 201088},
	{"deepseek_v3", "deepseek_v3_671b", "671B", "deepseek_v3", "deepseek-v3", 61, 7168, 129280},
};

/* -1: torchtitan has no such model. */
static int find_flavor(const struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;

	for (int i = 0; i < COUNT_OF(flavors); i++) {
		if (strcmp(flavors[i].family, model_family_names[model->family]) == 0 &&
			flavors[i].layers == model->layers && flavors[i].hidden == model->hidden &&
			flavors[i].vocab == model->vocab)
			return i;
	}
	return -1;
}

/* The first one stands in for what is not there. */
static int flavor_of(const struct exporting *exporting)
{
	return find_flavor(exporting) < 0 ? 0 : find_flavor(exporting);
}

static void note_flavor(struct exporting *exporting)
{
	const char *config = flavors[flavor_of(exporting)].config;

	if (find_flavor(exporting) < 0)
		export_note_elsewhere(exporting, "model",
			"%s: torchtitan ships no configuration of this shape, "
			"put it in the place of %s",
			value_model(exporting), config);
	if (strcmp(config, "llama3_405b") != 0)
		return;
	if (exporting->plan->fp8 == FP8_OFF)
		export_note_elsewhere(exporting, "param_dtype",
			"%s: "
			"%s multiplies in float8 unless its model_spec is model_registry(\"405B\")",
			export_knob(exporting->plan, KNOB_PARAM_DTYPE, exporting->arena), config);
	if (!exporting->plan->compile && exporting->target->syntax == SYNTAX_ARGUMENTS)
		export_note_elsewhere(exporting, "compile",
			"off: %s compiles unless --compile.no-enable says not to", config);
}

static void note(struct exporting *exporting)
{
	note_flavor(exporting);
	titan_note_stages(exporting);
}

static const char *started_with(struct exporting *exporting)
{
	int flavor = flavor_of(exporting);

	return arena_printf(exporting->arena, "--module %s --config %s", flavors[flavor].module,
		flavors[flavor].config);
}

/* --- values --------------------------------------------------------------------------------- */

static const char *clip(struct exporting *exporting)
{
	const struct export_target *target = exporting->target;
	const char *unlimited = target->syntax == SYNTAX_PYTHON ? "float(\"inf\")" : "inf";

	return exporting->plan->clip > 0 ? export_knob(exporting->plan, KNOB_CLIP, exporting->arena)
					 : unlimited;
}

static const char *reshard(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	bool chosen = ends_reshard(exporting->arena, exporting->model, plan) != NULL;

	if (export_is_sharded(exporting) && titan_is_pipelined(exporting))
		return strcmp(plan->reshard_after_forward.text, "false") == 0 ? "never" : "always";
	if (!export_is_sharded(exporting) ||
		(chosen && ends_tail_stays(exporting->arena, exporting->model, plan)))
		return "default";
	return strcmp(plan->reshard_after_forward.text, "false") == 0 ? "never"
	       : chosen                                               ? "always"
								      : "default";
}

/* Its default is 1. */
static const char *expert_tensor(struct exporting *exporting)
{
	return exporting->plan->expert_tensor > 1
		       ? export_knob(exporting->plan, KNOB_EXPERT_TENSOR, exporting->arena)
		       : NULL;
}

static const char *tokens(struct exporting *exporting, int64_t sequences)
{
	return arena_printf(
		exporting->arena, "%lld", (long long)(sequences * exporting->plan->seq_len));
}

static const char *micro_tokens(struct exporting *exporting)
{
	return tokens(exporting, exporting->plan->micro_batch);
}

static const char *step_tokens(struct exporting *exporting)
{
	return tokens(exporting, exporting->plan->global_batch);
}

static const char *toml_module(struct exporting *exporting)
{
	return flavors[flavor_of(exporting)].module;
}

static const char *toml_flavor(struct exporting *exporting)
{
	return flavors[flavor_of(exporting)].flavor;
}

static const char *selective(struct exporting *exporting)
{
	return strcmp(exporting->plan->activation_checkpointing.text, "selective") == 0 ? "op"
											: NULL;
}

/* --- keys ----------------------------------------------------------------------------------- */

#define TITAN_DTYPES "bfloat16>bf16 float32>fp32"
#define OPTIMIZERS   "fused*>adamw-fused foreach>adamw-foreach for-loop>adamw"

#define MESH_KEYS                                                                                  \
	{"parallelism.data_parallel_replicate_degree", KEY_READ, NO_KNOB, NULL, 0,                 \
		value_replicas},                                                                   \
		{"parallelism.data_parallel_shard_degree", KEY_READ, KNOB_SHARD_GROUP},            \
		ROW("parallelism.fsdp_reshard_after_forward", KEY_READ, KNOB_STRATEGY, NULL, 0,    \
			reshard)
/* Some of the shipped configurations split their model. */
#define DEGREES                                                                                    \
	{"parallelism.tensor_parallel_degree", KEY_COUNT, KNOB_TENSOR},                            \
		{"parallelism.pipeline_parallel_degree", KEY_COUNT, KNOB_PIPELINE},                \
		{"parallelism.context_parallel_degree", KEY_COUNT, KNOB_CONTEXT},                  \
		{"parallelism.expert_parallel_degree", KEY_COUNT, KNOB_EXPERT},                    \
		ROW("parallelism.expert_tensor_parallel_degree", KEY_COUNT, KNOB_EXPERT_TENSOR,    \
			NULL, 0, expert_tensor)
#define PLAIN_DEGREES                                                                              \
	{"parallelism.enable_fsdp_symm_mem", KEY_UNPRICED, NO_KNOB},                               \
		{"parallelism.pipeline_*", KEY_PLAIN, NO_KNOB},                                    \
		{"parallelism.context_*", KEY_PLAIN, NO_KNOB},                                     \
		{"parallelism.spmd_backend", KEY_PLAIN, NO_KNOB},                                  \
		{"parallelism.enable_*", KEY_PLAIN, NO_KNOB},                                      \
		ROW("parallelism.module_fqns_*", KEY_PLAIN, NO_KNOB)
/* Batches in tokens, as on main, and in sequences. */
#define TOKEN_KEYS(written)                                                                        \
	{"training.num_tokens_per_microbatch_per_dp_rank", KEY_READ, NO_KNOB, NULL, written,       \
		micro_tokens},                                                                     \
		{"training.num_tokens_per_train_step", KEY_READ, NO_KNOB, NULL, written,           \
			step_tokens},                                                              \
		ROW("training.max_context_length", KEY_COUNT, KNOB_SEQ_LEN, NULL, written)
#define SEQUENCE_KEYS(written)                                                                     \
	{"training.local_batch_size", KEY_READ, KNOB_MICRO_BATCH, NULL, written,                   \
		titan_local_batch},                                                                \
		{"training.global_batch_size", KEY_READ, KNOB_GLOBAL_BATCH, NULL, written},        \
		ROW("training.seq_len", KEY_COUNT, KNOB_SEQ_LEN, NULL, written)
#define TRAINING_KEYS                                                                              \
	{"training.max_norm", KEY_NUMBER, KNOB_CLIP, NULL, 0, clip},                               \
		{"training.dtype", KEY_WORD, KNOB_MASTER_DTYPE, TITAN_DTYPES},                     \
		{"training.mixed_precision_param", KEY_WORD, KNOB_PARAM_DTYPE, TITAN_DTYPES},      \
		{"training.mixed_precision_reduce", KEY_WORD, KNOB_REDUCE_DTYPE, TITAN_DTYPES},    \
		ROW("training.enable_cpu_offload", KEY_WORD, KNOB_CPU_OFFLOAD, PARAMETERS_OR_NONE)

/* Of Python and of flags. */
static const struct config_key keys[] = {
	MESH_KEYS,
	DEGREES,
	TITAN_STAGES(IF_NEWEST, IF_OTHER),
	PLAIN_DEGREES,
	{"module", KEY_READ, NO_KNOB, NULL, ONLY_READ},
	{"config", KEY_READ, NO_KNOB, NULL, ONLY_READ},
	SEQUENCE_KEYS(IF_NEWEST),
	TOKEN_KEYS(IF_OTHER),
	TRAINING_KEYS,
	{"optimizer.implementation", KEY_WORD, KNOB_OPTIMIZER, OPTIMIZERS},
	{"compile.enable", KEY_SWITCH, KNOB_COMPILE},
	{NULL},
};

static const struct config_key toml_keys[] = {
	{"model.name", KEY_READ, NO_KNOB, NULL, AS_STRING, toml_module},
	{"model.flavor", KEY_READ, NO_KNOB, NULL, AS_STRING, toml_flavor},
	TITAN_FLOAT8,
	SEQUENCE_KEYS(0),
	TRAINING_KEYS,
	TOKEN_KEYS(ONLY_READ),
	{"optimizer.name", KEY_PLAIN, NO_KNOB, "AdamW"},
	{"optimizer.implementation", KEY_WORD, KNOB_OPTIMIZER, OPTIMIZERS},
	MESH_KEYS,
	DEGREES,
	{"parallelism.context_parallel_rotate_method", KEY_READ, KNOB_CONTEXT_METHOD, NULL,
		AS_STRING, titan_rotation},
	TITAN_STAGES(0, ONLY_READ),
	TITAN_COMM_BACKEND,
	PLAIN_DEGREES,
	{"activation_checkpoint.mode", KEY_READ, KNOB_ACTIVATION_CHECKPOINTING},
	{"activation_checkpoint.selective_ac_option", KEY_READ, NO_KNOB, NULL, 0, selective},
	{"compile.enable", KEY_SWITCH, KNOB_COMPILE},
	{"training.compile", KEY_SWITCH, KNOB_COMPILE, NULL, ONLY_READ},
	{NULL},
};
static const char unpriced[] = "optimizer.early_step_in_backward";
static const char plain[] =
	"training.* optimizer.* compile.* activation-checkpoint activation_checkpoint.* model.* "
	"quantize.* float8.* job.* profiling.* metrics.* lr_scheduler.* checkpoint.* comm.* "
	"validation.* debug.*";

/* --- writing -------------------------------------------------------------------------------- */

static const char *checkpointing_of(struct exporting *exporting)
{
	return export_knob(exporting->plan, KNOB_ACTIVATION_CHECKPOINTING, exporting->arena);
}

static void write_python(struct exporting *exporting)
{
	const char *module = flavors[flavor_of(exporting)].module;
	const char *config = flavors[flavor_of(exporting)].config;
	const char *checkpointing = checkpointing_of(exporting);
	const char *policy = strcmp(checkpointing, "full") == 0        ? "FullAC"
			     : strcmp(checkpointing, "selective") == 0 ? "SelectiveAC"
								       : NULL;
	struct settings settings;
	struct text *text = exporting->text;

	note(exporting);
	export_settings(exporting, &settings);
	export_header(exporting);
	if (policy != NULL)
		text_printf(text, "from torchtitan.distributed.activation_checkpoint import %s\n",
			policy);
	text_printf(
		text, "from torchtitan.models.%s.config_registry import %s\n\n\n", module, config);
	text_printf(text, "def plan():\n    cfg = %s()\n", config);
	export_add_settings(exporting, &settings, "    cfg.");
	if (policy != NULL)
		text_printf(text, "    cfg.activation_checkpoint = %s.Config()\n", policy);
	else
		text_add(text, "    cfg.activation_checkpoint = None\n");
	text_add(text, "    return cfg\n");
}

static void write_flags(struct exporting *exporting)
{
	note(exporting);
	export_write(exporting);
	text_printf(exporting->text, "activation-checkpoint:%s\n", checkpointing_of(exporting));
}

static void write_toml(struct exporting *exporting)
{
	note(exporting);
	export_write(exporting);
}

/* --- import --------------------------------------------------------------------------------- */

static bool finish_mesh(struct importing *importing, int64_t layers, struct error *error)
{
	const char *path = "parallelism.fsdp_reshard_after_forward";
	const char *policy = import_text(importing, path, "default");
	const char *replicates = "parallelism.data_parallel_replicate_degree";
	const char *shards = "parallelism.data_parallel_shard_degree";
	int64_t replicate, shard, tensor, context, pipeline;
	bool hybrid;

	if (strcmp(policy, "default") != 0 && strcmp(policy, "always") != 0 &&
		strcmp(policy, "never") != 0)
		return import_fail(importing, path, error,
			"expected default, always or never, got \"%.40s\"", policy);
	if (!import_count(importing, replicates, &replicate, 1, error) ||
		!import_count(importing, shards, &shard, 0, error) ||
		!import_count(importing, "parallelism.tensor_parallel_degree", &tensor, 1, error) ||
		!import_count(
			importing, "parallelism.context_parallel_degree", &context, 1, error) ||
		!import_count(
			importing, "parallelism.pipeline_parallel_degree", &pipeline, 1, error) ||
		!titan_finish_async(importing, tensor, error) ||
		(pipeline > 1 && !titan_finish_stages(importing, layers, pipeline, error)))
		return false;
	importing->beside_data = tensor * context * pipeline;
	if (shard == 1) {
		import_set(importing, KNOB_RUNTIME, "pytorch-ddp", NULL);
		import_set(importing, KNOB_STRATEGY, "NO_SHARD", shards);
		import_set_count(
			importing, KEY_GPUS, replicate * importing->beside_data, replicates);
		return true;
	}
	if (!import_mesh(importing, replicate, shard, shards, &hybrid, error))
		return false;
	bool is_default = strcmp(policy, "default") == 0;
	importing->imported->tail_stays = is_default && pipeline == 1;
	import_fsdp2_strategy(importing,
		strcmp(policy, "always") == 0 || (is_default && pipeline == 1), hybrid,
		import_find(importing, path) != NULL ? path : shards);
	return true;
}

/* Tokens to sequences. */
static bool finish_tokens(struct importing *importing, const char *path, enum knob_id knob,
	int64_t length, struct error *error)
{
	int64_t count;

	if (!import_count(importing, path, &count, 0, error))
		return false;
	if (count == 0)
		return true;
	if (length == 0)
		return import_fail(importing, path, error,
			"counts tokens, expected training.max_context_length beside it");
	if (count % length != 0)
		return import_fail(importing, path, error,
			"expected a multiple of the context length %lld, got %lld",
			(long long)length, (long long)count);
	import_set_count(importing, knob, count / length, path);
	return true;
}

static bool finish_batch(struct importing *importing, struct error *error)
{
	const char *length_path = "training.max_context_length";
	const char *global_path = "training.global_batch_size";
	const char *local_path = titan_local_path(importing);
	const char *stages = import_value(importing, KNOB_PIPELINE);
	bool pipelined = stages != NULL && strcmp(stages, "1") != 0;
	int64_t length, local, global;

	if (!import_count(importing, length_path, &length, 0, error) ||
		!finish_tokens(importing, "training.num_tokens_per_microbatch_per_dp_rank",
			KNOB_MICRO_BATCH, length, error) ||
		!finish_tokens(importing, "training.num_tokens_per_train_step", KNOB_GLOBAL_BATCH,
			length, error) ||
		!import_count(importing, local_path, &local, 0, error) ||
		!import_count(importing, global_path, &global, 0, error) ||
		(pipelined && !titan_finish_micro_batches(importing, error)))
		return false;
	if (!pipelined && local > 0)
		import_set_count(importing, KNOB_MICRO_BATCH, local, local_path);
	if (global > 0)
		import_set_count(importing, KNOB_GLOBAL_BATCH, global, global_path);
	import_set_default(importing, KNOB_CLIP, "1");
	import_set_default(importing, KNOB_COMPILE, "off");
	import_set_default(importing, KNOB_CPU_OFFLOAD, "none");
	import_set_default(importing, KNOB_OPTIMIZER, "adamw-fused");
	import_set_default(importing, KNOB_PARAM_DTYPE, "bf16");
	import_set_default(importing, KNOB_MASTER_DTYPE, "fp32");
	import_set(importing, KNOB_REDUCE_DTYPE, "fp32", NULL);
	import_set(importing, KNOB_SYNC_EACH_MICRO_BATCH, pipelined ? "off" : "on", NULL);
	import_set(importing, KNOB_WRAP, "block", NULL);
	return true;
}

/* By the function that is called, by name and flavor, or as it is started; returns its blocks, 0
 * where it is not known. */
static int64_t finish_model(struct importing *importing)
{
	int64_t layers = 0;

	for (int i = 0; i < COUNT_OF(flavors); i++) {
		bool flat = import_is(importing, "model.name", flavors[i].module) &&
			    import_is(importing, "model.flavor", flavors[i].flavor);
		bool started = import_is(importing, "config", flavors[i].config);
		if (flat || started ||
			import_find(importing,
				arena_printf(importing->arena, "%s*", flavors[i].config)) != NULL) {
			importing->imported->model = flavors[i].model;
			layers = flavors[i].layers;
		}
	}
	return layers;
}

/* As of torchtitan 0.3: ActivationCheckpointConfig(mode="selective"). */
static const char *checkpointing_mode(const struct importing *importing, const char *text)
{
	return strncmp(text, "ActivationCheckpointConfig", 26) != 0
		       ? text
		       : import_text(importing, "ActivationCheckpointConfig.mode", "selective");
}

static void set_checkpointing(struct importing *importing, const char *text, const char *path)
{
	static const struct {
		const char *word, *value;
	} words[] = {{"FullAC", "full"}, {"SelectiveAC", "selective"}, {"full", "full"},
		{"selective", "selective"}, {"None", "none"}, {"none", "none"}};

	for (int i = 0; i < COUNT_OF(words); i++) {
		if (strncmp(text, words[i].word, strlen(words[i].word)) == 0) {
			import_set(importing, KNOB_ACTIVATION_CHECKPOINTING, words[i].value, path);
			return;
		}
	}
	import_note(importing, path, "%.40s: is not predicted", text);
}

static bool finish(struct importing *importing, struct error *error)
{
	return finish_mesh(importing, finish_model(importing), error) &&
	       finish_batch(importing, error);
}

/* `None` is a value here. */
static const char *python_checkpointing(const struct importing *importing, const char **path)
{
	static const char *const paths[] = {
		"activation_checkpoint", "Config.activation_checkpoint"};

	for (int i = 0; i < COUNT_OF(paths); i++) {
		const struct node *node = import_find(importing, paths[i]);
		if (node != NULL) {
			*path = paths[i];
			return node->text;
		}
	}
	return NULL;
}

static bool finish_python(struct importing *importing, struct error *error)
{
	const char *path, *text = python_checkpointing(importing, &path);

	if (text != NULL)
		set_checkpointing(importing, checkpointing_mode(importing, text), path);
	titan_finish_float8(importing);
	return finish(importing, error);
}

/* Without the key the mode is "selective". */
static bool finish_toml(struct importing *importing, struct error *error)
{
	const char *path = "activation_checkpoint.mode";
	const char *option =
		import_text(importing, "activation_checkpoint.selective_ac_option", "op");

	set_checkpointing(importing, import_text(importing, path, "selective"),
		import_find(importing, path) != NULL ? path : NULL);
	titan_finish_converters(importing);
	if (strcmp(option, "op") != 0)
		import_note(importing, "activation_checkpoint.selective_ac_option",
			"%.20s: predicted as op", option);
	return titan_finish_exchanges(importing, error) && finish(importing, error);
}

static bool finish_flags(struct importing *importing, struct error *error)
{
	static const char path[] = "activation-checkpoint";

	if (import_find(importing, path) != NULL)
		set_checkpointing(importing, import_text(importing, path, "none"), path);
	return finish(importing, error);
}

static int recognizes_python(const struct source *source)
{
	return strstr(source->text, "torchtitan") != NULL ? 12 : 0;
}

static int recognizes_flat(const struct source *source)
{
	return source_has(source, "parallelism.*") || source_has(source, "training.*") ? 9 : 0;
}

static const struct config_format format = {recognizes_python, keys, "*", "parallelism.*",
	finish_python, .has_functions = true,
	.aliases = "ParallelismConfig.>parallelism. TrainingConfig.>training. "
		   "CompileConfig.>compile."};
static const struct config_format flag_format = {
	recognizes_flat, keys, plain, unpriced, finish_flags};
static const struct config_format toml_format = {recognizes_flat, toml_keys, plain, unpriced,
	finish_toml,
	.aliases = "experimental.enable_>parallelism.enable_ "
		   "training.tensor_>parallelism.tensor_ training.data_>parallelism.data_"};

#define ALL_ALIKE                                                                                  \
	.program = "torchtitan", .wraps = "block", .wraps_apart = true, .tail = TAIL_CHOSEN,       \
	.adapt = adapt, .leaves = titan_leaves_stages, .clips = true

const struct export_target export_torchtitan = {
	.name = "torchtitan",
	.title = "torchtitan: a Trainer.Config",
	.file = "shardplan_config.py",
	.versions = "0.3.0 main",
	.syntax = SYNTAX_PYTHON,
	ALL_ALIKE,
	.rules = rules,
	.launch = TORCHRUN "-m torchtitan.train --module %m --config plan",
	.write = write_python,
	.format = &format,
};

const struct export_target export_torchtitan_flags = {
	.name = "torchtitan-flags",
	.title = "torchtitan: command-line flags",
	.file = "torchtitan.args",
	.versions = "0.3.0 main",
	.syntax = SYNTAX_ARGUMENTS,
	ALL_ALIKE,
	.rules = rules,
	.launch = TORCHRUN "-m torchtitan.train %x $(grep -v '^#' %f)",
	.started_with = started_with,
	.write = write_flags,
	.format = &flag_format,
};

const struct export_target export_torchtitan_toml = {
	.name = "torchtitan-toml",
	.title = "torchtitan up to 0.2: TOML",
	.file = "torchtitan.toml",
	.versions = "0.2.2",
	.syntax = SYNTAX_TOML,
	ALL_ALIKE,
	.rules = toml_rules,
	.launch = TORCHRUN "-m torchtitan.train --job.config_file %f",
	.write = write_toml,
	.format = &toml_format,
};
