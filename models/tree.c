/* Builds the tree of modules and their parameters from an architecture.
 *
 * One shape fits all families: embedding, blocks of norms, attention and MLP, final norm, head. The
 * architecture says which parts exist and in which order, the family's table how they are called.
 * An encoder is a first stack of the same blocks. */
#include <inttypes.h>

#include "models/families.h"
#include "models/widths.h"

/* Upper bounds, for one allocation each. */
enum {
	MODULES_OUTSIDE = 20,
	MODULES_PER_BLOCK = 48,
	PARAMETERS_OUTSIDE = 16,
	PARAMETERS_PER_BLOCK = 64,
};

struct builder {
	struct model *model;
	const struct module_names *names;
	int parent; /* the open container */
	int layer;
	bool overflow;
	int n_adapters;
	const char *refused; /* a projection that cannot have an adapter; NULL: none */
};

/* The second of the two projections that latent attention makes queries with has a name of its own.
 */
static const char *name_of(const struct builder *b, enum module_kind kind)
{
	if (kind == MODULE_QUERY && b->model->architecture.query_rank > 0)
		return "q_b_proj";
	return module_name_of(b->names, kind);
}

static const char *join(struct arena *arena, const char *parent, const char *name)
{
	return *parent == '\0' ? name : arena_printf(arena, "%s.%s", parent, name);
}

/* Adds a module below the open one; the caller closes it. */
static void open_module(struct builder *b, enum module_kind kind, const char *name)
{
	struct model *model = b->model;
	int index = model->n_modules++;
	const char *parent = b->parent >= 0 ? model->modules[b->parent].name : "";

	model->modules[index] = (struct module){
		.name = join(model->arena, parent, name),
		.kind = kind,
		.parent = b->parent,
		.layer = b->layer,
		.first_parameter = model->n_parameters,
		.tied_parameter = -1,
		.adapter = -1,
	};
	b->parent = index;
}

static void close_module(struct builder *b)
{
	struct module *module = &b->model->modules[b->parent];

	module->end = b->model->n_modules;
	b->parent = module->parent;
}

/* A parameter of the open module; rows == 0 makes a vector. */
static void add_parameter(struct builder *b, const char *name, int64_t rows, int64_t columns,
	enum parameter_init init)
{
	struct model *model = b->model;
	struct module *owner = &model->modules[b->parent];
	struct parameter *parameter = &model->parameters[model->n_parameters++];
	bool matrix = rows > 0;

	*parameter = (struct parameter){
		.name = join(model->arena, owner->name, name),
		.module = b->parent,
		.n_dims = matrix ? 2 : 1,
		.shape = {matrix ? rows : columns, matrix ? columns : 0},
		.number = model->n_parameters - 1 - 2 * b->n_adapters,
		.whole = model->n_parameters - 1,
		.trainable = true,
		.decay = matrix,
		.init = init,
	};
	owner->n_parameters++;
	if (!checked_mul(matrix ? rows : 1, columns, &parameter->elements) ||
		!checked_add(model->parameter_count, parameter->elements, &model->parameter_count))
		b->overflow = true;
}

static void add_leaf(struct builder *b, enum module_kind kind)
{
	open_module(b, kind, name_of(b, kind));
	close_module(b);
}

/* What peft adapts unless told (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING): the queries
 * and values, or the projection that makes them together with the keys; of Phi its MLP too. */
static bool is_adapted_usually(const struct architecture *a, enum module_kind kind)
{
	return kind == MODULE_QKV || kind == MODULE_QUERY || kind == MODULE_VALUE ||
	       (a->family == FAMILY_PHI && (kind == MODULE_UP || kind == MODULE_DOWN));
}

/* Megatron-Core's layer that the projection is the first part of; NULL: it is none. */
static const char *layer_begun_by(const struct architecture *a, enum module_kind kind)
{
	switch ((int)kind) {
	case MODULE_QKV:
	case MODULE_QUERY:
		return a->kv_rank == 0 ? "linear_qkv" : NULL;
	case MODULE_ATTENTION_OUTPUT:
		return "linear_proj";
	case MODULE_GATE:
	case MODULE_GATE_UP:
	case MODULE_SHARED_GATE:
	case MODULE_EXPERTS_GATE:
		return "linear_fc1";
	case MODULE_UP:
		return architecture_is_gated(a) ? NULL : "linear_fc1";
	case MODULE_DOWN:
	case MODULE_SHARED_DOWN:
	case MODULE_EXPERTS_DOWN:
		return "linear_fc2";
	default:
		return NULL;
	}
}

