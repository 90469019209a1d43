/* The passes that make a schedule, in their order. */
#include "schedule/passes/step.h"

static void (*const passes[])(struct step *step) = {
	/* what there is */
	pass_units,
	pass_ranges,
	pass_groups,
	pass_resident,
	/* what happens */
	pass_order,
	pass_compute,
	pass_recompute,
	pass_tensor,
	pass_context,
	pass_delay,
	pass_gather_by_hook,
	pass_gather_by_trace,
	pass_cast_by_range,
	pass_reduce_units,
	pass_reduce_buckets,
	pass_reduce_partitions,
	pass_update,
	pass_offload,
	pass_offload_activations,
	/* the operations */
	pass_lower,
	pass_waits,
	pass_limit,
	pass_finish,
};

void step_run(struct step *step)
{
	for (int i = 0; i < COUNT_OF(passes); i++)
		passes[i](step);
}
