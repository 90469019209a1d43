/* Measures a GPU's memory, its way to the host's memory, what a launch costs, and the end of a
 * step. */
#include "executor/calibration/gpu/bench.h"
#include "executor/ranks/ranks.h"

#include <math.h>

enum { LAUNCHES = 200 };

/* Adds three arrays of n floats. */
static struct kernel_case adds(struct gpu_bench *g, int64_t n)
{
	float *y = (float *)g->memory;

	return (struct kernel_case){
		.bench = &g->base, .dtype = DTYPE_FP32, .arrays = {y, y + n, y + 2 * n}, .n = n};
}

/* Launches with an event before and behind, as the executor issues an operation. */
static bool issue(struct gpu_bench *g, struct kernel_case *c, struct error *error)
{
	return cuda_check(g->api, g->api->cuEventRecord(g->watch.start, g->watch.stream),
		       "cuEventRecord", error) &&
	       (run_add(c), cuda_check(g->api, g->api->cuEventRecord(g->watch.end, g->watch.stream),
				    "cuEventRecord", error));
}

static bool measure_launches(struct gpu_bench *g, struct error *error)
{
	struct calibration *c = g->base.calibration;
	struct kernel_case small = adds(g, 1);

	if (!gpu_time(g, run_add, &small, &c->kernel_overhead, error))
		return false;
	double start = clock_now();
	for (int i = 0; i < LAUNCHES; i++)
		if (!issue(g, &small, error))
			return false;
	c->host_overhead = (clock_now() - start) / LAUNCHES;
	bench_say(&g->base, "a kernel costs the GPU %.2f us, an operation the host %.2f us",
		1e6 * c->kernel_overhead, 1e6 * c->host_overhead);
	return cuda_check(g->api, g->api->cuEventSynchronize(g->watch.end), "launches", error);
}

static bool measure_stream(struct gpu_bench *g, struct error *error)
{
	struct calibration *c = g->base.calibration;
	struct kernel_case large = adds(g, g->memory_bytes / 3 / (int64_t)sizeof(float) / 64 * 64);
	double seconds;

	if (!gpu_time(g, run_add, &large, &seconds, error))
		return false;
	c->memory_bandwidth = 3.0 * sizeof(float) * (double)large.n /
			      fmax(seconds - c->kernel_overhead, 0.1 * seconds);
	bench_say(&g->base, "memory: %.0f GB/s, of %.0f in the datasheet",
		c->memory_bandwidth / 1e9, g->topology->device.memory_bandwidth / 1e9);
	return true;
}

struct copy_case {
	struct gpu_bench *gpu;
	void *to, *from;
};

static void run_copy(void *data)
{
	struct copy_case *c = data;
	struct gpu_bench *g = c->gpu;

	cuda_check(g->api,
		g->api->cuMemcpyAsync((uint64_t)(uintptr_t)c->to, (uint64_t)(uintptr_t)c->from,
			(size_t)g->pinned_bytes, g->watch.stream),
		"cuMemcpyAsync", &g->base.context.error);
}

static bool measure_host_link(struct gpu_bench *g, struct error *error)
{
	struct copy_case up = {g, g->memory, g->pinned}, down = {g, g->pinned, g->memory};
	double to, from;

	if (!gpu_time(g, run_copy, &up, &to, error) || !gpu_time(g, run_copy, &down, &from, error))
		return false;
	/* Offloaded states go both ways, and a plan can count on the slower one. */
	g->topology->host.pcie_bandwidth = (double)g->pinned_bytes / fmax(to, from);
	bench_say(&g->base,
		"host to GPU: %.2f GB/s, GPU to host: %.2f GB/s (pinned, one way at a time)",
		(double)g->pinned_bytes / to / 1e9, (double)g->pinned_bytes / from / 1e9);
	return true;
}

/* --- the end of a step --- */

struct update_case {
	struct gpu_bench *gpu;
	struct adamw adamw;
};

static void run_adamw(void *data)
{
	struct update_case *c = data;
	struct bench *bench = &c->gpu->base;

	bench->kernels->device->adamw(&bench->context, &c->adamw, NULL, NULL, NULL);
}

/* Reads four arrays and writes three. */
static bool measure_optimizer(struct gpu_bench *g, struct error *error)
{
	int64_t n = g->memory_bytes / 4 / (int64_t)sizeof(float) / 64 * 64;
	float *at = (float *)g->memory;
	struct update_case c = {.gpu = g,
		.adamw = {.n = n,
			.w = at,
			.m = at + n,
			.v = at + 2 * n,
			.g = at + 3 * n,
			.beta1 = 0.9,
			.beta2 = 0.95,
			.epsilon = 1e-8,
			.bias_correction1 = 0.1,
			.bias_correction2 = 0.05,
			.gradient_scale = 1}};
	double seconds;

	if (!gpu_time(g, run_adamw, &c, &seconds, error))
		return false;
	g->base.calibration->optimizer_bandwidth =
		7.0 * sizeof(float) * (double)n /
		fmax(seconds - g->base.calibration->kernel_overhead, 0.1 * seconds);
	bench_say(&g->base, "AdamW: %.0f GB/s", g->base.calibration->optimizer_bandwidth / 1e9);
	return true;
}

static bool measure_gradient_norm(struct gpu_bench *g, struct error *error)
{
	int64_t n = g->memory_bytes / 2 / (int64_t)sizeof(float) / 64 * 64;
	struct kernel_case c = {.bench = &g->base,
		.arrays = {g->memory},
		.n = n,
		.sum = (struct exact_sum *)(g->memory + n * (int64_t)sizeof(float))};
	double seconds;

	if (!cuda_check(g->api,
		    g->api->cuMemsetD8Async(
			    (uint64_t)(uintptr_t)c.sum, 0, sizeof(*c.sum), g->watch.stream),
		    "cuMemsetD8Async", error) ||
		!gpu_time(g, run_sum_squares, &c, &seconds, error))
		return false;
	g->base.calibration->gradient_norm_rate =
		(double)n / fmax(seconds - g->base.calibration->kernel_overhead, 0.1 * seconds);
	bench_say(&g->base, "gradient norm: %.1f G elements/s",
		g->base.calibration->gradient_norm_rate / 1e9);
	return true;
}

bool calibrate_gpu_memory(struct gpu_bench *g, struct error *error)
{
	/* This runs while the memory holds ordinary values: an exact sum costs more where values
	 * lie far apart. */
	return measure_launches(g, error) && measure_gradient_norm(g, error) &&
	       measure_stream(g, error) && measure_host_link(g, error);
}

/* This writes over all of the memory. */
bool calibrate_gpu_update(struct gpu_bench *g, struct error *error)
{
	return measure_optimizer(g, error);
}
