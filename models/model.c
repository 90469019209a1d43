/* Builds the tree of modules and their parameters from an architecture.
 *
 * One shape fits all families: embedding, blocks of (norm, attention, norm, MLP), final norm, head.
 * The architecture says which parts exist and the family's table how they are called. */
#include "models/model.h"

#include <inttypes.h>

#include "models/families.h"
#include "models/widths.h"

static const struct {
	const char *name;
	bool is_leaf;
} module_kinds[] = {
#define X(suffix, name, leaf) [MODULE_##suffix] = {name, leaf},
	MODULE_KINDS(X)
#undef X
};

/* Upper bounds, for one allocation each. */
enum {
	MODULES_OUTSIDE = 8,
	MODULES_PER_BLOCK = 16,
	PARAMETERS_OUTSIDE = 5,
	PARAMETERS_PER_BLOCK = 20,
};

static const struct {
	enum width out, in;
} linear_shapes[MODULE_KIND_COUNT] = {
	[MODULE_QKV] = {WIDTH_QKV, WIDTH_HIDDEN},
	[MODULE_QUERY] = {WIDTH_QUERY, WIDTH_HIDDEN},
	[MODULE_KEY] = {WIDTH_KEY, WIDTH_HIDDEN},
	[MODULE_VALUE] = {WIDTH_KEY, WIDTH_HIDDEN},
	[MODULE_ATTENTION_OUTPUT] = {WIDTH_HIDDEN, WIDTH_QUERY},
	[MODULE_GATE] = {WIDTH_FFN, WIDTH_HIDDEN},
	[MODULE_UP] = {WIDTH_FFN, WIDTH_HIDDEN},
	[MODULE_DOWN] = {WIDTH_HIDDEN, WIDTH_FFN},
	[MODULE_HEAD] = {WIDTH_VOCAB, WIDTH_HIDDEN},
};

const char *module_kind_name(enum module_kind kind)
{
	return module_kinds[kind].name;
}

bool module_kind_is_leaf(enum module_kind kind)
{
	return module_kinds[kind].is_leaf;
}

bool module_linear_shape(
	const struct architecture *architecture, enum module_kind kind, int64_t *out, int64_t *in)
{
	if (linear_shapes[kind].out == WIDTH_NONE)
		return false;
	*out = architecture_width(architecture, linear_shapes[kind].out);
	*in = architecture_width(architecture, linear_shapes[kind].in);
	return true;
}

struct builder {
	struct model *model;
	const struct module_names *names;
	int parent; /* the open container */
	int layer;
	bool overflow;
};

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
		.trainable = true,
		.decay = matrix,
		.init = init,
	};
	owner->n_parameters++;
	if (!checked_mul(matrix ? rows : 1, columns, &parameter->elements) ||
		!checked_add(model->parameter_count, parameter->elements, &model->parameter_count))
		b->overflow = true;
}

static void add_leaf(struct builder *b, enum module_kind kind, const char *name)
{
	open_module(b, kind, name);
	close_module(b);
}

static void add_linear(
	struct builder *b, enum module_kind kind, bool bias, enum parameter_init init)
{
	int64_t out, in;

	module_linear_shape(&b->model->architecture, kind, &out, &in);
	open_module(b, kind, b->names->of[kind]);
	add_parameter(b, "weight", out, in, init);
	if (bias)
		add_parameter(b, "bias", 0, out, INIT_ZERO);
	close_module(b);
}

static void add_norm(struct builder *b, enum module_kind kind, const char *name, int64_t width)
{
	open_module(b, kind, name);
	add_parameter(b, "weight", 0, width, INIT_ONE);
	if (b->model->architecture.norm_bias && kind == MODULE_NORM)
		add_parameter(b, "bias", 0, width, INIT_ZERO);
	close_module(b);
}

static void add_embedding(struct builder *b, enum module_kind kind, int64_t rows)
{
	open_module(b, kind, b->names->of[kind]);
	add_parameter(b, "weight", rows, b->model->architecture.hidden, INIT_NORMAL);
	close_module(b);
}

