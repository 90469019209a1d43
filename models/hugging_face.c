/* A Hugging Face config.json -> struct architecture. Keys that change no shape and no cost are
 * passed over; keys that would change one in a way we do not know are errors. */
#include <math.h>
#include <string.h>

#include "models/families.h"
#include "models/widths.h"

/* The sizes, by dialect. The first key that is there and not null counts. */
enum { KEYS_MAX = 2 };

static const struct config_size {
	size_t offset;
	const char *keys[DIALECT_COUNT][KEYS_MAX];
	bool required; /* else architecture_complete or the dialect's own reader fills it */
} config_sizes[] = {
	{offsetof(struct architecture, layers), {{"num_hidden_layers"}, {"n_layer"}, {"n_layers"}},
		true},
	{offsetof(struct architecture, hidden), {{"hidden_size"}, {"n_embd"}, {"d_model"}}, true},
	{offsetof(struct architecture, heads), {{"num_attention_heads"}, {"n_head"}, {"n_heads"}},
		true},
	{offsetof(struct architecture, vocab), {{"vocab_size"}, {"vocab_size"}, {"vocab_size"}},
		true},
	{offsetof(struct architecture, context),
		{{"max_position_embeddings", "max_sequence_length"}, {"n_positions", "n_ctx"},
			{"max_seq_len"}},
		true},
	{offsetof(struct architecture, kv_heads), {{"num_key_value_heads"}}, false},
	{offsetof(struct architecture, head_dim), {{"head_dim"}}, false},
	{offsetof(struct architecture, ffn), {{"intermediate_size"}, {"n_inner"}}, false},
};

/* A null means "not given" in these files. */
static const struct node *get(const struct node *map, const char *key)
{
	const struct node *node = node_get(map, key);

	return node != NULL && node->kind != NODE_NULL ? node : NULL;
}

static bool missing(const struct node *config, const char *key, struct error *error)
{
	return node_error(
		config, error, "missing key \"%s\", expected a config.json of a whole model", key);
}

static bool get_bool(const struct node *map, const char *key, bool *value, struct error *error)
{
	const struct node *node = get(map, key);

	return node == NULL || node_bool(node, value, error);
}

static bool get_double(const struct node *map, const char *key, double *value, struct error *error)
{
	const struct node *node = get(map, key);

	return node == NULL || node_double(node, value, error);
}

/* "true" under a key that changes the model in a way that we do not count. */
static bool refuse_true(const struct node *map, const char *key, struct error *error)
{
	bool value = false;

	if (!get_bool(map, key, &value, error))
		return false;
	return !value ||
	       node_error(get(map, key), error, "expected false, got true, which is not supported");
}

static bool read_size(const struct node *config, const struct config_size *size,
	enum config_dialect dialect, struct architecture *a, struct error *error)
{
	int64_t *value = (int64_t *)((char *)a + size->offset);
	const char *const *keys = size->keys[dialect];

	for (int i = 0; i < KEYS_MAX && keys[i] != NULL; i++) {
		const struct node *node = get(config, keys[i]);

		if (node == NULL)
			continue;
		/* 0 would read as "not given" below. */
		if (!node_int(node, value, error))
			return false;
		return *value > 0 || node_error(node, error,
					     "expected a whole number from 1, got %s", node->text);
	}
	return !size->required || missing(config, keys[0], error);
}

/* The value of a string key must be one of `known`. */
static bool known_string(const struct node *config, const char *key, const char *const *known,
	const char **value, struct error *error)
{
	const struct node *node = get(config, key);

	if (node == NULL)
		return true;
	if (!node_string(node, value, error))
		return false;
	for (int i = 0; known[i] != NULL; i++)
		if (strcmp(*value, known[i]) == 0)
			return true;
	return node_error(
		node, error, "expected %s, got \"%s\", which is not supported", known[0], *value);
}

