/* Private to simulator/: the slowest device sets the pace. */
#ifndef SIMULATOR_STRAGGLER_H
#define SIMULATOR_STRAGGLER_H

#include "topologies/topology.h"

/* How much longer arithmetic takes on the slowest device of this topology than on that of one node
 * of eight, where the rates of `machine.c` come from; >= 1, and 1 up to eight devices and on CPUs,
 * which are measured where they are. */
double straggler_slowdown(const struct topology *topology);

/* The mean of the largest of n standard normal numbers (its usual asymptotic expansion), n >= 1. */
double expected_maximum(int64_t n);

#endif
