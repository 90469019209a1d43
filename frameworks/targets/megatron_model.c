/* The model in Megatron-LM's options, in both directions.
 *
 * What an option means, and what it is where the file leaves it out: Megatron-LM d98e8a64,
 * megatron/training/arguments.py (the options; validate_args for the widths) and
 * megatron/core/transformer/transformer_config.py. */
#include <stdlib.h>
#include <string.h>

#include "frameworks/targets/megatron.h"

/* --- writing -------------------------------------------------------------------------------- */

static void flag(struct exporting *exporting, const char *name)
{
	text_printf(exporting->text, "--%s\n", name);
}

static void word(struct exporting *exporting, const char *name, const char *value)
{
	text_printf(exporting->text, "--%s %s\n", name, value);
}

static void number(struct exporting *exporting, const char *name, double value)
{
	text_printf(exporting->text, "--%s ", name);
	text_number(exporting->text, value);
	text_add_char(exporting->text, '\n');
}

/* Blocks with experts are every n-th one, or all behind the first ones. */
static void write_experts(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;

	number(exporting, "num-experts", (double)model->experts);
	number(exporting, "moe-ffn-hidden-size", (double)model->expert_ffn);
	number(exporting, "moe-router-topk", (double)model->experts_per_token);
	if (model->expert_groups > 0) {
		number(exporting, "moe-router-num-groups", (double)model->expert_groups);
		number(exporting, "moe-router-group-topk", (double)model->groups_per_token);
	}
	if (model->shared_ffn > 0)
		number(exporting, "moe-shared-expert-intermediate-size", (double)model->shared_ffn);
	if (model->shared_gate)
		flag(exporting, "moe-shared-expert-gate");
	if (model->dense_layers > 0)
		text_printf(exporting->text, "--moe-layer-freq ([0]*%lld+[1]*%lld)\n",
			(long long)model->dense_layers,
			(long long)(model->layers - model->mtp_layers - model->dense_layers));
	else if (model->moe_every > 1)
		text_printf(exporting->text, "--moe-layer-freq ([0]*%lld+[1])*%lld\n",
			(long long)(model->moe_every - 1),
			(long long)(model->layers / model->moe_every));
}

/* Without `query_rank` queries are not compressed. */
static void write_latent_attention(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;

	flag(exporting, "multi-latent-attention");
	if (model->query_rank > 0)
		number(exporting, "q-lora-rank", (double)model->query_rank);
	number(exporting, "kv-lora-rank", (double)model->kv_rank);
	number(exporting, "qk-head-dim", (double)(model->head_dim - model->rope_dim));
	number(exporting, "qk-pos-emb-head-dim", (double)model->rope_dim);
	number(exporting, "v-head-dim", (double)model->value_dim);
}

/* A window is the tokens before one, and those behind. */
static void write_windows(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;

	text_printf(exporting->text, "--window-size %lld,0\n",
		(long long)(model->attention_window - 1));
	if (model->full_attention_every > 0)
		number(exporting, "window-attn-skip-freq", (double)model->full_attention_every);
}

void megatron_write_model(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;

	number(exporting, "num-layers", (double)(model->layers - model->mtp_layers));
	if (model->mtp_layers > 0)
		number(exporting, "mtp-num-layers", (double)model->mtp_layers);
	number(exporting, "hidden-size", (double)model->hidden);
	number(exporting, "ffn-hidden-size",
		(double)(model->ffn > 0 ? model->ffn : model->expert_ffn));
	number(exporting, "num-attention-heads", (double)model->heads);
	if (model->kv_rank > 0)
		write_latent_attention(exporting);
	else
		number(exporting, "kv-channels", (double)model->head_dim);
	if (model->kv_heads != model->heads) {
		flag(exporting, "group-query-attention");
		number(exporting, "num-query-groups", (double)model->kv_heads);
	}
	number(exporting, "max-position-embeddings", (double)model->context);
	number(exporting, "vocab-size", (double)model->vocab);
	if (model->positions == POSITIONS_ROPE) {
		word(exporting, "position-embedding-type", "rope");
		number(exporting, "rotary-base", model->rope_theta);
	} else if (model->positions == POSITIONS_LEARNED) {
		word(exporting, "position-embedding-type", "learned_absolute");
	}
	word(exporting, "normalization", model->norm == NORM_RMSNORM ? "RMSNorm" : "LayerNorm");
	if (model->mlp == MLP_SWIGLU)
		flag(exporting, "swiglu");
	if (!model->mlp_bias && !model->output_bias)
		flag(exporting, "disable-bias-linear");
	if (model->qkv_bias && !model->output_bias)
		flag(exporting, "add-qkv-bias");
	if (model->qk_norm)
		flag(exporting, "qk-layernorm");
	if (!model->tied_head)
		flag(exporting, "untie-embeddings-and-output-weights");
	if (model->attention_window > 0)
		write_windows(exporting);
	if (model->experts > 0)
		write_experts(exporting);
}

