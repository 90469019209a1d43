/* The CUDA table on a GPU: every case against the reference, and the same bits again. Skipped (77)
 * where there is no GPU.
 *
 *     test_cuda_parity          the GPU
 *     test_cuda_parity on-cpu   the machine of cuda_on_cpu and some shapes, to try this very
 * program */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/cuda_on_cpu/api.h"
#include "tests/kernels/fake_cudnn.h"
#include "tests/kernels/gpu.h"
#include "tests/kernels/reference/reference.h"

static struct gpu gpu;
static struct kernel_context reference_context;
static int failures, compared, by_cudnn;

/* The tensor cores round sums otherwise than fp32 additions do, and the GPU's exp is its own. */
static double allowed(const struct kernel_case *kernel_case)
{
	if (strcmp(kernel_case->name, "attention_backward bf16") == 0)
		return 4.0;
	return strncmp(kernel_case->name, "gelu", 4) == 0 ? 2.0 : 1.0;
}

static void compare(
	const struct kernel_case *kernel_case, const int64_t *dim, int64_t offset, double allowance)
{
	struct problem once, again, reference;
	char where[WHERE];
	double distance;

	problem_init(&once, kernel_case, dim, kernels_reference(), &reference_context, offset);
	problem_init(&again, kernel_case, dim, kernels_reference(), &reference_context, offset);
	problem_init(&reference, kernel_case, dim, kernels_reference(), &reference_context, offset);
	gpu_call(&gpu, &once);
	gpu_call(&gpu, &again);
	kernel_case->call(&reference);
	distance = problem_distance(&once, &reference, where);
	if (!(distance <= allowance) || !problem_same_bits(&once, &again)) {
		failures++;
		printf("%s %lld,%lld,%lld,%lld,%lld,%lld + %lld: %.3g times the tolerance, %s%s\n",
			kernel_case->name, (long long)dim[0], (long long)dim[1], (long long)dim[2],
			(long long)dim[3], (long long)dim[4], (long long)dim[5], (long long)offset,
			distance, where,
			problem_same_bits(&once, &again) ? "" : "; not the same bits again");
	}
	compared++;
	problem_finish(&once);
	problem_finish(&again);
	problem_finish(&reference);
}

/* Its sums are its own: a log-sum-exp may be 3e-5 off. */
#define CUDNN_ALLOWED 16.0

/* Compares the same by each engine that cuDNN proposes, where it is installed and takes the
 * shape. */
static void compare_cudnn(
	const struct kernel_case *kernel_case, enum attention_pass pass, const int64_t *dim)
{
	enum { ALGORITHMS = 4 };
	struct attention_algorithm algorithms[ALGORITHMS];
	int64_t bytes[ALGORITHMS];
	struct problem shape;

	problem_init(&shape, kernel_case, dim, kernels_reference(), &reference_context, 0);
	const struct attention_backward b = problem_attention_backward(&shape);
	int64_t heads = b.forward.sequences * b.forward.heads;
	int n = cuda_attention_algorithms(&gpu.kernels, pass, &b, algorithms, bytes, ALGORITHMS);
	for (int i = 0; i < n; i++) {
		struct attention_choice choice = {.head_dim = b.forward.head_dim,
			.length = b.forward.length,
			.pass = pass,
			.algorithm = algorithms[i],
			.head_bytes = bytes[i] / heads + 1024,
			.shared_bytes = bytes[i] / heads + 1024};

		cuda_choose_attention(&gpu.kernels, &choice, 1);
		compare(kernel_case, dim, 0, CUDNN_ALLOWED);
		cuda_choose_attention(&gpu.kernels, NULL, 0);
		by_cudnn += choice.taken;
	}
	problem_finish(&shape);
}

static void compare_case(const struct kernel_case *kernel_case, bool all)
{
	if (!gpu_can_call(kernel_case))
		return;
	for (int s = 0; kernel_case->shapes[s][0] >= 0 && (all || s < 3); s++) {
		compare(kernel_case, kernel_case->shapes[s], 0, allowed(kernel_case));
		compare(kernel_case, kernel_case->shapes[s], 1, allowed(kernel_case));
	}
	for (int s = 0; kernel_case->shapes[s][0] >= 0; s++) {
		if (strcmp(kernel_case->name, "attention bf16") == 0)
			compare_cudnn(kernel_case, ATTENTION_FORWARD, kernel_case->shapes[s]);
		if (strcmp(kernel_case->name, "attention_backward bf16") == 0)
			compare_cudnn(kernel_case, ATTENTION_BACKWARD, kernel_case->shapes[s]);
	}
}

/* Exact sums live on the device, and are compared limb by limb. */
static void compare_sums(void)
{
	enum { N = 100003 };
	static float x[N];
	struct exact_sum expected = {0}, got = {0};
	struct exact_sum *sum = gpu_allocate(&gpu, &got, sizeof(got));
	float *on_device;

	for (int i = 0; i < N; i++)
		x[i] = ldexpf((float)(i % 8191 - 4095), i % 60 - 30);
	on_device = gpu_allocate(&gpu, x, sizeof(x));
	kernels_cuda()->sum_squares(&gpu.kernels, sum, on_device, N);
	kernels_cuda()->sum(&gpu.kernels, sum, on_device, N);
	gpu_read(&gpu, &got, sum, sizeof(got));
	exact_sum_add_squares(&expected, x, N);
	exact_sum_add_floats(&expected, x, N);
	exact_sum_normalise(&expected);
	if (memcmp(&got, &expected, sizeof(got)) != 0) {
		failures++;
		printf("exact sum: %.17g, expected %.17g\n", exact_sum_value(&got),
			exact_sum_value(&expected));
	}
	gpu_free(&gpu, on_device);
	gpu_free(&gpu, sum);
}

int main(int argc, char **argv)
{
	struct error error = {0};
	bool on_cpu = argc > 1 && strcmp(argv[1], "on-cpu") == 0;

	if (on_cpu) {
		cuda_api_use(&cuda_on_cpu);
		fake_cudnn.version = CUDNN_LEAST_VERSION;
	}
	if (!gpu_open(&gpu, &error)) {
		printf("skipped: %s\n", error.message);
		return 77;
	}
	context_init(&reference_context, kernels_reference());
	for (int list = 0; case_lists[list]; list++)
		for (int i = 0; case_lists[list][i].name; i++)
			compare_case(&case_lists[list][i], !on_cpu);
	compare_sums();
	if (gpu.kernels.error.message[0] != '\0') {
		failures++;
		printf("%s\n", gpu.kernels.error.message);
	}
	printf("%s: %d shapes compared, %d failed; %d by cuDNN %lld\n", gpu.name, compared,
		failures, by_cudnn, (long long)cuda_attention_version(&gpu.kernels));
	context_finish(&reference_context, kernels_reference());
	gpu_close(&gpu);
	return failures != 0;
}
