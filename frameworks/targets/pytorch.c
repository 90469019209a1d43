/* PyTorch itself: a script that trains, with FSDP2 or FSDP1, as a skeleton to put a model and data
 * into. The plan stands at its top, as assignments that `import` reads back; the code below them
 * is the same for every plan: scripts/, embedded in the binary.
 *
 * Calls: PyTorch 2.6 and later (torch.distributed.fsdp), Transformers for the model. */
#include <string.h>

#include "frameworks/targets/shared.h"

extern const struct export_target export_pytorch_fsdp2;

#define PYTORCH_COMMON ATTENTION_FLASH, FSDP_OFFLOAD, LIGER_IN_SCRIPT, OUTSIDE_OF_FILES

static const struct export_rule fsdp2_rules[] = {
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP, "FSDP2 is the nearest"},
	{KNOB_RUNTIME, FIXED, "pytorch-ddp *>pytorch-fsdp2", "this script is FSDP2's"},
	{KNOB_FP8, ELSEWHERE, NULL,
		"torchao.float8.convert_to_float8_training(model, config="
		"Float8LinearConfig.from_recipe_name(\"...\")) before fully_shard, without the "
		"head"},
	FSDP2_PREFETCH,
	FSDP2_LIMITER,
	PYTORCH_COMMON,
};

static const struct export_rule fsdp1_rules[] = {
	{KNOB_STRATEGY, IN_FILE, ZERO_AS_FSDP, "FSDP1 is the nearest"},
	{KNOB_RUNTIME, FIXED, "pytorch-ddp *>pytorch-fsdp1", "this script is FSDP1's"},
	FSDP1_RESHARD,
	PYTORCH_COMMON,
};

/* --- the plan as assignments ---------------------------------------------------------------- */

static bool is_fsdp2(const struct exporting *exporting)
{
	return exporting->target == &export_pytorch_fsdp2;
}

static const char *reshard(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	int64_t group = plan_reshard_group(plan);

	if (!is_fsdp2(exporting))
		return NULL;
	if (plan->reshard_after_forward.n > 0 || plan_reshards_root(plan))
		return plan->reshard_after_forward.text;
	return group > 0   ? arena_printf(exporting->arena, "%lld", (long long)group)
	       : group < 0 ? "true"
			   : "false";
}

static const char *prefetch(struct exporting *exporting)
{
	return is_fsdp2(exporting) ? NULL
				   : knob_name(KNOB_PREFETCH, (int)exporting->plan->prefetch);
}

static const char *limiter(struct exporting *exporting)
{
	return is_fsdp2(exporting) ? NULL : exporting->plan->limit_all_gathers ? "true" : "false";
}

static const char *late_all_reduce(struct exporting *exporting)
{
	return !is_fsdp2(exporting) ? NULL : exporting->plan->late_all_reduce ? "true" : "false";
}

static const char *trainable(struct exporting *exporting)
{
	return exporting->plan->trainable.text;
}

static const char *device(struct exporting *exporting)
{
	return exporting->topology->device.kind == DEVICE_CPU ? "cpu" : "cuda";
}

#define TORCH_TYPES "torch.bfloat16>bf16 torch.float32>fp32 torch.float16>fp16 torch.half>fp16"

/* Ours. What others give to calls is `plain`, for `finish` to find: in our scripts the arguments of
 * the calls are these very names, which are no values. */
