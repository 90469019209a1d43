/* The table of targets, and what their writers share. */
#include "reports/export.h"

#include <string.h>

#include "reports/escape.h"
#include "reports/export_write.h"

const struct export_target *const export_targets[] = {
	&export_accelerate_fsdp2,
	&export_trainer_fsdp2,
	&export_torchtitan,
	&export_pytorch_fsdp2,
	&export_axolotl,
	&export_trl,
	&export_megatron_torch_fsdp2,
	&export_megatron_fsdp,
	&export_deepspeed,
	&export_accelerate_deepspeed,
	&export_nanotron,
	&export_accelerate_fsdp1,
	&export_trainer_fsdp1,
	&export_pytorch_fsdp1,
	&export_llm_foundry,
	&export_torchtitan_flags,
	&export_torchtitan_toml,
};
const int n_export_targets = COUNT_OF(export_targets);

const struct export_target *export_find(const char *name, struct error *error)
{
	const char *names[COUNT_OF(export_targets) + 1] = {NULL};

	for (int i = 0; i < n_export_targets; i++) {
		names[i] = export_targets[i]->name;
		if (strcmp(names[i], name) == 0)
			return export_targets[i];
	}
	const char *near = nearest_name(name, names);
	error_set(error, EXIT_CODE_USAGE, "%.60s: no such target%s%s%s", name,
		near != NULL ? ", did you mean " : "", near != NULL ? near : "",
		near != NULL ? "?" : "; `export --list` shows them");
	return NULL;
}

bool export_has(const char *const *names, const char *name)
{
	for (; *names != NULL; names++) {
		if (strcmp(*names, name) == 0)
			return true;
	}
	return false;
}

/* "%f": the file, "%n" nodes, "%g" devices a node, "%w" all, "%b" micro-batch, "%a" micro-batches,
 * "%s" tokens. */
static void add_placeholder(
	const struct exporting *exporting, char letter, const char *file_name, struct text *line)
{
	const struct topology *topology = exporting->topology;
	const struct plan *plan = exporting->plan;
	const struct {
		char letter;
		int64_t value;
	} numbers[] = {{'n', topology->nodes}, {'g', topology->devices_per_node},
		{'w', topology_devices(topology)}, {'b', plan->micro_batch},
		{'a', plan->grad_accum}, {'s', plan->seq_len}};

	if (letter == 'f')
		add_ascii(line, file_name);
	for (int i = 0; i < COUNT_OF(numbers); i++) {
		if (numbers[i].letter == letter)
			text_int(line, numbers[i].value);
	}
}

static const char *launch_line(const struct exporting *exporting, const char *file_name)
{
	struct text line = {0};

	for (const char *c = exporting->target->launch; *c != '\0'; c++) {
		if (*c != '%')
			text_add_char(&line, *c);
		else
			add_placeholder(exporting, *++c, file_name, &line);
	}
	const char *copy = arena_strdup(exporting->arena, text_string(&line));
	text_finish(&line);
	return copy;
}

bool export_plan(const struct export_target *target, const struct plan_file *file,
	const char *file_name, struct arena *arena, struct exported *exported, struct text *text,
	struct error *error)
{
	struct exporting exporting = {
		.target = target,
		.file = file,
		.plan = &exported->plan,
		.model = file->model,
		.topology = file->topology,
		.exported = exported,
		.arena = arena,
		.text = text,
	};
	const struct mesh *mesh = &file->plan.mesh;

	*exported = (struct exported){0};
	if (mesh->tensor * mesh->pipeline * mesh->context * mesh->expert != 1)
		return error_set(error, EXIT_CODE_USAGE,
			"export: expected a plan of data parallelism alone");
	export_adapt(&exporting, &exported->plan);
	exported->launch = launch_line(&exporting, file_name);
	target->write(&exporting);
	return true;
}

/* --- comments ------------------------------------------------------------------------------ */

