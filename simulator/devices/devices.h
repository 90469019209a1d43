/* The rates that one device reaches, from the calibration or from a prior of its generation
 * (docs/cost-model.md, Priors). */
#ifndef SIMULATOR_DEVICES_DEVICES_H
#define SIMULATOR_DEVICES_DEVICES_H

#include "schedule/schedule.h"

/* Generations of flash attention: FlashAttention-1 and Triton's; FlashAttention-2;
 * FlashAttention-3 and cuDNN's, which use instructions that came with Hopper; the same on Blackwell
 * of data centres, where cuDNN's and FlashAttention-4 do more of the softmax beside products. */
enum attention_generation {
	ATTENTION_FIRST,
	ATTENTION_SECOND,
	ATTENTION_THIRD,
	ATTENTION_FOURTH,
	ATTENTION_GENERATION_COUNT
};

/* Rates: FLOP/s, of the FLOPs executed, with long sequences, many heads and head_dim 128. */
struct attention_rates {
	double forward, backward;
};

/* The shape of a measured product, and its time relative to the model's (product.c). */
struct measured_product {
	int64_t m, n, k;
	double log_m, log_n, log_k;  /* coordinates for the interpolation */
	double log_ratio, log_exact; /* for the shapes around it; for exactly this shape */
};

struct machine {
	const struct topology *topology;
	struct libraries libraries; /* below the runtime; those not named are recent ones */
	bool gpu;
	enum dtype dtype;
	double peak_flops;        /* datasheet, of `dtype`; 0 = unknown */
	double gemm_flops;        /* FLOP/s at large shapes, of `dtype`, sustained */
	double slower_than_alone; /* the factor in gemm_flops for the lower clock in a step and for
				     older libraries */
	bool tiles; /* products run in tiles and waves; else their rate saturates in m and n too */
	double multiprocessors;
	double gemm_half_m, gemm_half_n, gemm_half_k;
	struct attention_rates attention[ATTENTION_GENERATION_COUNT];
	/* B/s of one rank while all ranks of the node are at it. */
	double memory_bandwidth, optimizer_bandwidth;
	double product_bandwidth; /* the same in a matrix product, with all threads of the rank */
	/* Elements per second that arithmetic allows; 0: only memory bandwidth limits. */
	double activation_rate, loss_rate, gradient_norm_rate;
	double kernel_overhead; /* s on the device per kernel */
	double core_share;      /* share of a core that each rank's thread gets (1 on GPUs) */
	/* CPU offload, B/s of one rank while all ranks of the node do the same: one direction of
	 * the host link; host memory under the host's optimizer. */
	double link_bandwidth, host_bandwidth;
	int n_products;
	struct measured_product products[CALIBRATION_PRODUCTS]; /* of `dtype` */
};

/* `libraries` NULL: recent ones. */
void machine_init(struct machine *machine, const struct topology *topology,
	const struct libraries *libraries, enum dtype dtype);
/* The same device with operands in fp8. Its matrix units are treated as those of a device whose
 * multiprocessors have the higher peak (priors.h); in a step the power limit leaves the same share
 * of the fp8 peak as of the bf16 peak. */
struct machine machine_in_fp8(const struct machine *machine);
/* state_rates of simulator.h. */
void machine_state_rates(struct topology *topology);
/* B/s of one GPU's copies in one direction while all GPUs of the node copy. Limited by the host
 * link, which a GPU may share with others, and by the host's memory, which all share. */
double machine_link_bandwidth(const struct topology *topology);

/* --- matrix products: gemm.c, product.c ------------------------------------------------------- */

/* Seconds of arithmetic of one (batched) product, without launch and memory traffic: tiles and
 * waves on a GPU, a rate that saturates on a CPU (docs/cost-model.md). */
double gemm_arithmetic(const struct machine *machine, const struct gemm_shape *gemm);
/* FLOPs of a product, and the least bytes that it moves: two operands read, one result written. */
double gemm_flops(const struct gemm_shape *gemm);
double gemm_bytes(const struct gemm_shape *gemm, enum dtype dtype);
/* The same bytes for operands in one dtype and a result in another. */
double gemm_mixed_bytes(const struct gemm_shape *gemm, enum dtype operands, enum dtype result);

/* Seconds of a product by the model: its arithmetic, and the part of its memory traffic that is not
 * hidden behind that. */
double product_model(const struct machine *machine, double arithmetic, double memory);

/* Fills machine->products from the calibration; the other fields must be filled already. */
void product_init(struct machine *machine);

/* Time of a product / time by the model, interpolated between measured shapes: the measured ratio
 * at a measured shape, 1 far from all of them. It is the mean of the logarithms of the measured
 * ratios, weighted by 1 / distance^2 in (log m, log n, log k) (Shepard 1968), where a ratio of 1
 * takes part with the weight of a shape at a distance of log 2. */
double product_ratio(const struct machine *machine, const struct gemm_shape *gemm);

/* A lower bound of product_ratio over all shapes; at most 1. */
double product_least_ratio(const struct machine *machine);

/* --- generations: priors.c -------------------------------------------------------------------- */

/* The factor by which a product of 2-byte elements is slower when a row of an operand or of the
 * result is not a multiple of 16 bytes. */
double generation_unaligned(enum device_generation generation);

/* Does one sustained clock fit the published steps of all sources for this generation? */
bool generation_sources_agree(enum device_generation generation);

/* Are steps of devices of this generation published, so that its rates in a step are known? */
bool generation_has_steps(enum device_generation generation);

/* --- the slowest of many: straggler.c --------------------------------------------------------- */

/* The factor by which arithmetic takes longer on the slowest of so many devices than on the slowest
 * of one node of eight, from which the rates in machine.c come. 1 for up to eight devices, and on
 * CPUs, which are measured themselves. */
double straggler_of(const struct topology *topology, int64_t devices);
/* The same of a schedule's devices. In a pipeline a slow device costs less in a stage with less
 * work. Of a schedule with the program of one class only: among the ranks of one stage. */
double straggler_of_stages(const struct schedule *schedule);

/* The expected maximum of n >= 1 independent standard normal numbers (asymptotic expansion). */
double expected_maximum(int64_t n);

#endif
