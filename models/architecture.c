/* The fields of an architecture, what follows from them, and what is impossible. */
#include "models/architecture.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "models/families.h"
#include "models/widths.h"

static const char *const positions_names[] = {
	[POSITIONS_LEARNED] = "learned",
	[POSITIONS_ROPE] = "rope",
	[POSITIONS_ALIBI] = "alibi",
	[POSITIONS_RELATIVE] = "relative",
	NULL,
};
static const char *const norm_kind_names[] = {
	[NORM_LAYERNORM] = "layernorm",
	[NORM_RMSNORM] = "rmsnorm",
	[NORM_PLAIN] = "plain",
	NULL,
};
static const char *const mlp_kind_names[] = {
	[MLP_GELU] = "gelu",
	[MLP_SWIGLU] = "swiglu",
	[MLP_GEGLU] = "geglu",
	[MLP_RELU] = "relu",
	NULL,
};
static const char *const block_kind_names[] = {
	[BLOCK_PRE_NORM] = "pre_norm",
	[BLOCK_PARALLEL] = "parallel",
	[BLOCK_PARALLEL_NORMS] = "parallel_norms",
	[BLOCK_SANDWICH] = "sandwich",
	[BLOCK_POST_NORM] = "post_norm",
	NULL,
};

#define RARE_BOOL(member) FIELD_BOOL(struct architecture, member, #member, FIELD_OMIT_ZERO)
#define RARE_INT(member)                                                                           \
	FIELD_INT(struct architecture, member, #member, FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO)

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
	FIELD_ENUM(struct architecture, block, "block", FIELD_OMIT_ZERO, block_kind_names),
	RARE_BOOL(qk_norm_wide),
	RARE_BOOL(fused_gate_up),
	RARE_BOOL(embedding_norm),
	RARE_BOOL(no_final_norm),
	RARE_BOOL(head_bias),
	RARE_BOOL(attention_sinks),
	RARE_INT(attention_window),
	RARE_INT(attention_chunk),
	RARE_INT(full_attention_every),
	RARE_INT(position_extra),
	RARE_INT(embedding_width),
	RARE_INT(encoder_layers),
	RARE_INT(relative_buckets),
	RARE_INT(query_rank),
	RARE_INT(kv_rank),
	RARE_INT(rope_dim),
	RARE_INT(value_dim),
	RARE_INT(experts),
	RARE_INT(experts_per_token),
	RARE_INT(expert_groups),
	RARE_INT(groups_per_token),
	RARE_INT(expert_ffn),
	RARE_INT(shared_ffn),
	RARE_BOOL(shared_gate),
	RARE_BOOL(router_bias),
	RARE_INT(dense_layers),
	RARE_INT(moe_every),
	RARE_INT(mtp_layers),
	FIELD_DECODED(struct architecture, trainable, "trainable", FIELD_OMIT_ZERO, NULL,
		&trainable_decoded),
	FIELD_END,
};

/* Depth is bounded because every block becomes modules in memory. The other bounds, together with
 * the one on parameters, keep each product of two sizes and 16 bytes a parameter inside int64_t. */
enum { LAYERS_MAX = 10000, SIZE_MAX_OF_MODEL = 1000000000, EXPERTS_MAX = 100000 };
#define PARAMETERS_MAX 1e16

enum { LIMIT_KEYS = 5 };

static const struct limit {
	size_t offset;
	/* Our key, then what config.json calls it: the message names the key that the file has. */
	const char *keys[LIMIT_KEYS];
	int64_t max;
} limits[] = {
	{offsetof(struct architecture, layers),
		{"layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers"}, LAYERS_MAX},
	{offsetof(struct architecture, hidden),
		{"hidden", "hidden_size", "n_embd", "d_model", "n_embed"}, SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, heads),
		{"heads", "num_attention_heads", "n_head", "n_heads", "num_heads"},
		SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, kv_heads), {"kv_heads", "num_key_value_heads"},
		SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, head_dim), {"head_dim", "d_kv"}, SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, ffn),
		{"ffn", "intermediate_size", "n_inner", "ffn_dim", "d_ff"}, SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, vocab), {"vocab", "vocab_size"}, SIZE_MAX_OF_MODEL},
	{offsetof(struct architecture, context),
		{"context", "max_position_embeddings", "n_positions", "max_seq_len"},
		SIZE_MAX_OF_MODEL},
};

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

