/* `help defaults`: the values come from the code that sets them, so they are not repeated here. */
#include <string.h>

#include "cli/help/help.h"
#include "executor/executor.h"
#include "schedule/resolve/resolve.h"
#include "schedule/schedule.h"

/* Resolves the defaults, on two GPU nodes and on a CPU machine. */
static bool resolve_both(
	struct arena *arena, struct plan *gpu, struct plan *cpu, struct error *error)
{
	struct model *model;
	struct topology *topology;

	if (!model_load_preset(arena, "llama-2-7b", &model, error) ||
		!topology_load_name(arena, "2xdgx-a100-80gb", &topology, error) ||
		!plan_resolve(&(struct question){.model = model, .topology = topology}, arena, gpu,
			error))
		return false;
	struct topology machine = *topology;
	machine.nodes = 1;
	machine.device.kind = DEVICE_CPU;
	machine.device.generation = GENERATION_CPU;
	return plan_resolve(
		&(struct question){.model = model, .topology = &machine}, arena, cpu, error);
}

static void add_row(
	struct text *text, const char *name, const char *gpu, const char *cpu, const char *remark)
{
	text_printf(text, "| %-28s | %-20s | %-20s | %-54s |\n", name, gpu, cpu, remark);
}

/* The value as a user would type it. */
static const char *value_of(enum knob_id id, const struct plan *plan, struct arena *arena)
{
	const struct knob *knob = &knob_table[id];

	if (knob->shown != NULL)
		return knob->shown;
	return knob_typed(id, plan, arena);
}

static void add_knob(enum knob_id id, const struct plan *gpu, const struct plan *cpu,
	struct arena *arena, struct text *text)
{
	const char *option = swap_dashes(knob_table[id].field.name, '_', '-', arena);
	const char *remark = knob_table[id].remark;

	add_row(text, arena_printf(arena, "`--%s`", option), value_of(id, gpu, arena),
		value_of(id, cpu, arena), remark != NULL ? remark : "");
}

static void add_knobs(
	const struct plan *gpu, const struct plan *cpu, struct arena *arena, struct text *text)
{
	add_row(text, "option", "GPU topologies", "`local`, CPUs", "");
	add_row(text, "---", "---", "---", "---");
	for (int id = 0; id < KNOB_IN_MESH; id++)
		add_knob((enum knob_id)id, gpu, cpu, arena, text);
	add_row(text, "`--gpus`", "all", "cores of the machine", "");
	for (int id = KNOB_IN_MESH; id < KNOB_COUNT; id++)
		add_knob((enum knob_id)id, gpu, cpu, arena, text);
}

static void add_training(struct text *text)
{
	const struct training defaults = training_defaults();

	text_add(text, "\n`train`: AdamW with learning rate ");
	text_number(text, defaults.learning_rate);
	text_add(text, ", betas ");
	text_number(text, defaults.beta1);
	text_add(text, " and ");
	text_number(text, defaults.beta2);
	text_add(text, ", epsilon ");
	text_number(text, defaults.epsilon);
	text_add(text, " and weight\ndecay ");
	text_number(text, defaults.weight_decay);
	text_printf(text,
		" on matrices; %lld steps, seed %lld, %lld steps of warm-up, no clipping. Weights "
		"start as\nN(0, 0.02), residual projections divided by sqrt(2 x layers), drawn by "
		"Philox keyed by (seed,\ntensor, element). Sequences are windows of seq-len + 1 "
		"tokens, permuted by the seed.\n",
		(long long)defaults.steps, (long long)defaults.seed, (long long)defaults.warmup);
}

bool help_defaults(struct arena *arena, struct text *text, struct error *error)
{
	struct plan gpu, cpu;

	if (!resolve_both(arena, &gpu, &cpu, error))
		return false;
	text_add(text,
		"# Defaults\n\n"
		"The value of an option that was not given. Every plan file stores all of them in "
		"full.\n\n");
	add_knobs(&gpu, &cpu, arena, text);
	add_training(text);
	return true;
}
