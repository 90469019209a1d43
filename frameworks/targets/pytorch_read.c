/* PyTorch scripts read back: ours by the assignments at their top, others by the arguments that
 * they give to fully_shard, FullyShardedDataParallel, their policies and init_device_mesh. Nothing
 * is run: what is computed is not seen. */
#include <string.h>

#include "frameworks/targets/shared.h"

#define TORCH "torch.bfloat16>bf16 torch.float32>fp32 torch.float16>fp16 torch.half>fp16"
#define OURS                                                                                       \
	{"SEQ_LEN", IMPORT_COUNT, "seq-len", NULL},                                                \
		{"MICRO_BATCH", IMPORT_COUNT, "micro-batch", NULL},                                \
		{"GRAD_ACCUM", IMPORT_COUNT, "grad-accum", NULL},                                  \
		{"SYNC_EACH_MICRO_BATCH", IMPORT_SWITCH, "sync-each-micro-batch", NULL},           \
		{"STRATEGY", IMPORT_WORD, "strategy", "*"}, {"WRAP", IMPORT_WORD, "wrap", "*"},    \
		{"PREFETCH", IMPORT_WORD, "prefetch", "none pre post"},                            \
		{"FORWARD_PREFETCH", IMPORT_SWITCH, "forward-prefetch", NULL},                     \
		{"LIMIT_ALL_GATHERS", IMPORT_SWITCH, "limit-all-gathers", NULL},                   \
		{"ACTIVATION_CHECKPOINTING", IMPORT_WORD, "activation-checkpointing", "*"},        \
		{"ATTENTION", IMPORT_WORD, "attention",                                            \
			"flash_attention_2>flash sdpa>flash eager"},                               \
		{"COMPILE", IMPORT_SWITCH, "compile", NULL},                                       \
		{"PARAM_DTYPE", IMPORT_WORD, "param-dtype", TORCH},                                \
		{"MASTER_DTYPE", IMPORT_WORD, "master-dtype", TORCH},                              \
		{"REDUCE_DTYPE", IMPORT_WORD, "reduce-dtype", TORCH},                              \
		{"OPTIMIZER", IMPORT_WORD, "optimizer", "adamw-fused adamw-foreach adamw sgd"},    \
		{"CPU_OFFLOAD", IMPORT_WORD, "cpu-offload", "True>parameters False>none"},         \
	{                                                                                          \
		"CLIP", IMPORT_NUMBER, "clip", NULL                                                \
	}

/* Ours, then what others give to the calls. In our scripts the arguments of the calls are these
 * very names: they are no dtypes, and finish_ours needs them not. */
static const struct import_key keys[] = {
	OURS,
	{"*", IMPORT_READ, NULL, NULL},
	{NULL, IMPORT_PLAIN, NULL, NULL},
};

static bool is_ours(const struct source *source)
{
	return source_has(source, "STRATEGY") && source_has(source, "MICRO_BATCH");
}

/* "fully_shard.limit", "dict.limit", "limit": whoever is given it. */
static const char *argument_of(const struct importing *importing, const char *name)
{
	const struct source *source = importing->source;
	size_t length = strlen(name);

	for (int i = source->n_leaves - 1; i >= 0; i--) {
		const char *path = source->leaves[i].path;
		size_t whole = strlen(path);
		bool ends = whole >= length && strcmp(path + whole - length, name) == 0;
		if (ends && (whole == length || path[whole - length - 1] == '.'))
			return path;
	}
	return name;
}

/* init_device_mesh("cuda", (2, 8), ...) */
static void finish_mesh(struct importing *importing, int64_t *replicate, int64_t *shard)
{
	const char *text = import_text(importing, "init_device_mesh()", "");
	const char *open = strchr(text, '(');
	int64_t sizes[2] = {0, 0};
	int n = 0;

	*replicate = 1;
	*shard = 0;
	for (const char *c = open; c != NULL && *c != '\0' && *c != ')' && n < 2; c++) {
		if (*c < '0' || *c > '9')
			continue;
		for (; *c >= '0' && *c <= '9' && sizes[n] < INT32_MAX; c++)
			sizes[n] = 10 * sizes[n] + (*c - '0');
		n++;
		c--;
	}
	*shard = n == 2 ? sizes[1] : sizes[0];
	*replicate = n == 2 ? sizes[0] : 1;
}

