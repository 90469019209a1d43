/* Says what the host itself waits for before it issues more: the rate limiter of FSDP1 and of our
 * runtime, ZeRO-3's reductions, the counts of rows for experts, and messages (docs/runtimes.md). */
#include "schedule/passes/step.h"

#include <stdlib.h>

enum { WALKS = 3, FREES_PENDING = 2, REDUCTIONS_AHEAD = 2 };

/* A queue is passed on from step to step. Where its oldest entry stands is steady after a few walks
 * over the step. */
struct limiting {
	struct step *step;
	int walk;
	struct numbers queue; /* frees that have not been waited for: operation + walk x n_ops */
	int first;            /* the oldest entry of the queue */
	struct numbers reductions;
	struct numbers messages; /* messages issued together that nothing has waited for yet */
	struct numbers pending;  /* waits that the next operation inherits */
};

/* At most one free is waited for, and only when two or more are pending. */
static void wait_for_free(struct limiting *l)
{
	if (l->queue.n - l->first < FREES_PENDING)
		return;
	int free = l->queue.items[l->first++] - l->walk * l->step->n_ops;
	if (free >= -l->step->n_ops)
		number_add(&l->pending, free);
}

static void free_later(struct limiting *l, int op)
{
	number_add(&l->queue, op + l->walk * l->step->n_ops);
}

/* Two reductions may be under way before the host waits. */
static void wait_for_reduction(struct limiting *l, int op)
{
	if (l->reductions.n > REDUCTIONS_AHEAD)
		number_add(
			&l->pending, l->reductions.items[l->reductions.n - 1 - REDUCTIONS_AHEAD]);
	number_add(&l->reductions, op);
}

/* The device is synchronised behind messages that were posted together. What goes and what comes
 * may wait for one another on two ranks, so neither is waited for alone. */
static void wait_for_messages(struct limiting *l, int op)
{
	if (op_kind_class(l->step->ops[op].kind) == OP_CLASS_MESSAGE) {
		number_add(&l->messages, op);
		return;
	}
	for (int i = 0; i < l->messages.n; i++)
		number_add(&l->pending, l->messages.items[i]);
	l->messages.n = 0;
}

static void keep_waits(struct limiting *l, int op)
{
	struct slice *waits = &l->step->ops[op].host_waits;
	if (l->walk == WALKS - 1) {
		*waits = (struct slice){l->step->indices.n, l->pending.n};
		for (int i = 0; i < l->pending.n; i++)
			number_add(&l->step->indices, l->pending.items[i]);
	}
	l->pending.n = 0;
}

static int last_on(const struct step *step, enum stream stream, int before)
{
	int op = before - 1;
	while (op >= 0 && step->ops[op].stream != stream)
		op--;
	return op;
}

/* FSDP1 limits what it gathers, our runtime also the copies of NO_SHARD. */
static bool is_limited(const struct step *step)
{
	return step->method.shards || step->method.limits_gradients;
}

static void visit(struct limiting *l, const struct action *action, int op)
{
	bool has_limiter = l->step->method.has_limiter;
	if (action->kind == ACTION_LIMIT && has_limiter)
		wait_for_free(l);
	if (action->kind == ACTION_END_PARTITIONS) {
		number_add(&l->pending, last_on(l->step, STREAM_REDUCE, op));
		l->reductions.n = 0;
	}
	if (op >= 0) {
		if (l->step->method.waits_for_messages)
			wait_for_messages(l, op);
		l->step->frees_pending[op] = l->queue.n - l->first;
		keep_waits(l, op);
	}
	/* The host makes buffers for as many rows as the counts say, so it waits for them. */
	if (action->kind == ACTION_COUNT_ROWS || action->kind == ACTION_GATHER_COUNTS)
		number_add(&l->pending, op);
	if (action->kind == ACTION_RESHARD && has_limiter && is_limited(l->step))
		free_later(l, op);
	if (action->kind == ACTION_SCATTER_COLLECTED)
		wait_for_reduction(l, op);
}

void pass_limit(struct step *step)
{
	struct limiting l = {.step = step};
	step->frees_pending = ARENA_ARRAY(step->arena, int, step->n_ops);
	for (l.walk = 0; l.walk < WALKS; l.walk++)
		for (int i = 0; i < step->actions.n; i++)
			visit(&l, &step->actions.items[i], step->of_action[i]);
	free(l.queue.items);
	free(l.reductions.items);
	free(l.messages.items);
	free(l.pending.items);
}
