/* Walks the table of knobs to find, set, compare and print them. */
#include <string.h>

#include "schedule/plan/plan.h"

const enum knob_id knobs_in_help[KNOB_COUNT] = {
	/* Machine and batch */
	KNOB_SEQ_LEN, KNOB_DOCUMENT_LEN, KNOB_MICRO_BATCH, KNOB_GLOBAL_BATCH, KNOB_GRAD_ACCUM,
	KNOB_SYNC_EACH_MICRO_BATCH, KNOB_LATE_ALL_REDUCE,
	/* Parallelism beside data */
	KNOB_TENSOR, KNOB_SEQUENCE_PARALLEL, KNOB_ASYNC_TENSOR, KNOB_SERIAL_TENSOR,
	KNOB_KEEP_GATHERED, KNOB_CONTEXT, KNOB_CONTEXT_METHOD, KNOB_PIPELINE,
	KNOB_PIPELINE_SCHEDULE, KNOB_VIRTUAL_STAGES, KNOB_LAYERS_PER_STAGE, KNOB_SCATTER_GATHER,
	KNOB_EXPERT, KNOB_EXPERT_TENSOR, KNOB_EXPERT_LOAD, KNOB_CAPACITY_FACTOR,
	KNOB_EXPERT_DISPATCH, KNOB_EXPERT_OVERLAP, KNOB_UNFUSED_PERMUTE,
	/* Sharding */
	KNOB_STRATEGY, KNOB_SHARD_GROUP, KNOB_RESHARD_AFTER_FORWARD, KNOB_WRAP, KNOB_PREFETCH,
	KNOB_FORWARD_PREFETCH, KNOB_LIMIT_ALL_GATHERS, KNOB_OVERLAP, KNOB_CPU_OFFLOAD,
	/* Computation */
	KNOB_ACTIVATION_CHECKPOINTING, KNOB_RECOMPUTE_MODULES, KNOB_ACTIVATION_OFFLOAD,
	KNOB_ATTENTION, KNOB_LOSS, KNOB_COMPILE, KNOB_LIGER, KNOB_CUDA_GRAPH_SCOPE,
	KNOB_PARAM_DTYPE, KNOB_FP8, KNOB_FP8_PARAM_GATHER, KNOB_MASTER_DTYPE, KNOB_REDUCE_DTYPE,
	KNOB_GRADIENT_SUMS, KNOB_GELU, KNOB_OPTIMIZER, KNOB_ALLOCATOR, KNOB_CLIP, KNOB_DROPOUT,
	KNOB_LOADER_RATE, KNOB_TRAINABLE, KNOB_RUNTIME, KNOB_LIBRARIES};

const char *const knob_group_names[] = {
	[KNOB_GROUP_BATCH] = "Machine and batch",
	[KNOB_GROUP_AXES] = "Parallelism beside data",
	[KNOB_GROUP_SHARDING] = "Sharding",
	[KNOB_GROUP_COMPUTE] = "Computation",
};

const enum knob_id knobs_of_axes[KNOBS_OF_AXES] = {KNOB_TENSOR, KNOB_CONTEXT, KNOB_PIPELINE};

enum knob_id knob_find(const char *name)
{
	int id = 0;

	while (id < KNOB_COUNT && strcmp(knob_table[id].field.name, name) != 0)
		id++;
	return (enum knob_id)id;
}

const char *knob_off(const struct knob *knob)
{
	const char *const *names = knob->field.names;

	if (knob->field.type == FIELD_TYPE_BOOL)
		return "off";
	if (names == NULL || (strcmp(names[0], "none") != 0 && strcmp(names[0], "off") != 0))
		return NULL;
	return names[0];
}

uint64_t knobs_of_role(enum knob_role role)
{
	uint64_t set = 0;

	for (int id = 0; id < KNOB_COUNT; id++)
		if (knob_table[id].roles & role)
			set |= KNOB_BIT(id);
	return set;
}

/* --- values ----------------------------------------------------------------------------------- */

unsigned knob_values(enum knob_id id, enum runtime_kind runtime)
{
	unsigned has = knob_table[id].runtimes, values = runtime_of(runtime)->values[id];

	if (has != 0 && !(has >> runtime & 1))
		return 1u << 0;
	return values != 0 ? values : ~0u;
}

bool knob_honoured(enum knob_id id, enum runtime_kind runtime, int value)
{
	return knob_values(id, runtime) >> value & 1;
}

/* Returns the index of the plan's value; of values without names, whether it is one; -1: it is a
 * number. */
static int choice_of(enum knob_id id, const struct plan *plan)
{
	const struct field *field = &knob_table[id].field;
	enum field_type type = field->type;

	if (type == FIELD_TYPE_BOOL)
		return knob_get(id, plan).on;
	if (type == FIELD_TYPE_ENUM)
		return knob_get(id, plan).choice;
	for (int i = 0, n = knob_n_values(id); i < n; i++)
		if (knob_value_equal(id, knob_value_of(id, i), knob_get(id, plan)))
			return i;
	if (type == FIELD_TYPE_DECODED && field->flags & FIELD_OMIT_ZERO)
		return !knob_value_equal(id, (union knob_value){0}, knob_get(id, plan));
	return -1;
}

