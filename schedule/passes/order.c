/* The order of forward and backward passes in a step: of the micro-batches, through the stages of
 * the pipeline that the rank has; without one, one micro-batch after the other. */
#include "schedule/passes/step.h"

/* Micro-batches whose tensors are alive, by flight: the slot that began it; NULL: it is free. */
struct flights {
	const struct pipeline_slot **of;
	int n;
};

static bool is_of(const struct pipeline_slot *began, const struct pipeline_slot *slot)
{
	return began != NULL && began->chunk == slot->chunk &&
	       began->micro_batch == slot->micro_batch;
}

/* A forward pass takes the first that is free. */
static int flight_of(struct flights *flights, const struct pipeline_slot *slot)
{
	bool begins = slot->pass == PIPELINE_FORWARD;
	int f = 0;
	while (begins ? f < flights->n && flights->of[f] != NULL : !is_of(flights->of[f], slot))
		f++;
	flights->n += f == flights->n;
	flights->of[f] = begins ? slot : NULL;
	return f;
}

static bool comes_later(const struct pipeline_slot *slots, int n, int slot)
{
	for (int i = slot + 1; i < n; i++)
		if (slots[i].micro_batch == slots[slot].micro_batch)
			return true;
	return false;
}

void pass_order(struct step *step)
{
	const struct plan *plan = step->plan;
	struct flights flights = {0};
	struct pipeline_slot *slots;
	int n = pipeline_order(&step->pipeline, step->class, step->arena, &slots);
	flights.of = ARENA_ARRAY(step->arena, const struct pipeline_slot *, n);
	step->order = ARENA_ARRAY(step->arena, struct entry, n);
	step->n_entries = n;
	for (int i = 0; i < n; i++)
		step->order[i] = (struct entry){.is_backward = slots[i].pass != PIPELINE_FORWARD,
			.synchronises = slots[i].micro_batch == plan->grad_accum - 1 ||
					plan->sync_each_micro_batch,
			.ends = step->pipeline.chunks == 1 || !comes_later(slots, n, i),
			.micro_batch = slots[i].micro_batch,
			.chunk = slots[i].chunk,
			.flight = flight_of(&flights, &slots[i])};
	step->n_flights = flights.n;
}
