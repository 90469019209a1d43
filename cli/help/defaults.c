/* `help defaults`: the values come from the code that sets them, so they are not repeated here. */
#include <string.h>

#include "cli/help/help.h"
#include "cli/terminal/terminal.h"
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

/* The value as a user would type it. */
static const char *value_of(enum knob_id id, const struct plan *plan, struct arena *arena)
{
	const struct knob *knob = &knob_table[id];

	if (knob->shown != NULL)
		return knob->shown;
	return knob_typed(id, plan, arena);
}

enum { VALUE_COLUMN = 28, REMARK_COLUMN = 48 };

/* `cpu` is said where it is another value. */
static void add_row(const char *option, const char *value, const char *cpu, const char *remark,
	struct arena *arena, struct text *text)
{
	const char *words = remark != NULL ? remark : "";

	if (strcmp(value, cpu) != 0)
		words = arena_printf(
			arena, "CPUs: %s%s%s", cpu, words[0] != '\0' ? "; " : "", words);
	text_add(text, option);
	text_column(text, VALUE_COLUMN);
	text_add(text, value);
	if (words[0] != '\0') {
		text_column(text, REMARK_COLUMN);
		help_wrap(text, words, REMARK_COLUMN);
	} else {
		text_add_char(text, '\n');
	}
}

static void add_knob(enum knob_id id, const struct plan *gpu, const struct plan *cpu,
	struct arena *arena, struct text *text)
{
	const char *option = swap_dashes(knob_table[id].field.name, '_', '-', arena);

	add_row(arena_printf(arena, "--%s", option), value_of(id, gpu, arena),
		value_of(id, cpu, arena), knob_table[id].remark, arena, text);
}

static void add_knobs(
	const struct plan *gpu, const struct plan *cpu, struct arena *arena, struct text *text)
{
	add_row("option", "default", "default", NULL, arena, text);
	for (int id = 0; id < KNOB_IN_MESH; id++)
		add_knob((enum knob_id)id, gpu, cpu, arena, text);
	add_row("--gpus", "all", "cores of the machine", NULL, arena, text);
	for (int id = KNOB_IN_MESH; id < KNOB_COUNT; id++)
		add_knob((enum knob_id)id, gpu, cpu, arena, text);
}

static void add_training(struct text *text)
{
	const struct training defaults = training_defaults();
	struct text words = {0};

	text_add(&words, "`train`: AdamW with learning rate ");
	text_number(&words, defaults.learning_rate);
	text_add(&words, ", betas ");
	text_number(&words, defaults.beta1);
	text_add(&words, " and ");
	text_number(&words, defaults.beta2);
	text_add(&words, ", epsilon ");
	text_number(&words, defaults.epsilon);
	text_add(&words, " and weight decay ");
	text_number(&words, defaults.weight_decay);
	text_printf(&words,
		" on matrices; %lld steps, seed %lld, %lld steps of warm-up, no clipping. Weights "
		"start as N(0, 0.02), residual projections divided by sqrt(2 x layers), drawn by "
		"Philox keyed by (seed, tensor, element). Sequences are windows of seq-len + 1 "
		"tokens, permuted by the seed.",
		(long long)defaults.steps, (long long)defaults.seed, (long long)defaults.warmup);
	text_add_char(text, '\n');
	help_wrap(text, text_string(&words), 0);
	text_finish(&words);
}

bool help_defaults(struct arena *arena, struct text *text, struct error *error)
{
	struct plan gpu, cpu;

	if (!resolve_both(arena, &gpu, &cpu, error))
		return false;
	text_add(text, "The value of an option that was not given. Every plan file stores all of "
		       "them.\n\n");
	add_knobs(&gpu, &cpu, arena, text);
	add_training(text);
	return true;
}

bool help_default(enum knob_id id, struct arena *arena, struct text *text, struct error *error)
{
	struct plan gpu, cpu;

	if (!resolve_both(arena, &gpu, &cpu, error))
		return false;
	const char *value = value_of(id, &gpu, arena), *other = value_of(id, &cpu, arena);
	const char *remark = knob_table[id].remark,
		   *line = arena_printf(arena, "Default: %s", value);
	if (strcmp(value, other) != 0)
		line = arena_printf(arena, "%s; CPUs: %s", line, other);
	if (remark != NULL)
		line = arena_printf(arena, "%s; %s", line, remark);
	help_wrap(text, line, 0);
	return true;
}
