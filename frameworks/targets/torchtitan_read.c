/* torchtitan's configurations read back: Python, flags and TOML. Sources:
 * torchtitan_write.c. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define PARALLELISM(prefix)                                                                        \
	{prefix "data_parallel_replicate_degree", IMPORT_READ, NULL, NULL},                        \
		{prefix "data_parallel_shard_degree", IMPORT_READ, NULL, NULL},                    \
		{prefix "fsdp_reshard_after_forward", IMPORT_READ, NULL, NULL},                    \
		{prefix "tensor_parallel_degree", IMPORT_ONE, NULL, NULL},                         \
		{prefix "pipeline_parallel_degree", IMPORT_ONE, NULL, NULL},                       \
		{prefix "context_parallel_degree", IMPORT_ONE, NULL, NULL},                        \
		{prefix "expert_parallel_degree", IMPORT_ONE, NULL, NULL},                         \
		{prefix "expert_tensor_parallel_degree", IMPORT_ONE, NULL, NULL},                  \
		{prefix "enable_fsdp_symm_mem", IMPORT_UNPRICED, NULL, NULL},                      \
		{prefix "pipeline_*", IMPORT_PLAIN, NULL, NULL},                                   \
		{prefix "context_*", IMPORT_PLAIN, NULL, NULL},                                    \
		{prefix "num_pp_microbatches", IMPORT_PLAIN, NULL, NULL},                          \
		{prefix "spmd_backend", IMPORT_PLAIN, NULL, NULL},                                 \
		{prefix "enable_*", IMPORT_PLAIN, NULL, NULL},                                     \
	{                                                                                          \
		prefix "module_fqns_*", IMPORT_PLAIN, NULL, NULL                                   \
	}

#define TRAINING(prefix)                                                                           \
	{prefix "max_context_length", IMPORT_COUNT, "seq-len", NULL},                              \
		{prefix "seq_len", IMPORT_COUNT, "seq-len", NULL},                                 \
		{prefix "local_batch_size", IMPORT_COUNT, "micro-batch", NULL},                    \
		{prefix "global_batch_size", IMPORT_READ, NULL, NULL},                             \
		{prefix "num_tokens_per_microbatch_per_dp_rank", IMPORT_READ, NULL, NULL},         \
		{prefix "num_tokens_per_train_step", IMPORT_READ, NULL, NULL},                     \
		{prefix "max_norm", IMPORT_NUMBER, "clip", NULL},                                  \
		{prefix "enable_cpu_offload", IMPORT_WORD, "cpu-offload",                          \
			"true>parameters false>none"},                                             \
		{prefix "dtype", IMPORT_WORD, "master-dtype", "bfloat16>bf16 float32>fp32"},       \
		{prefix "mixed_precision_param", IMPORT_WORD, "param-dtype",                       \
			"bfloat16>bf16 float32>fp32"},                                             \
		{prefix "mixed_precision_reduce", IMPORT_WORD, "reduce-dtype",                     \
			"bfloat16>bf16 float32>fp32"},                                             \
		{prefix "disable_cuda_graphs", IMPORT_PLAIN, NULL, NULL},                          \
	{                                                                                          \
		prefix "steps", IMPORT_PLAIN, NULL, NULL                                           \
	}

#define OPTIMIZER "fused*>adamw-fused foreach>adamw-foreach for-loop>adamw"

static const struct import_key python_keys[] = {
	PARALLELISM("parallelism."),
	PARALLELISM("ParallelismConfig."),
	TRAINING("training."),
	TRAINING("TrainingConfig."),
	{"parallelism.*", IMPORT_UNPRICED, NULL, NULL},
	{"optimizer.implementation", IMPORT_WORD, "optimizer", OPTIMIZER},
	{"compile.enable", IMPORT_SWITCH, "compile", NULL},
	{"CompileConfig.enable", IMPORT_SWITCH, "compile", NULL},
	{"*", IMPORT_READ, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

static const struct import_key flat_keys[] = {
	PARALLELISM("parallelism."),
	TRAINING("training."),
	{"training.*", IMPORT_PLAIN, NULL, NULL},
	{"optimizer.implementation", IMPORT_WORD, "optimizer", OPTIMIZER},
	{"optimizer.name", IMPORT_PLAIN, NULL, NULL},
	{"optimizer.early_step_in_backward", IMPORT_UNPRICED, NULL, NULL},
	{"optimizer.*", IMPORT_PLAIN, NULL, NULL},
	{"compile.enable", IMPORT_SWITCH, "compile", NULL},
	{"compile.*", IMPORT_PLAIN, NULL, NULL},
	{"activation-checkpoint", IMPORT_READ, NULL, NULL},
	{"activation_checkpoint.mode", IMPORT_READ, NULL, NULL},
	{"activation_checkpoint.selective_ac_option", IMPORT_READ, NULL, NULL},
	{"activation_checkpoint.*", IMPORT_PLAIN, NULL, NULL},
	{"model.name", IMPORT_READ, NULL, NULL},
	{"model.flavor", IMPORT_READ, NULL, NULL},
	{"model.converters*", IMPORT_UNPRICED, NULL, NULL},
	{"model.*", IMPORT_PLAIN, NULL, NULL},
	{"quantize.*", IMPORT_PLAIN, NULL, NULL},
	{"job.*", IMPORT_PLAIN, NULL, NULL},
	{"profiling.*", IMPORT_PLAIN, NULL, NULL},
	{"metrics.*", IMPORT_PLAIN, NULL, NULL},
	{"lr_scheduler.*", IMPORT_PLAIN, NULL, NULL},
	{"checkpoint.*", IMPORT_PLAIN, NULL, NULL},
	{"comm.*", IMPORT_PLAIN, NULL, NULL},
	{"validation.*", IMPORT_PLAIN, NULL, NULL},
	{"debug.*", IMPORT_PLAIN, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

/* Where a key of a section stands: assigned, or given to its class. */
static const char *place(
	const struct importing *importing, const char *section, const char *class, const char *key)
{
	const char *path = arena_printf(importing->arena, "%s.%s", section, key);

	if (import_find(importing, path) != NULL)
		return path;
	const char *other = arena_printf(importing->arena, "%s.%s", class, key);
	return import_find(importing, other) != NULL ? other : path;
}

