/* Differences between two plans in the time of each kind of work. */
#include "planner/defence/causes.h"

const char *const cause_collectives[] = {
	"all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send-receive"};

const char *cause_link(const struct question *question, bool over_network)
{
	static const char *const fabrics[] = {[FABRIC_NVSWITCH] = "NVSwitch",
		[FABRIC_NVLINK_MESH] = "NVLink",
		[FABRIC_NVLINK_CUBE_MESH] = "NVLink",
		[FABRIC_PCIE] = "PCIe",
		[FABRIC_SHARED_MEMORY] = "shared memory"};
	return over_network ? "the network" : fabrics[question->topology->fabric.kind];
}

/* The measurement of a collective, by the name of its program in NVIDIA's nccl-tests. */
static const char *measure_collective(int kind, bool over_network, struct arena *arena)
{
	static const char *const tests[] = {"all_gather_perf", "reduce_scatter_perf",
		"all_reduce_perf", "alltoall_perf", "sendrecv_perf"};
	return arena_printf(arena, "%s of nccl-tests %s", tests[kind],
		over_network ? "across the nodes" : "inside a node");
}

static int by_size(const struct cause *a, const struct cause *b)
{
	return (a->more < b->more) - (a->more > b->more);
}

static void sort_causes(struct cause *causes)
{
	for (int i = 1; i < CAUSE_COUNT; i++)
		for (int j = i; j > 0 && by_size(&causes[j - 1], &causes[j]) > 0; j--) {
			struct cause swap = causes[j];
			causes[j] = causes[j - 1];
			causes[j - 1] = swap;
		}
}

/* The number of blocks that recompute something; those that recompute everything count double. */
static int64_t recomputed_blocks(const struct question *question, const struct plan *plan)
{
	int64_t blocks = question->model->architecture.layers;
	return plan_count_checkpointing(plan, CHECKPOINTING_SELECTIVE, blocks) +
	       2 * plan_count_checkpointing(plan, CHECKPOINTING_FULL, blocks);
}

/* Is the collective exposed over the network? The plan with more of it exposed decides, because the
 * other one may not have that collective at all. */
static bool exposed_over_network(
	const struct exposure *chosen, const struct exposure *other, double scale, int kind)
{
	bool more = scale * other->seconds[kind] >= chosen->seconds[kind];
	return (more ? other : chosen)->over_network[kind];
}

void causes_find(const struct question *question, const struct contender *chosen,
	const struct contender *other, struct arena *arena, struct cause causes[CAUSE_COUNT])
{
	double scale = plan_tokens(chosen->plan) / plan_tokens(other->plan);
	const struct time_split *was = &chosen->prediction->time, *is = &other->prediction->time;
	bool recomputes = recomputed_blocks(question, other->plan) >
			  recomputed_blocks(question, chosen->plan);
	for (int k = 0; k < COLLECTIVES_OF_STEPS; k++) {
		bool network = exposed_over_network(chosen->exposure, other->exposure, scale, k);
		const char *name = cause_collectives[k];
		causes[k] = (struct cause){arena_printf(arena, "of %s exposed on %s", name,
						   cause_link(question, network)),
			arena_printf(arena, "exposed %s", name),
			scale * other->exposure->seconds[k], chosen->exposure->seconds[k],
			measure_collective(k, network, arena)};
	}
	struct cause *others = causes + COLLECTIVES_OF_STEPS;
	others[0] = (struct cause){recomputes ? "of compute for recomputation" : "of compute",
		recomputes ? "recomputation" : "compute",
		scale * (is->compute - other->exposure->slowed),
		was->compute - chosen->exposure->slowed,
		"forward and backward of one "
		"block at both micro-batches and kinds of checkpointing"};
	others[1] = (struct cause){"in the optimizer", "time in the optimizer",
		scale * is->optimizer, was->optimizer, "the optimizer's step alone"};
	others[2] = (struct cause){"waiting for the host", "waiting for the host",
		scale * other->exposure->idle, chosen->exposure->idle,
		"the host's time to issue one block, in a profile"};
	others[3] = (struct cause){"of compute slowed by communication",
		"compute slowed by communication", scale * other->exposure->slowed,
		chosen->exposure->slowed, "a matrix product beside a running collective"};
	others[4] = (struct cause){"in retries of the allocator", "retries of the allocator",
		scale * is->allocator, was->allocator,
		"a step with num_alloc_retries of torch.cuda.memory_stats()"};
	others[5] = (struct cause){"in pipeline bubbles", "pipeline bubbles", scale * is->bubble,
		was->bubble, "how long the first stage idles, in a profile"};
	for (int i = 0; i < CAUSE_COUNT; i++)
		causes[i].more -= causes[i].before;
	sort_causes(causes);
}
