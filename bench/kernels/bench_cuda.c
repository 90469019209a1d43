/* Speed of every CUDA kernel beside what the GPU does at best: a copy for what moves memory, the
 * best of cuBLASLt's candidates for products, cuDNN's engines for attention's forward in bf16 (best
 * of the three that it proposes first; training uses them where a calibration chose so).
 *
 *     bench_cuda [--fp32] [--launches] [KERNEL ...]
 *                                          kernels whose names begin so; all without
 *     bench_cuda on-cpu [KERNEL ...]       small shapes on the machine of the tests: tries this
 *                                          program, measures nothing
 *
 * bf16 comes first. Products and attention in fp32 are slow and few train with them: on request. A
 * product stands with the workspace that training gives it, and the best candidate with twice as
 * much beside it. --launches says what each launch of a call costs. Exits with 77 where there is no
 * GPU. Time is the GPU's own, by events. */
#include <stdio.h>
#include <string.h>

#include "bench/kernels/cuda_shapes.h"
#include "bench/kernels/launches.h"
#include "bench/kernels/tally.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda_on_cpu/api.h"
#include "tests/kernels/fake_cudnn.h"
#include "tests/kernels/gpu.h"

enum { CANDIDATES = 8, COPIES = 20, MORE_WORKSPACE = 2 * KERNELS_WORKSPACE_BYTES, ROW = 96 };
enum { MOST_WORKSPACE = 1216 << 20 }; /* for the backward of attention */

static struct gpu gpu;
static double copied; /* bytes per second, read and written */
static bool on_cpu, fp32, launches;
static int failures; /* rows without a figure */
static struct tally memory_bound = {"memory-bound kernels", "of a copy", 85.0};
static struct tally products = {"products", "of cuBLASLt's best candidate", 90.0};
static struct tally workspace = {"products", "of the best with twice the workspace", 98.0};