static void add_attention(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;
	const char *const *names = b->names->of;

	open_module(b, MODULE_ATTENTION, names[MODULE_ATTENTION]);
	if (a->fused_qkv) {
		add_linear(b, MODULE_QKV, a->qkv_bias, INIT_NORMAL);
	} else {
		add_linear(b, MODULE_QUERY, a->qkv_bias, INIT_NORMAL);
		add_linear(b, MODULE_KEY, a->qkv_bias, INIT_NORMAL);
		add_linear(b, MODULE_VALUE, a->qkv_bias, INIT_NORMAL);
	}
	if (a->qk_norm) {
		add_norm(b, MODULE_QUERY_NORM, names[MODULE_QUERY_NORM], a->head_dim);
		add_norm(b, MODULE_KEY_NORM, names[MODULE_KEY_NORM], a->head_dim);
	}
	add_leaf(b, MODULE_ATTENTION_CORE, names[MODULE_ATTENTION_CORE]);
	add_linear(b, MODULE_ATTENTION_OUTPUT, a->output_bias, INIT_RESIDUAL);
	close_module(b);
}

static void add_mlp(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;

	open_module(b, MODULE_MLP, b->names->of[MODULE_MLP]);
	if (a->mlp == MLP_SWIGLU)
		add_linear(b, MODULE_GATE, a->mlp_bias, INIT_NORMAL);
	add_linear(b, MODULE_UP, a->mlp_bias, INIT_NORMAL);
	add_leaf(b, MODULE_ACTIVATION, b->names->of[MODULE_ACTIVATION]);
	add_linear(b, MODULE_DOWN, a->mlp_bias, INIT_RESIDUAL);
	close_module(b);
}

static void add_block(struct builder *b, int layer)
{
	int64_t hidden = b->model->architecture.hidden;

	b->layer = layer;
	open_module(b, MODULE_BLOCK, arena_printf(b->model->arena, "%d", layer));
	add_norm(b, MODULE_NORM, b->names->of[MODULE_NORM], hidden);
	add_attention(b);
	add_norm(b, MODULE_NORM, b->names->second_norm, hidden);
	add_mlp(b);
	close_module(b);
	b->layer = -1;
}

static void add_layers(struct builder *b)
{
	open_module(b, MODULE_LAYERS, b->names->of[MODULE_LAYERS]);
	for (int i = 0; i < (int)b->model->architecture.layers; i++)
		add_block(b, i);
	close_module(b);
}

static void add_head(struct builder *b, int embedding)
{
	struct model *model = b->model;

	if (!model->architecture.tied_head) {
		add_linear(b, MODULE_HEAD, false, INIT_NORMAL);
		return;
	}
	add_leaf(b, MODULE_HEAD, b->names->of[MODULE_HEAD]);
	model->modules[model->n_modules - 1].tied_parameter =
		model->modules[embedding].first_parameter;
}

static void add_top(struct builder *b)
{
	const struct architecture *a = &b->model->architecture;
	int embedding;

	open_module(b, MODULE_MODEL, "");
	open_module(b, MODULE_MODEL, b->names->of[MODULE_MODEL]);
	embedding = b->model->n_modules;
	add_embedding(b, MODULE_EMBEDDING, a->vocab);
	if (a->positions == POSITIONS_LEARNED)
		add_embedding(b, MODULE_POSITION_EMBEDDING, a->context);
	add_layers(b);
	add_norm(b, MODULE_NORM, b->names->final_norm, a->hidden);
	close_module(b);
	add_head(b, embedding);
	close_module(b);
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
	m->active_parameter_count = m->parameter_count;
	if (builder.overflow)
		return error_set(error, EXIT_CODE_INPUT,
			"model \"%s\": too many parameters to count (more than %" PRId64 ")",
			architecture->name, INT64_MAX);
	*model = m;
	return true;
}

int64_t model_subtree_parameters(const struct model *model, int module)
{
	const struct module *first = &model->modules[module];
	int64_t total = 0;

	/* Parameters are in module order, so a subtree's are one run. */
	for (int i = first->first_parameter; i < model->n_parameters; i++) {
		if (model->parameters[i].module >= first->end)
			break;
		total += model->parameters[i].elements;
	}
	return total;
}
