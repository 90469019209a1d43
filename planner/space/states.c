/* What the states of a plan surely take. */
#include "planner/space/space.h"
#include "simulator/simulator.h"

double states_kept(const struct plan *plan)
{
	double one = (double)dtype_bytes(plan->master_dtype);
	return plan->optimizer == OPTIMIZER_SGD ? one : 3 * one;
}

double states_gradient(const struct plan *plan)
{
	return (double)dtype_bytes(plan_gradient_shard_dtype(plan));
}

/* Copies of the model, at least. Expert ranks are found among those that would have copies. */
static double copies_of(const struct plan *plan)
{
	if (plan->mesh.expert > 1)
		return 1;
	return (double)(strategy_shards(plan->strategy) ? plan->mesh.replicate
							: plan_reduce_ranks(plan));
}

static double ranks_of(const struct plan *plan)
{
	return (double)(plan_reduce_ranks(plan) * plan->mesh.tensor * plan->mesh.pipeline);
}

struct states states_mean(const struct question *question, const struct plan *plan)
{
	double parameters = (double)question->model->trained_count;
	double bytes = parameters * (states_kept(plan) + states_gradient(plan)) * copies_of(plan) /
		       ranks_of(plan) * (1 - 1e-9);
	if (!plan_offloads_any(plan))
		return (struct states){.on_device = bytes};
	bool all = !plan_offloads(plan, OFFLOAD_NONE);
	double ranks = (double)question->topology->devices_per_node;
	return (struct states){.in_node = all ? bytes * ranks : 0};
}

bool states_overflow(const struct question *question, const struct plan *plan)
{
	const struct states states = states_mean(question, plan);
	int64_t device = device_limit(question->topology, question->memory_limit_bytes);
	int64_t host = question->topology->host.memory_bytes;
	return states.on_device > (double)device || (host > 0 && states.in_node > (double)host);
}
