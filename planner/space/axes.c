/* The values of every axis: defaults, then what the user listed or forbade. */
#include "planner/space/axes.h"

#include <string.h>

const char *const axis_names[] = {
#define X(suffix, name) name,
	AXES(X)
#undef X
		NULL};

int axis_find(const char *knob)
{
	int a = 0;
	while (a < AXIS_COUNT && strcmp(axis_names[a], knob) != 0)
		a++;
	return a;
}

struct filling {
	const struct question *question;
	const struct plan *plan;
	const struct runtime *runtime;
	struct arena *arena;
	struct axes *axes;
};

static void axis_add(struct axis *axis, const char *value)
{
	if (axis->n < SPACE_VALUES_MAX)
		axis->values[axis->n++] = value;
}

static void axis_add_int(struct axis *axis, int64_t value, struct arena *arena)
{
	axis_add(axis, arena_printf(arena, "%lld", (long long)value));
}

/* --- what the user said ----------------------------------------------------------------------- */

static bool given(const struct question *question, int axis)
{
	return choices_given(&question->choices, axis_names[axis]);
}

static const struct restriction *restriction_on(
	const struct question *question, int axis, bool forbidden)
{
	for (int i = 0; i < question->n_restrictions; i++) {
		const struct restriction *restriction = &question->restrictions[i];
		if (restriction->forbidden == forbidden &&
			strcmp(restriction->knob, axis_names[axis]) == 0)
			return restriction;
	}
	return NULL;
}

static bool listed(const struct question *question, int axis)
{
	return restriction_on(question, axis, false) != NULL;
}

static bool is_free(const struct filling *f, int axis)
{
	return !given(f->question, axis) && !listed(f->question, axis);
}

/* "true" and "on" are one value, and so are "2e7" and "20000000". */
static bool same_value(int axis, const char *a, const char *b)
{
	const struct field *field = fields_find(plan_fields, axis_names[axis]);
	if (field != NULL && field->type == FIELD_TYPE_BOOL) {
		bool on = strcmp(a, "on") == 0 || strcmp(a, "true") == 0;
		return on == (strcmp(b, "on") == 0 || strcmp(b, "true") == 0);
	}
	if (axis == AXIS_WRAP) {
		struct plan left = {.wrap = a}, right = {.wrap = b};
		struct wrap_policy one, other;
		if (plan_wrap(&left, &one) && plan_wrap(&right, &other))
			return one.kind == other.kind && one.argument == other.argument &&
			       one.embedding == other.embedding && one.head == other.head;
	}
	return strcmp(a, b) == 0;
}

static bool stands_in(int axis, const struct restriction *restriction, const char *value)
{
	for (int i = 0; i < restriction->n; i++)
		if (same_value(axis, restriction->values[i], value))
			return true;
	return false;
}

/* All values of a knob that has few, as one would type them. */
static void add_all(struct filling *f, int axis)
{
	const struct field *field = fields_find(plan_fields, axis_names[axis]);
	struct axis *values = &f->axes->of[axis];
	if (field == NULL)
		return;
	if (field->type == FIELD_TYPE_BOOL) {
		axis_add(values, "false");
		axis_add(values, "true");
	}
	for (int i = 0; field->names != NULL && field->names[i] != NULL; i++)
		axis_add(values, field->names[i]);
}

/* Only hybrid strategies have a shard group to choose; DDP has buckets instead of units, and
 * nothing to gather. */
static bool has_axis(const struct filling *f, int axis)
{
	bool of_units = axis == AXIS_WRAP || axis == AXIS_PREFETCH ||
			axis == AXIS_FORWARD_PREFETCH || axis == AXIS_LIMITER ||
			axis == AXIS_RESHARD;
	if (axis == AXIS_SHARD_GROUP)
		return strategy_is_hybrid(f->plan->strategy);
	return !of_units || plan_layout(f->plan) != LAYOUT_WHOLE;
}

/* A list replaces the values; what is forbidden leaves them. Forbidding a value of a knob that is
 * not searched by itself searches the others. */
