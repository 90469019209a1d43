/* The fields of an architecture, what follows from them, and what is impossible. */
#include "models/architecture.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "models/families.h"
#include "models/widths.h"

const char *const positions_names[] = {
	[POSITIONS_LEARNED] = "learned",
	[POSITIONS_ROPE] = "rope",
	[POSITIONS_ALIBI] = "alibi",
	NULL,
};
const char *const norm_kind_names[] = {
	[NORM_LAYERNORM] = "layernorm", [NORM_RMSNORM] = "rmsnorm", NULL};
const char *const mlp_kind_names[] = {[MLP_GELU] = "gelu", [MLP_SWIGLU] = "swiglu", NULL};

const struct field architecture_fields[] = {
	FIELD_STRING(struct architecture, name, "name", 0),
	FIELD_ENUM(struct architecture, family, "family", FIELD_REQUIRED, model_family_names),
	FIELD_INT(struct architecture, layers, "layers", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct architecture, hidden, "hidden", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct architecture, heads, "heads", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct architecture, kv_heads, "kv_heads", FIELD_POSITIVE),
	FIELD_INT(struct architecture, head_dim, "head_dim", FIELD_POSITIVE),
	FIELD_INT(struct architecture, ffn, "ffn", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct architecture, vocab, "vocab", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct architecture, context, "context", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_ENUM(struct architecture, positions, "positions", 0, positions_names),
	FIELD_ENUM(struct architecture, norm, "norm", 0, norm_kind_names),
	FIELD_BOOL(struct architecture, norm_bias, "norm_bias", 0),
	FIELD_ENUM(struct architecture, mlp, "mlp", 0, mlp_kind_names),
	FIELD_BOOL(struct architecture, gelu_tanh, "gelu_tanh", 0),
	FIELD_BOOL(struct architecture, qkv_bias, "qkv_bias", 0),
	FIELD_BOOL(struct architecture, output_bias, "output_bias", 0),
	FIELD_BOOL(struct architecture, mlp_bias, "mlp_bias", 0),
	FIELD_BOOL(struct architecture, fused_qkv, "fused_qkv", 0),
	FIELD_BOOL(struct architecture, qk_norm, "qk_norm", 0),
	FIELD_BOOL(struct architecture, tied_head, "tied_head", 0),
	FIELD_DOUBLE(struct architecture, norm_epsilon, "norm_epsilon", FIELD_POSITIVE),
	FIELD_DOUBLE(struct architecture, rope_theta, "rope_theta", FIELD_POSITIVE),
	FIELD_END,
};

/* Depth is bounded because every block becomes modules in memory. The other bounds, together with
 * the one on parameters, keep each product of two sizes and 16 bytes a parameter inside int64_t. */
enum { LAYERS_MAX = 10000, SIZE_MAX_OF_MODEL = 1000000000 };
#define PARAMETERS_MAX 1e16

static const struct limit {
	size_t offset;
	/* Our key, then what config.json calls it: the message names the key that the file has. */
	const char *keys[4];
	int64_t max;
} limits[] = {
	{offsetof(struct architecture, layers),
		{"layers", "num_hidden_layers", "n_layer", "n_layers"}, LAYERS_MAX},
	{offsetof(struct architecture, hidden), {"hidden", "hidden_size", "n_embd", "d_model"},
		SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, heads),
		{"heads", "num_attention_heads", "n_head", "n_heads"}, SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, kv_heads), {"kv_heads", "num_key_value_heads"},
		SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, head_dim), {"head_dim"}, SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, ffn), {"ffn", "intermediate_size", "n_inner"},
		SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, vocab), {"vocab", "vocab_size"}, SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, context),
		{"context", "max_position_embeddings", "n_positions", "max_seq_len"},
		SIZE_MAX_OF_MODEL},
};

int64_t architecture_width(const struct architecture *a, enum width width)
{
	const int64_t widths[WIDTH_COUNT] = {
		[WIDTH_HIDDEN] = a->hidden,
		[WIDTH_QUERY] = a->heads * a->head_dim,
		[WIDTH_KEY] = a->kv_heads * a->head_dim,
		[WIDTH_QKV] = (a->heads + 2 * a->kv_heads) * a->head_dim,
		[WIDTH_ROTATED] = (a->heads + a->kv_heads) * a->head_dim,
		[WIDTH_FFN] = a->ffn,
		[WIDTH_VOCAB] = a->vocab,
		[WIDTH_HEADS] = a->heads,
		[WIDTH_KV_HEADS] = a->kv_heads,
		[WIDTH_NORM_STATISTICS] = a->norm == NORM_LAYERNORM ? 2 : 1,
	};
	return widths[width];
}

void architecture_complete(struct architecture *a)
{
	if (a->kv_heads == 0)
		a->kv_heads = a->heads;
	if (a->head_dim == 0 && a->heads > 0 && a->hidden % a->heads == 0)
		a->head_dim = a->hidden / a->heads;
}

static size_t length_without_extension(const char *base)
{
	static const char *const extensions[] = {".yaml", ".yml", ".json"};
	size_t length = strlen(base);

	for (int i = 0; i < COUNT_OF(extensions); i++) {
		size_t n = strlen(extensions[i]);

		if (length > n && strcmp(base + length - n, extensions[i]) == 0)
			return length - n;
	}
	return length;
}

