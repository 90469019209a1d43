/* Enumerates the plans in the product of the axes. */
#include "planner/space/space.h"
#include "planner/space/departures.h"
#include "planner/space/wording.h"
#include "schedule/resolve/resolve.h"

#include <stdlib.h>
#include <string.h>

struct enumeration {
	const struct question *question;
	struct arena *arena;
	struct space *space;
	struct question strategy; /* the question of one strategy */
	struct usual usual;       /* the plan of that strategy with all defaults */
	struct axes axes;
	int capacity; /* of space->departures */
	/* For each knob: which values of its list some plan has, and why a plan cannot have the
	 * others. */
	uint64_t used[KNOB_COUNT];
	struct error unused[KNOB_COUNT];
	bool leaves_out; /* values behind hopeless states were not tried */
};

/* --- listed values ---------------------------------------------------------------------------- */

static void note_value(struct enumeration *e, enum knob_id axis, union knob_value value, bool any,
	const struct error *error)
{
	const struct knob_list *list = &e->question->only[axis];
	for (int i = 0; i < list->n; i++)
		if (any && knob_value_equal(axis, list->values[i], value))
			e->used[axis] |= UINT64_C(1) << i;
	if (!any && list->n > 0 && e->unused[axis].message[0] == '\0')
		e->unused[axis] = *error;
}

/* Example: "none,parameters". Nothing is added if no value is used. */
static void add_used(const struct enumeration *e, enum knob_id axis, struct text *text)
{
	const struct knob_list *list = &e->question->only[axis];
	for (int v = 0; v < list->n; v++)
		if (e->used[axis] >> v & 1)
			text_printf(text, "%s%s", text->length > 0 ? "," : "",
				knob_value_typed(axis, list->values[v], e->arena));
}

static bool refuse_value(
	const struct enumeration *e, enum knob_id axis, union knob_value value, struct error *error)
{
	const char *why = e->unused[axis].message;
	struct text used = {0};
	add_used(e, axis, &used);
	const char *option = knob_option(axis, e->arena);
	const char *typed = knob_value_typed(axis, value, e->arena);
	if (used.length > 0)
		error_set(error, EXIT_CODE_USAGE,
			"--%s %s: nothing in this search can have it; ask for --%s %s", option,
			typed, option, text_string(&used));
	else
		error_set(error, EXIT_CODE_USAGE, "--%s %s: nothing in this search can have it%s%s",
			option, typed, why[0] != '\0' ? ": " : "", why);
	text_finish(&used);
	return false;
}

/* Does some plan have each of the values that the user listed? It is an error if none has. */
static bool all_used(const struct enumeration *e, struct error *error)
{
	for (int a = 0; a < n_axes; a++) {
		enum knob_id axis = axes_in_order[a];
		const struct knob_list *list = &e->question->only[axis];
		for (int v = 0; v < list->n; v++)
			if (!(e->used[axis] >> v & 1))
				return refuse_value(e, axis, list->values[v], error);
	}
	return true;
}

bool has_axes(const struct plan *plan)
{
	for (int i = 0; i < KNOBS_OF_AXES; i++)
		if (knob_get(knobs_of_axes[i], plan).number > 1)
			return true;
	return false;
}

/* --- levers ----------------------------------------------------------------------------------- */

/* Does the lever need other knobs too? Then it is checked when a plan is made, not alone. */
static bool asks_for_others(const struct question *question, enum knob_id id)
{
	bool experts = question->model->architecture.experts > 0;
	return id == KNOB_LATE_ALL_REDUCE ||
	       ((id == KNOB_EXPERT_DISPATCH || id == KNOB_EXPERT_OVERLAP) && experts);
}

/* Compiled models leave nothing for Liger to fuse, so nobody searches it beside torch.compile. */
static bool is_compiled_away(const struct question *question, const struct plan *plan)
{
	bool compiles = question->freed & KNOB_BIT(KNOB_COMPILE) &&
			knob_honoured(KNOB_COMPILE, plan->runtime, true);
	return (plan->compile || compiles) && !(question->freed_by_name & KNOB_BIT(KNOB_LIGER));
}

