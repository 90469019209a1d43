/* Speed of every CUDA kernel beside what the GPU does at best: a copy for what moves memory, the
 * best of cuBLASLt's candidates for products.
 *
 *     bench_cuda [KERNEL]
 *
 * Exits with 77 where there is no GPU. Time is the GPU's own, by events around repeated calls. */
#include <stdio.h>
#include <string.h>

#include "bench/kernels/cuda_shapes.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/gpu.h"

enum { CANDIDATES = 8, REPEATS = 20 };

static struct gpu gpu;
static struct kernel_context host_context;
static double copied; /* bytes per second, read and written */

static double measure(
	const struct kernel_case *kernel_case, const int64_t *dim, struct problem *problem)
{
	double seconds;

	problem_init(problem, kernel_case, dim, kernels_cpu(), &host_context, 0);
	seconds = gpu_call(&gpu, problem, REPEATS);
	problem_finish(problem);
	return seconds;
}

/* A copy of 1 GiB, half read and half written per byte counted. */
static double copy_rate(void)
{
	const int64_t n = 1 << 28;
	void *from = gpu_allocate(&gpu, NULL, 4 * n), *to = gpu_allocate(&gpu, NULL, 4 * n);
	float milliseconds = 0.0f;

	for (int i = -2; i < REPEATS; i++) {
		if (i == 0)
			gpu.api->cuEventRecord(gpu.start, gpu.kernels.stream);
		gpu.api->cuMemcpyAsync((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from,
			(size_t)(4 * n), gpu.kernels.stream);
	}
	gpu.api->cuEventRecord(gpu.end, gpu.kernels.stream);
	gpu.api->cuEventSynchronize(gpu.end);
	gpu.api->cuEventElapsedTime(&milliseconds, gpu.start, gpu.end);
	gpu_free(&gpu, from);
	gpu_free(&gpu, to);
	return 2.0 * 4.0 * (double)n * REPEATS / (milliseconds * 1e-3);
}

/* What cuBLASLt reaches with the best of what it proposes. */
static double best_candidate(const struct kernel_case *kernel_case, const int64_t *dim)
{
	double best = 1e30;

	for (int i = 0; i < CANDIDATES; i++) {
		struct problem problem;
		double seconds;

		cuda_use_candidate(&gpu.kernels, i);
		seconds = measure(kernel_case, dim, &problem);
		best = seconds < best ? seconds : best;
	}
	cuda_use_candidate(&gpu.kernels, 0);
	return best;
}

static void print_row(const struct kernel_case *kernel_case, const int64_t *dim)
{
	struct problem problem;
	double seconds = measure(kernel_case, dim, &problem);
	bool product = strncmp(kernel_case->name, "gemm", 4) == 0;
	char text[64];

	snprintf(text, sizeof(text), "%lld,%lld,%lld,%lld,%lld", (long long)dim[0],
		(long long)dim[1], (long long)dim[2], (long long)dim[3], (long long)dim[4]);
	printf("%-34s %-24s %10.1f us ", kernel_case->name, text, seconds * 1e6);
	if (problem.flops > 0)
		printf("%8.1f TFLOP/s", problem.flops / seconds * 1e-12);
	else
		printf("%8.1f GB/s    %5.1f %% of a copy", problem.bytes / seconds * 1e-9,
			100.0 * problem.bytes / seconds / copied);
	if (product)
		printf("  %5.1f %% of cuBLASLt's best",
			100.0 * best_candidate(kernel_case, dim) / seconds);
	printf("\n");
	fflush(stdout);
}

static void print_case(const struct kernel_case *kernel_case)
{
	const struct bench_shapes *more = cuda_shapes;

	if (!gpu_can_call(kernel_case) || kernel_case->bench[0] == 0)
		return;
	while (more->prefix && strncmp(kernel_case->name, more->prefix, strlen(more->prefix)) != 0)
		more++;
	if (!more->prefix)
		print_row(kernel_case, kernel_case->bench);
	for (int i = 0; more->prefix && more->shapes[i][0] >= 0; i++)
		print_row(kernel_case, more->shapes[i]);
}

int main(int argc, char **argv)
{
	struct error error = {0};

	if (!gpu_open(&gpu, &error)) {
		printf("skipped: %s\n", error.message);
		return 77;
	}
	context_init(&host_context, kernels_cpu());
	copied = copy_rate();
	printf("# %s, copy %.0f GB/s\n", gpu.name, copied * 1e-9);
	for (int list = 0; case_lists[list]; list++)
		for (int i = 0; case_lists[list][i].name; i++)
			if (argc < 2 ||
				strncmp(case_lists[list][i].name, argv[1], strlen(argv[1])) == 0)
				print_case(&case_lists[list][i]);
	if (gpu.kernels.error.message[0] != '\0')
		printf("%s\n", gpu.kernels.error.message);
	context_finish(&host_context, kernels_cpu());
	gpu_close(&gpu);
	return gpu.kernels.error.message[0] != '\0';
}