/* A copy of 1 GiB, half read and half written per byte counted. */
static double copy_rate(void)
{
	const int64_t n = on_cpu ? 1 << 10 : 1 << 28;
	void *from = gpu_allocate(&gpu, NULL, 4 * n), *to = gpu_allocate(&gpu, NULL, 4 * n);
	float milliseconds = 0.0f;

	for (int i = -2; i < COPIES; i++) {
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
	return 2.0 * 4.0 * (double)n * COPIES / (milliseconds * 1e-3);
}

/* Has a call failed since the last time? The error is cleared, because otherwise all later calls
 * would be skipped. */
static bool failed(struct error *error)
{
	*error = gpu.kernels.error;
	gpu.kernels.error = (struct error){0};
	return error->message[0] != '\0';
}

/* The time in s of the best candidate that cuBLASLt proposes for a workspace of `bytes`, and its
 * index. Candidates that it then refuses do not count. */
static double best_candidate(struct problem *problem, int64_t bytes, int *which)
{
	struct error ignored;
	double best = 1e30;

	gpu.kernels.workspace_bytes = bytes;
	for (int i = 0; i < CANDIDATES; i++) {
		double seconds;

		cuda_use_candidate(&gpu.kernels, i);
		seconds = gpu_seconds(&gpu, problem);
		if (failed(&ignored) || seconds >= best)
			continue;
		*which = i;
		best = seconds;
	}
	gpu.kernels.workspace_bytes = KERNELS_WORKSPACE_BYTES;
	cuda_use_candidate(&gpu.kernels, 0);
	return best;
}

static void print_product(struct problem *problem, double seconds, const char *row)
{
	int which = 0, with_more = 0;
	double best = best_candidate(problem, KERNELS_WORKSPACE_BYTES, &which);
	double more = best_candidate(problem, MORE_WORKSPACE, &with_more);

	/* The product in use is one of the candidates, so it was measured twice. */
	best = seconds < best ? seconds : best;
	printf(" %5.1f %% of the best, candidate %d; %d MiB: %7.1f TFLOP/s, candidate %d",
		100.0 * best / seconds, which, MORE_WORKSPACE >> 20, problem->flops / more * 1e-12,
		with_more);
	tally_add(&products, row, 100.0 * best / seconds);
	tally_add(&workspace, row, 100.0 * more / best);
}

/* The time in s by that engine; 1e30: it is refused, or it needs more workspace than a plan would
 * reserve for all attention together. */
static double by_engine(struct problem *problem, enum attention_pass pass,
	const struct attention_backward *b, const struct attention_algorithm *algorithm,
	int64_t bytes)
{
	int64_t heads = b->forward.sequences * b->forward.heads;
	struct attention_choice choice = {.head_dim = b->forward.head_dim,
		.length = b->forward.length,
		.pass = pass,
		.algorithm = *algorithm,
		.head_bytes = bytes / heads + 1024,
		.shared_bytes = bytes / heads + 1024};
	void *const usual = gpu.kernels.workspace;
	const int64_t usual_bytes = gpu.kernels.workspace_bytes;
	struct error ignored;

	if (bytes > MOST_WORKSPACE)
		return 1e30;
	if (pass == ATTENTION_BACKWARD) {
		gpu.kernels.workspace_bytes = heads * choice.head_bytes;
		gpu.kernels.workspace = gpu_allocate(&gpu, NULL, gpu.kernels.workspace_bytes);
	}
	cuda_choose_attention(&gpu.kernels, &choice, 1);
	double seconds = gpu_seconds(&gpu, problem);
	cuda_choose_attention(&gpu.kernels, NULL, 0);
	if (pass == ATTENTION_BACKWARD)
		gpu_free(&gpu, gpu.kernels.workspace);
	gpu.kernels.workspace = usual;
	gpu.kernels.workspace_bytes = usual_bytes;
	return failed(&ignored) || !choice.taken ? 1e30 : seconds;
}

/* Prints the time of cuDNN for the same rows and lengths beside ours; nothing if there is no
 * engine. */
static void print_attention(struct problem *problem, enum attention_pass pass, double seconds)
{
	enum { ALGORITHMS = 3 };
	const struct attention_backward b = problem_attention_backward(problem);
	struct attention_algorithm algorithms[ALGORITHMS];
	int64_t bytes[ALGORITHMS];
	int n = cuda_attention_algorithms(&gpu.kernels, pass, &b, algorithms, bytes, ALGORITHMS);
	double best = 1e30;
	int engine = -1;

	for (int i = 0; i < n; i++) {
		double by_this = by_engine(problem, pass, &b, &algorithms[i], bytes[i]);

		if (by_this >= best)
			continue;
		best = by_this;
		engine = algorithms[i].engine;
	}
	if (engine >= 0)
		printf(" cuDNN %lld: %8.1f TFLOP/s, %5.1f %% of ours, engine %d",
			(long long)cuda_attention_version(&gpu.kernels),
			problem->flops / best * 1e-12, 100.0 * seconds / best, engine);
}

static void print_row(const struct kernel_case *kernel_case, const int64_t *dim)
{
	struct problem problem;
	struct error error;
	double seconds, percent;
	char shape[64], row[ROW];

	gpu_problem_init(&gpu, &problem, kernel_case, dim);
	seconds = gpu_seconds(&gpu, &problem);
	snprintf(shape, sizeof(shape), "%lld,%lld,%lld,%lld,%lld,%lld", (long long)dim[0],
		(long long)dim[1], (long long)dim[2], (long long)dim[3], (long long)dim[4],
		(long long)dim[5]);
	snprintf(row, sizeof(row), "%s %s", kernel_case->name, shape);
	printf("%-34s %-27s %10.1f us ", kernel_case->name, shape, seconds * 1e6);
	if (failed(&error)) {
		failures++;
		printf("failed: %s", error.message);
	} else if (problem.flops > 0) {
		printf("%8.1f TFLOP/s", problem.flops / seconds * 1e-12);
	} else {
		percent = 100.0 * problem.bytes / seconds / copied;
		printf("%8.1f GB/s    %5.1f %% of a copy", problem.bytes / seconds * 1e-9, percent);
		tally_add(&memory_bound, row, percent);
	}
	if (error.message[0] == '\0' && strncmp(kernel_case->name, "gemm", 4) == 0)
		print_product(&problem, seconds, row);
	if (error.message[0] == '\0' && strcmp(kernel_case->name, "attention bf16") == 0)
		print_attention(&problem, ATTENTION_FORWARD, seconds);
	if (error.message[0] == '\0' && strcmp(kernel_case->name, "attention_backward bf16") == 0)
		print_attention(&problem, ATTENTION_BACKWARD, seconds);
	printf("\n");
	if (launches && error.message[0] == '\0')
		launches_print(&gpu, &problem);
	fflush(stdout);
	gpu_problem_finish(&gpu, &problem);
}

static void print_case(const struct kernel_case *kernel_case)
{
	const struct bench_shapes *more = cuda_shapes;

	if (!gpu_can_call(kernel_case) || kernel_case->bench[0] == 0)
		return;
	if (on_cpu) {
		/* cuDNN takes heads of 8. */
		bool attention = strncmp(kernel_case->name, "attention", 9) == 0;

		print_row(kernel_case, kernel_case->shapes[attention ? 4 : 2]);
		return;
	}
	while (strncmp(kernel_case->name, more->prefix, strlen(more->prefix)) != 0)
		more++;
	for (int i = 0; more->shapes[i][0] >= 0; i++)
		print_row(kernel_case, more->shapes[i]);
}

static bool begins_with_any(const char *name, int n, char **prefixes)
{
	for (int i = 0; i < n; i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return n == 0;
}

static bool slow(const struct kernel_case *kernel_case)
{
	return kernel_case->dtype == DTYPE_FP32 &&
	       (strncmp(kernel_case->name, "gemm", 4) == 0 ||
		       strncmp(kernel_case->name, "attention", 9) == 0);
}

static void print_cases(enum dtype dtype, bool slow_ones, int n, char **prefixes)
{
	for (int list = 0; case_lists[list]; list++) {
		for (int i = 0; case_lists[list][i].name; i++) {
			const struct kernel_case *kernel_case = &case_lists[list][i];

			if (kernel_case->dtype == dtype && slow(kernel_case) == slow_ones &&
				begins_with_any(kernel_case->name, n, prefixes))
				print_case(kernel_case);
		}
	}
}

static bool start(struct error *error)
{
	if (on_cpu) {
		cuda_api_use(&cuda_on_cpu);
		fake_cudnn.version = CUDNN_LEAST_VERSION;
	}
	if (launches && !launches_watch(error))
		return false;
	if (!gpu_open(&gpu, error))
		return false;
	gpu_free(&gpu, gpu.kernels.workspace);
	gpu.kernels.workspace = gpu_allocate(&gpu, NULL, MORE_WORKSPACE);
	copied = copy_rate();
	printf("# %s, copy %.0f GB/s\n", gpu.name, copied * 1e-9);
	return true;
}

int main(int argc, char **argv)
{
	struct error error = {0};
	int first = 1;

	for (; first < argc; first++) {
		if (strcmp(argv[first], "on-cpu") == 0)
			on_cpu = true;
		else if (strcmp(argv[first], "--fp32") == 0)
			fp32 = true;
		else if (strcmp(argv[first], "--launches") == 0)
			launches = true;
		else
			break;
	}
	if (!start(&error)) {
		printf("skipped: %s\n", error.message);
		return 77;
	}
	print_cases(DTYPE_BF16, false, argc - first, argv + first);
	print_cases(DTYPE_FP32, false, argc - first, argv + first);
	if (fp32)
		print_cases(DTYPE_FP32, true, argc - first, argv + first);
	tally_print(&memory_bound);
	tally_print(&products);
	tally_print(&workspace);
	if (failures > 0)
		printf("# %d rows failed\n", failures);
	gpu_close(&gpu);
	return failures > 0;
}