/* Asynchronous tensor parallelism may need compilation, which may be a free lever itself. */
int space_levers(const struct question *question, const struct plan *plan, enum knob_id id,
	union knob_value values[SPACE_VALUES_MAX], struct error *error)
{
	int n = 0;
	if (id == KNOB_LIGER && is_compiled_away(question, plan))
		return 0;
	for (int i = 0; i < knob_n_values(id); i++) {
		union knob_value value = knob_value_of(id, i);
		struct plan with = *plan;
		knob_put(id, &with, value);
		if (id == KNOB_ASYNC_TENSOR && question->freed & KNOB_BIT(KNOB_COMPILE) &&
			!runtime_of(plan->runtime)->layers_exchange)
			with.compile = true;
		if (!(knob_table[id].levers >> i & 1) || knob_equal(id, plan, &with))
			continue;
		if (asks_for_others(question, id)
				? knob_honoured(id, plan->runtime, i)
				: plan_check(&with, question->model, question->topology, error))
			values[n++] = value;
	}
	return n;
}

bool space_pulls(enum knob_id id, const struct plan *plan)
{
	union knob_value value = knob_get(id, plan);
	if (id == KNOB_WRAP)
		return value.wrap.embedding || value.wrap.head;
	return knob_table[id].levers >> value.choice & 1;
}

/* Does some plan pull each of the levers that the user named? It is an error if none can. */
static bool all_pulled(const struct enumeration *e, struct error *error)
{
	for (int k = 0; k < KNOB_COUNT; k++) {
		enum knob_id id = (enum knob_id)k;
		union knob_value values[SPACE_VALUES_MAX];
		struct error why = {0};
		bool any = !(e->question->freed_by_name & KNOB_BIT(id));
		for (int i = 0; i < e->space->n && !any; i++)
			any = space_pulls(id, &e->space->plans[i]);
		if (any)
			continue;
		space_levers(e->question, &e->space->plans[0], id, values, &why);
		return error_set(error, EXIT_CODE_USAGE,
			"--free %s: no plan of this question can have another value%s%s",
			knob_option(id, e->arena), why.message[0] != '\0' ? ": " : "", why.message);
	}
	return true;
}

/* --- points ----------------------------------------------------------------------------------- */

/* Does the plan have more tokens than a free batch may grow to? Micro-batches are listed for the
 * fewest data-parallel ranks, so plans with more can exceed it. Large micro-batches are also left
 * out in a pipeline, because few of them leave it idle. */
static bool exceeds(const struct enumeration *e, const struct plan *plan)
{
	enum { LARGE = 4 };
	bool free = e->question->only[KNOB_MICRO_BATCH].n == 0;
	bool axes = e->axes.of[KNOB_TENSOR].n > 1 || e->axes.of[KNOB_PIPELINE].n > 1;
	if (free && e->axes.of[KNOB_PIPELINE].n > 1 && plan->mesh.pipeline > 1 &&
		plan->micro_batch >= LARGE)
		return true;
	return axes && plan->micro_batch > 1 && free &&
	       !question_gives(e->question, KNOB_GLOBAL_BATCH) &&
	       plan->global_batch > SPACE_FREE_BATCH_TOKENS / plan->seq_len;
}

/* Does another plan do the same? A single micro-batch is synchronised once, whatever the knob says.
 * Blocks that are not checkpointed have no inputs to offload. A hybrid strategy with one group is
 * FULL_SHARD or SHARD_GRAD_OP. */