/* What the layer makes: a result of each of its projections. */
static int64_t layer_width(const struct architecture *a, enum module_kind kind)
{
	enum module_kind last = kind == MODULE_QUERY         ? MODULE_VALUE
				: kind == MODULE_GATE        ? MODULE_UP
				: kind == MODULE_SHARED_GATE ? MODULE_SHARED_UP
							     : kind;
	int64_t width = 0, out, in;

	for (; kind <= last; kind++)
		if (module_linear_shape(a, kind, &out, &in))
			width += out;
	return width;
}

/* A [r, in] and B [out, r] beside the open projection of a block, or a rank's part of them. */
static void add_adapter(struct builder *b, enum module_kind kind, int64_t out, int64_t in)
{
	const struct architecture *a = &b->model->architecture;
	struct module *module = &b->model->modules[b->parent];
	const struct trainable *t = &a->trainable;
	const struct adapter_ranks ranks = architecture_adapter_ranks(a, kind);
	const char *layer = layer_begun_by(a, kind);

	if (t->rank == 0 || b->layer < 0)
		return;
	if (layer != NULL && trainable_names_layers(t) && trainable_adapts(t, layer, false))
		out = layer_width(a, kind);
	else if (!trainable_adapts(t, module->name, is_adapted_usually(a, kind)))
		return;
	if (module_kind_is_of_experts(kind) || kind == MODULE_ROUTER)
		b->refused = module->name;
	module->adapter = b->model->n_parameters;
	add_parameter(b, "lora_A.weight", ranks.a, in, INIT_ADAPTER);
	add_parameter(b, "lora_B.weight", out, ranks.b, INIT_ZERO);
	b->n_adapters++;
}

/* The caller closes it. All experts' matrices stand below one another: [experts * out, in]. */
static void open_linear(
	struct builder *b, enum module_kind kind, bool bias, enum parameter_init init)
{
	const struct architecture *a = &b->model->architecture;
	int64_t out, in, rows;

	module_linear_shape(a, kind, &out, &in);
	if (!checked_mul(
		    out, module_kind_is_of_experts(kind) ? architecture_experts_held(a) : 1, &rows))
		b->overflow = true;
	open_module(b, kind, name_of(b, kind));
	add_parameter(b, "weight", rows, in, init);
	if (bias)
		add_parameter(b, "bias", 0, rows, INIT_ZERO);
	add_adapter(b, kind, out, in);
}

static void add_linear(
	struct builder *b, enum module_kind kind, bool bias, enum parameter_init init)
{
	open_linear(b, kind, bias, init);
	close_module(b);
}

/* `biased`: where LayerNorms of this model have a bias. */
static void add_norm_of(
	struct builder *b, enum module_kind kind, const char *name, int64_t width, bool biased)
{
	const struct architecture *a = &b->model->architecture;

	open_module(b, kind, name);
	if (a->norm != NORM_PLAIN)
		add_parameter(b, "weight", 0, width, INIT_ONE);
	if (a->norm_bias && biased)
		add_parameter(b, "bias", 0, width, INIT_ZERO);
	close_module(b);
}

static void add_norm(struct builder *b, const char *name)
{
	add_norm_of(b, MODULE_NORM, name, b->model->architecture.hidden, true);
}

static void add_small_norm(struct builder *b, enum module_kind kind, int64_t width)
{
	add_norm_of(b, kind, name_of(b, kind), width, false);
}

static void add_embedding(struct builder *b, enum module_kind kind, int64_t rows, int64_t columns)
{
	open_module(b, kind, name_of(b, kind));
	add_parameter(b, "weight", rows, columns, INIT_NORMAL);
	close_module(b);
}

