/* Rows on their way to experts and back through DeepEP (github.com/deepseek-ai/DeepEP, the kernels
 * for training). A token goes to the rank of its own place in each node with experts of it, over
 * the network, and from there to each rank with experts of it, over NVLink, both at the same time.
 *
 * Shares of the links, from its figures on H800 (NVLink 164.8 GB/s, 400 Gbit/s a GPU; 4,096 tokens
 * of 7,168, 8 of 256 experts in 4 groups). Its GB/s count what stays at home too: in one node 153
 * to 158 are 0.81 to 0.84 of NVLink, on two nodes 43 are 0.74 of it; on four and eight nodes 57 and
 * 50 are 0.85 and 0.88 of the network. On GB200 HybridEP's kernels (docs/README_Hybrid-EP.md, 32
 * multiprocessors, the mean of dispatch and combine) make 750 to 615 GB/s on 8 to 36 ranks, 0.91 to
 * 0.83 of NVLink. */
#include <math.h>

#include "simulator/costs/collectives.h"

static const double share_of_network = 0.86;

static double share_of_fabric(const struct topology *topology)
{
	return topology->device.generation == GENERATION_BLACKWELL ? 0.86 : 0.79;
}

/* Two kernels, each behind a barrier of all ranks: what goes where, and the tokens. */
enum { BARRIERS = 2 };
/* moe_deepep_num_sms of Megatron-Core. */
enum { MULTIPROCESSORS = 20 };

struct traffic {
	double inside, across; /* bytes that a rank sends within its node, and to others */
};

static struct placement place_of(const struct schedule *schedule, const struct op *op)
{
	const struct group *group = &schedule->groups[op->group];

	return topology_place(schedule->topology, group->size, group->stride);
}

static struct traffic traffic_of(const struct schedule *schedule, const struct op *op)
{
	const struct architecture *model = &schedule->model->architecture;
	const struct placement placement = place_of(schedule, op);
	double ranks = (double)placement.ranks, nodes = (double)placement.nodes;
	double local = ceil(ranks / nodes);
	double tokens = (double)op->bytes / (double)model->experts_per_token;

	return (struct traffic){
		.inside = tokens * architecture_expert_places(model, ranks) * (local - 1) / local,
		.across = tokens * architecture_expert_places(model, nodes) * (nodes - 1) / nodes};
}

/* Of what a rank's links deliver while all ranks of the node send. */
static double rank_bandwidth(const struct topology *topology)
{
	return topology_node_bandwidth(topology) / (double)topology->devices_per_node;
}

bool is_deepep(const struct schedule *schedule, const struct op *op)
{
	return schedule->plan.expert_dispatch == DISPATCH_DEEPEP && op->kind == OP_ALL_TO_ALL &&
	       op->dtype != DTYPE_INT64 && schedule->groups[op->group].kind == GROUP_EXPERT;
}

double deepep_wire_bytes(const struct schedule *schedule, const struct op *op)
{
	const struct traffic traffic = traffic_of(schedule, op);

	return traffic.inside + traffic.across;
}

double deepep_node_egress(const struct schedule *schedule, const struct op *op)
{
	return traffic_of(schedule, op).across * (double)schedule->topology->devices_per_node;
}

void deepep_cost(const struct machine *machine, const struct schedule *schedule,
	const struct op *op, struct cost *cost)
{
	const struct topology *topology = machine->topology;
	const struct placement placement = place_of(schedule, op);
	const struct traffic traffic = traffic_of(schedule, op);
	double hop = placement.nodes > 1 ? topology->network.latency : topology->fabric.latency;
	double inside = traffic.inside / (share_of_fabric(topology) * topology->fabric.bandwidth);
	double network = rank_bandwidth(topology);
	double across = placement.nodes > 1 ? traffic.across / (share_of_network * network) : 0;
	double wire = placement.nodes > 1 ? traffic.across / network : 0;

	cost->device = BARRIERS * hop + fmax(inside, across);
	if (placement.nodes > 1)
		cost->late = network_late(machine, placement.nodes, cost->device, wire);
	cost->device += cost->late;
	cost->spread = hypot(collective_spread(&placement, COLLECTIVE_ALL_TO_ALL, op->bytes),
		network_spread(machine, placement.nodes));
	cost->jitter = network_jitter(machine, placement.nodes);
	cost->multiprocessors = MULTIPROCESSORS;
	cost->fabric_load = fmin(1, traffic.inside / topology->fabric.bandwidth / cost->device);
	cost->network_load = fmin(1, wire / cost->device);
	cost->memory_load = fmin(1, 2 * (traffic.inside + traffic.across) /
					    topology->device.memory_bandwidth / cost->device);
}
