/* Private to costs/: a collective's time, and what it takes from others. */
#ifndef SIMULATOR_COSTS_COLLECTIVES_H
#define SIMULATOR_COSTS_COLLECTIVES_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* Fills device and the loads of `cost`. */
void collective_cost(const struct machine *machine, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes, struct cost *cost);

/* The same of tokens that tensor ranks copy from one another beside a product, in as many chunks,
 * of which one takes `chunk` seconds to multiply. */
void collective_beside_cost(const struct machine *machine, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes, double chunk,
	struct cost *cost);

/* --- network.c: what an idle network does not show -------------------------------------------- */

/* Seconds that a collective over GPUs of `nodes` takes longer in a step, where `seconds` are what
 * it takes alone and `wire` what its bytes take on the node's NICs. */
double network_late(enum network_kind kind, int64_t nodes, double seconds, double wire);

/* The relative standard deviation of that between runs: a hash gives each its own collisions, from
 * hardly any to twice the mean. */
double network_spread(enum network_kind kind, int64_t nodes);

/* The relative standard deviation of one operation's time from step to step. */
double network_jitter(enum network_kind kind, int64_t nodes);

#endif