/* q from h or from a narrow tensor, k and v from a narrow tensor that they share. */
static void add_latent_projections(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;

	if (a->query_rank > 0) {
		add_linear(b, MODULE_QUERY_DOWN, a->qkv_bias, INIT_NORMAL);
		add_small_norm(b, MODULE_QUERY_DOWN_NORM, a->query_rank);
	}
	add_linear(b, MODULE_QUERY, false, INIT_NORMAL);
	add_linear(b, MODULE_KV_DOWN, a->qkv_bias, INIT_NORMAL);
	add_small_norm(b, MODULE_KV_DOWN_NORM, a->kv_rank);
	add_linear(b, MODULE_KV_UP, false, INIT_NORMAL);
}

static void add_projections(struct builder *b, bool fused)
{
	const struct architecture *a = &b->model->architecture;

	if (a->kv_rank > 0) {
		add_latent_projections(b);
	} else if (fused) {
		add_linear(b, MODULE_QKV, a->qkv_bias, INIT_NORMAL);
	} else {
		add_linear(b, MODULE_QUERY, a->qkv_bias, INIT_NORMAL);
		add_linear(b, MODULE_KEY, a->qkv_bias, INIT_NORMAL);
		add_linear(b, MODULE_VALUE, a->qkv_bias, INIT_NORMAL);
	}
	if (!a->qk_norm)
		return;
	int64_t d = a->head_dim;
	add_small_norm(b, MODULE_QUERY_NORM, a->qk_norm_wide ? a->heads * d : d);
	add_small_norm(b, MODULE_KEY_NORM, a->qk_norm_wide ? a->kv_heads * d : d);
}

static void add_core(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;

	open_module(b, MODULE_ATTENTION_CORE, name_of(b, MODULE_ATTENTION_CORE));
	if (a->attention_sinks)
		add_parameter(b, "sinks", 0, a->heads, INIT_ZERO);
	close_module(b);
}

/* T5 keeps its table of relative positions in the first block of each stack, for all of it. */
static void add_relative_bias(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;
	bool first = b->layer == 0 || b->layer == a->encoder_layers;

	if (a->positions == POSITIONS_RELATIVE && first)
		add_embedding(b, MODULE_RELATIVE_BIAS, a->relative_buckets, a->heads);
}

static void add_attention(struct builder *b, enum module_kind kind)
{
	const struct architecture *a = &b->model->architecture;

	open_module(b, kind, name_of(b, kind));
	add_projections(b, a->fused_qkv && kind == MODULE_ATTENTION);
	if (kind == MODULE_ATTENTION)
		add_relative_bias(b);
	add_core(b);
	add_linear(b, MODULE_ATTENTION_OUTPUT, a->output_bias, INIT_RESIDUAL);
	close_module(b);
}

static void add_dense(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;

	if (architecture_is_gated(a) && a->fused_gate_up)
		add_linear(b, MODULE_GATE_UP, a->mlp_bias, INIT_NORMAL);
	else if (architecture_is_gated(a))
		add_linear(b, MODULE_GATE, a->mlp_bias, INIT_NORMAL);
	if (!architecture_is_gated(a) || !a->fused_gate_up)
		add_linear(b, MODULE_UP, a->mlp_bias, INIT_NORMAL);
	add_leaf(b, MODULE_ACTIVATION);
	add_linear(b, MODULE_DOWN, a->mlp_bias, INIT_RESIDUAL);
}

static void add_shared_expert(struct builder *b)
{
	open_module(b, MODULE_SHARED_EXPERT, name_of(b, MODULE_SHARED_EXPERT));
	if (architecture_is_gated(&b->model->architecture))
		add_linear(b, MODULE_SHARED_GATE, false, INIT_NORMAL);
	add_linear(b, MODULE_SHARED_UP, false, INIT_NORMAL);
	add_leaf(b, MODULE_SHARED_ACTIVATION);
	add_linear(b, MODULE_SHARED_DOWN, false, INIT_RESIDUAL);
	close_module(b);
	if (b->model->architecture.shared_gate)
		add_linear(b, MODULE_SHARED_WEIGHT, false, INIT_NORMAL);
}