static const char *parallelism(const struct importing *importing, const char *key)
{
	return place(importing, "parallelism", "ParallelismConfig", key);
}

static const char *training(const struct importing *importing, const char *key)
{
	return place(importing, "training", "TrainingConfig", key);
}

static bool finish_mesh(struct importing *importing, struct error *error)
{
	const char *path = parallelism(importing, "fsdp_reshard_after_forward");
	const char *policy = import_text(importing, path, "default");
	const char *replicates = parallelism(importing, "data_parallel_replicate_degree");
	const char *shards = parallelism(importing, "data_parallel_shard_degree");
	int64_t replicate, shard;
	bool hybrid;

	if (strcmp(policy, "default") != 0 && strcmp(policy, "always") != 0 &&
		strcmp(policy, "never") != 0)
		return import_fail(importing, path, error,
			"expected default, always or never, got \"%.40s\"", policy);
	if (!import_count(importing, replicates, &replicate, 1, error) ||
		!import_count(importing, shards, &shard, 0, error))
		return false;
	if (shard == 1) {
		import_set(importing, "runtime", "pytorch-ddp", NULL);
		import_set(importing, "strategy", "NO_SHARD", shards);
		import_set_count(importing, "gpus", replicate, replicates);
		return true;
	}
	if (!import_mesh(importing, replicate, shard, shards, &hybrid, error))
		return false;
	import_fsdp2_strategy(importing, strcmp(policy, "never") != 0, hybrid,
		import_find(importing, path) != NULL ? path : shards);
	return true;
}

