/* What the kinds of modules are: leaves, the shapes of their matrices, what experts own. */
#include "models/model.h"

#include "models/widths.h"

static const struct {
	const char *name;
	bool is_leaf;
} module_kinds[] = {
#define X(suffix, name, leaf) [MODULE_##suffix] = {name, leaf},
	MODULE_KINDS(X)
#undef X
};

static const struct {
	enum width out, in;
	bool experts; /* one such matrix for each expert */
} linear_shapes[MODULE_KIND_COUNT] = {
	[MODULE_EMBEDDING_PROJECTION] = {WIDTH_HIDDEN, WIDTH_EMBEDDING, false},
	[MODULE_QKV] = {WIDTH_QKV, WIDTH_HIDDEN, false},
	[MODULE_QUERY_DOWN] = {WIDTH_QUERY_RANK, WIDTH_HIDDEN, false},
	[MODULE_QUERY] = {WIDTH_QUERY, WIDTH_QUERY_INPUT, false},
	[MODULE_KEY] = {WIDTH_KEY, WIDTH_HIDDEN, false},
	[MODULE_VALUE] = {WIDTH_VALUE, WIDTH_HIDDEN, false},
	[MODULE_KV_DOWN] = {WIDTH_KV_DOWN, WIDTH_HIDDEN, false},
	[MODULE_KV_UP] = {WIDTH_KV_UP, WIDTH_KV_RANK, false},
	[MODULE_ATTENTION_OUTPUT] = {WIDTH_HIDDEN, WIDTH_ATTENTION, false},
	[MODULE_GATE] = {WIDTH_FFN, WIDTH_HIDDEN, false},
	[MODULE_UP] = {WIDTH_FFN, WIDTH_HIDDEN, false},
	[MODULE_GATE_UP] = {WIDTH_GATE_UP, WIDTH_HIDDEN, false},
	[MODULE_DOWN] = {WIDTH_HIDDEN, WIDTH_FFN, false},
	[MODULE_ROUTER] = {WIDTH_EXPERTS, WIDTH_HIDDEN, false},
	[MODULE_EXPERTS_GATE] = {WIDTH_EXPERT_FFN, WIDTH_HIDDEN, true},
	[MODULE_EXPERTS_UP] = {WIDTH_EXPERT_FFN, WIDTH_HIDDEN, true},
	[MODULE_EXPERTS_DOWN] = {WIDTH_HIDDEN, WIDTH_EXPERT_FFN, true},
	[MODULE_SHARED_GATE] = {WIDTH_SHARED_FFN, WIDTH_HIDDEN, false},
	[MODULE_SHARED_UP] = {WIDTH_SHARED_FFN, WIDTH_HIDDEN, false},
	[MODULE_SHARED_DOWN] = {WIDTH_HIDDEN, WIDTH_SHARED_FFN, false},
	[MODULE_SHARED_WEIGHT] = {WIDTH_ONE, WIDTH_HIDDEN, false},
	[MODULE_NEXT_PROJECTION] = {WIDTH_HIDDEN, WIDTH_TWO_HIDDEN, false},
	[MODULE_HEAD_PROJECTION] = {WIDTH_EMBEDDING, WIDTH_HIDDEN, false},
	[MODULE_HEAD] = {WIDTH_VOCAB, WIDTH_EMBEDDING, false},
};

const char *module_kind_name(enum module_kind kind)
{
	return module_kinds[kind].name;
}

bool module_kind_is_leaf(enum module_kind kind)
{
	return module_kinds[kind].is_leaf;
}

bool module_kind_is_of_experts(enum module_kind kind)
{
	return linear_shapes[kind].experts;
}

bool module_is_linear(enum module_kind kind)
{
	return linear_shapes[kind].out != WIDTH_NONE;
}

bool module_linear_shape(
	const struct architecture *architecture, enum module_kind kind, int64_t *out, int64_t *in)
{
	if (!module_is_linear(kind))
		return false;
	*out = architecture_width(architecture, linear_shapes[kind].out);
	*in = architecture_width(architecture, linear_shapes[kind].in);
	return true;
}

bool module_sees_all(const struct model *model, int module)
{
	const struct module *m = &model->modules[module];

	if (m->layer < 0 || model->architecture.encoder_layers == 0)
		return false;
	return m->layer < model->architecture.encoder_layers ||
	       (m->parent >= 0 && model->modules[m->parent].kind == MODULE_CROSS_ATTENTION);
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

/* A frozen table ends the pass: nothing lies behind it. */
bool model_goes_back(const struct model *model, int module)
{
	const struct module *m = &model->modules[module];
	bool is_table = m->kind == MODULE_EMBEDDING || m->kind == MODULE_POSITION_EMBEDDING;

	return module >= model->first_trained && !(is_table && m->frozen);
}

bool module_has_bias(const struct module *module)
{
	return module->n_parameters - (module->adapter >= 0 ? 2 : 0) == 2;
}

bool module_trains_bias(const struct model *model, const struct module *module)
{
	return module_has_bias(module) && model->parameters[module->first_parameter + 1].trainable;
}

/* Owns its weight alone, and what it writes goes on as it is. */
static bool is_plain(const struct model *model, const struct module *m)
{
	bool normed = m->kind == MODULE_QUERY && model->architecture.qk_norm;

	return m->n_parameters == 1 && m->adapter < 0 && !normed;
}

static struct joined joined_from(
	const struct model *model, int first, enum module_kind kind, enum module_kind last)
{
	struct joined joined = {.first = first};
	int64_t out, in;

	for (; kind <= last; kind++, joined.n++) {
		int i = first + joined.n;

		if (i < 0 || i >= model->n_modules || model->modules[i].kind != kind ||
			!is_plain(model, &model->modules[i]))
			return (struct joined){0};
		module_linear_shape(&model->architecture, kind, &out, &in);
		joined.width += out;
	}
	return model_goes_back(model, first) ? joined : (struct joined){0};
}

struct joined model_joined(const struct model *model, int module)
{
	enum module_kind kind = model->modules[module].kind;

	if (kind >= MODULE_QUERY && kind <= MODULE_VALUE)
		return joined_from(
			model, module - (int)(kind - MODULE_QUERY), MODULE_QUERY, MODULE_VALUE);
	if (kind == MODULE_GATE || kind == MODULE_UP)
		return joined_from(
			model, module - (int)(kind - MODULE_GATE), MODULE_GATE, MODULE_UP);
	return (struct joined){0};
}

bool model_leaves_are_alike(const struct model *model, int one, int two)
{
	const struct module *a = &model->modules[one], *b = &model->modules[two];

	return a->kind == b->kind && a->n_parameters == b->n_parameters &&
	       (a->adapter < 0) == (b->adapter < 0) && a->frozen == b->frozen &&
	       a->weight_frozen == b->weight_frozen && a->unread == b->unread &&
	       (one < model->first_trained) == (two < model->first_trained) &&
	       (one == model->first_trained) == (two == model->first_trained);
}
