/* Ranks post their receives as torch.distributed.pipelining does (schedules.py, _add_send_recv):
 * they take their next slots by turns, and the receive of what a slot sends stands behind what its
 * rank has taken by then. So all messages are in one order, and nothing hangs even if no message is
 * buffered. */
#include "schedule/pipeline/slots.h"

struct posting {
	const struct pipeline *pipeline;
	struct pipeline_slot **slots; /* of each rank */
	int *n, *next;
	bool *arrived[2]; /* by direction (forward and backward), and by stage and micro-batch */
	int rank;         /* the rank whose receives are wanted */
	int n_receives;
	struct pipeline_receive *receives;
};

static bool is_back(const struct pipeline_slot *slot)
{
	return slot->pass != PIPELINE_FORWARD;
}

static bool *arrived(const struct posting *p, bool back, int stage, int micro_batch)
{
	return &p->arrived[back][stage * p->pipeline->micro_batches + micro_batch];
}

/* Has what the slot begins with arrived? */
static bool is_ready(const struct posting *p, int rank, const struct pipeline_slot *slot)
{
	int stage = pipeline_stage(p->pipeline, rank, slot->chunk);
	int first = is_back(slot) ? p->pipeline->ranks * p->pipeline->chunks - 1 : 0;
	return slot->pass == PIPELINE_BACKWARD_WEIGHT || stage == first ||
	       *arrived(p, is_back(slot), stage, slot->micro_batch);
}

static void pass_on(struct posting *p, int rank, const struct pipeline_slot *slot)
{
	int stage = pipeline_stage(p->pipeline, rank, slot->chunk) + (is_back(slot) ? -1 : 1);
	int to, chunk;
	if (slot->pass == PIPELINE_BACKWARD_WEIGHT || stage < 0 ||
		stage == p->pipeline->ranks * p->pipeline->chunks)
		return;
	pipeline_place(p->pipeline, stage, &to, &chunk);
	*arrived(p, is_back(slot), stage, slot->micro_batch) = true;
	if (to == p->rank && to != rank)
		p->receives[p->n_receives++] = (struct pipeline_receive){
			p->next[to], is_back(slot), chunk, slot->micro_batch};
}

/* Takes the next slot of a rank, or two that are computed together. */
static bool take(struct posting *p, int rank)
{
	const struct pipeline_slot *slot = &p->slots[rank][p->next[rank]];
	if (p->next[rank] == p->n[rank] || !is_ready(p, rank, slot) ||
		(slot->with_next && !is_ready(p, rank, slot + 1)))
		return false;
	int n = 1 + slot->with_next;
	p->next[rank] += n;
	for (int i = 0; i < n; i++)
		pass_on(p, rank, slot + i);
	return true;
}

int pipeline_receives(const struct pipeline *pipeline, int rank, struct arena *arena,
	struct pipeline_receive **receives)
{
	int ranks = pipeline->ranks, all = ranks * pipeline->chunks * pipeline->micro_batches;
	struct posting p = {.pipeline = pipeline,
		.rank = rank,
		.slots = ARENA_ARRAY(arena, struct pipeline_slot *, ranks),
		.n = ARENA_ARRAY(arena, int, ranks),
		.next = ARENA_ARRAY(arena, int, ranks),
		.arrived = {ARENA_ARRAY(arena, bool, all), ARENA_ARRAY(arena, bool, all)},
		.receives = ARENA_ARRAY(arena, struct pipeline_receive,
			2 * pipeline->chunks * pipeline->micro_batches)};
	for (int k = 0; k < ranks; k++)
		p.n[k] = pipeline_order(pipeline, k, arena, &p.slots[k]);
	for (bool moved = true; moved;) {
		moved = false;
		for (int k = 0; k < ranks; k++)
			moved = take(&p, k) || moved;
	}
	*receives = p.receives;
	return p.n_receives;
}
