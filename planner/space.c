/* Enumeration: axes, their values, and the plans they make. */
#include "planner/space.h"

#include <stdlib.h>
#include <string.h>

/* --- axes ----------------------------------------------------------------------------------------
 */

struct axis {
	const char *option;
	int n;
	const char *values[SPACE_VALUES_MAX];
};

/* Outermost first: neighbours in enumeration order differ in the knobs that matter least. */
enum {
	AXIS_SHARD_GROUP,
	AXIS_WRAP,
	AXIS_CHECKPOINTING,
	AXIS_MICRO_BATCH,
	AXIS_SYNC,
	AXIS_PREFETCH,
	AXIS_FORWARD_PREFETCH,
	AXIS_COUNT
};

struct enumeration {
	const struct question *question;
	struct arena *arena;
	struct space *space;
	struct choices choices;
	struct plan plan; /* of the strategy, everything else as it is by default */
	const struct runtime *runtime;
	struct axis axes[AXIS_COUNT];
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

static bool is_free(const struct enumeration *e, int axis)
{
	return !choices_given(&e->choices, e->axes[axis].option);
}

/* --- shard groups --------------------------------------------------------------------------------
 */

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
static bool add_shard_groups(struct enumeration *e, enum strategy strategy, bool by_name)
{
	int64_t groups[SPACE_VALUES_MAX];
	if (!strategy_is_hybrid(strategy) || !is_free(e, AXIS_SHARD_GROUP))
		return true;
	int n = space_shard_groups(e->question->topology, groups);
	for (int i = 0; i < n; i++)
		axis_add_int(&e->axes[AXIS_SHARD_GROUP], groups[i], e->arena);
	return n > 0 || by_name;
}

/* --- wrap ----------------------------------------------------------------------------------------
 */

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

/* DDP has buckets instead of units, and nothing to gather. */
static bool has_units(const struct enumeration *e)
{
	return e->runtime->layout != LAYOUT_WHOLE;
}

static void add_wraps(struct enumeration *e)
{
	struct axis *axis = &e->axes[AXIS_WRAP];
	if (is_free(e, AXIS_WRAP) && has_units(e))
		axis->n = space_wraps(&e->plan, e->question->model, e->arena, axis->values);
}

/* --- prefetch ------------------------------------------------------------------------------------
 */

static void add_prefetches(struct enumeration *e)
{
	static const enum prefetch order[] = {PREFETCH_PRE, PREFETCH_POST, PREFETCH_NONE};
	if (!has_units(e))
		return;
	for (int i = 0; is_free(e, AXIS_PREFETCH) && i < COUNT_OF(order); i++)
		if (e->runtime->prefetches >> order[i] & 1)
			axis_add(&e->axes[AXIS_PREFETCH], prefetch_names[order[i]]);
	if (is_free(e, AXIS_FORWARD_PREFETCH) && e->runtime->has_forward_prefetch_knob) {
		axis_add(&e->axes[AXIS_FORWARD_PREFETCH], "false");
		axis_add(&e->axes[AXIS_FORWARD_PREFETCH], "true");
	}
}

/* --- checkpointing -------------------------------------------------------------------------------
 */

static int64_t saved_bytes(const struct enumeration *e, enum checkpointing checkpointing)
{
	struct plan plan = e->plan;
	plan.activation_checkpointing = checkpointing;
	struct activation_rules rules = plan_activation_rules(&plan);
	return model_saved_bytes(
		e->question->model, 0, e->question->model->n_modules, &rules, 1, plan.seq_len);
}

/* Selective checkpointing drops what flash attention never keeps: then it is no choice. */
static void add_checkpointings(struct enumeration *e)
{
	struct axis *axis = &e->axes[AXIS_CHECKPOINTING];
	if (!is_free(e, AXIS_CHECKPOINTING))
		return;
	for (int c = CHECKPOINTING_NONE; c <= CHECKPOINTING_FULL; c++) {
		bool idle =
			c == CHECKPOINTING_SELECTIVE && saved_bytes(e, CHECKPOINTING_SELECTIVE) ==
								saved_bytes(e, CHECKPOINTING_NONE);
		if ((e->runtime->checkpointings >> c & 1) && !idle)
			axis_add(axis, checkpointing_names[c]);
	}
}

/* --- batch ---------------------------------------------------------------------------------------
 */

static void add_divisors(struct enumeration *e, int64_t per_rank)
{
	struct axis *axis = &e->axes[AXIS_MICRO_BATCH];
	for (int64_t d = 1; d <= per_rank && axis->n < SPACE_VALUES_MAX; d++)
		if (per_rank % d == 0)
			axis_add_int(axis, d, e->arena);
}

/* Bounded by tokens in one step. On CPU devices a step is short only when its batch is small: there
 * the micro-batch stays at its default, 1. */
static void add_powers(struct enumeration *e)
{
	int64_t tokens = 0, fixed = e->plan.grad_accum * e->plan.seq_len;
	if (e->question->topology->device.kind != DEVICE_GPU ||
		!checked_mul(fixed, plan_data_parallel(&e->plan), &tokens))
		return;
	for (int64_t m = 1; m == 1 || m <= SPACE_FREE_BATCH_TOKENS / tokens; m *= 2)
		axis_add_int(&e->axes[AXIS_MICRO_BATCH], m, e->arena);
}

static void add_batches(struct enumeration *e)
{
	bool global = choices_given(&e->choices, "global_batch");
	bool accum = choices_given(&e->choices, "grad_accum");
	if (!is_free(e, AXIS_MICRO_BATCH) || (global && accum))
		return; /* two of the three give the third */
	if (global)
		add_divisors(e, e->plan.global_batch / plan_data_parallel(&e->plan));
	else
		add_powers(e);
	e->space->same_batch = e->space->same_batch && (global || e->axes[AXIS_MICRO_BATCH].n <= 1);
}

static void add_syncs(struct enumeration *e)
{
	if (!is_free(e, AXIS_SYNC))
		return;
	axis_add(&e->axes[AXIS_SYNC], "true");
	axis_add(&e->axes[AXIS_SYNC], "false");
}

/* --- points --------------------------------------------------------------------------------------
 */

/* With a single micro-batch there is one synchronisation, whatever the knob says. */
static bool repeats(const struct enumeration *e, const struct plan *plan)
{
	return e->axes[AXIS_SYNC].n > 0 && plan->grad_accum == 1 && !plan->sync_each_micro_batch;
}

static bool add_point(struct enumeration *e, const struct choices *choices, struct error *error)
{
	struct space *space = e->space;
	struct plan plan;
	if (!plan_resolve(
		    choices, e->question->model, e->question->topology, e->arena, &plan, error))
		return false;
	if (repeats(e, &plan))
		return true;
	space->plans =
		array_grow(space->plans, &space->capacity, space->n + 1, sizeof(*space->plans));
	space->plans[space->n++] = plan;
	return true;
}

/* Walks the product of the axes from `axis` on; false with the first error when no point came out.
 */
static bool add_points(
	struct enumeration *e, int axis, const struct choices *choices, struct error *error)
{
	if (axis == AXIS_COUNT)
		return add_point(e, choices, error);
	if (e->axes[axis].n == 0)
		return add_points(e, axis + 1, choices, error);
	bool any = false;
	for (int i = 0; i < e->axes[axis].n; i++) {
		struct choices with = *choices;
		if (!choices_set(&with, e->axes[axis].option, e->axes[axis].option,
			    e->axes[axis].values[i], e->arena, error))
			return false;
		any = add_points(e, axis + 1, &with, error) || any;
	}
	return any;
}

static void name_axes(struct enumeration *e)
{
	static const char *const options[AXIS_COUNT] = {
		[AXIS_SHARD_GROUP] = "shard_group",
		[AXIS_WRAP] = "wrap",
		[AXIS_CHECKPOINTING] = "activation_checkpointing",
		[AXIS_MICRO_BATCH] = "micro_batch",
		[AXIS_SYNC] = "sync_each_micro_batch",
		[AXIS_PREFETCH] = "prefetch",
		[AXIS_FORWARD_PREFETCH] = "forward_prefetch",
	};
	for (int a = 0; a < AXIS_COUNT; a++)
		e->axes[a] = (struct axis){.option = options[a]};
}

/* The plan of the strategy with everything open at its default; it tells the runtime, whose knobs
 * the axes are. */
static bool strategy_begin(
	struct enumeration *e, enum strategy strategy, bool by_name, struct error *error)
{
	name_axes(e);
	e->choices = e->question->choices;
	if (!choices_set(
		    &e->choices, "strategy", "strategy", strategy_names[strategy], e->arena, error))
		return false;
	if (!add_shard_groups(e, strategy, by_name))
		return error_set(error, EXIT_CODE_USAGE,
			"%lld ranks have no shard group that is smaller: it is %s",
			(long long)topology_devices(e->question->topology),
			strategy == STRATEGY_HYBRID_SHARD ? "FULL_SHARD" : "SHARD_GRAD_OP");
	struct choices choices = e->choices;
	const struct axis *groups = &e->axes[AXIS_SHARD_GROUP];
	if (groups->n > 0 && !choices_set(&choices, groups->option, groups->option,
				     groups->values[0], e->arena, error))
		return false;
	if (!plan_resolve(
		    &choices, e->question->model, e->question->topology, e->arena, &e->plan, error))
		return false;
	e->runtime = runtime_of(e->plan.runtime);
	return true;
}

static bool add_strategy(
	struct enumeration *e, enum strategy strategy, bool by_name, struct error *error)
{
	if (!strategy_begin(e, strategy, by_name, error))
		return false;
	add_wraps(e);
	add_checkpointings(e);
	add_batches(e);
	add_syncs(e);
	add_prefetches(e);
	return add_points(e, 0, &e->choices, error);
}

static unsigned allowed_strategies(const struct question *question)
{
	unsigned all = (1u << STRATEGY_COUNT) - 1;
	unsigned allowed = question->strategies != 0 ? question->strategies & all : all;
	if (choices_given(&question->choices, "strategy"))
		allowed = 1u << question->choices.plan.strategy;
	return allowed;
}

bool space_build(const struct question *question, struct arena *arena, struct space *space,
	struct error *error)
{
	struct enumeration e = {.question = question, .arena = arena, .space = space};
	unsigned allowed = allowed_strategies(question);
	bool by_name = question->strategies != 0 || choices_given(&question->choices, "strategy");
	struct error first = {0};
	*space = (struct space){.same_batch = true};
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		struct error mine = {0};
		space->first[s] = space->n;
		space->allowed[s] = allowed >> s & 1;
		if (!space->allowed[s] || add_strategy(&e, (enum strategy)s, by_name, &mine))
			continue;
		space->impossible[s] = arena_strdup(arena, mine.message);
		if (first.message[0] == '\0')
			first = mine;
	}
	space->first[STRATEGY_COUNT] = space->n;
	return space->n > 0 || error_set(error, first.code, "%s", first.message);
}

void space_finish(struct space *space)
{
	free(space->plans);
	*space = (struct space){0};
}
