/* Private to costs/: the cost of a message between two stages of a pipeline. */
#ifndef SIMULATOR_COSTS_MESSAGES_H
#define SIMULATOR_COSTS_MESSAGES_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* For an OP_SEND or OP_RECV of a rank of `class`: fills `device` and the loads of `cost`. Both ends
 * of a message get the same. */
void message_cost(const struct machine *machine, const struct schedule *schedule, int class,
	const struct op *op, struct cost *cost);

#endif