static bool repeats(const struct enumeration *e, const struct plan *plan)
{
	bool moves_nothing = plan->activation_offload == ACTIVATIONS_CHECKPOINTS &&
			     !plan_checkpoints(plan, CHECKPOINTING_FULL) &&
			     !plan_checkpoints(plan, CHECKPOINTING_SELECTIVE);
	bool one_group = strategy_is_hybrid(plan->strategy) && plan->mesh.replicate == 1 &&
			 e->axes.of[KNOB_SHARD_GROUP].n > 1;
	return one_group ||
	       (e->axes.of[KNOB_SYNC_EACH_MICRO_BATCH].n > 1 && plan->grad_accum == 1 &&
		       !plan->sync_each_micro_batch) ||
	       (e->axes.of[KNOB_ACTIVATION_OFFLOAD].n > 1 && moves_nothing);
}

/* Refuses a last group of micro-batches that has fewer than the others. Megatron-LM accepts that
 * only with another size of groups (microbatch_group_size_per_vp_stage). */
static bool fills_groups(const struct enumeration *e, const struct plan *plan, struct error *error)
{
	return plan->pipeline_schedule != PIPELINE_INTERLEAVED ||
	       runtime_of(plan->runtime)->ends_are_blocks ||
	       question_gives(e->question, KNOB_GRAD_ACCUM) ||
	       plan->grad_accum % plan->mesh.pipeline == 0 ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--pipeline-schedule interleaved: %lld micro-batches are not a multiple of "
		       "%lld stages; use another batch, or 1f1b",
		       (long long)plan->grad_accum, (long long)plan->mesh.pipeline);
}

static bool add_point(struct enumeration *e, const struct question *point, struct error *error)
{
	struct space *space = e->space;
	struct plan plan;
	if (!plan_resolve(point, e->arena, &plan, error))
		return false;
	if (!wording_says(e->question, &plan, e->arena))
		return error_set(error, EXIT_CODE_USAGE, "--for %s: it cannot say this plan",
			e->question->wording->name);
	if (point->asked.recompute_modules.of != 0 &&
		!plan_checkpoints(&plan, CHECKPOINTING_SELECTIVE))
		return plan_recomputes_nothing(&point->asked.recompute_modules, error);
	if (!fills_groups(e, &plan, error))
		return false;
	if (repeats(e, &plan) || exceeds(e, &plan))
		return true;
	space->departures = array_grow(
		space->departures, &e->capacity, space->n + 1, sizeof(*space->departures));
	space->departures[space->n] = departures_from(&e->usual, &plan);
	space->n = space_add(space, &plan) + 1;
	return true;
}

static int64_t asked_size(const struct question *point, enum knob_id axis)
{
	return question_gives(point, axis) ? knob_get(axis, &point->asked).number : 1;
}

/* Does the axis have one value at this point? Only pipelines have schedules. In a stage, parameters
 * are gathered once and reduced once per step, so prefetching matters little. */
static bool is_plain_in_stages(enum knob_id axis, const struct question *point)
{
	bool staged = asked_size(point, KNOB_PIPELINE) > 1;
	if (axis == KNOB_PIPELINE_SCHEDULE)
		return !staged;
	if (axis == KNOB_CONTEXT_METHOD)
		return asked_size(point, KNOB_CONTEXT) == 1;
	if (axis == KNOB_RECOMPUTE_MODULES)
		return !plan_checkpoints(&point->asked, CHECKPOINTING_SELECTIVE);
	return staged &&
	       (axis == KNOB_WRAP || axis == KNOB_RESHARD_AFTER_FORWARD || axis == KNOB_PREFETCH ||
		       axis == KNOB_FORWARD_PREFETCH || axis == KNOB_LIMIT_ALL_GATHERS ||
		       axis == KNOB_SYNC_EACH_MICRO_BATCH);
}

static bool searches_experts(const struct enumeration *e, const struct question *point)
{
	return e->axes.of[KNOB_EXPERT].n > 1 && question_gives(point, KNOB_EXPERT) &&
	       point->asked.mesh.expert > 1;
}

/* Is only the plain value of the axis tried? Where tensor or expert ranks hold parts of a block,
 * other unit sizes and partial resharding save little, so they are tried only if the user asks for
 * them. */