/* --- which blocks have experts, or see all --------------------------------------------------- */

enum { PATTERN_BLOCKS = 1024 };

/* A Python list of zeros and ones: [0]*3+[1]*58, ([0]+[1])*12; 1 is a block with experts. */
struct pattern {
	const char *at;
	int n;
	char blocks[PATTERN_BLOCKS];
};

static bool pattern_sum(struct pattern *pattern);

static bool pattern_list(struct pattern *pattern)
{
	for (pattern->at++; *pattern->at != ']'; pattern->at++) {
		if (*pattern->at == ',' || *pattern->at == ' ')
			continue;
		if ((*pattern->at != '0' && *pattern->at != '1') || pattern->n == PATTERN_BLOCKS)
			return false;
		pattern->blocks[pattern->n++] = *pattern->at;
	}
	pattern->at++;
	return true;
}

/* Of what began at `first`. */
static bool pattern_repeat(struct pattern *pattern, int first)
{
	char *behind;
	long times = strtol(pattern->at + 1, &behind, 10);
	int length = pattern->n - first;

	if (times < 1 || times > PATTERN_BLOCKS || length * times > PATTERN_BLOCKS - first)
		return false;
	for (long i = 1; i < times; i++)
		memcpy(pattern->blocks + first + i * length, pattern->blocks + first,
			(size_t)length);
	pattern->n = first + (int)(length * times);
	pattern->at = behind;
	return true;
}

static bool pattern_product(struct pattern *pattern)
{
	int first = pattern->n;

	if (*pattern->at == '(') {
		pattern->at++;
		if (!pattern_sum(pattern) || *pattern->at++ != ')')
			return false;
	} else if (*pattern->at != '[' || !pattern_list(pattern)) {
		return false;
	}
	while (*pattern->at == '*')
		if (!pattern_repeat(pattern, first))
			return false;
	return true;
}

static bool pattern_sum(struct pattern *pattern)
{
	if (!pattern_product(pattern))
		return false;
	while (*pattern->at == '+') {
		pattern->at++;
		if (!pattern_product(pattern))
			return false;
	}
	return true;
}

/* The first `dense` blocks have none; else every n-th one has some. */
static bool pattern_means(const struct pattern *pattern, int64_t *dense, int64_t *every)
{
	const char *one = memchr(pattern->blocks, '1', (size_t)pattern->n);
	int64_t first = one != NULL ? one - pattern->blocks : pattern->n;

	*dense = first;
	*every = 1;
	if (memchr(pattern->blocks + first, '0', (size_t)(pattern->n - first)) == NULL)
		return one != NULL;
	*dense = 0;
	*every = first + 1;
	for (int i = 0; i < pattern->n; i++)
		if ((pattern->blocks[i] == '1') != ((i + 1) % *every == 0))
			return false;
	return true;
}

static bool read_pattern(struct importing *importing, struct writer *model, struct error *error)
{
	static const char path[] = "moe-layer-freq";
	const char *text = import_text(importing, path, "1");
	struct pattern pattern = {.at = megatron_without(importing->arena, text, ' ')};
	int64_t dense = 0, every = 1;

	if (!parse_int(text, &every) &&
		(strlen(text) >= PATTERN_BLOCKS || !pattern_sum(&pattern) || *pattern.at != '\0' ||
			!pattern_means(&pattern, &dense, &every)))
		return import_fail(importing, path, error,
			"%.60s: expected blocks with experts behind those without, or every n-th "
			"one",
			text);
	if (dense > 0)
		writer_int(model, "dense_layers", dense);
	if (every > 1)
		writer_int(model, "moe_every", every);
	return true;
}

/* "127,0": so many tokens before one; below 0: all. Every n-th block sees all, or those with a 0 in
 * a list. */