static void add_comment(struct text *text, const char *line)
{
	text_add(text, "# ");
	add_ascii(text, line);
	text_add_char(text, '\n');
}

static void add_notes(const struct exporting *exporting, bool beside, const char *heading)
{
	const struct exported *exported = exporting->exported;
	bool first = true;

	for (int i = 0; i < exported->n_notes; i++) {
		const struct export_note *note = &exported->notes[i];
		if ((note->saying == SAYS_BESIDE) != beside)
			continue;
		if (first)
			add_comment(exporting->text, heading);
		first = false;
		add_comment(exporting->text,
			arena_printf(exporting->arena, "  %s %s", note->knob, note->text));
	}
}

void export_header(struct exporting *exporting)
{
	struct arena *arena = exporting->arena;
	struct text summary = {0};

	plan_summary(exporting->plan, &summary);
	add_comment(exporting->text, arena_printf(arena, "%s, written by shardplan export --to %s.",
					     exporting->target->title, exporting->target->name));
	add_comment(exporting->text,
		arena_printf(arena, "%s on %lld x %lld %s, sequences of %lld tokens.",
			exporting->model->architecture.name, (long long)exporting->topology->nodes,
			(long long)exporting->topology->devices_per_node,
			exporting->topology->device.name, (long long)exporting->plan->seq_len));
	add_comment(exporting->text, arena_printf(arena, "Plan: %s.", text_string(&summary)));
	add_comment(exporting->text, arena_printf(arena, "Start: %s", exporting->exported->launch));
	add_notes(exporting, true, "Not said by this file; say it in the training script:");
	add_notes(exporting, false, "Changed, for this framework does it its own way:");
	text_finish(&summary);
}

/* --- questions about the plan -------------------------------------------------------------- */

bool export_is_hybrid(const struct exporting *exporting)
{
	return strategy_is_hybrid(exporting->plan->strategy);
}

bool export_is_sharded(const struct exporting *exporting)
{
	return exporting->plan->strategy != STRATEGY_NO_SHARD;
}

const char *export_class(struct exporting *exporting)
{
	const char *family = model_family_names[exporting->model->architecture.family];
	const char *name = export_block_class(family);

	if (name == NULL)
		export_add_note(exporting, "wrap", SAYS_BESIDE,
			"the class of a block of family %s is not known here", family);
	return name;
}

static struct wrap_policy wrap_of(const struct exporting *exporting)
{
	struct wrap_policy policy = {WRAP_BLOCK, 0, false, false};

	plan_wrap(exporting->plan, &policy);
	return policy;
}

int64_t export_min_parameters(const struct exporting *exporting)
{
	struct wrap_policy policy = wrap_of(exporting);

	return policy.kind == WRAP_SIZE ? policy.argument : 0;
}

bool export_wraps_blocks(const struct exporting *exporting)
{
	return wrap_of(exporting).kind == WRAP_BLOCK;
}

int export_zero_stage(const struct plan *plan)
{
	int stage = strategy_stage(plan->strategy);

	if (plan->strategy == STRATEGY_NO_SHARD || stage > 0)
		return stage;
	return strategy_reshards(plan->strategy) ? 3 : 2;
}

bool export_checkpoints(const struct exporting *exporting)
{
	return strcmp(exporting->plan->activation_checkpointing, "none") != 0;
}

const char *export_torch_dtype(enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? "bfloat16" : dtype == DTYPE_FP16 ? "float16" : "float32";
}

/* --- classes of blocks --------------------------------------------------------------------- */

