/* Finds the order of forward and backward passes in a step: the order of micro-batches through
 * those stages of the pipeline that the rank has. Without a pipeline one micro-batch follows the
 * other. */
#include "schedule/passes/step.h"

/* Per flight: the slot that began a micro-batch whose tensors are alive, or NULL if the flight is
 * free. */
struct flights {
	const struct pipeline_slot **of;
	int n;
};

static bool is_of(const struct pipeline_slot *began, const struct pipeline_slot *slot)
{
	return began != NULL && began->chunk == slot->chunk &&
	       began->micro_batch == slot->micro_batch;
}

/* A forward pass takes the first free flight and keeps it until all of its backward has passed. */
static int flight_of(struct flights *flights, const struct pipeline_slot *slot)
{
	bool begins = slot->pass == PIPELINE_FORWARD;
	int f = 0;
	while (begins ? f < flights->n && flights->of[f] != NULL : !is_of(flights->of[f], slot))
		f++;
	flights->n += f == flights->n;
	if (begins)
		flights->of[f] = slot;
	else if (slot->pass != PIPELINE_BACKWARD_INPUT)
		flights->of[f] = NULL;
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
	static const unsigned flags[] = {[PIPELINE_BACKWARD] = IN_BACKWARD,
		[PIPELINE_BACKWARD_INPUT] = IN_BACKWARD | INPUT_PART,
		[PIPELINE_BACKWARD_WEIGHT] = IN_BACKWARD | WEIGHT_PART};
	const struct plan *plan = step->plan;
	struct flights flights = {0};
	struct pipeline_slot *slots;
	int n = pipeline_order(&step->pipeline, step->class, step->arena, &slots);
	flights.of = ARENA_ARRAY(step->arena, const struct pipeline_slot *, n);
	step->order = ARENA_ARRAY(step->arena, struct action, n);
	step->n_passes = n;
	for (int i = 0; i < n; i++) {
		bool synchronises =
			slots[i].micro_batch == plan->grad_accum - 1 || plan->sync_each_micro_batch;
		bool ends = step->pipeline.chunks == 1 || !comes_later(slots, n, i);
		bool paired = slots[i].with_next || (i > 0 && slots[i - 1].with_next);
		step->order[i] = (struct action){
			.flags = flags[slots[i].pass] | (synchronises ? SYNCHRONISES : 0) |
				 (ends ? LAST : 0) | (paired && plan->expert_overlap ? PAIRED : 0),
			.micro_batch = slots[i].micro_batch,
			.chunk = slots[i].chunk,
			.flight = flight_of(&flights, &slots[i])};
	}
	step->n_flights = flights.n;
}