static bool read_windows(struct importing *importing, struct writer *model, struct error *error)
{
	static const char path[] = "window-size", skip[] = "window-attn-skip-freq";
	const char *text = import_text(importing, path, NULL);
	const char *blocks = import_text(importing, skip, "0");
	struct pattern pattern = {.at = megatron_without(importing->arena, blocks, ' ')};
	int64_t every = 0, whole = 0;
	char *end;

	if (text == NULL)
		return true;
	const char *first = text + strspn(text, "(");
	long long before = strtoll(first, &end, 10);
	if (end == first || (*end != ',' && *end != '\0'))
		return import_fail(importing, path, error,
			"%.60s: expected tokens before one and behind it, such as 127,0", text);
	if (!parse_int(blocks, &every)) {
		if (strlen(blocks) >= PATTERN_BLOCKS || !pattern_sum(&pattern) ||
			*pattern.at != '\0')
			return import_fail(importing, skip, error,
				"%.60s: expected a number, or a list of 0 and 1", blocks);
		for (int i = 0; i < pattern.n; i++)
			whole += pattern.blocks[i] == '0';
		every = whole > 0 ? (pattern.n + whole / 2) / whole : 0;
	}
	if (before >= 0 && every != 1)
		writer_int(model, "attention_window", before + 1);
	if (before >= 0 && every > 1)
		writer_int(model, "full_attention_every", every);
	return true;
}

/* --- reading --------------------------------------------------------------------------------- */

static bool is_set(const struct importing *importing, const char *path)
{
	return import_find(importing, path) != NULL;
}

/* A size by its option; `otherwise` of the framework; 0: left out. */
static bool size(struct importing *importing, struct writer *model, const char *key,
	const char *path, int64_t otherwise, struct error *error)
{
	int64_t value;

	if (!import_count(importing, path, &value, otherwise, error))
		return false;
	if (value > 0)
		writer_int(model, key, value);
	return true;
}

static bool read_latent_attention(
	struct importing *importing, struct writer *model, struct error *error)
{
	int64_t plain, rope;

	if (!import_count(importing, "qk-head-dim", &plain, 128, error) ||
		!import_count(importing, "qk-pos-emb-head-dim", &rope, 64, error))
		return false;
	writer_string(model, "family", "deepseek_v3");
	writer_int(model, "head_dim", plain + rope);
	writer_int(model, "rope_dim", rope);
	return size(importing, model, "query_rank", "q-lora-rank", 0, error) &&
	       size(importing, model, "kv_rank", "kv-lora-rank", 32, error) &&
	       size(importing, model, "value_dim", "v-head-dim", 128, error);
}

static bool read_attention(
	struct importing *importing, struct writer *model, int64_t heads, struct error *error)
{
	writer_int(model, "heads", heads);
	if (is_set(importing, "multi-latent-attention"))
		return read_latent_attention(importing, model, error);
	writer_string(model, "family", "gpt2");
	writer_bool(model, "qk_norm", is_set(importing, "qk-layernorm"));
	return size(importing, model, "kv_heads", "num-query-groups",
		       is_set(importing, "group-query-attention") ? 1 : 0, error) &&
	       size(importing, model, "head_dim", "kv-channels", 0, error);
}

static void read_biases(const struct importing *importing, struct writer *model)
{
	bool biases = !is_set(importing, "disable-bias-linear");

	writer_bool(model, "qkv_bias", biases || is_set(importing, "add-qkv-bias"));
	writer_bool(model, "output_bias", biases);
	writer_bool(model, "mlp_bias", biases);
}

/* Positions, norms and the MLP's function. */
static void read_kinds(struct importing *importing, struct writer *model)
{
	const char *positions =
		import_text(importing, "position-embedding-type", "learned_absolute");
	bool learned = strcmp(positions, "learned_absolute") == 0 &&
		       !is_set(importing, "use-rotary-position-embeddings");
	bool rms = strcmp(import_text(importing, "normalization", "LayerNorm"), "RMSNorm") == 0;

	if (strcmp(positions, "none") == 0 || strcmp(positions, "relative") == 0)
		import_note(
			importing, "position-embedding-type", "%s: predicted as rope", positions);
	if (is_set(importing, "squared-relu"))
		import_note(importing, "squared-relu", "predicted as gelu, which keeps as much");
	writer_string(model, "positions", learned ? "learned" : "rope");
	writer_string(model, "norm", rms ? "rmsnorm" : "layernorm");
	writer_bool(model, "norm_bias", !rms);
	writer_string(model, "mlp", is_set(importing, "swiglu") ? "swiglu" : "gelu");
}

/* Two thirds of 4 h in steps of 64 where a gate stands beside; 4 h. */
static int64_t usual_ffn(const struct importing *importing, int64_t hidden)
{
	return is_set(importing, "swiglu") ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
}

