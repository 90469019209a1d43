/* The cost model: how long an operation takes when nothing else runs.
 *
 * Every figure is the topology's calibration where it has one, else a prior for the device's
 * generation (docs/cost-model.md lists each prior and its source). */
#ifndef SIMULATOR_COST_H
#define SIMULATOR_COST_H

#include "schedule/schedule.h"

struct cost {
	double device; /* s on the stream (or the engine, for collectives) */
	double host;   /* s that the issuing thread spends */
	double flops;  /* executed; recomputation included */
};

/* Fills costs[0 .. n_ops) for one class. */
void cost_operations(const struct schedule *schedule, int class, struct cost *costs);

/* One collective alone, seconds, with the algorithm the runtime would choose (semantics 7). */
double cost_collective(const struct topology *topology, const struct runtime *runtime,
	enum op_kind kind, const struct group *group, int64_t bytes);
/* One m x n x k product on one device, seconds. */
double cost_gemm(const struct topology *topology, enum dtype dtype, const struct gemm_shape *gemm);

#endif
