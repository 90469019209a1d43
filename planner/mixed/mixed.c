/* Chooses the families that are worth solving, and the best mixes of them. */
#include "planner/mixed/mixed.h"

#include <math.h>
#include <stdlib.h>

#include "planner/mixed/counts.h"

enum { FAMILIES_LOOKED = 24, FAMILIES_SOLVED = 4 };

/* The most that kept units, or units that stay on the device, save as a share of the step. The
 * estimate of a family is made without any such unit. */
#define KEPT_SAVE    0.03
#define STAYING_SAVE 0.10

/* --- which knobs are mixed -------------------------------------------------------------------- */

static bool has_checkpointing(
	const struct question *question, const struct plan *plan, enum checkpointing kind)
{
	return question_is_open(question, KNOB_ACTIVATION_CHECKPOINTING) &&
	       knob_honoured(KNOB_ACTIVATION_CHECKPOINTING, plan->runtime, (int)kind);
}

static bool mixes_resharding(const struct search *search, const struct plan *plan)
{
	bool full = plan->strategy == STRATEGY_FULL_SHARD;
	bool hybrid = plan->strategy == STRATEGY_HYBRID_SHARD;
	return (full || hybrid) && runtime_of(plan->runtime)->reshards_per_unit &&
	       plan_reshard_group(plan) != 0 && plan->reshard_after_forward.n == 0 &&
	       question_is_open(search->question, KNOB_RESHARD_AFTER_FORWARD) &&
	       search->space.allowed[full ? STRATEGY_SHARD_GRAD_OP : STRATEGY_HYBRID_SHARD_ZERO2];
}

static bool has_none(const struct knob_list *list)
{
	union knob_value none = knob_value_of(KNOB_CPU_OFFLOAD, OFFLOAD_NONE);
	for (int i = 0; i < list->n; i++)
		if (knob_value_equal(KNOB_CPU_OFFLOAD, list->values[i], none))
			return true;
	return false;
}

/* Does the plan mix offloaded units with units that stay? Not if the user's list leaves out
 * `none`. */
static bool mixes_offload(const struct search *search, const struct plan *plan)
{
	const struct question *question = search->question;
	const struct knob_list *only = &question->only[KNOB_CPU_OFFLOAD];
	const struct knob_list *forbidden = &question->forbidden[KNOB_CPU_OFFLOAD];
	bool allowed = only->n > 0 ? has_none(only) : forbidden->n > 0 && !has_none(forbidden);
	return (search->offloads || allowed) && plan_offloads_any(plan) && plan->cpu_offload.n == 0;
}

/* The family of a plan. False: it has no mixes, or belongs to the family of another plan. */
static bool family_of(const struct search *search, const struct plan *plan, struct family *family)
{
	*family = (struct family){.plan = *plan,
		.full = has_checkpointing(search->question, plan, CHECKPOINTING_FULL),
		.reshards = mixes_resharding(search, plan),
		.offloads = mixes_offload(search, plan)};
	family->selective = family->full && !runtime_of(plan->runtime)->recomputes_modules &&
			    has_checkpointing(search->question, plan, CHECKPOINTING_SELECTIVE);
	if (family->full && !plan_checkpoints(plan, CHECKPOINTING_NONE))
		return false;
	if (plan->mesh.pipeline > 1)
		return false; /* blocks are mixed only where one rank has all of them */
	if (plan->activation_offload != ACTIVATIONS_STAY)
		return false; /* checkpointing then saves no memory on the device */
	return family->full || family->reshards || family->offloads;
}

/* --- which families are worth solving --------------------------------------------------------- */

/* The plan of the space that differs only in this kind of checkpointing, which comes soon after the
 * one without. -1: there is none. */
static int find_sibling(const struct search *search, int plan, enum checkpointing kind)
{
	const struct plan *of = &search->space.plans[plan];
	uint64_t knob = KNOB_BIT(KNOB_ACTIVATION_CHECKPOINTING);
	for (int i = plan + 1; i < search->space.first[of->strategy + 1]; i++) {
		const struct plan *other = &search->space.plans[i];
		if (other->mesh.shard != of->mesh.shard)
			break;
		if (other->micro_batch != of->micro_batch || !plan_checkpoints(other, kind))
			continue;
		if (!plan_divides_alike(other, of) || !wrap_equal(&other->wrap, &of->wrap))
			break;
		if (knobs_alike_but(knob, other, of))
			return i;
	}
	return -1;
}

/* May the plan fit by its bounds? Bounds are completed if they do not already rule it out. */
static bool may_fit(struct search *search, int plan)
{
	const struct bound *bound = &search->bounds.of[plan];
	if (bound->memory <= search->limit)
		bounds_complete(&search->bounds, &search->space, plan);
	return bound->memory <= search->limit;
}