static bool read_rope_theta(const struct node *config, double *theta, struct error *error)
{
	/* transformers 5 moved it into rope_parameters. */
	return get_double(get(config, "rope_parameters"), "rope_theta", theta, error) &&
	       get_double(config, "rope_theta", theta, error);
}

static bool read_llama(const struct node *config, struct architecture *a, struct error *error)
{
	static const char *const activations[] = {"silu", "swish", NULL};
	const char *activation = NULL;
	bool attention_bias = false;

	if (a->ffn == 0)
		return missing(config, "intermediate_size", error);
	if (!known_string(config, "hidden_act", activations, &activation, error) ||
		!get_double(config, "rms_norm_eps", &a->norm_epsilon, error) ||
		!read_rope_theta(config, &a->rope_theta, error))
		return false;
	/* Qwen2 has biases on q, k, v and on nothing else, whatever the file says. */
	if (a->family == FAMILY_QWEN2)
		return true;
	if (!get_bool(config, "attention_bias", &attention_bias, error) ||
		!get_bool(config, "mlp_bias", &a->mlp_bias, error))
		return false;
	a->qkv_bias = a->output_bias = attention_bias;
	return true;
}

static bool read_gpt2(const struct node *config, struct architecture *a, struct error *error)
{
	static const char *const activations[] = {
		"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu", NULL};
	const char *activation = "gelu_new";

	if (!known_string(config, "activation_function", activations, &activation, error) ||
		!get_double(config, "layer_norm_epsilon", &a->norm_epsilon, error) ||
		!refuse_true(config, "add_cross_attention", error))
		return false;
	a->gelu_tanh = strcmp(activation, "gelu") != 0;
	if (a->ffn == 0)
		a->ffn = saturated_mul(4, a->hidden);
	return true;
}

static bool read_mpt_ffn(const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *node = get(config, "expansion_ratio");
	double ratio = 4, ffn;

	if (!get_double(config, "expansion_ratio", &ratio, error))
		return false;
	/* An impossible d_model is reported as such later. */
	ffn = ratio * (double)min_i64(a->hidden, SATURATED_SIZE);
	if (!(ratio > 0 && ratio <= 1024 && ffn == floor(ffn)))
		return node_error(node, error,
			"expected a ratio up to 1024 that gives a whole number of columns, got %s",
			node->text);
	a->ffn = (int64_t)fmin(ffn, (double)SATURATED_SIZE);
	return true;
}

static bool read_mpt_heads(
	const struct node *attention, struct architecture *a, struct error *error)
{
	static const char *const types[] = {
		"multihead_attention", "grouped_query_attention", "multiquery_attention", NULL};
	const char *type = types[0];
	const struct node *kv = get(attention, "kv_n_heads");

	if (!known_string(attention, "attn_type", types, &type, error))
		return false;
	if (strcmp(type, types[2]) == 0)
		a->kv_heads = 1;
	if (strcmp(type, types[1]) == 0) {
		if (kv == NULL)
			return missing(attention, "kv_n_heads", error);
		return node_int(kv, &a->kv_heads, error);
	}
	return true;
}

/* ALiBi wins over RoPE and both over the learned table, as in MPT's own code. */
static bool read_mpt_positions(const struct node *config, const struct node *attention,
	struct architecture *a, struct error *error)
{
	bool alibi = true, rope = false, learned = true;

	if (!get_bool(attention, "alibi", &alibi, error) ||
		!get_bool(attention, "rope", &rope, error) ||
		!get_double(attention, "rope_theta", &a->rope_theta, error) ||
		!get_bool(config, "learned_pos_emb", &learned, error))
		return false;
	if (!alibi && !rope && !learned)
		return node_error(attention, error,
			"no positions: expected one of alibi, rope, learned_pos_emb to be true");
	a->positions = alibi ? POSITIONS_ALIBI : rope ? POSITIONS_ROPE : POSITIONS_LEARNED;
	return true;
}