static const struct config_key keys[] = {
	{"STRATEGY", KEY_WORD, KNOB_STRATEGY, "*"},
	{"REPLICATE", KEY_READ, NO_KNOB, NULL, 0, value_replicas},
	{"SHARD", KEY_READ, KNOB_SHARD_GROUP},
	{"RESHARD_AFTER_FORWARD", KEY_READ, KNOB_RESHARD_AFTER_FORWARD, NULL, 0, reshard},
	{"WRAP", KEY_WORD, KNOB_WRAP, "*"},
	{"PREFETCH", KEY_WORD, KNOB_PREFETCH, "none pre post", 0, prefetch},
	{"FORWARD_PREFETCH", KEY_SWITCH, KNOB_FORWARD_PREFETCH},
	{"LIMIT_ALL_GATHERS", KEY_SWITCH, KNOB_LIMIT_ALL_GATHERS, NULL, 0, limiter},
	{"CPU_OFFLOAD", KEY_WORD, KNOB_CPU_OFFLOAD, "True>parameters False>none"},
	{"SEQ_LEN", KEY_COUNT, KNOB_SEQ_LEN},
	{"MICRO_BATCH", KEY_COUNT, KNOB_MICRO_BATCH},
	{"GRAD_ACCUM", KEY_COUNT, KNOB_GRAD_ACCUM},
	{"SYNC_EACH_MICRO_BATCH", KEY_SWITCH, KNOB_SYNC_EACH_MICRO_BATCH},
	{"LATE_ALL_REDUCE", KEY_SWITCH, KNOB_LATE_ALL_REDUCE, NULL, 0, late_all_reduce},
	{"DEVICE", KEY_PLAIN, NO_KNOB, NULL, 0, device},
	{"ACTIVATION_CHECKPOINTING", KEY_WORD, KNOB_ACTIVATION_CHECKPOINTING, "*"},
	{"ACTIVATION_OFFLOAD", KEY_WORD, KNOB_ACTIVATION_OFFLOAD, "none checkpoints all"},
	{"ATTENTION", KEY_WORD, KNOB_ATTENTION, "flash_attention_2>flash sdpa>flash eager"},
	{"COMPILE", KEY_SWITCH, KNOB_COMPILE},
	{"PARAM_DTYPE", KEY_WORD, KNOB_PARAM_DTYPE, TORCH_TYPES},
	{"MASTER_DTYPE", KEY_WORD, KNOB_MASTER_DTYPE, TORCH_TYPES},
	{"REDUCE_DTYPE", KEY_WORD, KNOB_REDUCE_DTYPE, TORCH_TYPES},
	{"OPTIMIZER", KEY_WORD, KNOB_OPTIMIZER, "adamw-fused adamw-foreach adamw sgd"},
	{"CLIP", KEY_NUMBER, KNOB_CLIP, NULL, EVEN_IF_LEFT},
	{"TRAINABLE", KEY_WORD, KNOB_TRAINABLE, "*", EXACT_CASE, trainable},
	{NULL},
};

/* --- the model ----------------------------------------------------------------------------- */

struct named_size {
	const char *key;
	int64_t value;
};

static void write_sizes(struct text *text, const struct named_size *sizes, int n)
{
	for (int i = 0; i < n; i++)
		text_printf(text, "    %s=%lld,\n", sizes[i].key, (long long)sizes[i].value);
}

static void write_gpt2(const struct architecture *model, struct text *text)
{
	const struct named_size sizes[] = {{"n_embd", model->hidden}, {"n_layer", model->layers},
		{"n_head", model->heads}, {"n_inner", model->ffn}, {"n_positions", model->context},
		{"vocab_size", model->vocab}};

	write_sizes(text, sizes, COUNT_OF(sizes));
	text_add(text, "    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,\n");
}

static void write_mpt(const struct architecture *model, struct text *text)
{
	const struct named_size sizes[] = {{"d_model", model->hidden}, {"n_layers", model->layers},
		{"n_heads", model->heads}, {"expansion_ratio", model->ffn / model->hidden},
		{"max_seq_len", model->context}, {"vocab_size", model->vocab}};

	write_sizes(text, sizes, COUNT_OF(sizes));
}

static void write_llama(const struct architecture *model, struct text *text)
{
	const struct named_size sizes[] = {{"hidden_size", model->hidden},
		{"num_hidden_layers", model->layers}, {"num_attention_heads", model->heads},
		{"num_key_value_heads", model->kv_heads}, {"head_dim", model->head_dim},
		{"intermediate_size", model->ffn}, {"max_position_embeddings", model->context},
		{"vocab_size", model->vocab}};

	write_sizes(text, sizes, COUNT_OF(sizes));
	text_add(text, "    rope_theta=");
	text_number(text, model->rope_theta);
	text_add(text, ", rms_norm_eps=");
	text_number(text, model->norm_epsilon);
	text_printf(text, ",\n    tie_word_embeddings=%s,\n", model->tied_head ? "True" : "False");
}

/* Families whose sizes can be spelled out; the others are loaded by name. */
static const struct {
	const char *family;
	void (*write)(const struct architecture *model, struct text *text);
} configurations[] = {{"gpt2", write_gpt2}, {"mpt", write_mpt}, {"llama", write_llama},
	{"mistral", write_llama}, {"qwen2", write_llama}, {"qwen3", write_llama}};