static void restrict_axis(struct filling *f, int axis)
{
	if (!has_axis(f, axis))
		return;
	const struct restriction *list = restriction_on(f->question, axis, false);
	const struct restriction *out = restriction_on(f->question, axis, true);
	struct axis *values = &f->axes->of[axis];
	if (list != NULL) {
		values->n = 0;
		for (int i = 0; i < list->n; i++)
			axis_add(values, list->values[i]);
	}
	if (out == NULL || given(f->question, axis))
		return;
	if (values->n == 0)
		add_all(f, axis);
	int n = 0;
	for (int i = 0; i < values->n; i++)
		if (!stands_in(axis, out, values->values[i]))
			values->values[n++] = values->values[i];
	values->n = n;
}

/* --- shard groups ----------------------------------------------------------------------------- */

int space_shard_groups(const struct topology *topology, int64_t groups[SPACE_VALUES_MAX])
{
	int64_t ranks = topology_devices(topology), node = topology->devices_per_node;
	int n = 0;
	for (int64_t f = 2; f <= ranks / 2 && n < SPACE_VALUES_MAX; f++)
		if (ranks % f == 0 && (f % node == 0 || node % f == 0))
			groups[n++] = f;
	return n;
}

/* A hybrid strategy without a proper group is FULL_SHARD or SHARD_GRAD_OP under another name; it is
 * a plan only for who asked for it by name. */
static bool add_shard_groups(struct filling *f, bool by_name)
{
	int64_t groups[SPACE_VALUES_MAX];
	if (!strategy_is_hybrid(f->plan->strategy) || !is_free(f, AXIS_SHARD_GROUP))
		return true;
	int n = space_shard_groups(f->question->topology, groups);
	for (int i = 0; i < n; i++)
		axis_add_int(&f->axes->of[AXIS_SHARD_GROUP], groups[i], f->arena);
	return n > 0 || by_name;
}

const char *axes_first_group(
	const struct question *question, enum strategy strategy, struct arena *arena)
{
	struct axes axes = {0};
	struct plan plan = {.strategy = strategy};
	struct filling f = {question, &plan, runtime_of(plan.runtime), arena, &axes};
	if (!strategy_is_hybrid(strategy) || given(question, AXIS_SHARD_GROUP))
		return NULL;
	add_shard_groups(&f, true);
	restrict_axis(&f, AXIS_SHARD_GROUP);
	return axes.of[AXIS_SHARD_GROUP].n > 0 ? axes.of[AXIS_SHARD_GROUP].values[0] : NULL;
}

/* Parameters kept over the devices of a node cost no network in backward. Other groups can be asked
 * for. */
static void add_reshards(struct filling *f)
{
	int64_t node = f->question->topology->devices_per_node, shard = f->plan->mesh.shard;
	if (!is_free(f, AXIS_RESHARD) || !f->runtime->has_reshard_group ||
		!strategy_reshards(f->plan->strategy) || f->question->topology->nodes == 1)
		return;
	axis_add(&f->axes->of[AXIS_RESHARD], "true");
	if (node > 1 && (strategy_is_hybrid(f->plan->strategy) || shard % node == 0))
		axis_add_int(&f->axes->of[AXIS_RESHARD], node, f->arena);
}

/* --- wrap ------------------------------------------------------------------------------------- */

static bool same_units(const struct wrapped *a, int n_a, const struct wrapped *b, int n_b)
{
	return n_a == n_b && memcmp(a, b, (size_t)n_a * sizeof(*a)) == 0;
}

int space_wraps(const struct plan *plan, const struct model *model, struct arena *arena,
	const char *wraps[SPACE_VALUES_MAX])
{
	/* What people run: transformer blocks, and PyTorch's size_based_auto_wrap_policy as it
	 * ships. Any other size can be asked for. */
	static const char *const tried[] = {
		"block", "blocks:2", "blocks:4", "model", "size:100000000"};
	struct wrapped *units[COUNT_OF(tried)];
	int n_units[COUNT_OF(tried)], n = 0;
	for (int i = 0; i < COUNT_OF(tried); i++) {
		struct plan with = *plan;
		bool seen = false;
		with.wrap = tried[i];
		n_units[n] = wrap_modules(&with, model, arena, &units[n]);
		for (int j = 0; j < n && !seen; j++)
			seen = same_units(units[j], n_units[j], units[n], n_units[n]);
		if (!seen)
			wraps[n++] = tried[i];
	}
	return n;
}

