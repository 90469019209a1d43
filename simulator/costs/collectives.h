/* Private to costs/: the time of a collective, and the load that slows other operations. */
#ifndef SIMULATOR_COSTS_COLLECTIVES_H
#define SIMULATOR_COSTS_COLLECTIVES_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* Fills `device` and the loads of `cost`. `bytes` as in cost_collective_choice. */
void collective_cost(const struct machine *machine, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes, struct cost *cost);

/* The same for tokens that tensor ranks copy from one another beside a matrix product. They come in
 * chunks, one for each rank; the product of one chunk takes `chunk` seconds. */
void collective_beside_cost(const struct machine *machine, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes, double chunk,
	struct cost *cost);

/* --- dispatch.c: rows that go through DeepEP -------------------------------------------------- */

/* Is the operation such an exchange? Its bytes are a copy of a rank's tokens for each of their
 * experts; fewer travel. */
bool is_deepep(const struct schedule *schedule, const struct op *op);
void deepep_cost(const struct machine *machine, const struct schedule *schedule,
	const struct op *op, struct cost *cost);
/* As op_wire_bytes and op_node_egress. */
double deepep_wire_bytes(const struct schedule *schedule, const struct op *op);
double deepep_node_egress(const struct schedule *schedule, const struct op *op);

/* --- network.c: delays of a network that is in use -------------------------------------------- */

/* Seconds that a collective over GPUs of `nodes` nodes takes longer in a step than alone. `seconds`
 * is what it takes alone, `wire` what its bytes take on the node's NICs. */
double network_late(const struct machine *machine, int64_t nodes, double seconds, double wire);

/* The relative standard deviation of that delay between runs: the switches' hash makes other flows
 * collide in each run, from hardly any to twice the mean. */
double network_spread(const struct machine *machine, int64_t nodes);

/* The relative standard deviation of one operation's time from step to step. */
double network_jitter(const struct machine *machine, int64_t nodes);

#endif
