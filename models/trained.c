/* What of a model is trained, and what follows: how far backward goes, whose input it needs. */
#include "models/families.h"
#include "models/model.h"

bool parameter_is_adapter(const struct model *model, int parameter)
{
	int first = model->modules[model->parameters[parameter].module].adapter;

	return first >= 0 && parameter >= first;
}

/* Adapters alone, or what the pattern names. Their random numbers come behind all others'. */
static void choose_trained(struct model *model)
{
	const struct trainable *t = &model->architecture.trainable;
	int n = 0;

	for (int i = 0; i < model->n_parameters; i++)
		n += !parameter_is_adapter(model, i);
	model->first_trained = model->n_modules;
	for (int i = 0; i < model->n_parameters; i++) {
		struct parameter *p = &model->parameters[i];

		if (parameter_is_adapter(model, i))
			p->number = n++;
		p->trainable = t->rank > 0 ? parameter_is_adapter(model, i)
					   : trainable_matches(t, p->name);
		if (!p->trainable)
			continue;
		model->trained_count += p->elements;
		if (p->module < model->first_trained)
			model->first_trained = p->module;
	}
}

static void find_frozen(struct model *model)
{
	for (int m = 0; m < model->n_modules; m++) {
		struct module *module = &model->modules[m];
		int n = module->adapter >= 0 ? 2 : 0;

		module->frozen = module->tied_parameter < 0 ||
				 !model->parameters[module->tied_parameter].trainable;
		module->weight_frozen = module->frozen;
		for (int p = 0; p < module->n_parameters - n; p++) {
			bool trained = model->parameters[module->first_parameter + p].trainable;

			module->frozen = module->frozen && !trained;
			if (p == 0 && module->tied_parameter < 0)
				module->weight_frozen = !trained;
		}
	}
}

/* Whose input is what a norm or an activation of the block makes. */
enum reader { READ_BY_ATTENTION, READ_BY_MLP, READ_BY_DOWN, READ_BY_OUTPUT, READ_BY_HEAD, READERS };
static const struct {
	enum module_kind kind;
	enum reader reader;
} readers[] = {
	{MODULE_QKV, READ_BY_ATTENTION},
	{MODULE_QUERY, READ_BY_ATTENTION},
	{MODULE_KEY, READ_BY_ATTENTION},
	{MODULE_VALUE, READ_BY_ATTENTION},
	{MODULE_QUERY_DOWN, READ_BY_ATTENTION},
	{MODULE_KV_DOWN, READ_BY_ATTENTION},
	{MODULE_ATTENTION_OUTPUT, READ_BY_OUTPUT},
	{MODULE_GATE, READ_BY_MLP},
	{MODULE_UP, READ_BY_MLP},
	{MODULE_GATE_UP, READ_BY_MLP},
	{MODULE_DOWN, READ_BY_DOWN},
	{MODULE_HEAD, READ_BY_HEAD},
	{MODULE_HEAD_PROJECTION, READ_BY_HEAD},
};

/* Where the readers of a leaf's result are in doubt (experts, other orders of norms), it is read.
 */
static bool is_read(const struct model *model, int module, int norms, const bool *reads)
{
	const struct module *m = &model->modules[module];
	bool plain = model->architecture.block == BLOCK_PRE_NORM &&
		     model->architecture.encoder_layers == 0;

	switch ((int)m->kind) {
	case MODULE_NORM:
		if (m->layer < 0)
			return reads[READ_BY_HEAD];
		if (!plain || architecture_has_experts(&model->architecture, m->layer))
			return true;
		return reads[norms == 0 ? READ_BY_ATTENTION : READ_BY_MLP];
	case MODULE_ATTENTION_CORE:
		return reads[READ_BY_OUTPUT];
	case MODULE_ACTIVATION:
		return reads[READ_BY_DOWN];
	default:
		return true;
	}
}

/* Leaves [first, end) of one block, or those behind the blocks. */
static void find_unread(struct model *model, int first, int end)
{
	bool reads[READERS] = {false};
	int norms = 0;

	for (int m = first; m < end; m++)
		for (int i = 0; i < COUNT_OF(readers); i++)
			if (model->modules[m].kind == readers[i].kind &&
				module_reads_input(&model->modules[m]))
				reads[readers[i].reader] = true;
	for (int m = first; m < end; m++) {
		model->modules[m].unread = !is_read(model, m, norms, reads);
		norms += model->modules[m].kind == MODULE_NORM;
	}
}

static void find_all_unread(struct model *model)
{
	int end;

	for (int m = 0; m < model->n_modules; m = end) {
		const struct module *module = &model->modules[m];

		end = module->kind == MODULE_BLOCK ? module->end : m + 1;
		if (module->kind == MODULE_BLOCK)
			find_unread(model, m, end);
		else if (module->kind == MODULE_NORM && module->layer < 0)
			find_unread(model, m, end = model->n_modules);
	}
}

bool model_choose_trained(struct model *model, const char *refused, struct error *error)
{
	const struct architecture *a = &model->architecture;

	choose_trained(model);
	find_frozen(model);
	find_all_unread(model);
	if (refused != NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"--trainable %.60s: adapters of experts and their router (%s) "
			"are not modelled; name other projections",
			a->trainable.text, refused);
	if (model->trained_count > 0)
		return true;
	if (strncmp(a->trainable.text, "qlora", 5) == 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--trainable %.60s: weights of 4 bits are not predicted; type lora%.20s",
			a->trainable.text, a->trainable.text + 5);
	return error_set(error, EXIT_CODE_USAGE, "--trainable %.60s: %s has no such %s; %s",
		a->trainable.text, a->name, a->trainable.rank > 0 ? "projection" : "parameter",
		"`shardplan models show --json` names them all");
}
