/* Says how fast this machine is just now: the seconds of a product that is always the same. */
#include <stdlib.h>

#include "executor/calibration/calibration.h"
#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"

/* As in a step there are a few tokens, and weights that no cache holds, one matrix after
 * another. */
enum { TOKENS = 128, WIDTH = 1024, MATRICES = 12, LEAST = 5, MOST = 200 };
#define BUDGET 0.15 /* seconds */

static double time_product(const struct kernels *kernels, struct kernel_context *context,
	float *inputs, const float *weights, float *outputs)
{
	const struct gemm product = {.m = TOKENS,
		.n = WIDTH,
		.k = WIDTH,
		.a = inputs,
		.b = weights,
		.c = outputs,
		.lda = WIDTH,
		.ldb = WIDTH,
		.ldc = WIDTH,
		.transpose_b = true,
		.dtype = DTYPE_FP32,
		.c_dtype = DTYPE_FP32};
	double start = clock_now();

	kernels->gemm(context, &product);
	return clock_now() - start;
}

static double median_product(const struct kernels *kernels, struct kernel_context *context)
{
	const int64_t matrix = (int64_t)WIDTH * WIDTH, tokens = (int64_t)TOKENS * WIDTH;
	float *inputs = bench_floats(tokens), *outputs = bench_floats(tokens);
	float *weights = bench_floats(MATRICES * matrix);
	double times[MOST], end = 0;
	int n = 0;

	for (int i = 0; n < LEAST || (n < MOST && clock_now() < end); i++) {
		double seconds = time_product(
			kernels, context, inputs, weights + i % MATRICES * matrix, outputs);

		/* The first round over all of them does not count. */
		if (i == MATRICES)
			end = clock_now() + BUDGET;
		if (i >= MATRICES)
			times[n++] = seconds;
	}
	free(inputs);
	free(outputs);
	free(weights);
	return measure_spread(times, n).p50;
}

double calibrate_yardstick(void)
{
	const struct kernels *kernels = kernels_cpu();
	struct kernel_context context = {.threads = (int)machine_cpus(),
		.workspace = workspace_reserve(),
		.workspace_bytes = KERNELS_WORKSPACE_BYTES};
	struct error error = {0};
	double seconds = 0;

	if (context.workspace == NULL)
		return 0;
	if (kernels->open(&context, &error)) {
		seconds = median_product(kernels, &context);
		kernels->close(&context);
	}
	workspace_release(context.workspace);
	return seconds;
}
