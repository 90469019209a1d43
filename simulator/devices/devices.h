/* What one device reaches, calibrated or by a prior of its generation (docs/cost-model.md, Priors).
 */
#ifndef SIMULATOR_DEVICES_DEVICES_H
#define SIMULATOR_DEVICES_DEVICES_H

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

/* A shape, and its time over what the model says (product.c). */
struct measured_product {
	int64_t m, n, k;
	double log_m, log_n, log_k;  /* its place among the others */
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
/* The same device multiplying operands in fp8. Its matrix units are taken for those of a device
 * with so many times the peak in each multiprocessor (priors.h); the power limit, which a step
 * meets, leaves of that peak what it leaves of bf16's. */
struct machine machine_in_fp8(const struct machine *machine);
/* simulator.h: state_rates. */
void machine_state_rates(struct topology *topology);
/* B/s of one GPU's copies, one direction, while all of the node copy: the link, which it may share
 * with others, and the host's memory, which all share. */
double machine_link_bandwidth(const struct topology *topology);

/* --- matrix products: gemm.c, product.c ------------------------------------------------------- */

/* Seconds of arithmetic of one (batched) product: tiles and waves on a GPU,
 * saturation on a CPU (docs/cost-model.md). Without launch and memory traffic. */
double gemm_arithmetic(const struct machine *machine, const struct gemm_shape *gemm);
/* Bytes that it has to move at least: two operands read, one result written. */
double gemm_flops(const struct gemm_shape *gemm);
double gemm_bytes(const struct gemm_shape *gemm, enum dtype dtype);
/* Of operands in one dtype and a result in another. */
double gemm_mixed_bytes(const struct gemm_shape *gemm, enum dtype operands, enum dtype result);

/* Seconds of a product by the model: of its arithmetic, and of what is not hidden of its memory
 * traffic. */
double product_model(const struct machine *machine, double arithmetic, double memory);

/* Fills in machine->products from the calibration; the rest is there. */
void product_init(struct machine *machine);

/* By how much a product of this shape takes longer than by the model, as those around it do: at a
 * measured shape what was measured, far from all of them 1. The mean of the measured ratios'
 * logarithms weighted by 1 / distance^2 in the logarithms of m, n and k (Shepard 1968), in which 1
 * has the weight of a shape at a distance of a factor of two. */
double product_ratio(const struct machine *machine, const struct gemm_shape *gemm);

/* No product is faster than by the model times this; at most 1. */
double product_least_ratio(const struct machine *machine);

/* --- generations: priors.c -------------------------------------------------------------------- */

/* How many times as long a product of 2-byte elements takes when a row of an operand or of the
 * result is no multiple of 16 bytes. */
double generation_unaligned(enum device_generation generation);

/* One clock fits the published steps of all sources of this generation. */
bool generation_sources_agree(enum device_generation generation);

/* Steps of devices of this generation are published, so that its figures are known in a step. */
bool generation_has_steps(enum device_generation generation);

/* --- the slowest of many: straggler.c --------------------------------------------------------- */

/* How much longer arithmetic takes on the slowest device of this topology than on that of one node
 * of eight, where the rates of `machine.c` come from; >= 1, and 1 up to eight devices and on CPUs,
 * which are measured where they are. */
double straggler_slowdown(const struct topology *topology);
/* The same of a schedule's pipeline, whose stages may have less to do than others. No more than
 * that where the schedule has one stage alone. */
double straggler_of_stages(const struct schedule *schedule);

/* The mean of the largest of n standard normal numbers (its usual asymptotic expansion), n >= 1. */
double expected_maximum(int64_t n);

#endif
