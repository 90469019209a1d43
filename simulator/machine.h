/* Private to simulator/: what one device reaches, calibrated or by a prior of its generation. */
#ifndef SIMULATOR_MACHINE_H
#define SIMULATOR_MACHINE_H

#include "schedule/schedule.h"

struct machine {
	const struct topology *topology;
	bool gpu;
	enum dtype dtype;
	double peak_flops; /* datasheet, of `dtype`; 0 = unknown */
	double gemm_flops; /* FLOP/s at large shapes, of `dtype` */
	double gemm_half_m, gemm_half_n, gemm_half_k;
	double attention_forward_flops, attention_backward_flops; /* FLOP/s as executed */
	/* B/s of one rank while all ranks of the node are at it. */
	double memory_bandwidth, optimizer_bandwidth;
	double kernel_overhead; /* s on the device per kernel */
	double core_share;      /* of a core that each rank's thread gets (1 on GPUs) */
	double link_bandwidth;  /* B/s, host <-> device */
};

void machine_init(struct machine *machine, const struct topology *topology, enum dtype dtype);

#endif