bool knob_is_honoured(enum knob_id id, const struct plan *plan)
{
	unsigned values = knob_values(id, plan->runtime);
	int choice = values == ~0u ? -1 : choice_of(id, plan);

	return choice < 0 || values >> choice & 1;
}

void knob_take_honoured(enum knob_id id, struct plan *plan)
{
	if (!knob_is_honoured(id, plan))
		knob_put(
			id, plan, knob_value_of(id, __builtin_ctz(knob_values(id, plan->runtime))));
}

static void *member_of(enum knob_id id, struct plan *plan)
{
	return (char *)plan + knob_table[id].field.offset;
}

void knob_put(enum knob_id id, struct plan *plan, union knob_value value)
{
	memcpy(member_of(id, plan), &value, fields_size(&knob_table[id].field));
}

union knob_value knob_get(enum knob_id id, const struct plan *plan)
{
	const char *member = (const char *)plan + knob_table[id].field.offset;
	union knob_value value = {.number = 0};

	memcpy(&value, member, fields_size(&knob_table[id].field));
	return value;
}

bool knob_value_equal(enum knob_id id, union knob_value a, union knob_value b)
{
	if (id == KNOB_WRAP)
		return wrap_equal(&a.wrap, &b.wrap);
	return fields_equal_members(&knob_table[id].field, &a, &b);
}

const char *knob_value_typed(enum knob_id id, union knob_value value, struct arena *arena)
{
	struct plan plan = {0};

	knob_put(id, &plan, value);
	return knob_typed(id, &plan, arena);
}

union knob_value knob_value_of(enum knob_id id, int choice)
{
	const struct field *field = &knob_table[id].field;

	if (field->type == FIELD_TYPE_BOOL)
		return (union knob_value){.on = choice};
	if (field->type == FIELD_TYPE_ENUM)
		return (union knob_value){.choice = choice};
	if (field->type == FIELD_TYPE_DECODED && field->names != NULL)
		return (union knob_value){.rows = rows_of_name(field->names, choice)};
	return (union knob_value){.number = choice};
}

int knob_n_values(enum knob_id id)
{
	const struct field *field = &knob_table[id].field;
	int n = 0;

	if (field->type == FIELD_TYPE_BOOL)
		return 2;
	while (field->names != NULL && field->names[n] != NULL)
		n++;
	return n;
}

const char *knob_name(enum knob_id id, int choice)
{
	return knob_table[id].field.names[choice];
}

void knob_set_default(enum knob_id id, struct plan *plan, bool cpu)
{
	int usual = cpu ? knob_table[id].cpu : knob_table[id].gpu;

	knob_put(id, plan, knob_value_of(id, usual));
}

const char *knob_option(enum knob_id id, struct arena *arena)
{
	char *option = arena_strdup(arena, knob_table[id].field.name);

	for (char *c = option; *c != '\0'; c++)
		*c = *c == '_' ? '-' : *c;
	return option;
}

/* --- one knob of a plan ----------------------------------------------------------------------- */

bool knob_equal(enum knob_id id, const struct plan *a, const struct plan *b)
{
	return fields_equal_one(&knob_table[id].field, a, b);
}

bool knobs_alike_but(uint64_t ignored, const struct plan *a, const struct plan *b)
{
	for (int id = 0; id < KNOB_IN_MESH; id++)
		if (!(ignored & KNOB_BIT(id)) && !knob_equal((enum knob_id)id, a, b))
			return false;
	return true;
}

void knob_print(enum knob_id id, const struct plan *plan, struct text *text)
{
	fields_print_one(&knob_table[id].field, plan, text);
}

const char *knob_text(enum knob_id id, const struct plan *plan, struct arena *arena)
{
	struct text text = {0};

	knob_print(id, plan, &text);
	const char *printed = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return printed;
}

static const char *typed_text(const struct field *field, const void *member)
{
	const char *text = *(const char *const *)member;

	return text != NULL ? text : field->decoded->zero;
}

const char *knob_typed(enum knob_id id, const struct plan *plan, struct arena *arena)
{
	const void *member = (const char *)plan + knob_table[id].field.offset;

	if (knob_table[id].field.type == FIELD_TYPE_BOOL)
		return *(const bool *)member ? "on" : "off";
	if (knob_table[id].field.type == FIELD_TYPE_ENUM)
		return knob_name(id, *(const int *)member);
	if (knob_table[id].field.type == FIELD_TYPE_DECODED) {
		const char *text = typed_text(&knob_table[id].field, member);
		return text != NULL ? text : knob_table[id].shown;
	}
	return knob_text(id, plan, arena);
}