static bool is_plain(const struct enumeration *e, enum knob_id axis, const struct question *point)
{
	if (e->question->only[axis].n == 0 && is_plain_in_stages(axis, point))
		return true;
	bool of_units = axis == KNOB_WRAP || axis == KNOB_RESHARD_AFTER_FORWARD ||
			axis == KNOB_FORWARD_PREFETCH;
	bool tensor = e->axes.of[KNOB_TENSOR].n > 1 && question_gives(point, KNOB_TENSOR) &&
		      point->asked.mesh.tensor > 1;
	return of_units && (tensor || searches_experts(e, point)) && e->question->only[axis].n == 0;
}

/* Are experts of any number of nodes searched, whatever else divides the model? */
static bool reaches_far(const struct question *question)
{
	const uint64_t ways = KNOB_BIT(KNOB_EXPERT_DISPATCH) | KNOB_BIT(KNOB_EXPERT_OVERLAP);
	return question->divides || asks_for_expert_ranks(question) || question->freed & ways;
}

/* The number of values of an axis that are tried, from the first on. With stages expert ranks stay
 * within a node; with tensor ranks, which free memory, within two; unless nothing fits otherwise,
 * or rows travel by DeepEP, which sends less between nodes, or beside compute. */
static int tried(const struct enumeration *e, enum knob_id axis, const struct question *point)
{
	int n = e->axes.of[axis].n;
	if (is_plain(e, axis, point))
		return 1;
	if (axis != KNOB_EXPERT || e->question->only[axis].n > 0 || reaches_far(e->question))
		return n;
	if (asked_size(point, KNOB_PIPELINE) > 1)
		return (int)min_i64(n, 2);
	return (int)(asked_size(point, KNOB_TENSOR) > 1 ? min_i64(n, 3) : n);
}

/* The value that torchtitan uses when it combines FSDP2 with other axes: an untied embedding and
 * head are units of their own, and with experts blocks are prefetched in forward. */
static union knob_value plain_value(
	const struct enumeration *e, enum knob_id axis, const struct question *point)
{
	static const struct wrap_policy ends = {.text = "block+embedding+head",
		.kind = WRAP_BLOCK,
		.embedding = true,
		.head = true};
	if (axis == KNOB_WRAP && !e->question->model->architecture.tied_head)
		return (union knob_value){.wrap = ends};
	if (axis == KNOB_CONTEXT_METHOD)
		return (union knob_value){.choice = CONTEXT_ALL_GATHER};
	if (axis == KNOB_RECOMPUTE_MODULES)
		return (union knob_value){.names = {0}};
	if (axis == KNOB_SYNC_EACH_MICRO_BATCH)
		return (union knob_value){.on = false};
	if (axis == KNOB_FORWARD_PREFETCH && knob_honoured(axis, point->asked.runtime, true))
		return (union knob_value){.on = searches_experts(e, point)};
	return e->axes.of[axis].values[0];
}

/* In axes_in_order: the first axis behind those of the mesh, and the last of those that say what
 * states there are. */
static const enum knob_id behind_mesh = KNOB_PARAM_DTYPE, last_of_states = KNOB_CPU_OFFLOAD;

/* Does the plan that was added last surely not fit, whatever the a-th axis and those behind it are?
 * Where the plan that misses by least is wanted, no plan is too many. */
static bool is_hopeless(const struct enumeration *e, int a)
{
	int states = 0;
	while (axes_in_order[states] != last_of_states)
		states++;
	return a > states && e->question->wanted != WANTED_ALL &&
	       states_overflow(e->question, &e->space->plans[e->space->n - 1]);
}

/* Adds the product of the axes from the a-th on, and leaves `point` as it was. False if no plan
 * could be made, with the first error. */
