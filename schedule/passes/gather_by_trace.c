/* DeepSpeed's ZeRO-3 (docs/runtimes.md): leaves are units. Its first step records in which order
 * they are used; later ones gather a leaf when it is used, prefetch those that follow, and release
 * one unless it is used again soon. Small parameters stay on every rank. */
#include "schedule/passes/step.h"

#include <stdlib.h>

struct tracing {
	struct step *step;
	const struct action *at;
	struct numbers trace; /* leaves in the order in which one micro-batch uses them */
	int position, queue;  /* places in the trace: the next use, and the next leaf to prefetch */
	int64_t live;         /* elements that are gathered */
	bool *is_whole;       /* per leaf: it is gathered */
	int *packed; /* per leaf: the joint gather from which it is still to be copied out, or 0 */
	int n_packed;
};

static bool is_partitioned(const struct step *step, int unit)
{
	return unit_has_parameters(step, unit) && step->resident[unit].kept < 0;
}

static bool is_use(const struct action *action)
{
	return action->kind == ACTION_PRE_FORWARD || action->kind == ACTION_PRE_RECOMPUTE ||
	       action->kind == ACTION_PRE_BACKWARD;
}

static bool is_end_of_use(const struct action *action)
{
	return action->kind == ACTION_POST_FORWARD || action->kind == ACTION_POST_BACKWARD;
}

/* The first micro-batch gives the trace, because all others are alike. */
static void record(struct tracing *t, const struct action_list *actions)
{
	for (int i = 0; i < actions->n && actions->items[i].micro_batch == 0; i++)
		if (is_use(&actions->items[i]) && is_partitioned(t->step, actions->items[i].unit))
			number_add(&t->trace, actions->items[i].unit);
}

static int64_t elements_of(const struct tracing *t, int unit)
{
	return t->step->units[unit].gathered;
}

static bool is_there(const struct tracing *t, int unit)
{
	return t->is_whole[unit] || t->packed[unit] > 0;
}

/* Gathers the leaves that are the last `n` numbers of step->lists. */
static void gather(struct tracing *t, int n, int cause)
{
	struct slice units = {t->step->lists.n - n, n};
	const int *leaves = t->step->lists.items + units.first;
	for (int i = 0; i < n; i++)
		t->live += elements_of(t, leaves[i]);
	if (n == 1) {
		struct action action = action_at(t->at, ACTION_GATHER_LEAF, leaves[0]);
		action.cause = cause;
		action_add(t->step, action);
		t->is_whole[leaves[0]] = true;
	} else if (n > 1) {
		t->n_packed++;
		for (int i = 0; i < n; i++)
			t->packed[leaves[i]] = t->n_packed;
		action_add_gather_of_leaves(t->step, t->at, units, cause);
	}
}

/* Copies all leaves of a joint gather out, when the first of them is used. */
static void copy_out(struct tracing *t, int packed)
{
	int last = -1;
	for (int u = 0; u < t->step->n_units; u++)
		last = t->packed[u] == packed ? u : last;
	for (int u = 0; u <= last; u++) {
		if (t->packed[u] != packed)
			continue;
		struct action action = action_at(t->at, ACTION_UNPACK_LEAF, u);
		action.flags |= u == last ? LAST : 0;
		action_add(t->step, action);
		t->packed[u] = 0;
		t->is_whole[u] = true;
	}
}

/* Gathers leaves that are used next, until prefetch_elements are reached; the last leaf may go
 * beyond that. */
static void prefetch(struct tracing *t, int cause)
{
	const struct method *method = &t->step->method;
	int64_t room = min_i64(method->prefetch_elements, method->live_elements - t->live);
	int64_t elements = 0;
	int first = t->step->lists.n;
	if (t->queue < t->position)
		t->queue = t->position;
	while (t->queue < t->trace.n && elements < room) {
		int unit = t->trace.items[t->queue++];
		bool chosen = false;
		for (int i = first; i < t->step->lists.n; i++)
			chosen = chosen || t->step->lists.items[i] == unit;
		if (chosen || is_there(t, unit))
			continue;
		number_add(&t->step->lists, unit);
		elements += elements_of(t, unit);
	}
	gather(t, t->step->lists.n - first, cause);
}

static void fetch(struct tracing *t, int unit)
{
	t->position++;
	if (!is_there(t, unit)) {
		number_add(&t->step->lists, unit);
		gather(t, 1, -1);
	}
	if (t->packed[unit] > 0)
		copy_out(t, t->packed[unit]);
	prefetch(t, unit);
}

static bool is_used_soon(const struct tracing *t, int unit)
{
	int64_t passed = 0;
	for (int i = t->position; i < t->trace.n && passed < t->step->method.reuse_elements; i++) {
		if (t->trace.items[i] == unit)
			return true;
		passed += elements_of(t, t->trace.items[i]);
	}
	return false;
}

static void release(struct tracing *t, int unit)
{
	if (!t->is_whole[unit] || is_used_soon(t, unit))
		return;
	action_add(t->step, action_at(t->at, ACTION_RELEASE_LEAF, unit));
	t->live -= elements_of(t, unit);
	t->is_whole[unit] = false;
}

static void replace(struct tracing *t)
{
	bool is_hook = is_use(t->at) || is_end_of_use(t->at);
	if (!is_hook)
		action_add(t->step, *t->at);
	else if (!is_partitioned(t->step, t->at->unit))
		return;
	else if (is_use(t->at))
		fetch(t, t->at->unit);
	else
		release(t, t->at->unit);
}

void pass_gather_by_trace(struct step *step)
{
	struct tracing t = {.step = step};
	int micro_batch = -1;
	if (step->method.gathers != GATHERS_BY_TRACE)
		return;
	struct action_list old = actions_begin(step);
	t.is_whole = ARENA_ARRAY(step->arena, bool, step->n_units);
	t.packed = ARENA_ARRAY(step->arena, int, step->n_units);
	record(&t, &old);
	for (int i = 0; i < old.n; i++) {
		t.at = &old.items[i];
		if (t.at->micro_batch != micro_batch)
			t.position = t.queue = 0;
		micro_batch = t.at->micro_batch;
		replace(&t);
	}
	free(t.trace.items);
	actions_end(&old);
}
