/* What the writers of the targets share: notes, comments, and questions about the plan. */
#include <stdarg.h>
#include <string.h>

#include "frameworks/common/words.h"
#include "frameworks/common/writing.h"

void export_add_note(
	struct exporting *exporting, const char *what, bool elsewhere, const char *words)
{
	struct exported *exported = exporting->exported;

	if (exported->n_notes == exported->notes_room) {
		int room = 2 * exported->notes_room + 8;
		struct export_note *grown = ARENA_ARRAY(exporting->arena, struct export_note, room);
		if (exported->n_notes > 0)
			memcpy(grown, exported->notes, (size_t)exported->n_notes * sizeof(*grown));
		exported->notes = grown;
		exported->notes_room = room;
	}
	exported->notes[exported->n_notes++] = (struct export_note){what, words, elsewhere};
}

void export_note_elsewhere(struct exporting *exporting, const char *what, const char *format, ...)
{
	struct text text = {0};
	va_list args;

	va_start(args, format);
	text_vprintf(&text, format, args);
	va_end(args);
	export_add_note(exporting, what, true, arena_strdup(exporting->arena, text_string(&text)));
	text_finish(&text);
}

bool export_has(const char *const *names, const char *name)
{
	for (; *names != NULL; names++) {
		if (strcmp(*names, name) == 0)
			return true;
	}
	return false;
}

static void add_comment(struct text *text, const char *line)
{
	text_add(text, "# ");
	add_ascii(text, line);
	text_add_char(text, '\n');
}

static void add_notes(const struct exporting *exporting, bool elsewhere, const char *heading)
{
	const struct exported *exported = exporting->exported;
	bool first = true;

	for (int i = 0; i < exported->n_notes; i++) {
		const struct export_note *note = &exported->notes[i];
		if (note->elsewhere != elsewhere)
			continue;
		if (first)
			add_comment(exporting->text, heading);
		first = false;
		add_comment(exporting->text,
			arena_printf(exporting->arena, "  %s %s", note->knob, note->text));
	}
}

const char *export_version(const struct export_target *target, int version, struct arena *arena)
{
	const char *at = target->versions;
	struct word word;

	for (int i = 0; i <= version; i++)
		word_next(&at, &word);
	return arena_printf(arena, "%s %s", target->program, word_left(arena, &word));
}

int export_find_version(const struct export_target *target, const char *name, struct error *error)
{
	const char *at = target->versions;
	size_t length = strlen(name);
	struct word word;

	for (int version = 0; word_next(&at, &word); version++) {
		if (length > 0 && length <= word.left_length &&
			strncmp(word.left, name, length) == 0 &&
			(length == word.left_length || word.left[length] == '.'))
			return version;
	}
	struct text known = {0};
	for (at = target->versions; word_next(&at, &word);)
		text_printf(&known, "%s%.*s", known.length > 0 ? ", " : "", (int)word.left_length,
			word.left);
	error_set(error, EXIT_CODE_USAGE, "--for-version %.40s: of %s these are known: %s", name,
		target->program, text_string(&known));
	text_finish(&known);
	return -1;
}

void export_header(struct exporting *exporting)
{
	struct arena *arena = exporting->arena;
	struct text summary = {0};

	plan_summary(exporting->plan, &summary);
	add_comment(exporting->text,
		arena_printf(arena, "%s, for %s, written by shardplan export --to %s.",
			exporting->target->title,
			export_version(exporting->target, exporting->version, arena),
			exporting->target->name));
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
		export_note_elsewhere(exporting, "wrap",
			"the class of a block of family %s is not known here", family);
	return name;
}

int export_zero_stage(const struct plan *plan)
{
	int stage = strategy_stage(plan->strategy);

	if (plan->strategy == STRATEGY_NO_SHARD || stage > 0)
		return stage;
	return strategy_reshards(plan->strategy) ? 3 : 2;
}

/* --- values ---------------------------------------------------------------------------------- */

static const char *count(struct exporting *exporting, int64_t value)
{
	return arena_printf(exporting->arena, "%lld", (long long)value);
}

const char *value_model(struct exporting *exporting)
{
	return exporting->model->architecture.name;
}

const char *value_nodes(struct exporting *exporting)
{
	return count(exporting, exporting->topology->nodes);
}

const char *value_liger(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->liger || plan->loss == LOSS_FUSED_LINEAR ? "true" : NULL;
}

const char *value_liger_model(struct exporting *exporting)
{
	bool any = value_liger(exporting) != NULL;

	return any ? (exporting->plan->liger ? "true" : "false") : NULL;
}

const char *value_liger_loss(struct exporting *exporting)
{
	bool any = value_liger(exporting) != NULL,
	     loss = exporting->plan->loss == LOSS_FUSED_LINEAR;

	return any ? (loss ? "true" : "false") : NULL;
}

const char *value_reshards(struct exporting *exporting)
{
	return strategy_reshards(exporting->plan->strategy) ? "true" : "false";
}

const char *value_replicas(struct exporting *exporting)
{
	return count(exporting, exporting->plan->mesh.replicate);
}

const char *value_zero_stage(struct exporting *exporting)
{
	return count(exporting, export_zero_stage(exporting->plan));
}

const char *value_fsdp_version(struct exporting *exporting)
{
	return exporting->plan->runtime == RUNTIME_PYTORCH_FSDP1 ? "1" : "2";
}

const char *value_wrap_policy(struct exporting *exporting)
{
	enum wrap_kind kind = exporting->plan->wrap.kind;

	return kind == WRAP_SIZE    ? "SIZE_BASED_WRAP"
	       : kind == WRAP_BLOCK ? "TRANSFORMER_BASED_WRAP"
				    : "NO_WRAP";
}

const char *value_wrap_class(struct exporting *exporting)
{
	return exporting->plan->wrap.kind == WRAP_BLOCK ? export_class(exporting) : NULL;
}

const char *value_wrap_least(struct exporting *exporting)
{
	struct wrap_policy policy = exporting->plan->wrap;

	return policy.kind == WRAP_SIZE ? count(exporting, policy.argument) : NULL;
}

/* --- classes of blocks ----------------------------------------------------------------------- */

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