static bool finish_ours(struct importing *importing, bool fsdp2, struct error *error)
{
	const char *strategy = import_text(importing, "STRATEGY", "FULL_SHARD");
	bool sharded = strcmp(strategy, "NO_SHARD") != 0;
	int64_t replicate, shard, group;

	importing->imported->model = import_text(importing, "MODEL", NULL);
	importing->imported->block_class = import_text(importing, "BLOCK_CLASS", NULL);
	import_set(importing, "runtime",
		!sharded ? "pytorch-ddp"
		: fsdp2  ? "pytorch-fsdp2"
			 : "pytorch-fsdp1",
		NULL);
	if (!import_count(importing, "REPLICATE", &replicate, 1, error) ||
		!import_count(importing, "SHARD", &shard, 1, error))
		return false;
	if (!checked_mul(replicate, shard, &group))
		return import_fail(importing, "SHARD", error, "too many ranks");
	import_set_count(importing, "gpus", group, "SHARD");
	if (strncmp(strategy, "HYBRID", 6) == 0)
		import_set_count(importing, "shard-group", shard, "SHARD");
	const char *reshard = import_text(importing, "RESHARD_AFTER_FORWARD", "True");
	if (sharded && (strchr(reshard, 'x') != NULL || strcmp(reshard, "all") == 0)) {
		import_set(importing, "reshard-after-forward", reshard, "RESHARD_AFTER_FORWARD");
	} else if (sharded && strcmp(reshard, "True") != 0 && strcmp(reshard, "False") != 0) {
		if (!import_count(importing, "RESHARD_AFTER_FORWARD", &group, 1, error))
			return false;
		import_set_count(
			importing, "reshard-after-forward", group, "RESHARD_AFTER_FORWARD");
	}
	return true;
}

static void set_dtype(struct importing *importing, const char *name, const char *option)
{
	static const struct {
		const char *torch, *dtype;
	} dtypes[] = {{"torch.bfloat16", "bf16"}, {"torch.float16", "fp16"}, {"torch.half", "fp16"},
		{"torch.float32", "fp32"}};
	const char *path = argument_of(importing, name);
	const char *text = import_text(importing, path, "");

	for (int i = 0; i < COUNT_OF(dtypes); i++) {
		if (strcmp(text, dtypes[i].torch) == 0)
			import_set(importing, option, dtypes[i].dtype, path);
	}
}

/* Checkpointing in a script of somebody else's can only be guessed at. */
static void note_checkpointing(struct importing *importing)
{
	static const char *const signs[] = {"apply_activation_checkpointing()",
		"checkpoint_wrapper()", "gradient_checkpointing_enable()"};

	for (int i = 0; i < COUNT_OF(signs); i++) {
		if (import_find(importing, signs[i]) == NULL)
			continue;
		import_set(importing, "activation-checkpointing", "full", signs[i]);
		import_note(importing, signs[i],
			"taken for checkpointing of every block; --activation-checkpointing says "
			"otherwise");
		return;
	}
}