static void add_wraps(struct filling *f)
{
	struct axis *axis = &f->axes->of[AXIS_WRAP];
	if (is_free(f, AXIS_WRAP) && has_axis(f, AXIS_WRAP))
		axis->n = space_wraps(f->plan, f->question->model, f->arena, axis->values);
}

/* --- prefetch --------------------------------------------------------------------------------- */

static void add_switch(struct filling *f, int axis, const char *first, const char *second)
{
	if (!is_free(f, axis))
		return;
	axis_add(&f->axes->of[axis], first);
	axis_add(&f->axes->of[axis], second);
}

static void add_prefetches(struct filling *f)
{
	static const enum prefetch order[] = {PREFETCH_PRE, PREFETCH_POST, PREFETCH_NONE};
	if (!has_axis(f, AXIS_PREFETCH))
		return;
	for (int i = 0; is_free(f, AXIS_PREFETCH) && i < COUNT_OF(order); i++)
		if (f->runtime->prefetches >> order[i] & 1)
			axis_add(&f->axes->of[AXIS_PREFETCH], prefetch_names[order[i]]);
	if (f->runtime->has_forward_prefetch_knob)
		add_switch(f, AXIS_FORWARD_PREFETCH, "false", "true");
	if (f->runtime->has_limiter)
		add_switch(f, AXIS_LIMITER, "true", "false");
}

/* --- checkpointing ---------------------------------------------------------------------------- */

static void add_checkpointings(struct filling *f)
{
	if (!is_free(f, AXIS_CHECKPOINTING))
		return;
	for (int c = CHECKPOINTING_NONE; c <= CHECKPOINTING_FULL; c++)
		if (f->runtime->checkpointings >> c & 1)
			axis_add(&f->axes->of[AXIS_CHECKPOINTING], checkpointing_names[c]);
}

/* --- batch ------------------------------------------------------------------------------------ */

static void add_divisors(struct filling *f, int64_t per_rank)
{
	struct axis *axis = &f->axes->of[AXIS_MICRO_BATCH];
	for (int64_t d = 1; d <= per_rank && axis->n < SPACE_VALUES_MAX; d++)
		if (per_rank % d == 0)
			axis_add_int(axis, d, f->arena);
}

/* Bounded by tokens in one step. On CPU devices a step is short only when its batch is small: there
 * the micro-batch stays at its default, 1. */
static void add_powers(struct filling *f)
{
	int64_t tokens = 0, fixed = f->plan->grad_accum * f->plan->seq_len;
	if (f->question->topology->device.kind != DEVICE_GPU ||
		!checked_mul(fixed, plan_data_parallel(f->plan), &tokens))
		return;
	for (int64_t m = 1; m == 1 || m <= SPACE_FREE_BATCH_TOKENS / tokens; m *= 2)
		axis_add_int(&f->axes->of[AXIS_MICRO_BATCH], m, f->arena);
}

static bool fixed(const struct filling *f, int axis)
{
	return !is_free(f, axis);
}

static void add_batches(struct filling *f)
{
	bool global = choices_given(&f->question->choices, "global_batch");
	bool accum = fixed(f, AXIS_GRAD_ACCUM);
	if (fixed(f, AXIS_MICRO_BATCH) || (global && accum))
		return; /* two of the three give the third */
	if (global)
		add_divisors(f, f->plan->global_batch / plan_data_parallel(f->plan));
	else
		add_powers(f);
}

/* Without a global batch, what micro-batch and accumulation make of it. */
static void compare_batches(struct filling *f)
{
	bool global = choices_given(&f->question->choices, "global_batch");
	f->axes->same_batch = global || (f->axes->of[AXIS_MICRO_BATCH].n <= 1 &&
						f->axes->of[AXIS_GRAD_ACCUM].n <= 1);
}

bool axes_fill(const struct question *question, const struct plan *plan, bool by_name,
	struct arena *arena, struct axes *axes)
{
	struct filling f = {question, plan, runtime_of(plan->runtime), arena, axes};
	*axes = (struct axes){0};
	if (!add_shard_groups(&f, by_name))
		return false;
	add_reshards(&f);
	add_wraps(&f);
	add_checkpointings(&f);
	add_batches(&f);
	add_switch(&f, AXIS_SYNC, "true", "false");
	add_prefetches(&f);
	for (int a = 0; a < AXIS_COUNT; a++)
		restrict_axis(&f, a);
	compare_batches(&f);
	return true;
}