static void write_model(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;
	const char *family = model_family_names[model->family];
	const char *block = export_block_class(family);
	struct text *text = exporting->text;

	const struct settings names = {
		2, {{"MODEL", model->name, SETTING_STRING},
			   {"BLOCK_CLASS", block != NULL ? block : "", SETTING_STRING}}};

	export_add_settings(exporting, &names, "");
	for (int i = 0; i < COUNT_OF(configurations); i++) {
		if (strcmp(configurations[i].family, family) != 0)
			continue;
		text_printf(text, "CONFIG = dict(\n    model_type=\"%s\",\n", family);
		configurations[i].write(model, text);
		text_add(text, ")\n\n\n");
		return;
	}
	text_add(text,
		"CONFIG = None  # MODEL is loaded by name: a Hugging Face name or folder\n\n\n");
}

/* Adapters or a pattern; false: all of it is trained. */
static bool write_trained(struct exporting *exporting)
{
	const struct trainable *trainable = &exporting->plan->trainable;
	struct text *text = exporting->text;
	int n = 0;

	if (trainable_is_all(trainable))
		return false;
	const char **names = trainable->rank > 0
				     ? model_adapted_modules(exporting->model, exporting->arena, &n)
				     : NULL;
	text_printf(text, "RANK = %lld\nALPHA = ", (long long)trainable->rank);
	text_number(text, trainable->alpha);
	text_add(text, "\nADAPTED = [");
	for (int i = 0; i < n; i++)
		text_printf(text, "%s\"%s\"", i > 0 ? ", " : "", names[i]);
	text_add(text, "]\n\n\n");
	return true;
}

extern const struct embedded_file export_scripts[];
extern const int n_export_scripts;

static void add_code(struct text *text, const char *name)
{
	for (int i = 0; i < n_export_scripts; i++) {
		if (strcmp(export_scripts[i].name, name) == 0)
			text_add(text, export_scripts[i].text);
	}
	text_add(text, strstr(name, "imports") != NULL ? "" : "\n\n");
}

static void write_script(struct exporting *exporting, bool fsdp2)
{
	struct text *text = exporting->text;
	struct settings settings;

	export_class(exporting);
	export_settings(exporting, &settings);
	text_add(text, "#!/usr/bin/env python3\n");
	export_header(exporting);
	add_code(text, fsdp2 ? "fsdp2_imports" : "fsdp1_imports");
	text_add(text, "\n# --- the plan; `shardplan import` reads it back ---\n");
	export_add_settings(exporting, &settings, "");
	text_add_char(text, '\n');
	write_model(exporting);
	bool trains_part = write_trained(exporting);
	add_code(text, "model");
	if (trains_part)
		add_code(text, "trainable");
	add_code(text, fsdp2 ? "fsdp2" : "fsdp1");
	add_code(text, "training");
}

static void write_fsdp2(struct exporting *exporting)
{
	write_script(exporting, true);
}

static void write_fsdp1(struct exporting *exporting)
{
	write_script(exporting, false);
}

/* --- import: ours by the assignments, others by the arguments that they give to fully_shard,
 * FullyShardedDataParallel, their policies and init_device_mesh. Nothing is run: what is computed
 * is not seen. ------------------------------------------------------------------------------ */

static bool is_ours(const struct source *source)
{
	return source_has(source, "STRATEGY") && source_has(source, "MICRO_BATCH");
}

/* "fully_shard.limit", "dict.limit", "limit": the argument of any call. */
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
	import_set(importing, KNOB_RUNTIME,
		!sharded ? "pytorch-ddp"
		: fsdp2  ? "pytorch-fsdp2"
			 : "pytorch-fsdp1",
		NULL);
	if (!import_count(importing, "REPLICATE", &replicate, 1, error) ||
		!import_count(importing, "SHARD", &shard, 1, error))
		return false;
	if (!checked_mul(replicate, shard, &group))
		return import_fail(importing, "SHARD", error, "too many ranks");
	import_set_count(importing, KEY_GPUS, group, "SHARD");
	if (strncmp(strategy, "HYBRID", 6) == 0)
		import_set_count(importing, KNOB_SHARD_GROUP, shard, "SHARD");
	const char *reshard = import_text(importing, "RESHARD_AFTER_FORWARD", "True");
	if (sharded && (strchr(reshard, 'x') != NULL || strcmp(reshard, "all") == 0)) {
		import_set(importing, KNOB_RESHARD_AFTER_FORWARD, reshard, "RESHARD_AFTER_FORWARD");
	} else if (sharded && strcmp(reshard, "True") != 0 && strcmp(reshard, "False") != 0) {
		if (!import_count(importing, "RESHARD_AFTER_FORWARD", &group, 1, error))
			return false;
		import_set_count(
			importing, KNOB_RESHARD_AFTER_FORWARD, group, "RESHARD_AFTER_FORWARD");
	}
	return true;
}