static bool finish_fsdp2(struct importing *importing, struct error *error)
{
	const char *path = argument_of(importing, "reshard_after_forward");
	const char *text = import_text(importing, path, "True");
	int64_t replicate, shard, group;
	bool hybrid;

	if (is_ours(importing->source))
		return finish_ours(importing, true, error);
	finish_mesh(importing, &replicate, &shard);
	if (!import_mesh(importing, replicate, shard, "init_device_mesh()", &hybrid, error))
		return false;
	bool number = text[0] >= '0' && text[0] <= '9';
	import_fsdp2_strategy(importing, strcmp(text, "False") != 0, hybrid,
		import_find(importing, path) != NULL ? path : NULL);
	if (number) {
		if (!import_count(importing, path, &group, 1, error))
			return false;
		import_set_count(importing, "reshard-after-forward", group, path);
	}
	if (source_has(importing->source, "CPUOffloadPolicy()"))
		import_set(importing, "cpu-offload", "parameters", "CPUOffloadPolicy()");
	set_dtype(importing, "param_dtype", "param-dtype");
	set_dtype(importing, "reduce_dtype", "reduce-dtype");
	note_checkpointing(importing);
	return true;
}

static bool finish_prefetch(struct importing *importing, struct error *error)
{
	const char *path = argument_of(importing, "backward_prefetch");
	const char *text = import_text(importing, path, "BackwardPrefetch.BACKWARD_PRE");
	const char *forward = argument_of(importing, "forward_prefetch");
	const char *limit = argument_of(importing, "limit_all_gathers");
	bool forward_on, limit_on;

	import_set(importing, "prefetch",
		strstr(text, "BACKWARD_POST") != NULL  ? "post"
		: strstr(text, "BACKWARD_PRE") != NULL ? "pre"
						       : "none",
		import_find(importing, path) != NULL ? path : NULL);
	if (!import_switch(importing, forward, &forward_on, false, error) ||
		!import_switch(importing, limit, &limit_on, true, error))
		return false;
	import_set(importing, "forward-prefetch", forward_on ? "on" : "off", forward);
	import_set(importing, "limit-all-gathers", limit_on ? "on" : "off", limit);
	return true;
}

static bool finish_fsdp1(struct importing *importing, struct error *error)
{
	const char *path = argument_of(importing, "sharding_strategy");
	const char *text = import_text(importing, path, "ShardingStrategy.FULL_SHARD");
	const char *dot = strrchr(text, '.');
	const char *name = dot != NULL ? dot + 1 : text;
	int64_t replicate, shard;
	bool hybrid;

	if (is_ours(importing->source))
		return finish_ours(importing, false, error);
	name += name[0] == '_';
	if (!export_has(strategy_names, name))
		return import_fail(importing, path, error,
			"expected one of ShardingStrategy, got \"%.60s\"", text);
	import_set(importing, "strategy", name, import_find(importing, path) ? path : NULL);
	import_set(importing, "runtime", "pytorch-fsdp1", NULL);
	finish_mesh(importing, &replicate, &shard);
	if (shard > 0 &&
		!import_mesh(importing, replicate, shard, "init_device_mesh()", &hybrid, error))
		return false;
	const char *offload = argument_of(importing, "offload_params");
	if (import_find(importing, offload) != NULL)
		import_set(importing, "cpu-offload",
			import_is(importing, offload, "True") ? "parameters" : "none", offload);
	bool wrapped = import_find(importing, argument_of(importing, "auto_wrap_policy")) != NULL;
	import_set(importing, "wrap", wrapped ? "block" : "model",
		wrapped ? argument_of(importing, "auto_wrap_policy") : NULL);
	set_dtype(importing, "param_dtype", "param-dtype");
	set_dtype(importing, "reduce_dtype", "reduce-dtype");
	note_checkpointing(importing);
	return finish_prefetch(importing, error);
}

static int recognizes_fsdp2(const struct source *source)
{
	return source_has(source, "fully_shard()") ? 8 : 0;
}

static int recognizes_fsdp1(const struct source *source)
{
	return source_has(source, "FullyShardedDataParallel()") || source_has(source, "FSDP()") ? 8
												: 0;
}

const struct import_format import_pytorch_fsdp2 = {recognizes_fsdp2, keys, finish_fsdp2};
const struct import_format import_pytorch_fsdp1 = {recognizes_fsdp1, keys, finish_fsdp1};
