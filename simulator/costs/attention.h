/* Private to costs/: the core of attention, softmax(Q K') V, on one device. */
#ifndef SIMULATOR_COSTS_ATTENTION_H
#define SIMULATOR_COSTS_ATTENTION_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* The FLOP/s that one rank reaches, of the FLOPs that its kernels execute. */
double attention_rate(const struct machine *machine, const struct attention_shape *shape);

#endif