/* Groups of which a token meets all, or nobody says how many, are none. */
static bool read_groups(struct importing *importing, struct writer *model, struct error *error)
{
	int64_t groups, chosen;

	if (!import_count(importing, "moe-router-num-groups", &groups, 0, error) ||
		!import_count(importing, "moe-router-group-topk", &chosen, 0, error))
		return false;
	if (chosen > 0 && chosen < groups) {
		writer_int(model, "expert_groups", groups);
		writer_int(model, "groups_per_token", chosen);
	}
	return true;
}

static bool read_experts(
	struct importing *importing, struct writer *model, int64_t ffn, struct error *error)
{
	if (!is_set(importing, "num-experts"))
		return true;
	if (is_set(importing, "moe-shared-expert-gate"))
		writer_bool(model, "shared_gate", true);
	return size(importing, model, "experts", "num-experts", 0, error) &&
	       size(importing, model, "experts_per_token", "moe-router-topk", 2, error) &&
	       read_groups(importing, model, error) &&
	       size(importing, model, "expert_ffn", "moe-ffn-hidden-size", ffn, error) &&
	       size(importing, model, "shared_ffn", "moe-shared-expert-intermediate-size", 0,
		       error) &&
	       read_pattern(importing, model, error);
}

/* GPT-2's words in its file of merges; of another tokenizer the file does not say how many. Rounded
 * up as the embedding is. */
static bool read_vocabulary(struct importing *importing, struct writer *model, struct error *error)
{
	enum { GPT2_WORDS = 50257 };
	int64_t words, step, tensor;

	if (!import_count(importing, "vocab-size", &words, GPT2_WORDS, error) ||
		!import_count(importing, "make-vocab-size-divisible-by", &step, 128, error) ||
		!import_count(importing, "tensor-model-parallel-size", &tensor, 1, error))
		return false;
	if (!is_set(importing, "vocab-size") && !is_set(importing, "merge-file"))
		import_note(importing, "tokenizer-type",
			"its number of words is not here: taken as %d; add --vocab-size",
			GPT2_WORDS);
	if (step != 128 && checked_mul(step, tensor, &step))
		words = ceil_div(words, step) * step;
	writer_int(model, "vocab", words);
	return true;
}

static bool spell(struct importing *importing, struct writer *model, struct error *error)
{
	const struct import_shape *shape = &importing->imported->shape;
	int64_t ffn = shape->ffn > 0 ? shape->ffn : usual_ffn(importing, shape->hidden);
	int64_t length;

	if (!import_count(importing, "seq-length", &length, 1024, error))
		return false;
	writer_string(model, "shardplan", "model/1");
	writer_string(model, "name",
		arena_printf(importing->arena, "gpt-%lldx%lld", (long long)shape->layers,
			(long long)shape->hidden));
	writer_int(model, "layers", shape->layers);
	writer_int(model, "hidden", shape->hidden);
	writer_int(model, "ffn", ffn);
	writer_bool(model, "tied_head", !is_set(importing, "untie-embeddings-and-output-weights"));
	read_kinds(importing, model);
	read_biases(importing, model);
	return read_attention(importing, model, shape->heads, error) &&
	       size(importing, model, "context", "max-position-embeddings", length, error) &&
	       read_vocabulary(importing, model, error) && read_windows(importing, model, error) &&
	       read_experts(importing, model, ffn, error);
}

/* Encoders and layers that are no transformer's have options of their own. */
static bool is_other_model(const struct importing *importing)
{
	static const char *const marks[] = {"encoder-seq-length", "decoder-seq-length",
		"hybrid-layer-pattern", "hybrid-override-pattern", "hybrid-attention-ratio", "spec",
		"experimental-attention-variant", "heterogeneous-layers-config-path"};

	for (int i = 0; i < COUNT_OF(marks); i++)
		if (is_set(importing, marks[i]))
			return true;
	return false;
}

bool megatron_read_model(struct importing *importing, struct error *error)
{
	struct imported *imported = importing->imported;
	struct text text = {0};
	struct writer writer;

	if (imported->shape.layers == 0 || imported->shape.hidden == 0 ||
		imported->shape.heads == 0 || is_other_model(importing))
		return true;
	writer_init(&writer, &text, WRITER_JSON_COMPACT);
	bool ok = spell(importing, &writer, error);
	writer_finish(&writer);
	if (ok)
		imported->model = arena_strdup(importing->arena, text_string(&text));
	text_finish(&text);
	return ok;
}