static bool read_mpt(const struct node *config, struct architecture *a, struct error *error)
{
	static const char *const norms[] = {"low_precision_layernorm", "layernorm", NULL};
	static const char *const ffns[] = {"mptmlp", NULL};
	const struct node *attention = get(config, "attn_config");
	const char *ignored = NULL;
	bool no_bias = true;

	if (!known_string(config, "norm_type", norms, &ignored, error) ||
		!known_string(get(config, "ffn_config"), "ffn_type", ffns, &ignored, error) ||
		!refuse_true(attention, "qk_ln", error) ||
		!refuse_true(attention, "qk_gn", error) ||
		!get_double(config, "layer_norm_epsilon", &a->norm_epsilon, error) ||
		!get_bool(config, "no_bias", &no_bias, error) || !read_mpt_ffn(config, a, error) ||
		!read_mpt_heads(attention, a, error) ||
		!read_mpt_positions(config, attention, a, error))
		return false;
	a->norm_bias = a->qkv_bias = a->output_bias = a->mlp_bias = !no_bias;
	return true;
}

static bool (*const dialect_readers[DIALECT_COUNT])(
	const struct node *config, struct architecture *a, struct error *error) = {
	[DIALECT_LLAMA] = read_llama,
	[DIALECT_GPT2] = read_gpt2,
	[DIALECT_MPT] = read_mpt,
};

static bool unknown_family(const struct node *node, const char *got, struct error *error)
{
	struct text known = {0};

	for (int i = 0; i < n_model_families; i++) {
		text_add(&known, i > 0 ? ", " : "");
		text_add(&known, model_family_names[i]);
	}
	node_error(node, error,
		"expected a model of the families %s, got \"%.60s\", which is not supported",
		text_string(&known), got);
	text_finish(&known);
	return false;
}

/* `model_type`, else the first of `architectures`. */
static bool find_family(const struct node *config, enum model_family *family, struct error *error)
{
	const struct node *type = get(config, "model_type");
	const struct node *classes = get(config, "architectures");
	const struct node *node = type;
	const char *name;

	if (type == NULL && classes != NULL && classes->n_children > 0)
		node = classes->children[0];
	if (node == NULL)
		return missing(config, "model_type", error);
	if (!node_string(node, &name, error))
		return false;
	for (int i = 0; i < n_model_families; i++) {
		const char *known =
			type != NULL ? model_family_names[i] : model_families[i].config_class;

		*family = (enum model_family)i;
		if (strcmp(name, known) == 0)
			return true;
	}
	return unknown_family(type != NULL ? type : classes, name, error);
}

static bool read_name(
	struct arena *arena, const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *node = get(config, "_name_or_path");
	const char *name = "";

	if (node != NULL && !node_string(node, &name, error))
		return false;
	a->name = *name != '\0' ? arena_strdup(arena, name)
				: model_name_from_path(arena, config->name);
	return true;
}

bool architecture_from_hugging_face(struct arena *arena, const struct node *config,
	struct architecture *architecture, struct error *error)
{
	enum model_family family = FAMILY_LLAMA;
	enum config_dialect dialect;

	if (config->kind != NODE_MAP)
		return node_error(config, error, "expected a map of keys (a config.json)");
	if (!find_family(config, &family, error))
		return false;
	dialect = model_families[family].dialect;
	*architecture = model_families[family].defaults;
	architecture->norm_epsilon = model_families[family].config_norm_epsilon;
	if (!read_name(arena, config, architecture, error))
		return false;
	for (int i = 0; i < COUNT_OF(config_sizes); i++)
		if (!read_size(config, &config_sizes[i], dialect, architecture, error))
			return false;
	if (!get_bool(config, "tie_word_embeddings", &architecture->tied_head, error) ||
		!dialect_readers[dialect](config, architecture, error))
		return false;
	architecture_complete(architecture);
	return architecture_check(architecture, config, error);
}