static const struct {
	const char *family, *block;
} block_classes[] = {
	{"gpt2", "GPT2Block"},
	{"mpt", "MptBlock"},
	{"llama", "LlamaDecoderLayer"},
	{"mistral", "MistralDecoderLayer"},
	{"mixtral", "MixtralDecoderLayer"},
	{"qwen2", "Qwen2DecoderLayer"},
	{"qwen2_moe", "Qwen2MoeDecoderLayer"},
	{"qwen3", "Qwen3DecoderLayer"},
	{"qwen3_moe", "Qwen3MoeDecoderLayer"},
	{"bloom", "BloomBlock"},
	{"deepseek_v2", "DeepseekV2DecoderLayer"},
	{"deepseek_v3", "DeepseekV3DecoderLayer"},
	{"kimi_k2", "DeepseekV3DecoderLayer"},
	{"falcon", "FalconDecoderLayer"},
	{"gemma", "GemmaDecoderLayer"},
	{"gemma2", "Gemma2DecoderLayer"},
	{"gemma3", "Gemma3DecoderLayer"},
	{"gemma3_text", "Gemma3DecoderLayer"},
	{"gpt_bigcode", "GPTBigCodeBlock"},
	{"gpt_neox", "GPTNeoXLayer"},
	{"gpt_oss", "GptOssDecoderLayer"},
	{"gptj", "GPTJBlock"},
	{"llama4", "Llama4TextDecoderLayer"},
	{"llama4_text", "Llama4TextDecoderLayer"},
	{"olmo", "OlmoDecoderLayer"},
	{"olmo2", "Olmo2DecoderLayer"},
	{"opt", "OPTDecoderLayer"},
	{"phi", "PhiDecoderLayer"},
	{"phi3", "Phi3DecoderLayer"},
	{"stablelm", "StableLmDecoderLayer"},
	{"starcoder2", "Starcoder2DecoderLayer"},
	{"t5", "T5Block"},
};

const char *export_block_class(const char *family)
{
	for (int i = 0; i < COUNT_OF(block_classes); i++) {
		if (strcmp(block_classes[i].family, family) == 0)
			return block_classes[i].block;
	}
	return NULL;
}

const char *export_block_family(const char *block_class)
{
	for (int i = 0; i < COUNT_OF(block_classes); i++) {
		if (strcmp(block_classes[i].block, block_class) == 0)
			return block_classes[i].family;
	}
	return strcmp(block_class, "MPTBlock") == 0 ? "mpt" : NULL; /* llm-foundry's spelling */
}

/* --- lists --------------------------------------------------------------------------------- */

void export_list(struct text *text)
{
	for (int i = 0; i < n_export_targets; i++) {
		const struct export_target *target = export_targets[i];
		text_printf(text, "%-22s %-24s %s\n", target->name, target->file, target->title);
	}
}

static const char *table_cell(const struct export_target *target, const char *knob)
{
	if (strcmp(knob, "wrap") == 0)
		return target->wraps == NULL                 ? "yes"
		       : strcmp(target->wraps, "block") == 0 ? "fixed"
							     : "some";
	for (const struct export_rule *rule = target->rules; rule->knob != NULL; rule++) {
		if (strcmp(rule->knob, knob) != 0)
			continue;
		if (rule->saying == SAYS_BESIDE)
			return "beside";
		if (rule->saying == SAYS_ALWAYS)
			return "fixed";
		return rule->values != NULL && strchr(rule->values, '>') != NULL ? "some" : "yes";
	}
	return "no";
}

static void add_table_row(struct text *text, const char *knob)
{
	text_printf(text, "| `%s` |", knob);
	for (int i = 0; i < n_export_targets; i++)
		text_printf(text, " %s |", table_cell(export_targets[i], knob));
	text_add_char(text, '\n');
}

void export_table(struct text *text)
{
	text_add(text, "| knob |");
	for (int i = 0; i < n_export_targets; i++)
		text_printf(text, " %s |", export_targets[i]->name);
	text_add(text, "\n|---|");
	for (int i = 0; i < n_export_targets; i++)
		text_add(text, "---|");
	text_add_char(text, '\n');
	for (const struct field *field = plan_fields; field->name != NULL; field++)
		add_table_row(text, field->name);
	add_table_row(text, "shard_group");
}
