#include "toy.h"
#include "schedule/resolve/resolve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void add_module(struct model *model, enum module_kind kind, const char *name, int parent)
{
	model->modules[model->n_modules++] = (struct module){.name = name,
		.kind = kind,
		.parent = parent,
		.layer = parent > 0 && kind != MODULE_LAYERS ? model->modules[parent].layer : -1,
		.first_parameter = model->n_parameters,
		.tied_parameter = -1,
		.adapter = -1};
}

static void add_parameter(struct model *model, const char *name, int64_t rows, int64_t columns)
{
	int module = model->n_modules - 1;
	model->parameters[model->n_parameters++] = (struct parameter){.name = name,
		.module = module,
		.n_dims = columns > 0 ? 2 : 1,
		.shape = {rows, columns},
		.elements = rows * (columns > 0 ? columns : 1),
		.trainable = true};
	model->modules[module].n_parameters++;
	model->parameter_count += rows * (columns > 0 ? columns : 1);
	model->trained_count = model->parameter_count;
}

static void add_block(struct model *model, struct arena *arena, int layer)
{
	int block = model->n_modules;
	add_module(model, MODULE_BLOCK, arena_printf(arena, "layers.%d", layer), 2);
	model->modules[block].layer = layer;
	add_module(model, MODULE_UP, arena_printf(arena, "layers.%d.a", layer), block);
	add_parameter(model, "a.weight", 25, 8);
	add_parameter(model, "a.bias", 25, 0);
	add_module(model, MODULE_DOWN, arena_printf(arena, "layers.%d.b", layer), block);
	add_parameter(model, "b.weight", 8, 25);
	add_parameter(model, "b.bias", 8, 0);
	for (int i = block; i < model->n_modules; i++)
		model->modules[i].end = i == block ? model->n_modules : i + 1;
}

struct model *toy_model(struct arena *arena, int blocks, bool tied)
{
	struct model *model = ARENA_NEW(arena, struct model);
	model->modules = ARENA_ARRAY(arena, struct module, 4 + 3 * blocks);
	model->parameters = ARENA_ARRAY(arena, struct parameter, 2 + 4 * blocks);
	model->architecture = (struct architecture){.name = "toy",
		.layers = blocks,
		.hidden = 8,
		.heads = 1,
		.kv_heads = 1,
		.head_dim = 8,
		.ffn = 25,
		.vocab = 11,
		.context = 64,
		.tied_head = tied};
	add_module(model, MODULE_MODEL, "", -1);
	add_module(model, MODULE_EMBEDDING, "emb", 0);
	add_parameter(model, "emb.weight", 11, 8);
	add_module(model, MODULE_LAYERS, "layers", 0);
	for (int i = 0; i < blocks; i++)
		add_block(model, arena, i);
	model->modules[2].end = model->n_modules;
	model->modules[1].end = 2;
	add_module(model, MODULE_HEAD, "head", 0);
	if (tied)
		model->modules[model->n_modules - 1].tied_parameter = 0;
	else
		add_parameter(model, "head.weight", 11, 8);
	model->modules[0].end = model->n_modules;
	model->modules[model->n_modules - 1].end = model->n_modules;
	return model;
}

struct topology *toy_topology(struct arena *arena, int64_t devices)
{
	struct topology *topology;
	struct error error = {0};
	if (!topology_load_name(arena, "dgx-a100-80gb", &topology, &error) ||
		!topology_use_devices(topology, devices, &error))
		fail_msg("%s", error.message);
	return topology;
}

static void set_choice(struct question *question, struct arena *arena, const char *assignment)
{
	struct error error = {0};
	char *name = arena_strdup(arena, assignment);
	char *value = strchr(name, '=');
	assert_non_null(value);
	*value++ = '\0';
	if (!question_set_by_name(question, name, name, value, arena, &error))
		fail_msg("%s", error.message);
}

struct plan toy_plan(
	struct arena *arena, const struct model *model, const struct topology *topology, ...)
{
	struct question question = {.model = model, .topology = topology};
	struct plan plan;
	struct error error = {0};
	va_list args;
	va_start(args, topology);
	for (const char *word; (word = va_arg(args, const char *)) != NULL;)
		set_choice(&question, arena, word);
	va_end(args);
	if (!plan_resolve(&question, arena, &plan, &error))
		fail_msg("%s", error.message);
	return plan;
}

struct schedule *toy_schedule(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	struct schedule *schedule;
	struct error error = {0};
	if (!schedule_build(arena, plan, model, topology, &schedule, &error))
		fail_msg("%s", error.message);
	return schedule;
}