/* The share of blocks that have to be checkpointed in this way to make the plan fit, by the bounds
 * of memory; INFINITY: even all of them do not suffice. */
static double share_of(struct search *search, int plan, int sibling)
{
	const struct bound *none = &search->bounds.of[plan], *all = &search->bounds.of[sibling];
	if (may_fit(search, plan))
		return 0;
	if (!may_fit(search, sibling))
		return INFINITY;
	bounds_complete(&search->bounds, &search->space, plan);
	return (double)(none->memory - search->limit) / (double)(none->memory - all->memory);
}

struct task {
	struct family family;
	int place;         /* index in the space */
	int full;          /* the plan with all blocks checkpointed in full; -1: not mixed */
	int guess[COUNTS]; /* by the bounds of memory */
	int64_t estimate;  /* time per token of the guess */
	struct mix mix;
	bool exists, is_mix; /* a plan of the family fits; it is none of the space */
	struct arena arena;
	struct error error;
};

/* Estimates the step time with as many blocks checkpointed as the bounds require, of the kind that
 * costs less. */
static double estimate(struct search *search, struct task *task)
{
	const struct bound *none = &search->bounds.of[task->place];
	double least = INFINITY;
	int blocks = (int)search->question->model->architecture.layers;
	if (!task->family.full)
		return may_fit(search, task->place) ? none->time : INFINITY;
	for (int k = task->family.selective ? COUNT_SOME : COUNT_FULL; k >= COUNT_FULL; k--) {
		int sibling = find_sibling(search, task->place,
			k == COUNT_FULL ? CHECKPOINTING_FULL : CHECKPOINTING_SELECTIVE);
		double share = sibling >= 0 ? share_of(search, task->place, sibling) : INFINITY;
		task->full = sibling;
		if (isinf(share))
			continue;
		double time = none->time + share * (search->bounds.of[sibling].time - none->time);
		if (time >= least)
			continue;
		least = time;
		task->guess[COUNT_SOME] = task->family.selective ? (int)ceil(share * blocks) : 0;
		task->guess[COUNT_FULL] = k == COUNT_FULL ? (int)ceil(share * blocks) : 0;
	}
	return least;
}

static double saving(const struct family *family, double seconds)
{
	return seconds * (1 - (family->reshards ? KEPT_SAVE : 0)) *
	       (1 - (family->offloads ? STAYING_SAVE : 0));
}

struct tasks {
	const struct search *search;
	int n, first; /* the first that is not solved yet */
	struct task of[FAMILIES_LOOKED];
	struct evaluators evaluators;
};

static void sort_tasks(struct tasks *tasks)
{
	for (int i = 1; i < tasks->n; i++)
		for (int j = i; j > 0 && tasks->of[j - 1].estimate > tasks->of[j].estimate; j--) {
			struct task swap = tasks->of[j];
			tasks->of[j] = tasks->of[j - 1];
			tasks->of[j - 1] = swap;
		}
}

/* Do the plans differ only in prefetching, which moves work in time but adds and removes none? */
static bool differ_in_time(const struct plan *a, const struct plan *b)
{
	return a->mesh.shard == b->mesh.shard && plan_divides_alike(a, b) &&
	       knobs_alike_but(knobs_of_role(KNOB_IN_TIME), a, b);
}

/* Adds a task in the order of estimates. Of tasks that differ only in prefetching the best is
 * kept. */
static void add_task(struct tasks *tasks, const struct task *task)
{
	int at = tasks->n;
	for (int i = 0; i < tasks->n; i++)
		if (differ_in_time(&tasks->of[i].family.plan, &task->family.plan))
			at = i;
	if (at == FAMILIES_LOOKED)
		at--;
	if (at < tasks->n && tasks->of[at].estimate <= task->estimate)
		return;
	tasks->of[at] = *task;
	tasks->n = at == tasks->n ? at + 1 : tasks->n;
	sort_tasks(tasks);
}

static bool is_too_large(const struct known *known)
{
	return known->is_short || (known->simulated && !known->has_room);
}

static void find_tasks(struct search *search, int64_t cost, struct tasks *tasks)
{
	for (int i = 0; i < search->space.n; i++) {
		const struct plan *plan = &search->space.plans[i];
		struct task task = {.place = i, .full = -1};
		if (search->known[i].refused || !family_of(search, plan, &task.family) ||
			costs_time(plan, saving(&task.family, search->bounds.of[i].time)) >= cost)
			continue;
		double seconds = estimate(search, &task);
		if (isinf(seconds) || (task.full >= 0 && is_too_large(&search->known[task.full])))
			continue;
		task.estimate = costs_time(plan, saving(&task.family, seconds));
		if (task.estimate < cost)
			add_task(tasks, &task);
	}
}

/* --- which families are the best -------------------------------------------------------------- */

