/* The cost of a message over the link between two stages: latency + bytes / bandwidth. All ranks of
 * a stage send at the same time, each to the rank with the same index in the other stage. */
#include <math.h>

#include "simulator/costs/messages.h"

/* Where stages share a node the last rank of one may still be on the same node as its peer. */
static bool leaves_node(const struct topology *topology, const struct group *group, int a, int b)
{
	int64_t per_node = topology->devices_per_node, last = group->stride - 1;

	return a * group->stride / per_node != b * group->stride / per_node ||
	       (a * group->stride + last) / per_node != (b * group->stride + last) / per_node;
}

static int64_t ranks_that_leave(const struct topology *topology, const struct group *group)
{
	return min_i64(group->stride, topology->devices_per_node);
}

static double transfer(double bytes, double bandwidth)
{
	return bandwidth > 0 && !isinf(bandwidth) ? bytes / bandwidth : 0;
}

double message_node_egress(const struct schedule *schedule, int class, const struct op *op)
{
	const struct group *group = &schedule->groups[op->group];
	const struct topology *topology = schedule->topology;

	if (op->kind != OP_SEND || !leaves_node(topology, group, class, op->message.peer))
		return 0;
	return (double)op->bytes * (double)ranks_that_leave(topology, group);
}

double cost_message(const struct topology *topology, int64_t apart, int from, int to, int64_t bytes)
{
	struct machine machine;
	struct group group = {.stride = apart};
	const struct schedule schedule = {.topology = topology, .groups = &group};
	const struct op op = {.kind = OP_SEND, .bytes = bytes, .message = {.peer = to}};
	struct cost cost = {0};

	machine_init(&machine, topology, NULL, DTYPE_FP32);
	message_cost(&machine, &schedule, from, &op, &cost);
	return cost.device;
}

void message_cost(const struct machine *machine, const struct schedule *schedule, int class,
	const struct op *op, struct cost *cost)
{
	const struct topology *topology = machine->topology;
	const struct group *group = &schedule->groups[op->group];
	double bytes = (double)op->bytes;

	if (machine->gpu)
		cost->way = op->kind == OP_SEND ? WAY_OUT : WAY_IN;
	if (leaves_node(topology, group, class, op->message.peer)) {
		double ranks = (double)ranks_that_leave(topology, group);

		cost->device = topology->network.latency +
			       transfer(bytes * ranks, topology_node_bandwidth(topology));
		cost->network_load = 1;
	} else if (machine->gpu) {
		cost->device =
			topology->fabric.latency + transfer(bytes, topology->fabric.bandwidth);
		cost->fabric_load = 1;
	} else {
		/* One process of the host reads the bytes and another one writes them. */
		cost->device =
			topology->fabric.latency + transfer(2 * bytes, machine->memory_bandwidth);
		cost->memory_load = 1;
	}
}
