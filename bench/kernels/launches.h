/* What each launch of a call costs: cuLaunchKernel with an event on either side. */
#ifndef BENCH_KERNELS_LAUNCHES_H
#define BENCH_KERNELS_LAUNCHES_H

#include "tests/kernels/gpu.h"

/* Before a GPU is opened: from then on launches go through here. False where there is no driver. */
bool launches_watch(struct error *error);
/* Calls the problem's kernel some times and prints a line per launch of a call, '#' first. The
 * events cost a GPU about a microsecond each, and so launches do not add up to the call's time. */
void launches_print(struct gpu *gpu, struct problem *problem);

#endif