/* As `limits` does for the sizes that every model has. */
static const char *const rare_keys[][LIMIT_KEYS] = {
	{"experts", "num_local_experts", "num_experts", "n_routed_experts"},
	{"experts_per_token", "num_experts_per_tok", "experts_per_token"},
	{"expert_groups", "n_group"},
	{"groups_per_token", "topk_group"},
	{"expert_ffn", "moe_intermediate_size"},
	{"shared_ffn", "shared_expert_intermediate_size", "n_shared_experts"},
	{"dense_layers", "first_k_dense_replace"},
	{"moe_every", "decoder_sparse_step", "interleave_moe_layer_step"},
	{"kv_rank", "kv_lora_rank"},
	{"query_rank", "q_lora_rank"},
	{"rope_dim", "qk_rope_head_dim"},
	{"value_dim", "v_head_dim"},
	{"embedding_width", "word_embed_proj_dim"},
	{"encoder_layers", "num_decoder_layers"},
	{"relative_buckets", "relative_attention_num_buckets"},
};

static const char *const *keys_of(const char *ours)
{
	for (int i = 0; i < COUNT_OF(rare_keys); i++)
		if (strcmp(rare_keys[i][0], ours) == 0)
			return rare_keys[i];
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

	for (int i = 1; keys != NULL && node == NULL && i < LIMIT_KEYS && keys[i] != NULL; i++) {
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
	if ((a->positions == POSITIONS_RELATIVE) != (a->relative_buckets > 0))
		return field_error("relative_buckets", where, error,
			"expected a number with relative positions and none without, got %" PRId64,
			a->relative_buckets);
	if (a->kv_rank == 0 && (a->query_rank > 0 || a->rope_dim > 0 || a->value_dim > 0))
		return field_error("kv_rank", where, error,
			"expected a number above 0, "
			"because query_rank, rope_dim and value_dim belong to latent attention");
	if (a->kv_rank > 0 && (a->value_dim < 1 || a->rope_dim < 1 || a->rope_dim >= a->head_dim ||
				      a->kv_heads != a->heads || a->fused_qkv || a->qk_norm))
		return field_error("kv_rank", where, error,
			"latent attention expects value_dim and rope_dim, rope_dim below head_dim, "
			"kv_heads = heads, no fused_qkv and no qk_norm");
	return true;
}

/* What the table of limits does not hold because 0 means "not there". */
static bool check_rare_sizes(
	const struct architecture *a, const struct node *where, struct error *error)
{
	const struct {
		const char *key;
		int64_t value, max;
	} sizes[] = {
		{"position_extra", a->position_extra, SIZE_MAX_OF_MODEL},
		{"embedding_width", a->embedding_width, SIZE_MAX_OF_MODEL},
		{"encoder_layers", a->encoder_layers, a->layers - 1},
		{"relative_buckets", a->relative_buckets, SIZE_MAX_OF_MODEL},
		{"query_rank", a->query_rank, SIZE_MAX_OF_MODEL},
		{"kv_rank", a->kv_rank, SIZE_MAX_OF_MODEL},
		{"rope_dim", a->rope_dim, SIZE_MAX_OF_MODEL},
		{"value_dim", a->value_dim, SIZE_MAX_OF_MODEL},
		{"experts", a->experts, EXPERTS_MAX},
		{"experts_per_token", a->experts_per_token, a->experts},
		{"expert_groups", a->expert_groups, a->experts},
		{"groups_per_token", a->groups_per_token, a->expert_groups},
		{"expert_ffn", a->expert_ffn, SIZE_MAX_OF_MODEL},
		{"shared_ffn", a->shared_ffn, SIZE_MAX_OF_MODEL},
		{"dense_layers", a->dense_layers, a->layers},
		{"moe_every", a->moe_every, LAYERS_MAX},
		{"mtp_layers", a->mtp_layers, a->encoder_layers > 0 ? 0 : a->layers - 1},
	};

	for (int i = 0; i < COUNT_OF(sizes); i++)
		if (sizes[i].value < 0 || sizes[i].value > sizes[i].max)
			return field_error(sizes[i].key, where, error,
				"expected a whole number from 0 to %" PRId64 ", got %" PRId64,
				sizes[i].max, sizes[i].value);
	return true;
}

/* Groups are alike, and those of a token have as many experts as it meets. */
static bool check_groups(
	const struct architecture *a, const struct node *where, struct error *error)
{
	int64_t groups = a->expert_groups, each = groups > 0 ? a->experts / groups : 0;

	if (groups == 0)
		return true;
	if (a->experts % groups != 0)
		return field_error("expert_groups", where, error,
			"expected a divisor of the %" PRId64 " experts, got %" PRId64, a->experts,
			groups);
	return a->groups_per_token * each >= a->experts_per_token ||
	       field_error("groups_per_token", where, error,
		       "expected groups with the %" PRId64 " experts of a token, got %" PRId64
		       " of %" PRId64,
		       a->experts_per_token, a->groups_per_token, each);
}

static bool check_experts(
	const struct architecture *a, const struct node *where, struct error *error)
{
	bool some = a->experts_per_token > 0 || a->expert_ffn > 0 || a->shared_ffn > 0;

	if (a->experts > 0 && (a->experts_per_token < 1 || a->expert_ffn < 1))
		return field_error("experts", where, error,
			"expected experts_per_token and expert_ffn beside it, got %" PRId64
			" and %" PRId64,
			a->experts_per_token, a->expert_ffn);
	if (a->experts == 0 && some)
		return field_error("experts", where, error,
			"expected a number above 0 beside experts_per_token, "
			"expert_ffn and shared_ffn, got 0");
	if (!check_groups(a, where, error))
		return false;
	if (a->encoder_layers > 0 && (a->experts > 0 || a->block != BLOCK_PRE_NORM))
		return field_error("encoder_layers", where, error,
			"expected 0 for a model with experts or with other blocks than pre_norm");
	return true;
}

static bool check_norm(const struct architecture *a, const struct node *where, struct error *error)
{
	if (a->norm == NORM_RMSNORM && a->norm_bias)
		return field_error("norm_bias", where, error,
			"expected false, because RMSNorm has no bias, got true");
	if (a->norm == NORM_PLAIN && a->norm_bias)
		return field_error("norm_bias", where, error,
			"expected false, because a plain LayerNorm has no parameters, got true");
	if (!(a->norm_epsilon > 0 && a->norm_epsilon < 1))
		return number_error(
			"norm_epsilon", where, error, "a number between 0 and 1", a->norm_epsilon);
	if (!(a->rope_theta >= 1 && isfinite(a->rope_theta)))
		return number_error(
			"rope_theta", where, error, "a number of at least 1", a->rope_theta);
	return true;
}

/* In double, because it guards the exact count against overflow. */
static double rough_count(const struct architecture *a)
{
	double h = (double)a->hidden, layers = (double)a->layers;
	double rank = (double)(a->query_rank + a->kv_rank + a->rope_dim);
	double heads = (double)(a->heads + a->kv_heads) * (double)(a->head_dim + a->value_dim);
	double matrices = architecture_is_gated(a) ? 3 : 2;
	double attention = (h + rank) * heads * 2 + h * rank;
	double experts = (double)a->experts * (double)a->expert_ffn + (double)a->shared_ffn;
	double block = attention * (a->encoder_layers > 0 ? 2 : 1) +
		       matrices * h * ((double)a->ffn + experts) + h * (double)a->experts;
	double positions = a->positions == POSITIONS_LEARNED
				   ? (double)a->context + (double)a->position_extra
				   : 0;
	double width = h + (double)a->embedding_width;

	return layers * block + width * ((double)a->vocab * 2 + positions + h) +
	       2 * (double)a->relative_buckets * (double)a->heads;
}

static bool check_count(const struct architecture *a, const struct node *where, struct error *error)
{
	char buffer[32];
	double total = rough_count(a);

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
	       check_rare_sizes(architecture, where, error) &&
	       check_experts(architecture, where, error) &&
	       check_attention(architecture, where, error) &&
	       check_norm(architecture, where, error) && check_count(architecture, where, error);
}

void architecture_complete(struct architecture *a)
{
	if (a->kv_heads == 0)
		a->kv_heads = a->heads;
	if (a->head_dim == 0 && a->heads > 0 && a->hidden % a->heads == 0)
		a->head_dim = a->hidden / a->heads;
	if (a->embedding_width == a->hidden)
		a->embedding_width = 0;
}
