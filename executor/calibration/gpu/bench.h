/* Private to calibration: what is measured of GPUs. Times are the device's own, by events. */
#ifndef EXECUTOR_CALIBRATION_GPU_BENCH_H
#define EXECUTOR_CALIBRATION_GPU_BENCH_H

#include "executor/calibration/calibration.h"
#include "executor/devices/devices.h"
#include "kernels/cuda/cuda.h"

/* Measurements on the first GPU; collectives run on all. */
struct gpu_bench {
	struct bench base; /* kernels and context are the device's */
	struct topology *topology;
	const struct cuda_api *api;
	int gpus;
	int64_t multiprocessors;
	void *context, *library, *hold_begin,
		*hold_end; /* kernels of kernels/cuda/device/pace.cuh */
	struct gpu_stopwatch watch;
	char *memory, *workspace; /* on the device */
	uint64_t *clock;
	char *pinned;
	int64_t memory_bytes, pinned_bytes;
	/* Under load: the clock of the multiprocessors, and the power; 0 = the driver does not say.
	 */
	int clock_mhz, watts;
};

static inline bool gpu_check(
	const struct gpu_bench *gpu, int result, const char *what, struct error *error)
{
	return cuda_check(gpu->api, result, what, error);
}

/* Seconds of one call, which enqueues: the median of samples after one that does not count. */
bool gpu_time(struct gpu_bench *gpu, void (*run)(void *data), void *data, double *seconds,
	struct error *error);
/* One sample: seconds of a call, over `repeats` calls that are all enqueued before the first
 * starts. */
bool gpu_sample(struct gpu_bench *gpu, void (*run)(void *data), void *data, int repeats,
	double *seconds, struct error *error);

/* Elements from one row of logits to the next: rows at odd addresses would be slow to read. */
static inline int64_t gpu_row(int64_t width)
{
	return (width + 63) / 64 * 64;
}

/* The pinned memory gets ordinary values; the GPU's gets what is there. */
void gpu_make_values(struct gpu_bench *gpu);
bool gpu_fill(struct gpu_bench *gpu, struct error *error);

/* products.c: products. */
bool calibrate_gpu_kernels(struct gpu_bench *gpu, struct error *error);
/* Operands one after the other in the memory; false when they do not fit. */
bool gpu_make_gemm(struct gpu_bench *gpu, enum dtype dtype, const struct product_shape *shape,
	enum product_form form, struct kernel_case *c);
/* sustained.c, behind the products. */
bool calibrate_gpu_sustained(struct gpu_bench *gpu, struct error *error);
/* autotune.c: which of several algorithms is fastest. */
enum { AUTOTUNE_DEFAULT = -1 }; /* as it is done where nothing was chosen */
struct autotune {
	struct gpu_bench *gpu;
	void *subject; /* the time function's */
	/* s that an algorithm takes. One that the library refuses, or lacks, is none: `refused`. */
	bool (*time)(const struct autotune *autotune, int algorithm, double *seconds, bool *refused,
		struct error *error);
};
/* Finds the fastest of algorithms 0 to algorithms - 1, by the shortest samples that tell; -1: all
 * were refused. */
bool autotune_fastest(
	const struct autotune *autotune, int algorithms, int *fastest, struct error *error);
/* The time of the default over that of the algorithm. Both are measured in turn, because a GPU's
 * clock falls meanwhile, and the least of each counts. 0: refused. */
bool autotune_gain(
	const struct autotune *autotune, int algorithm, double *gain, struct error *error);
/* Is the gain more than chance? */
bool autotune_is_faster(double gain);
/* choices.c: is there a faster algorithm than the library's first, which takes `first`
 * seconds? If so the calibration has it, and `chosen` is what it takes; else `first`. */
bool calibrate_gpu_choice(struct gpu_bench *gpu, struct kernel_case *c, enum product_form form,
	double first, double *chosen, struct error *error);
/* attention.c: the same of a pass of attention, which `timed` has been made ready
 * for, by cuDNN. Leaves results of its own where the backward writes. */
bool calibrate_gpu_attention(struct gpu_bench *gpu, enum attention_pass pass,
	const struct attention_backward *timed, double first, double *chosen, struct error *error);
/* Are n vectors of bf16, or n sums, as near as rounding explains? `common`: a square that is added
 * to each vector's own. */
bool gpu_attention_agrees(
	const uint16_t *ours, const uint16_t *theirs, int64_t n, int64_t head_dim, double common);
bool gpu_sums_agree(const float *ours, const float *theirs, int64_t n);
/* memory.c: the optimizer. */
bool calibrate_gpu_update(struct gpu_bench *gpu, struct error *error);
/* rates.c: everything else. */
bool calibrate_gpu_rates(struct gpu_bench *gpu, struct error *error);
/* memory.c: memory, PCIe, what launching costs, the gradient norm. */
bool calibrate_gpu_memory(struct gpu_bench *gpu, struct error *error);

#endif