static void set_dtype(struct importing *importing, const char *name, enum knob_id knob)
{
	static const struct {
		const char *torch, *dtype;
	} dtypes[] = {{"torch.bfloat16", "bf16"}, {"torch.float16", "fp16"}, {"torch.half", "fp16"},
		{"torch.float32", "fp32"}};
	const char *path = argument_of(importing, name);
	const char *text = import_text(importing, path, "");

	for (int i = 0; i < COUNT_OF(dtypes); i++) {
		if (strcmp(text, dtypes[i].torch) == 0)
			import_set(importing, knob, dtypes[i].dtype, path);
	}
}

/* Checkpointing in a script of others can only be guessed at. */
static void note_checkpointing(struct importing *importing)
{
	static const char *const signs[] = {"apply_activation_checkpointing()",
		"checkpoint_wrapper()", "gradient_checkpointing_enable()"};

	for (int i = 0; i < COUNT_OF(signs); i++) {
		if (import_find(importing, signs[i]) == NULL)
			continue;
		import_set(importing, KNOB_ACTIVATION_CHECKPOINTING, "full", signs[i]);
		import_note(importing, signs[i],
			"taken for checkpointing of every block; "
			"--activation-checkpointing says otherwise");
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
		import_set_count(importing, KNOB_RESHARD_AFTER_FORWARD, group, path);
	}
	if (source_has(importing->source, "CPUOffloadPolicy()"))
		import_set(importing, KNOB_CPU_OFFLOAD, "parameters", "CPUOffloadPolicy()");
	set_dtype(importing, "param_dtype", KNOB_PARAM_DTYPE);
	set_dtype(importing, "reduce_dtype", KNOB_REDUCE_DTYPE);
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

	import_set(importing, KNOB_PREFETCH,
		strstr(text, "BACKWARD_POST") != NULL  ? "post"
		: strstr(text, "BACKWARD_PRE") != NULL ? "pre"
						       : "none",
		import_find(importing, path) != NULL ? path : NULL);
	if (!import_switch(importing, forward, &forward_on, false, error) ||
		!import_switch(importing, limit, &limit_on, true, error))
		return false;
	import_set(importing, KNOB_FORWARD_PREFETCH, forward_on ? "on" : "off", forward);
	import_set(importing, KNOB_LIMIT_ALL_GATHERS, limit_on ? "on" : "off", limit);
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
	import_set(importing, KNOB_STRATEGY, name, import_find(importing, path) ? path : NULL);
	import_set(importing, KNOB_RUNTIME, "pytorch-fsdp1", NULL);
	finish_mesh(importing, &replicate, &shard);
	if (shard > 0 &&
		!import_mesh(importing, replicate, shard, "init_device_mesh()", &hybrid, error))
		return false;
	const char *offload = argument_of(importing, "offload_params");
	if (import_find(importing, offload) != NULL)
		import_set(importing, KNOB_CPU_OFFLOAD,
			import_is(importing, offload, "True") ? "parameters" : "none", offload);
	bool wrapped = import_find(importing, argument_of(importing, "auto_wrap_policy")) != NULL;
	import_set(importing, KNOB_WRAP, wrapped ? "block" : "model",
		wrapped ? argument_of(importing, "auto_wrap_policy") : NULL);
	set_dtype(importing, "param_dtype", KNOB_PARAM_DTYPE);
	set_dtype(importing, "reduce_dtype", KNOB_REDUCE_DTYPE);
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

static const struct config_format fsdp2_format = {recognizes_fsdp2, keys, "*", NULL, finish_fsdp2};
static const struct config_format fsdp1_format = {recognizes_fsdp1, keys, "*", NULL, finish_fsdp1};

const struct export_target export_pytorch_fsdp2 = {
	.name = "pytorch",
	.title = "a PyTorch script with FSDP2",
	.file = "train_fsdp2.py",
	.program = "PyTorch",
	.versions = "2.15.0",
	.syntax = SYNTAX_PYTHON,
	.rules = fsdp2_rules,
	.launch = TORCHRUN "%f --steps 100",
	.write = write_fsdp2,
	.format = &fsdp2_format,
};

const struct export_target export_pytorch_fsdp1 = {
	.name = "pytorch-fsdp1",
	.title = "a PyTorch script with FSDP1",
	.file = "train_fsdp1.py",
	.program = "PyTorch",
	.versions = "2.15.0",
	.syntax = SYNTAX_PYTHON,
	.wraps = "block model size:*",
	.rules = fsdp1_rules,
	.launch = TORCHRUN "%f --steps 100",
	.write = write_fsdp1,
	.format = &fsdp1_format,
};
