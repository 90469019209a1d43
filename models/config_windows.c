/* Windows of attention in a Hugging Face config.json: how many tokens a block sees back, and which
 * blocks see all (transformers 4.57). */
#include <stdlib.h>
#include <string.h>

#include "models/config.h"
#include "models/families.h"

/* Every n-th block sees all where the file does not say which; 0: none does. */
static const unsigned char every[MODEL_FAMILY_COUNT] = {
	[FAMILY_COHERE2] = 4,
	[FAMILY_EXAONE4] = 4,
	[FAMILY_GEMMA2] = 2,
	[FAMILY_GEMMA3] = 6,
	[FAMILY_GPT_OSS] = 2,
	[FAMILY_LLAMA4] = 4,
};

/* A whole number above 0 under the first of these keys; else 0: nothing else depends on it. */
static int64_t number(const struct node *text, const char *const *keys)
{
	const struct node *node = config_first(text, keys);
	int64_t value;
	bool is = node != NULL && node->kind == NODE_SCALAR && parse_int(node->text, &value);

	return is && value > 0 ? value : 0;
}

static bool is_qwen(const struct architecture *a)
{
	return strncmp(model_family_names[a->family], "qwen", 4) == 0;
}

/* Of the kinds of all blocks; where some see all, every how many do. False: all do. */
static bool read_kinds(const struct node *kinds, struct architecture *a)
{
	int64_t whole = 0;

	for (int i = 0; i < kinds->n_children; i++) {
		const char *kind = kinds->children[i]->text;
		whole += kind != NULL && strcmp(kind, "full_attention") == 0;
	}
	a->full_attention_every = whole > 0 ? (kinds->n_children + whole / 2) / whole : 0;
	return whole < kinds->n_children;
}

/* Qwen's first blocks see all, 28 of them where the file does not say. */
static bool read_first(const struct node *text, struct architecture *a)
{
	bool says = config_get(text, "max_window_layers") != NULL;
	int64_t first = says ? number(text, KEYS("max_window_layers")) : 28;

	a->full_attention_every = first > 0 ? (a->layers + first / 2) / first : 0;
	return first < a->layers;
}

/* "LLLG" is a pattern of four. */
static void read_pattern(const struct node *text, struct architecture *a)
{
	const struct node *pattern =
		config_first(text, KEYS("sliding_window_pattern", "_sliding_window_pattern"));
	int64_t n;

	a->full_attention_every = every[a->family];
	if (pattern == NULL || pattern->kind != NODE_SCALAR)
		return;
	a->full_attention_every =
		parse_int(pattern->text, &n) ? max_i64(n, 0) : (int64_t)strlen(pattern->text);
}

bool config_read_windows(const struct node *text, struct architecture *a, struct error *error)
{
	const struct node *kinds = config_get(text, "layer_types");
	bool on = !is_qwen(a), windows = true; /* Qwen's only if the file says so */

	if (!config_bool(text, "use_sliding_window", &on, error))
		return false;
	a->attention_window = number(text, KEYS("sliding_window", "sliding_window_size"));
	a->attention_chunk = number(text, KEYS("attention_chunk_size"));
	if (kinds != NULL && kinds->kind == NODE_LIST && kinds->n_children > 0)
		windows = read_kinds(kinds, a);
	else if (is_qwen(a))
		windows = read_first(text, a);
	else
		read_pattern(text, a);
	if (!on || !windows || (a->attention_window == 0 && a->attention_chunk == 0))
		a->attention_window = a->attention_chunk = a->full_attention_every = 0;
	return true;
}
