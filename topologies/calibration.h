/* Measurements of a machine, or a labelled prior. There are few parameters, each with a physical
 * meaning; zero means "not known", and the cost model then takes its prior for the device's
 * generation. */
#ifndef TOPOLOGIES_CALIBRATION_H
#define TOPOLOGIES_CALIBRATION_H

#include "base/base.h"
#include "topologies/calibration_choices.h"
#include "topologies/calibration_kernels.h"
#include "topologies/calibration_steps.h"

enum collective_kind {
	COLLECTIVE_ALL_GATHER,
	COLLECTIVE_REDUCE_SCATTER,
	COLLECTIVE_ALL_REDUCE,
	COLLECTIVE_ALL_TO_ALL, /* every rank has an equal part for each */
	COLLECTIVE_SEND_RECV   /* every rank sends to the next of its group and receives */
};
enum { COLLECTIVES_OF_STEPS = COLLECTIVE_SEND_RECV + 1 };
extern const char *const collective_kind_names[]; /* "all_gather", ...; ends with NULL */

/* Time of one collective over `ranks` ranks on `nodes` nodes: latency + bytes / bandwidth, where
 * bytes is the full (gathered) size (nccl-tests' as well: of an all-to-all what one rank has for
 * all, of send and receive the message), for sizes from `from_bytes` up to the next segment's. */
struct calibration_collective {
	enum collective_kind collective;
	int64_t ranks;
	int64_t nodes;
	int64_t from_bytes;
	double latency;   /* s */
	double bandwidth; /* B/s of the full size: algbw */
};

/* The rate of a product of one shape alone, launch included: by the algorithm that cuBLASLt
 * proposes, and by the one that was chosen instead (below; 0: none was). */
struct calibration_product {
	enum dtype dtype;
	int64_t m, n, k;
	double flops, chosen_flops; /* FLOP/s */
};

enum { CALIBRATION_PRODUCTS = 96 }; /* at most */

struct calibration {
	bool measured;          /* false: a prior */
	const char *date;       /* ISO 8601 */
	const char *provenance; /* one line: tool, versions, host kind */
	/* A GEMM m x n x k runs at gemm_flops * f(m) f(n) f(k), f(x) = x / (x + half) (saturation).
	 */
	double gemm_flops; /* FLOP/s of one device (one core for CPU devices) at large shapes */
	double gemm_half_m, gemm_half_n, gemm_half_k;
	/* CPU devices: the same of bf16 operands, as above for fp32. */
	double bf16_gemm_flops, bf16_gemm_half_m, bf16_gemm_half_n, bf16_gemm_half_k;
	/* CPU devices: the rate of a product on all cores / on one. A rank has as many threads for
	 * its products and its attention as cores are left to it. */
	double threads_speedup;
	/* A GPU's products run in tiles and waves instead of f(m) f(n), unless half_m or half_n is
	 * given; half_k is what a tile's beginning and end cost. */
	double sustained_clock;         /* rate in a step / rate of a kernel alone */
	double sustained_spread;        /* relative spread of that within one measurement */
	double attention_forward_flops; /* FLOP/s, as executed (causal half) */
	double attention_backward_flops;
	double memory_bandwidth;        /* B/s reached by element-wise kernels, one device alone */
	double memory_bandwidth_shared; /* B/s of all devices of a node together (shares_host) */
	double kernel_overhead;         /* s on the device per kernel */
	double host_overhead;           /* s on the host thread per operation issued */
	double host_factor;         /* time of the host thread / that by its runtime's figures */
	double optimizer_bandwidth; /* B/s reached by AdamW over flat shards */
	double optimizer_bandwidth_shared; /* B/s of all devices of a node together (shares_host) */
	/* CPU devices: how fast kernels could go that usually wait for memory, were there
	 * arithmetic only. Elements a second through GELU or its backward; logits a second through
	 * cross-entropy and its backward; gradients a second that are squared and summed exactly
	 * (GPUs have this, too). */
	double activation_rate, bf16_activation_rate;
	double loss_rate, bf16_loss_rate, gradient_norm_rate;
	/* Relative standard deviations of what the model gets wrong: of kernels, of collectives, of
	 * the issuing thread, each common to all of its kind; and of a step beyond these. */
	double compute_spread, collective_spread, host_spread, residual_spread;
	/* Times and rates above are medians over the whole measurement. In its best moments, as on
	 * a machine that nobody else uses, seconds were these times the medians. */
	double compute_best, collective_best; /* at most 1 */
	double step_p95;  /* the 95th percentile of a run's steps over their median */
	double yardstick; /* s of a fixed product on all cores (CPU devices) */
	int n_collectives;
	struct calibration_collective
		*collectives; /* sorted by collective, ranks, nodes, from_bytes */
	int n_products;
	struct calibration_product *products; /* sorted by dtype, m, n, k; each once */
	int64_t choices_library;              /* the version of cuBLASLt that the choices are of */
	int n_choices;
	struct calibration_choice *choices; /* sorted by form, dtype, result, m, n, k; each once */
	int64_t attention_library;          /* the version of cuDNN that these are of */
	int n_attention;
	struct calibration_attention *attention; /* sorted by head_dim, length; each once */
	int n_kernels;
	struct calibration_kernel *kernels; /* sorted by kernel, dtype, width, length; each once */
	int n_steps;
	struct calibration_step steps[CALIBRATION_STEPS]; /* sorted by mlp, dtype, threads; each
							   * once */
};

extern const struct field calibration_fields[];
extern const struct field calibration_collective_fields[];
extern const struct field calibration_product_fields[];
extern const struct field calibration_kernel_fields[];
extern const struct field calibration_step_fields[];

/* The `calibration:` map; `calibration` zeroed before. */
bool calibration_read(struct arena *arena, const struct node *map, struct calibration *calibration,
	struct error *error);
void calibration_write(const struct calibration *calibration, struct writer *writer);

/* The FLOP/s of a CPU device's products in that dtype; 0: not measured. */
double calibration_gemm_flops(const struct calibration *calibration, enum dtype dtype);

/* Puts `product` where it belongs; `products` has room for it. False, and nothing done, when that
 * shape is there. */
bool calibration_add_product(
	struct calibration *calibration, const struct calibration_product *product);

/* The same for `kernel`. */
bool calibration_add_kernel(
	struct calibration *calibration, const struct calibration_kernel *kernel);

/* Nothing known at all: the section is left out of files. */
bool calibration_is_empty(const struct calibration *calibration);

/* The order of `collectives`: < 0, 0, > 0. */
int calibration_compare(
	const struct calibration_collective *a, const struct calibration_collective *b);

/* The segment that fits (below the smallest measured size, the first one), NULL when that
 * (collective, ranks, nodes) was not measured. */
const struct calibration_collective *calibration_find(const struct calibration *calibration,
	enum collective_kind collective, int64_t ranks, int64_t nodes, int64_t bytes);

#endif
