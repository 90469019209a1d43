/* Private to simulator/ and the bounds of planner/: a collective's time, and what it takes from
 * others. */
#ifndef SIMULATOR_COLLECTIVE_H
#define SIMULATOR_COLLECTIVE_H

#include "simulator/cost.h"
#include "simulator/machine.h"

bool collective_kind_of(enum op_kind kind, enum collective_kind *collective);

/* Fills device and the loads of `cost`. */
void collective_cost(const struct machine *machine, const struct runtime *runtime,
	enum op_kind kind, const struct group *group, int64_t bytes, struct cost *cost);

/* The standard deviation of log(truth / predicted) of one collective over GPUs whose topology was
 * not measured (docs/cost-model.md). */
double collective_spread(
	const struct placement *placement, enum collective_kind kind, int64_t bytes);

/* Bytes that leave each node in one direction when every group of this kind carries out the
 * collective once. */
double collective_node_egress(const struct topology *topology, const struct runtime *runtime,
	enum op_kind kind, const struct group *group, int64_t bytes);

/* A runtime that goes inside the node first, on a group that spans nodes with several ranks each.
 */
bool collective_is_hierarchical(const struct runtime *runtime, const struct placement *placement);

#endif