/* The shared expert comes before the others: a block ends with the sum of all. */
static void add_experts(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;

	add_linear(b, MODULE_ROUTER, a->router_bias, INIT_NORMAL);
	if (a->shared_ffn > 0)
		add_shared_expert(b);
	open_module(b, MODULE_EXPERTS, name_of(b, MODULE_EXPERTS));
	if (architecture_is_gated(a))
		add_linear(b, MODULE_EXPERTS_GATE, a->mlp_bias, INIT_NORMAL);
	add_linear(b, MODULE_EXPERTS_UP, a->mlp_bias, INIT_NORMAL);
	add_leaf(b, MODULE_EXPERTS_ACTIVATION);
	add_linear(b, MODULE_EXPERTS_DOWN, a->mlp_bias, INIT_RESIDUAL);
	close_module(b);
}

static bool is_decoder_of_encoder(const struct builder *b)
{
	int64_t encoder = b->model->architecture.encoder_layers;

	return encoder > 0 && b->layer >= encoder;
}

static const char *mlp_name(const struct builder *b)
{
	if (b->model->architecture.positions != POSITIONS_RELATIVE)
		return name_of(b, MODULE_MLP);
	return is_decoder_of_encoder(b) ? "layer.2.DenseReluDense" : "layer.1.DenseReluDense";
}

static void add_mlp(struct builder *b)
{
	open_module(b, MODULE_MLP, mlp_name(b));
	if (architecture_has_experts(&b->model->architecture, b->layer))
		add_experts(b);
	else
		add_dense(b);
	close_module(b);
}

static void add_cross_attention(struct builder *b)
{
	if (!is_decoder_of_encoder(b))
		return;
	add_norm(b, b->names->second_norm);
	add_attention(b, MODULE_CROSS_ATTENTION);
}

/* In the order of execution. */
static void add_parts(struct builder *b)
{
	const struct module_names *n = b->names;
	enum block_kind kind = b->model->architecture.block;
	const char *second = is_decoder_of_encoder(b) ? n->third_norm : n->second_norm;

	if (kind != BLOCK_POST_NORM)
		add_norm(b, name_of(b, MODULE_NORM));
	if (kind == BLOCK_PARALLEL_NORMS)
		add_norm(b, second);
	add_attention(b, MODULE_ATTENTION);
	add_cross_attention(b);
	if (kind == BLOCK_POST_NORM)
		add_norm(b, name_of(b, MODULE_NORM));
	if (kind == BLOCK_PRE_NORM || kind == BLOCK_SANDWICH)
		add_norm(b, second);
	if (kind == BLOCK_SANDWICH)
		add_norm(b, n->third_norm);
	add_mlp(b);
	if (kind == BLOCK_SANDWICH)
		add_norm(b, n->fourth_norm);
	if (kind == BLOCK_POST_NORM)
		add_norm(b, n->second_norm);
}

static bool predicts_next(const struct builder *b)
{
	const struct architecture *a = &b->model->architecture;

	return b->layer >= a->layers - a->mtp_layers;
}

/* The names are those of DeepSeek-V3's checkpoints. Its table is the model's. */
static void begin_prediction(struct builder *b)
{
	struct model *model = b->model;

	open_module(b, MODULE_EMBEDDING, name_of(b, MODULE_EMBEDDING));
	close_module(b);
	model->modules[model->n_modules - 1].tied_parameter = 0;
	add_norm(b, "enorm");
	add_norm(b, "hnorm");
	add_linear(b, MODULE_NEXT_PROJECTION, false, INIT_NORMAL);
}

static void add_block(struct builder *b, int layer, int number)
{
	b->layer = layer;
	open_module(b, MODULE_BLOCK, arena_printf(b->model->arena, "%d", number));
	if (predicts_next(b))
		begin_prediction(b);
	add_parts(b);
	if (predicts_next(b))
		add_norm(b, "shared_head.norm");
	close_module(b);
	b->layer = -1;
}

static void add_layers(struct builder *b, int first, int end)
{
	open_module(b, MODULE_LAYERS, name_of(b, MODULE_LAYERS));
	for (int i = first; i < end; i++)
		add_block(b, i, i - first);
	close_module(b);
}

