/* The time of each launch of a call: cuLaunchKernel with an event on either side. */
#ifndef BENCH_KERNELS_LAUNCHES_H
#define BENCH_KERNELS_LAUNCHES_H

#include "tests/kernels/gpu.h"

/* Must be called before a GPU is opened. Launches then pass through this file. False: there is no
 * driver. */
bool launches_watch(struct error *error);
/* Calls the problem's kernel some times, and prints a line that starts with '#' for each launch of
 * a call. The events take about a microsecond each, so launches do not add up to the call's time.
 */
void launches_print(struct gpu *gpu, struct problem *problem);

#endif