static bool add_points(struct enumeration *e, int a, struct question *point, struct error *error)
{
	if (a == n_axes)
		return add_point(e, point, error);
	enum knob_id axis = axes_in_order[a];
	if (axis == behind_mesh && !plan_has_mesh(point, error))
		return false;
	const struct axis *values = &e->axes.of[axis];
	if (values->n == 0)
		return add_points(e, a + 1, point, error);
	const union knob_value before = knob_get(axis, &point->asked);
	const uint64_t given = point->given;
	bool any = false;
	bool plain = is_plain(e, axis, point);
	const union knob_value usual = plain_value(e, axis, point);
	int n = tried(e, axis, point), before_n = e->space->n;
	for (int i = 0; i < n; i++) {
		struct error mine = {0};
		question_put(point, axis, plain ? usual : values->values[i]);
		bool some = add_points(e, a + 1, point, &mine);
		note_value(e, axis, values->values[i], some, &mine);
		if (!some && error->code == EXIT_CODE_OK)
			*error = mine;
		any = any || some;
		if (e->space->n > before_n && is_hopeless(e, a)) {
			e->leaves_out = true;
			break;
		}
	}
	knob_put(axis, &point->asked, before);
	point->given = given;
	return any;
}

/* --- strategies ------------------------------------------------------------------------------- */

/* The plan of the strategy with every open knob at its default. Its runtime decides which axes
 * exist. */
static bool strategy_plan(
	struct enumeration *e, enum strategy strategy, struct plan *plan, struct error *error)
{
	int64_t group = axes_first_group(e->question, strategy, e->arena);
	e->strategy = *e->question;
	question_put(&e->strategy, KNOB_STRATEGY, (union knob_value){.choice = (int)strategy});
	struct question usual = e->strategy;
	if (group > 0)
		question_put(&usual, KNOB_SHARD_GROUP, (union knob_value){.number = group});
	return axes_resolve(&usual, e->arena, plan, error);
}

/* Refuses a hybrid strategy whose only shard group would be all ranks. */
static bool no_group(const struct question *question, enum strategy strategy, struct arena *arena,
	struct error *error)
{
	int64_t ranks = topology_devices(question->topology) / question_ranks_together(question);
	const char *typed = question_together_typed(question, arena);
	return error_set(error, EXIT_CODE_USAGE,
		"--strategy %s: no shard group is smaller than the %lld rank%s%s%s; use %s",
		strategy_names[strategy], (long long)ranks, ranks == 1 ? "" : "s",
		typed[0] != '\0' ? " beside " : "", typed,
		strategy == STRATEGY_HYBRID_SHARD ? "FULL_SHARD" : "SHARD_GRAD_OP");
}

/* Does the user divide the model over so many ranks that no shard group is left to choose? */
static bool divides_too_far(const struct question *question, enum strategy strategy)
{
	int64_t together = question_ranks_together(question), groups[SPACE_VALUES_MAX];
	int64_t ranks = topology_devices(question->topology) / together;
	int n = space_shard_groups(question->topology, groups);
	if (together == 1 || !strategy_is_hybrid(strategy) ||
		question_gives(question, KNOB_SHARD_GROUP) ||
		question->only[KNOB_SHARD_GROUP].n > 0)
		return false;
	for (int i = 0; i < n; i++)
		if (groups[i] < ranks && ranks % groups[i] == 0)
			return false;
	return true;
}

static bool add_strategy(
	struct enumeration *e, enum strategy strategy, bool by_name, struct error *error)
{
	struct plan plan;
	if (divides_too_far(e->question, strategy))
		return no_group(e->question, strategy, e->arena, error);
	if (!strategy_plan(e, strategy, &plan, error))
		return false;
	if (plan.strategy != strategy)
		return error_set(error, EXIT_CODE_USAGE,
			"--strategy %s: %s runs it as %s here; use %s", strategy_names[strategy],
			runtime_names[plan.runtime], strategy_names[plan.strategy],
			strategy_names[plan.strategy]);
	if (!axes_fill(e->question, &plan, by_name, e->arena, &e->axes))
		return no_group(e->question, strategy, e->arena, error);
	if (!wording_narrow(e->question, &plan, e->arena, &e->axes, &e->strategy, error))
		return false;
	if (!usual_of(e->question, strategy, e->arena, &e->usual, error))
		return false;
	e->space->same_batch = e->space->same_batch && e->axes.same_batch;
	int before = e->space->n;
	if (!add_points(e, 0, &e->strategy, error))
		return false;
	if (e->space->n > before)
		return true;
	if (strategy_is_hybrid(strategy))
		return no_group(e->question, strategy, e->arena, error);
	return error_set(error, EXIT_CODE_USAGE,
		"--strategy %s: all its plans repeat others of this question; leave it out",
		strategy_names[strategy]);
}