/* Tokens to sequences. */
static bool finish_tokens(struct importing *importing, const char *key, const char *option,
	int64_t length, struct error *error)
{
	const char *path = training(importing, key);
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
	import_set_count(importing, option, count / length, path);
	return true;
}

static bool finish_batch(struct importing *importing, struct error *error)
{
	const char *length_path = training(importing, "max_context_length");
	const char *global_path = training(importing, "global_batch_size");
	int64_t length, global;

	if (!import_count(importing, length_path, &length, 0, error) ||
		!finish_tokens(importing, "num_tokens_per_microbatch_per_dp_rank", "micro-batch",
			length, error) ||
		!finish_tokens(
			importing, "num_tokens_per_train_step", "global-batch", length, error) ||
		!import_count(importing, global_path, &global, 0, error))
		return false;
	if (global > 0)
		import_set_count(importing, "global-batch", global, global_path);
	if (!import_was_set(importing, "clip"))
		import_set(importing, "clip", "1", NULL);
	if (!import_was_set(importing, "optimizer"))
		import_set(importing, "optimizer", "adamw-fused", NULL);
	if (!import_was_set(importing, "param-dtype"))
		import_set(importing, "param-dtype", "bf16", NULL);
	if (!import_was_set(importing, "master-dtype"))
		import_set(importing, "master-dtype", "fp32", NULL);
	import_set(importing, "reduce-dtype", "fp32", NULL);
	import_set(importing, "sync-each-micro-batch", "on", NULL);
	import_set(importing, "wrap", "block", NULL);
	return true;
}

static const struct {
	const char *config, *name, *flavor, *model;
} models[] = {
	{"llama3_8b*", "llama3", "8B", "llama-3.1-8b"},
	{"llama3_70b*", "llama3", "70B", "llama-3.1-70b"},
	{"llama3_405b*", "llama3", "405B", "llama-3.1-405b"},
	{"qwen3_0_6b*", "qwen3", "0.6B", "qwen3-0.6b"},
	{"qwen3_1_7b*", "qwen3", "1.7B", "qwen3-1.7b"},
	{"qwen3_14b*", "qwen3", "14B", "qwen3-14b"},
	{"qwen3_32b*", "qwen3", "32B", "qwen3-32b"},
};

/* By the function that is called, or by name and flavor. */
static void finish_model(struct importing *importing)
{
	for (int i = 0; i < COUNT_OF(models); i++) {
		bool flat = import_is(importing, "model.name", models[i].name) &&
			    import_is(importing, "model.flavor", models[i].flavor);
		if (flat || import_find(importing, models[i].config) != NULL)
			importing->imported->model = models[i].model;
	}
}

static void set_checkpointing(struct importing *importing, const char *text, const char *path)
{
	static const struct {
		const char *word, *value;
	} words[] = {{"FullAC", "full"}, {"SelectiveAC", "selective"}, {"full", "full"},
		{"selective", "selective"}, {"None", "none"}, {"none", "none"}};

	for (int i = 0; i < COUNT_OF(words); i++) {
		if (strncmp(text, words[i].word, strlen(words[i].word)) == 0) {
			import_set(importing, "activation-checkpointing", words[i].value, path);
			return;
		}
	}
	import_note(importing, path, "%.40s: is not predicted", text);
}

static bool finish(struct importing *importing, struct error *error)
{
	finish_model(importing);
	return finish_mesh(importing, error) && finish_batch(importing, error);
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
		set_checkpointing(importing, text, path);
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
	if (strcmp(option, "op") != 0)
		import_note(importing, "activation_checkpoint.selective_ac_option",
			"%.20s: predicted as op", option);
	return finish(importing, error);
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

const struct import_format import_torchtitan = {recognizes_python, python_keys, finish_python};
const struct import_format import_torchtitan_flags = {recognizes_flat, flat_keys, finish_flags};
const struct import_format import_torchtitan_toml = {recognizes_flat, flat_keys, finish_toml};
