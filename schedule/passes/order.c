/* The order of forward and backward passes in a step: one micro-batch after the other. A pipeline
 * schedule is another order, of as many flights as it keeps micro-batches alive. */
#include "schedule/passes/step.h"

void pass_order(struct step *step)
{
	int n = (int)step->plan->grad_accum;
	step->order = ARENA_ARRAY(step->arena, struct entry, 2 * n);
	step->n_flights = 1;
	for (int i = 0; i < n; i++) {
		struct entry entry = {.micro_batch = i,
			.synchronises = i == n - 1 || step->plan->sync_each_micro_batch};
		step->order[step->n_entries++] = entry;
		entry.is_backward = true;
		step->order[step->n_entries++] = entry;
	}
}
