/* Private to simulator/: what one device reaches, calibrated or by a prior of its generation. */
#ifndef SIMULATOR_MACHINE_H
#define SIMULATOR_MACHINE_H

#include "schedule/schedule.h"

/* Generations of flash attention: FlashAttention-1 and Triton's; -2; -3 and cuDNN's, which use what
 * came with Hopper. */
enum attention_generation {
	ATTENTION_FIRST,
	ATTENTION_SECOND,
	ATTENTION_THIRD,
	ATTENTION_GENERATION_COUNT
};

/* FLOP/s as executed with long sequences, many heads and head_dim 128. */
struct attention_rates {
	double forward, backward;
};

/* A shape, and its time over what the model says (product.h). */
struct measured_product {
	int64_t m, n, k;
	double log_m, log_n, log_k;  /* where it lies among the others */
	double log_ratio, log_exact; /* as such shapes are; as this very one is */
};

struct machine {
	const struct topology *topology;
	struct libraries libraries; /* below the runtime; none named: recent ones */
	bool gpu;
	enum dtype dtype;
	double peak_flops;        /* datasheet, of `dtype`; 0 = unknown */
	double gemm_flops;        /* FLOP/s at large shapes, of `dtype`, sustained */
	double slower_than_alone; /* of that: the clock in a step, a library that is not the latest
				   */
	bool tiles; /* products run in tiles and waves; else they saturate in m and n too */
	double multiprocessors;
	double gemm_half_m, gemm_half_n, gemm_half_k;
	struct attention_rates attention[ATTENTION_GENERATION_COUNT];
	/* B/s of one rank while all ranks of the node are at it. */
	double memory_bandwidth, optimizer_bandwidth;
	double product_bandwidth; /* the same of a matrix product, on all threads of the rank */
	/* Elements a second that arithmetic allows; 0: memory alone is waited for. */
	double activation_rate, loss_rate, gradient_norm_rate;
	double kernel_overhead; /* s on the device per kernel */
	double core_share;      /* of a core that each rank's thread gets (1 on GPUs) */
	/* CPU offload, B/s of one rank while all ranks of the node are at it: over the host link,
	 * one direction; host memory under the host's optimizer. */
	double link_bandwidth, host_bandwidth;
	int n_products;
	struct measured_product products[CALIBRATION_PRODUCTS]; /* of `dtype` */
};

/* `libraries` NULL: recent ones. */
void machine_init(struct machine *machine, const struct topology *topology,
	const struct libraries *libraries, enum dtype dtype);
/* B/s of one GPU's copies, one direction, while all of the node copy: the link, which it may share
 * with others, and the host's memory, which all share. */
double machine_link_bandwidth(const struct topology *topology);

#endif