/* The strategies that are searched without being named: all except stages of ZeRO, which are
 * searched only if the user gives a runtime that has them. */
static unsigned usual_strategies(const struct question *question)
{
	enum runtime_kind runtime = question->asked.runtime;
	if (question_gives(question, KNOB_RUNTIME) && runtime_of(runtime)->zero != NULL)
		return knob_values(KNOB_STRATEGY, runtime);
	return (1u << STRATEGY_ZERO_1) - 1;
}

static unsigned allowed_strategies(const struct question *question)
{
	unsigned all =
		question->strategies != 0 ? (1u << STRATEGY_COUNT) - 1 : usual_strategies(question);
	unsigned allowed = question->strategies != 0 ? question->strategies & all : all;
	if (question_gives(question, KNOB_STRATEGY))
		allowed = 1u << question->asked.strategy;
	return allowed;
}

/* How little the user learns from the reason why a strategy is impossible: least where the runtime
 * does not have it, and little about DDP, which nobody named. */
static int idleness(const struct question *question, enum strategy strategy)
{
	bool has = knob_values(KNOB_STRATEGY, question->asked.runtime) >> strategy & 1;
	return !has ? 2 : strategy == STRATEGY_NO_SHARD ? 1 : 0;
}

static void *copy_of(const void *items, int n, size_t size)
{
	void *copy = array_grow(NULL, &(int){0}, n, size);
	return memcpy(copy, items, (size_t)n * size);
}

static void copy_space(const struct space *space, struct space *copy)
{
	*copy = *space;
	copy->n_all = copy->capacity = space->n;
	copy->plans = copy_of(space->plans, space->n, sizeof(*space->plans));
	copy->departures = copy_of(space->departures, space->n, sizeof(*space->departures));
}

bool space_build(const struct question *question, struct arena *arena, struct space *space,
	struct error *error)
{
	if (question->earlier != NULL && question->earlier->space != NULL) {
		copy_space(question->earlier->space, space);
		return true;
	}
	struct enumeration e = {.question = question, .arena = arena, .space = space};
	unsigned allowed = allowed_strategies(question);
	bool by_name = question->strategies != 0 || question_gives(question, KNOB_STRATEGY);
	struct error first = {0};
	int least = 3; /* more than any idleness */
	*space = (struct space){.same_batch = true};
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		struct error mine = {0};
		space->first[s] = space->n;
		space->allowed[s] = allowed >> s & 1;
		if (!space->allowed[s] || add_strategy(&e, (enum strategy)s, by_name, &mine))
			continue;
		space->impossible[s] = arena_strdup(arena, mine.message);
		if (idleness(question, (enum strategy)s) < least) {
			first = mine;
			least = idleness(question, (enum strategy)s);
		}
	}
	space->first[STRATEGY_COUNT] = space->n;
	if (space->n == 0)
		return error_set(error, first.code, "%s", first.message);
	if (e.leaves_out || (all_used(&e, error) && all_pulled(&e, error)))
		return true;
	space_finish(space);
	return false;
}

int space_add(struct space *space, const struct plan *plan)
{
	space->plans =
		array_grow(space->plans, &space->capacity, space->n_all + 1, sizeof(*space->plans));
	space->plans[space->n_all] = *plan;
	return space->n_all++;
}

void space_finish(struct space *space)
{
	free(space->plans);
	free(space->departures);
	*space = (struct space){0};
}
