/* The part of a model that one rank of a pipeline holds: modules and parameters are selected, and
 * numbered by themselves. */
#include "models/stage.h"
#include "models/families.h"

bool module_kind_is_before_blocks(enum module_kind kind)
{
	return kind == MODULE_EMBEDDING || kind == MODULE_POSITION_EMBEDDING ||
	       kind == MODULE_EMBEDDING_NORM || kind == MODULE_EMBEDDING_PROJECTION;
}

struct selecting {
	const struct model *model;
	struct model *part;
	int *places; /* of modules of the model in the part: of the first that is kept from it on */
	int *layers; /* of blocks of the model in the part; -1: not there */
};

/* Containers stay, even where nothing is left in them. */
static bool keeps(
	const struct selecting *s, const struct stage_part *stage, const struct module *module)
{
	if (module->layer >= 0)
		return s->layers[module->layer] >= 0;
	if (!module_kind_is_leaf(module->kind))
		return true;
	return module_kind_is_before_blocks(module->kind) ? stage->embedding : stage->head;
}

static void add_parameter(struct selecting *s, const struct parameter *parameter, int module)
{
	struct model *part = s->part;
	struct parameter *kept = &part->parameters[part->n_parameters++];

	*kept = *parameter;
	kept->module = module;
	part->parameter_count += kept->elements;
	part->trained_count += kept->trainable ? kept->elements : 0;
}

/* The head reads the embedding's table, or a copy where that is another rank's. */
static void tie(
	struct selecting *s, const struct stage_part *stage, struct module *module, int index)
{
	const struct parameter *table;

	if (module->tied_parameter < 0)
		return;
	table = &s->model->parameters[module->tied_parameter];
	if (stage->embedding) {
		const struct module *owner = &s->part->modules[s->places[table->module]];

		module->tied_parameter = owner->first_parameter;
		return;
	}
	module->tied_parameter = -1;
	module->n_parameters++;
	add_parameter(s, table, index);
	s->part->architecture.tied_head = false;
}

static void add_module(
	struct selecting *s, const struct stage_part *stage, const struct module *module)
{
	struct model *part = s->part;
	int index = part->n_modules++;
	struct module *kept = &part->modules[index];

	*kept = *module;
	kept->parent = module->parent >= 0 ? s->places[module->parent] : -1;
	kept->layer = module->layer >= 0 ? s->layers[module->layer] : -1;
	kept->first_parameter = part->n_parameters;
	if (module->adapter >= 0)
		kept->adapter += kept->first_parameter - module->first_parameter;
	tie(s, stage, kept, index);
	for (int p = 0; p < module->n_parameters; p++)
		add_parameter(s, &s->model->parameters[module->first_parameter + p], index);
}

static void select_modules(struct selecting *s, const struct stage_part *stage)
{
	const struct model *model = s->model;

	for (int m = 0; m < model->n_modules; m++) {
		s->places[m] = s->part->n_modules;
		if (keeps(s, stage, &model->modules[m]))
			add_module(s, stage, &model->modules[m]);
	}
	s->places[model->n_modules] = s->part->n_modules;
	for (int m = 0; m < model->n_modules; m++)
		if (s->places[m + 1] > s->places[m])
			s->part->modules[s->places[m]].end = s->places[model->modules[m].end];
}

/* Backward ends with the first trained leaf, or goes on to the stage before. */
static int first_trained(const struct selecting *s)
{
	const struct model *part = s->part;
	int m = s->places[s->model->first_trained];

	while (m < part->n_modules && !module_kind_is_leaf(part->modules[m].kind))
		m++;
	return m;
}

int model_shared_table(const struct model *stage)
{
	const struct model *whole = model_whole(stage);
	int tied = whole->modules[whole->n_modules - 1].tied_parameter, p = 0;

	if (tied < 0 || stage->modules[stage->n_modules - 1].tied_parameter >= 0)
		return -1;
	while (p < stage->n_parameters && model_whole_parameter(stage, p) != tied)
		p++;
	return p < stage->n_parameters ? p : -1;
}

bool model_parameter_is_copy(const struct model *stage, int parameter)
{
	const struct model *whole = model_whole(stage);
	int owner = whole->parameters[model_whole_parameter(stage, parameter)].module;

	return stage->modules[stage->parameters[parameter].module].kind == MODULE_HEAD &&
	       whole->modules[owner].kind != MODULE_HEAD;
}

const struct model *model_stage(
	struct arena *arena, const struct model *model, const struct stage_part *stage)
{
	struct selecting s = {.model = model, .part = ARENA_NEW(arena, struct model)};
	int64_t layers = model->architecture.layers;
	int *numbers = ARENA_ARRAY(arena, int, stage->n_layers);

	*s.part = *model;
	s.part->arena = arena;
	s.part->n_modules = s.part->n_parameters = 0;
	s.part->parameter_count = s.part->trained_count = 0;
	s.part->modules = ARENA_ARRAY(arena, struct module, model->n_modules);
	s.part->parameters = ARENA_ARRAY(arena, struct parameter, model->n_parameters + 1);
	s.places = ARENA_ARRAY(arena, int, model->n_modules + 1);
	s.layers = ARENA_ARRAY(arena, int, layers);
	for (int64_t l = 0; l < layers; l++)
		s.layers[l] = -1;
	for (int l = 0; l < stage->n_layers; l++) {
		numbers[l] = stage->layers[l];
		s.layers[numbers[l]] = l;
	}
	s.part->layers = numbers;
	s.part->architecture.layers = stage->n_layers;
	s.part->whole = model_whole(model);
	select_modules(&s, stage);
	s.part->active_parameter_count = model_count_active(s.part);
	s.part->first_trained = first_trained(&s);
	return s.part;
}