/* Replaces the estimate of a task by a simulation of its guess. */
static void time_guess(void *data, int index, int worker)
{
	struct tasks *tasks = data;
	struct task *task = &tasks->of[index];
	double step_time;
	int64_t memory;
	family_measure(&task->family, tasks->search->question->model);
	struct plan plan = family_plan(&task->family, task->guess, &task->arena);
	task->estimate = INT64_MAX;
	if (evaluator_run_time(
		    &tasks->evaluators.of[worker], &plan, &step_time, &memory, &task->error))
		task->estimate = costs_time(&plan, saving(&task->family, step_time));
}

/* Are the plans so similar that only one of them is solved? */
static bool is_near(const struct plan *a, const struct plan *b)
{
	return a->strategy == b->strategy && a->mesh.shard == b->mesh.shard &&
	       plan_divides_alike(a, b) && a->micro_batch == b->micro_batch &&
	       a->grad_accum == b->grad_accum && knob_equal(KNOB_CPU_OFFLOAD, a, b) &&
	       knob_equal(KNOB_RESHARD_AFTER_FORWARD, a, b);
}

/* Keeps the tasks in order, one of each group of similar plans. */
static void keep_different(struct tasks *tasks, int64_t cost)
{
	int n = 0;
	sort_tasks(tasks);
	for (int i = 0; i < tasks->n; i++) {
		bool near = tasks->of[i].estimate >= cost;
		for (int j = 0; j < n; j++)
			near = near ||
			       is_near(&tasks->of[i].family.plan, &tasks->of[j].family.plan);
		if (near)
			arena_finish(&tasks->of[i].arena);
		else
			tasks->of[n++] = tasks->of[i];
	}
	tasks->n = n;
}

/* --- solving the families --------------------------------------------------------------------- */

static void solve_task(void *data, int index, int worker)
{
	struct tasks *tasks = data;
	struct task *task = &tasks->of[tasks->first + index];
	int counts[COUNTS] = {0};
	double step_time = 0;
	if (!family_solve(&task->family, &tasks->evaluators.of[worker], &task->arena, counts,
		    &step_time, &task->exists, &task->error))
		return;
	bool uniform = true;
	for (int c = 0; c < COUNTS; c++)
		uniform = uniform && (counts[c] == 0 || counts[c] == task->family.most[c]);
	task->is_mix = task->exists && !uniform;
	task->mix.plan = family_plan(&task->family, counts, &task->arena);
	plan_normalise(&task->mix.plan, &task->arena);
	task->mix.cost = costs_time(&task->mix.plan, step_time);
}

/* Solves tasks in order, several at a time, until enough of them have a plan that fits. */
static void solve_best(struct tasks *tasks)
{
	int solved = 0;
	for (; tasks->first < tasks->n && solved < FAMILIES_SOLVED;) {
		int n = (int)min_i64(FAMILIES_SOLVED - solved, tasks->n - tasks->first);
		lent_each(tasks->search->question, n, solve_task, tasks);
		for (int i = 0; i < n; i++)
			solved += tasks->of[tasks->first++].exists;
	}
}

static int by_cost(const void *left, const void *right)
{
	const struct task *a = left, *b = right;
	if (a->mix.cost != b->mix.cost)
		return a->mix.cost < b->mix.cost ? -1 : 1;
	return (a->place > b->place) - (a->place < b->place);
}

static bool take_results(struct tasks *tasks, int64_t cost, struct arena *arena,
	struct mix mixes[MIXES_MAX], int *n, struct error *error)
{
	bool ok = true;
	qsort(tasks->of, (size_t)tasks->n, sizeof(*tasks->of), by_cost);
	for (int i = 0; i < tasks->n; i++) {
		struct task *task = &tasks->of[i];
		double most = (1 - MIX_LEAST_GAIN) * (double)cost;
		arena_join(arena, &task->arena);
		if (task->error.code != EXIT_CODE_OK)
			ok = ok && error_is_refusal(&task->error, error);
		else if (task->is_mix && (double)task->mix.cost <= most && *n < MIXES_MAX)
			mixes[(*n)++] = task->mix;
	}
	return ok;
}

bool mixes_find(struct search *search, int chosen, struct arena *arena, struct mix mixes[MIXES_MAX],
	int *n, struct error *error)
{
	struct tasks tasks = {.search = search};
	int64_t cost = search->known[chosen].costs.of[COST_TIME];
	*n = 0;
	find_tasks(search, cost, &tasks);
	evaluators_init(&tasks.evaluators, search->question);
	evaluators_know(&tasks.evaluators, search->evaluator.known);
	lent_each(search->question, tasks.n, time_guess, &tasks);
	keep_different(&tasks, cost);
	solve_best(&tasks);
	bool ok = take_results(&tasks, cost, arena, mixes, n, error);
	evaluators_finish(&tasks.evaluators);
	return ok;
}
