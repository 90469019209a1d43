/* Private to simulator/: the core of attention, softmax(Q K') V, on one device. */
#ifndef SIMULATOR_ATTENTION_H
#define SIMULATOR_ATTENTION_H

#include "simulator/costs.h"
#include "simulator/devices.h"

/* FLOP/s as executed, of one rank. */
double attention_rate(const struct machine *machine, const struct attention_shape *shape);

#endif
