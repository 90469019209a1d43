/* Hugging Face config.json -> struct architecture: finds the family and its sizes; the rest is the
 * row's readers' (config_readers.c). Keys that change no shape and no cost are passed over. */
#include <string.h>

#include "models/config.h"
#include "models/families.h"

/* The sizes. The first key that is there and not null counts, whatever the family; `named` is what
 * a family's own files call it, for the message about a missing one. */
enum { KEYS_MAX = 8 };

static const struct config_size {
	size_t offset;
	const char *keys[KEYS_MAX];
	/* Else architecture_complete or the family's reader fills it. */
	const char *named[DIALECT_COUNT];
} config_sizes[] = {
	{offsetof(struct architecture, layers),
		{"num_hidden_layers", "n_layer", "n_layers", "num_layers"},
		{"num_hidden_layers", "n_layer", "n_layers", "num_layers"}},
	{offsetof(struct architecture, hidden), {"hidden_size", "n_embd", "n_embed", "d_model"},
		{"hidden_size", "n_embd", "d_model", "d_model"}},
	{offsetof(struct architecture, heads),
		{"num_attention_heads", "n_head", "n_heads", "num_heads"},
		{"num_attention_heads", "n_head", "n_heads", "num_heads"}},
	{offsetof(struct architecture, vocab), {"vocab_size"},
		{"vocab_size", "vocab_size", "vocab_size", "vocab_size"}},
	{offsetof(struct architecture, context),
		{"max_position_embeddings", "max_sequence_length", "n_positions", "n_ctx",
			"max_seq_len", "seq_length"},
		{"max_position_embeddings", "n_positions", "max_seq_len", "n_positions"}},
	{offsetof(struct architecture, kv_heads),
		{"num_key_value_heads", "num_kv_heads", "n_head_kv"}, {NULL}},
	{offsetof(struct architecture, head_dim), {"head_dim", "d_kv"}, {[DIALECT_T5] = "d_kv"}},
	{offsetof(struct architecture, ffn),
		{"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"},
		{[DIALECT_T5] = "d_ff"}},
};

static bool read_size(const struct node *config, const struct config_size *size,
	enum config_dialect dialect, struct architecture *a, struct error *error)
{
	int64_t *value = (int64_t *)((char *)a + size->offset);
	const struct node *node = config_first(config, size->keys);

	if (node == NULL)
		return *value > 0 || size->named[dialect] == NULL ||
		       config_missing(config, size->named[dialect], error);
	/* 0 would read as "not given" later. */
	if (!node_int(node, value, error))
		return false;
	return *value > 0 ||
	       node_error(node, error, "expected a whole number from 1, got %s", node->text);
}

/* --- families --------------------------------------------------------------------------------- */

static bool unknown_family(const struct node *node, const char *got, struct error *error)
{
	const char *reason = refused_reason(got);
	const char *near = nearest_name(got, model_family_names);

	if (reason != NULL)
		return node_error(node, error,
			"expected a transformer that can be planned, got \"%.60s\": %s", got,
			reason);
	return node_error(node, error,
		"expected a known family (`shardplan help models` lists them), "
		"got \"%.60s\"%s%s%s its blocks are made of the same parts, "
		"describe it in a model file (edit what `shardplan models show llama-2-7b` prints)",
		got, near != NULL ? ", did you mean \"" : "", near != NULL ? near : "",
		near != NULL ? "\"? If" : "; if");
}

static bool is_alias(const struct family *family, const char *type)
{
	for (int i = 0; family->aliases != NULL && family->aliases[i] != NULL; i++)
		if (strcmp(family->aliases[i], type) == 0)
			return true;
	return false;
}

static bool find_by(const char *name, bool by_class, enum model_family *family)
{
	for (int i = 0; i < n_model_families; i++) {
		const struct family *row = &model_families[i];

		*family = (enum model_family)i;
		if (by_class ? strcmp(name, row->config_class) == 0
			     : strcmp(name, model_family_names[i]) == 0 || is_alias(row, name))
			return true;
	}
	return false;
}

/* `model_type`, else the first of `architectures`. */
static bool find_family(const struct node *config, enum model_family *family, struct error *error)
{
	const struct node *type = config_get(config, "model_type");
	const struct node *classes = config_get(config, "architectures");
	const struct node *node = type;
	const char *name;

	if (type == NULL && classes != NULL && classes->n_children > 0)
		node = classes->children[0];
	if (node == NULL)
		return config_missing(config, "model_type", error);
	if (!node_string(node, &name, error))
		return false;
	return find_by(name, type == NULL, family) ||
	       unknown_family(type != NULL ? type : classes, name, error);
}

/* Multi-modal files hold the decoder's own config under a key. */
static const struct node *text_part(const struct node *config)
{
	const struct node *part =
		config_first(config, KEYS("text_config", "llm_config", "language_config"));

	return part != NULL && part->kind == NODE_MAP ? part : config;
}

static const char *part_note(
	struct arena *arena, const struct node *config, const struct node *text)
{
	const struct node *type = config_get(config, "model_type");

	if (text == config && config_get(config, "vision_config") == NULL)
		return NULL;
	return arena_printf(arena,
		"the text part of %.60s; its other parts (images, audio) are not counted",
		type != NULL && type->kind == NODE_SCALAR ? type->text : "a multi-modal model");
}

static bool read_name(
	struct arena *arena, const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *node = config_get(config, "_name_or_path");
	const char *name = "";

	if (node != NULL && !node_string(node, &name, error))
		return false;
	a->name = *name != '\0' ? arena_strdup(arena, name)
				: model_name_from_path(arena, config->name);
	return true;
}

static bool read_family(const struct node *config, const struct node *text,
	const struct family *family, struct architecture *a, struct error *error)
{
	for (int i = 0; i < COUNT_OF(config_sizes); i++)
		if (!read_size(text, &config_sizes[i], family->dialect, a, error))
			return false;
	if (!config_bool(config, "tie_word_embeddings", &a->tied_head, error) ||
		!config_bool(text, "tie_word_embeddings", &a->tied_head, error))
		return false;
	for (int i = 0; family->readers[i] != NULL; i++)
		if (!family->readers[i](text, a, error))
			return false;
	return true;
}

bool architecture_from_hugging_face(struct arena *arena, const struct node *config,
	struct architecture *architecture, const char **part, struct error *error)
{
	enum model_family family = FAMILY_LLAMA;
	const struct node *text;

	if (config->kind != NODE_MAP)
		return node_error(config, error, "expected a map of keys (a config.json)");
	text = text_part(config);
	*part = part_note(arena, config, text);
	/* Some wrappers leave the type to the outer map. */
	if (!find_family(config_get(text, "model_type") != NULL ? text : config, &family, error))
		return false;
	*architecture = model_families[family].defaults;
	architecture->norm_epsilon = model_families[family].config_norm_epsilon;
	if (!read_name(arena, config, architecture, error) ||
		!read_family(config, text, &model_families[family], architecture, error) ||
		!config_read_windows(text, architecture, error))
		return false;
	architecture_complete(architecture);
	return architecture_check(architecture, text, error);
}