const char *model_name_from_path(struct arena *arena, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash != NULL ? slash + 1 : path;
	const char *folder = slash;

	/* Every Hugging Face model's file is "config.json": its folder tells more. */
	while (folder != NULL && folder > path && folder[-1] != '/')
		folder--;
	if (slash != NULL && folder < slash && folder[0] != '.' && strcmp(base, "config.json") == 0)
		return arena_strndup(arena, folder, (size_t)(slash - folder));
	return arena_strndup(arena, base, length_without_extension(base));
}

/* The error of one field, at its key when the file has it. `text` follows the key: "expected ...".
 * Always false. */
static bool field_error(const char *ours, const struct node *where, struct error *error,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

static const char *const *keys_of(const char *ours)
{
	for (int i = 0; i < COUNT_OF(limits); i++)
		if (strcmp(limits[i].keys[0], ours) == 0)
			return limits[i].keys;
	return NULL;
}

static bool field_error(
	const char *ours, const struct node *where, struct error *error, const char *format, ...)
{
	const char *const *keys = keys_of(ours);
	const char *key = ours;
	const struct node *node = node_get(where, ours);
	char text[256];
	va_list args;

	for (int i = 1; keys != NULL && node == NULL && i < 4 && keys[i] != NULL; i++) {
		node = node_get(where, keys[i]);
		key = node != NULL ? keys[i] : key;
	}
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (where == NULL)
		return error_set(error, EXIT_CODE_INPUT, "model: %s: %s", key, text);
	if (node == NULL)
		return node_error(where, error, "%s: %s", key, text);
	return node_error(node, error, "%s", text); /* names its key itself */
}

/* printf would write the number by the locale. */
static bool number_error(const char *ours, const struct node *where, struct error *error,
	const char *expected, double got)
{
	struct text text = {0};

	text_number(&text, got);
	field_error(ours, where, error, "expected %s, got %s", expected, text_string(&text));
	text_finish(&text);
	return false;
}

static bool check_sizes(const struct architecture *a, const struct node *where, struct error *error)
{
	for (int i = 0; i < COUNT_OF(limits); i++) {
		const struct limit *limit = &limits[i];
		int64_t value = *(const int64_t *)((const char *)a + limit->offset);

		/* A head_dim or kv_heads of 0 was left out and could not be derived. */
		if (value == 0 && strcmp(limit->keys[0], "head_dim") == 0 && a->heads > 0)
			return field_error("heads", where, error,
				"expected a number that divides the hidden size %" PRId64
				", got %" PRId64 "; or give head_dim",
				a->hidden, a->heads);
		if (value < 1 || value > limit->max)
			return field_error(limit->keys[0], where, error,
				"expected a whole number from 1 to %" PRId64 ", got %" PRId64,
				limit->max, value);
	}
	return true;
}

static bool check_attention(
	const struct architecture *a, const struct node *where, struct error *error)
{
	if (a->kv_heads > a->heads || a->heads % a->kv_heads != 0)
		return field_error("kv_heads", where, error,
			"expected a number that divides the %" PRId64 " heads, got %" PRId64,
			a->heads, a->kv_heads);
	if (a->positions == POSITIONS_ROPE && a->head_dim % 2 != 0)
		return field_error("head_dim", where, error,
			"expected an even number, because RoPE turns pairs, got %" PRId64,
			a->head_dim);
	return true;
}

static bool check_norm(const struct architecture *a, const struct node *where, struct error *error)
{
	if (a->norm == NORM_RMSNORM && a->norm_bias)
		return field_error("norm_bias", where, error,
			"expected false, because RMSNorm has no bias, got true");
	if (!(a->norm_epsilon > 0 && a->norm_epsilon < 1))
		return number_error(
			"norm_epsilon", where, error, "a number between 0 and 1", a->norm_epsilon);
	if (!(a->rope_theta >= 1 && isfinite(a->rope_theta)))
		return number_error(
			"rope_theta", where, error, "a number of at least 1", a->rope_theta);
	return true;
}

static bool check_count(const struct architecture *a, const struct node *where, struct error *error)
{
	double h = (double)a->hidden, d = (double)a->head_dim;
	double matrices = a->mlp == MLP_SWIGLU ? 3 : 2;
	double attention = h * d * 2 * (double)(a->heads + a->kv_heads);
	double block = attention + matrices * h * (double)a->ffn;
	double positions = a->positions == POSITIONS_LEARNED ? (double)a->context : 0;
	char buffer[32];
	double total = (double)a->layers * block + h * ((double)a->vocab * 2 + positions);

	if (total > PARAMETERS_MAX)
		return field_error("hidden", where, error,
			"expected a model of at most 10^16 parameters, got about %s",
			format_count(buffer, total));
	return true;
}

static bool check_name(const struct architecture *a, const struct node *where, struct error *error)
{
	size_t length = a->name != NULL ? strlen(a->name) : 0;

	if (length == 0 || length > 200)
		return field_error(
			"name", where, error, "expected 1 to 200 characters, got %zu", length);
	for (const char *c = a->name; *c != '\0'; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return field_error("name", where, error,
				"expected no control characters, got code %d at %d",
				(unsigned char)*c, (int)(c - a->name) + 1);
	return true;
}

bool architecture_check(
	const struct architecture *architecture, const struct node *where, struct error *error)
{
	return check_name(architecture, where, error) && check_sizes(architecture, where, error) &&
	       check_attention(architecture, where, error) &&
	       check_norm(architecture, where, error) && check_count(architecture, where, error);
}
