/* What config.json says of MPT beyond its sizes, and of DBRX, which is MPT's layout with experts.
 */
#include <math.h>
#include <string.h>

#include "models/config.h"
#include "models/families.h"
#include "models/widths.h"

static bool read_mpt_ffn(const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *node = config_get(config, "expansion_ratio");
	double ratio = 4, ffn;

	if (!config_double(config, "expansion_ratio", &ratio, error))
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
	const struct node *kv = config_get(attention, "kv_n_heads");

	if (!config_string(attention, "attn_type", types, &type, error))
		return false;
	if (strcmp(type, types[2]) == 0)
		a->kv_heads = 1;
	if (strcmp(type, types[1]) == 0) {
		if (kv == NULL)
			return config_missing(attention, "kv_n_heads", error);
		return node_int(kv, &a->kv_heads, error);
	}
	return true;
}

/* ALiBi wins over RoPE and both over the learned table, as in MPT's own code. */
static bool read_mpt_positions(const struct node *config, const struct node *attention,
	struct architecture *a, struct error *error)
{
	bool alibi = true, rope = false, learned = true;

	if (!config_bool(attention, "alibi", &alibi, error) ||
		!config_bool(attention, "rope", &rope, error) ||
		!config_double(attention, "rope_theta", &a->rope_theta, error) ||
		!config_bool(config, "learned_pos_emb", &learned, error))
		return false;
	if (!alibi && !rope && !learned)
		return node_error(attention, error,
			"no positions: expected one of alibi, rope, learned_pos_emb to be true");
	a->positions = alibi ? POSITIONS_ALIBI : rope ? POSITIONS_ROPE : POSITIONS_LEARNED;
	return true;
}

bool read_mpt_rest(const struct node *config, struct architecture *a, struct error *error)
{
	static const char *const norms[] = {"low_precision_layernorm", "layernorm", NULL};
	static const char *const ffns[] = {"mptmlp", NULL};
	const struct node *attention = config_get(config, "attn_config");
	const char *ignored = NULL;
	bool no_bias = true;

	if (!config_string(config, "norm_type", norms, &ignored, error) ||
		!config_string(
			config_get(config, "ffn_config"), "ffn_type", ffns, &ignored, error) ||
		!config_refuse_true(attention, "qk_ln", error) ||
		!config_refuse_true(attention, "qk_gn", error) ||
		!config_bool(config, "no_bias", &no_bias, error) ||
		!read_mpt_ffn(config, a, error) || !read_mpt_heads(attention, a, error) ||
		!read_mpt_positions(config, attention, a, error))
		return false;
	a->norm_bias = a->qkv_bias = a->output_bias = a->mlp_bias = !no_bias;
	return true;
}

bool read_dbrx_rest(const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *attention = config_get(config, "attn_config");
	const struct node *ffn = config_get(config, "ffn_config");

	if (attention == NULL || ffn == NULL)
		return config_missing(
			config, attention == NULL ? "attn_config" : "ffn_config", error);
	if (!config_double(attention, "rope_theta", &a->rope_theta, error) ||
		!config_int(attention, KEYS("kv_n_heads"), true, &a->kv_heads, error) ||
		!config_int(ffn, KEYS("ffn_hidden_size"), true, &a->expert_ffn, error) ||
		!config_int(ffn, KEYS("moe_num_experts"), true, &a->experts, error) ||
		!config_int(ffn, KEYS("moe_top_k"), true, &a->experts_per_token, error))
		return false;
	a->ffn = a->expert_ffn;
	return true;
}
