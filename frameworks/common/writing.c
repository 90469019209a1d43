/* What the writers of the targets share: notes, comments, and questions about the plan. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "frameworks/common/writing.h"

void export_add_note(
	struct exporting *exporting, const char *knob, enum saying saying, const char *format, ...)
{
	struct exported *exported = exporting->exported;
	char words[512];
	va_list args;

	va_start(args, format);
	vsnprintf(words, sizeof(words), format, args);
	va_end(args);
	if (exported->n_notes == exported->notes_room) {
		int room = 2 * exported->notes_room + 8;
		struct export_note *grown = ARENA_ARRAY(exporting->arena, struct export_note, room);
		if (exported->n_notes > 0)
			memcpy(grown, exported->notes, (size_t)exported->n_notes * sizeof(*grown));
		exported->notes = grown;
		exported->notes_room = room;
	}
	exported->notes[exported->n_notes++] =
		(struct export_note){knob, arena_strdup(exporting->arena, words), saying};
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