static void add_head(struct builder *b, int embedding)
{
	struct model *model = b->model;
	const struct architecture *a = &model->architecture;

	if (!a->tied_head) {
		add_linear(b, MODULE_HEAD, a->head_bias, INIT_NORMAL);
		return;
	}
	open_module(b, MODULE_HEAD, name_of(b, MODULE_HEAD));
	if (a->head_bias)
		add_parameter(b, "bias", 0, a->vocab, INIT_ZERO);
	close_module(b);
	model->modules[model->n_modules - 1].tied_parameter =
		model->modules[embedding].first_parameter;
}

static void add_embeddings(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;

	add_embedding(b, MODULE_EMBEDDING, a->vocab, architecture_width(a, WIDTH_EMBEDDING));
	if (a->embedding_width > 0)
		add_linear(b, MODULE_EMBEDDING_PROJECTION, false, INIT_NORMAL);
	if (a->positions == POSITIONS_LEARNED)
		add_embedding(
			b, MODULE_POSITION_EMBEDDING, a->context + a->position_extra, a->hidden);
	if (a->embedding_norm)
		add_norm_of(b, MODULE_EMBEDDING_NORM, name_of(b, MODULE_EMBEDDING_NORM), a->hidden,
			true);
}

/* One stack of blocks. */
static int add_decoder_only(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;
	int embedding;

	open_module(b, MODULE_MODEL, name_of(b, MODULE_MODEL));
	embedding = b->model->n_modules;
	add_embeddings(b);
	add_layers(b, 0, (int)a->layers);
	if (!a->no_final_norm)
		add_norm(b, b->names->final_norm);
	if (a->embedding_width > 0)
		add_linear(b, MODULE_HEAD_PROJECTION, false, INIT_NORMAL);
	close_module(b);
	return embedding;
}

/* Two stacks that share the embedding. The decoder looks its own tokens up when the encoder is
 * through. */
static int add_encoder_decoder(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;
	int embedding = b->model->n_modules;

	add_embeddings(b);
	open_module(b, MODULE_MODEL, "encoder");
	add_layers(b, 0, (int)a->encoder_layers);
	b->layer = (int)a->encoder_layers - 1;
	add_norm(b, b->names->final_norm);
	b->layer = -1;
	close_module(b);
	open_module(b, MODULE_MODEL, "decoder");
	b->layer = (int)a->encoder_layers;
	open_module(b, MODULE_EMBEDDING, "embed_tokens");
	close_module(b);
	b->layer = -1;
	add_layers(b, (int)a->encoder_layers, (int)a->layers);
	add_norm(b, b->names->final_norm);
	close_module(b);
	return embedding;
}

static void add_top(struct builder *b)
{
	open_module(b, MODULE_MODEL, "");
	add_head(b, b->model->architecture.encoder_layers > 0 ? add_encoder_decoder(b)
							      : add_decoder_only(b));
	close_module(b);
}

int64_t model_count_active(const struct model *model)
{
	const struct architecture *a = &model->architecture;
	int64_t active = model->parameter_count;

	for (int i = 0; i < model->n_parameters; i++) {
		const struct parameter *p = &model->parameters[i];

		if (module_kind_is_of_experts(model->modules[p->module].kind))
			active -= p->elements / a->experts * (a->experts - a->experts_per_token);
	}
	return active;
}

bool model_build(struct arena *arena, const struct architecture *architecture, struct model **model,
	struct error *error)
{
	struct model *m = ARENA_NEW(arena, struct model);
	struct builder builder = {.model = m, .parent = -1, .layer = -1};
	int64_t layers = architecture->layers;

	m->arena = arena;
	m->architecture = *architecture;
	m->architecture.name = arena_strdup(arena, architecture->name);
	m->modules =
		ARENA_ARRAY(arena, struct module, MODULES_OUTSIDE + layers * MODULES_PER_BLOCK);
	m->parameters = ARENA_ARRAY(
		arena, struct parameter, PARAMETERS_OUTSIDE + layers * PARAMETERS_PER_BLOCK);
	builder.names = model_families[architecture->family].names;
	add_top(&builder);
	if (builder.overflow)
		return error_set(error, EXIT_CODE_INPUT,
			"model \"%s\": too many parameters to count (more than %" PRId64 ")",
			architecture->name, INT64_MAX);
	m->active_parameter_count = model_count_active(m);
	*model = m;
	return model_choose_trained(m, builder.refused, error);
}
