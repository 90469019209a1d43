/* The CUDA table on the machine of cuda_on_cpu: every case against the reference, at every
 * alignment, with threads and blocks in two orders. What a GPU does differently (its own exp, the
 * rounding inside a tensor core) is for the same cases on a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/bf16.h"
#include "kernels/cuda/backend.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda_on_cpu/api.h"
#include "tests/kernels/cuda_on_cpu/machine.h"
#include "tests/kernels/problem.h"
#include "tests/kernels/reference/reference.h"
#include "tests/sampled.h"

static struct kernel_context context, reference_context;
static int failures;

static void report(const struct kernel_case *kernel_case, const int64_t *dim, double distance,
	const char *where)
{
	failures++;
	print_error("%s %lld,%lld,%lld,%lld,%lld,%lld: %.3g times the tolerance, %s\n",
		kernel_case->name, (long long)dim[0], (long long)dim[1], (long long)dim[2],
		(long long)dim[3], (long long)dim[4], (long long)dim[5], distance, where);
}

typedef void shape_check(const struct kernel_case *kernel_case, const int64_t *dim);

static void for_each_shape(shape_check *check)
{
	failures = 0;
	for (int list = 0; case_lists[list]; list++)
		for (int i = 0; case_lists[list][i].name; i++)
			for (int s = 0; case_lists[list][i].shapes[s][0] >= 0; s++)
				check(&case_lists[list][i], case_lists[list][i].shapes[s]);
	assert_string_equal(context.error.message, "");
	assert_int_equal(failures, 0);
}

/* Weights of bf16 attention are rounded to bf16 on their way into the second product, as in every
 * flash attention; its gradients keep a little less than the tables of the CPU. */
static double allowed(const struct kernel_case *kernel_case)
{
	return strcmp(kernel_case->name, "attention_backward bf16") == 0 ? 4.0 : 1.0;
}

/* What other calls left in the workspace is NaN. */
enum { SPOILED_BYTES = 1 << 18 };

static void run(struct problem *problem, const struct kernel_case *kernel_case, const int64_t *dim,
	int64_t offset)
{
	problem_init(problem, kernel_case, dim, kernels_cuda(), &context, offset);
	memset(context.workspace, 0xff, SPOILED_BYTES);
	kernel_case->call(problem);
}

static void check_distance(struct problem *candidate, const struct kernel_case *kernel_case,
	const int64_t *dim, int64_t offset)
{
	struct problem reference;
	char where[WHERE];
	double distance;

	problem_init(&reference, kernel_case, dim, kernels_reference(), &reference_context, offset);
	kernel_case->call(&reference);
	distance = problem_distance(candidate, &reference, where);
	if (!(distance <= allowed(kernel_case)))
		report(kernel_case, dim, distance, where);
	problem_finish(&reference);
}

/* The argument `all` sets this; else every second case is looked at in another order, or with
 * Hopper's kernels. */
static bool thorough;

static bool is_even(const int64_t *dim)
{
	return (dim[0] + dim[1] + dim[2] + dim[3]) % 2 == 0;
}

/* A kernel with a race has other bits when threads and blocks come in the other order. */
static void check_other_order(
	const struct problem *first, const struct kernel_case *kernel_case, const int64_t *dim)
{
	struct problem second;

	if (SAMPLED_EACH > 1 || !(is_even(dim) || thorough))
		return; /* under sanitizers: the same addresses in another order */
	cuda_backwards = true;
	run(&second, kernel_case, dim, 0);
	cuda_backwards = false;
	if (!problem_same_bits(first, &second))
		report(kernel_case, dim, INFINITY, "bits depend on the order of threads");
	problem_finish(&second);
}

/* Off 16 bytes, attention takes the plain kernels; all others promise the same bits. */
static void check_off_alignment(
	const struct problem *first, const struct kernel_case *kernel_case, const int64_t *dim)
{
	bool is_attention = strncmp(kernel_case->name, "attention", 9) == 0;
	int64_t offset = is_attention ? 1 : 3;
	struct problem second;

	if ((is_attention && dim[1] >= 100) || (SAMPLED_EACH > 1 && is_even(dim)))
		return;
	run(&second, kernel_case, dim, offset);
	if (is_attention)
		check_distance(&second, kernel_case, dim, offset);
	else if (!problem_same_bits(first, &second))
		report(kernel_case, dim, INFINITY, "bits depend on the alignment");
	problem_finish(&second);
}

static void check_shape(const struct kernel_case *kernel_case, const int64_t *dim, bool off_too)
{
	struct problem first;

	run(&first, kernel_case, dim, 0);
	check_distance(&first, kernel_case, dim, 0);
	check_other_order(&first, kernel_case, dim);
	if (off_too)
		check_off_alignment(&first, kernel_case, dim);
	problem_finish(&first);
}

static void on_and_off_alignment(const struct kernel_case *kernel_case, const int64_t *dim)
{
	check_shape(kernel_case, dim, true);
}

static void test_every_shape(void **state)
{
	(void)state;
	for_each_shape(on_and_off_alignment);
}

/* Attention in bf16 with full heads on the tensor cores, several tiles, groups of heads, rows that
 * lie apart. */
static void check_attention_bf16(bool with_hopper)
{
	static const int64_t shapes[][MOST_DIMS] = {{1, 150, 4, 2, 64, 8}, {2, 65, 2, 1, 128, 0},
		{1, 130, 2, 2, 128, 16}, {1, 300, 2, 1, 72, 0}, {2, 257, 1, 1, 64, 0}};

	for (int i = 0; matrix_cases[i].name; i++) {
		if (matrix_cases[i].dtype != DTYPE_BF16 ||
			strncmp(matrix_cases[i].name, "attention", 9) != 0)
			continue;
		for (int s = 0; s < (int)(sizeof(shapes) / sizeof(shapes[0])); s++)
			if (thorough || s % 2 == with_hopper)
				check_shape(&matrix_cases[i], shapes[s], false);
		/* with Hopper's kernels every shape has been checked before */
		for (int s = 0;
			!with_hopper && SAMPLED_EACH == 1 && matrix_cases[i].shapes[s][0] >= 0; s++)
			check_shape(&matrix_cases[i], matrix_cases[i].shapes[s], false);
	}
}

/* Hopper's kernels, and those that an image without them has. */
static void test_attention_of_generations(void **state)
{
	void **kernels = cuda_backend(&context)->kernels;
	void *hopper[CUDA_KERNEL_COUNT];

	(void)state;
	failures = 0;
	memcpy(hopper, kernels, sizeof(hopper));
	for (int with_hopper = 1; with_hopper >= 0; with_hopper--) {
		int64_t before = cuda_calls.hopper_launches;

		check_attention_bf16(with_hopper);
		assert_int_equal(cuda_calls.hopper_launches > before, with_hopper);
#define X(name, launch, threads) kernels[CUDA_##name] = NULL;
		CUDA_HOPPER_KERNELS(X)
#undef X
	}
	memcpy(kernels, hopper, sizeof(hopper));
	assert_int_equal(failures, 0);
}

/* A workspace that holds delta of some sequences or heads only changes no bit. */
static void test_small_workspace_of_attention(void **state)
{
	static const int64_t shape[MOST_DIMS] = {3, 40, 4, 2, 64, 0};
	static const int64_t bytes[] = {40 * 2 * 4, 40 * 4 * 4 * 2};
	const struct kernel_case *kernel_case = matrix_cases;
	struct problem whole, parts;

	(void)state;
	while (strcmp(kernel_case->name, "attention_backward bf16") != 0)
		kernel_case++;
	run(&whole, kernel_case, shape, 0);
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		int64_t before = cuda_calls.launches;

		context.workspace_bytes = bytes[i];
		run(&parts, kernel_case, shape, 0);
		context.workspace_bytes = KERNELS_WORKSPACE_BYTES;
		assert_int_equal(cuda_calls.launches - before, i == 0 ? 18 : 6);
		assert_true(problem_same_bits(&whole, &parts));
		problem_finish(&parts);
	}
	problem_finish(&whole);
}

/* The judge is judged: a kernel that reads shared memory too early must be seen. */
static void racing_kernel(const void *arguments)
{
	float *out = *(float *const *)arguments, *shared = (float *)cuda_shared;

	shared[cuda_thread->index.x] = (float)cuda_thread->index.x;
	out[cuda_thread->index.x] = shared[(cuda_thread->index.x + 1) % 64];
}

static void test_races_are_seen(void **state)
{
	float forward[64], backward[64], *out = forward;

	(void)state;
	cuda_run(racing_kernel, &out, (struct cuda_index){1, 1, 1}, (struct cuda_index){64, 1, 1},
		64 * sizeof(float));
	out = backward;
	cuda_backwards = true;
	cuda_run(racing_kernel, &out, (struct cuda_index){1, 1, 1}, (struct cuda_index){64, 1, 1},
		64 * sizeof(float));
	cuda_backwards = false;
	assert_true(isnan(forward[0]) && !isnan(forward[63]));
	assert_memory_not_equal(forward, backward, sizeof(forward));
}

/* --- what the table has beyond struct kernels --- */

static void test_pack(void **state)
{
	float flat[40], back[3][16], tensors[3][16];
	struct pack_segment segments[3] = {
		{tensors[0], 0, 7}, {tensors[1], 8, 16}, {tensors[2], 24, 16}};

	(void)state;
	for (int i = 0; i < 48; i++)
		(&tensors[0][0])[i] = (float)i;
	memset(flat, 0, sizeof(flat));
	memset(back, 0, sizeof(back));
	cuda_device_pack(&context, DTYPE_FP32, flat, segments, 3, false);
	assert_true(flat[6] == 6.0f && flat[7] == 0.0f && flat[8] == 16.0f && flat[39] == 47.0f);
	for (int i = 0; i < 3; i++)
		segments[i].tensor = back[i];
	cuda_device_pack(&context, DTYPE_FP32, flat, segments, 3, true);
	assert_memory_equal(back[0], tensors[0], 7 * sizeof(float));
	assert_true(back[0][7] == 0.0f);
	assert_memory_equal(back[1], tensors[1], 2 * sizeof(tensors[1]));
}

/* Norms above, below and at the limit; sums of numbers that only an exact sum keeps. */
static void test_clip_scale(void **state)
{
	static const float rows[][4] = {{3.0f, 4.0f, 0.0f, 0.0f}, {0x1p-60f, 0x1p60f, 1.0f, 0.0f},
		{0x1p-149f, 0.0f, 0.0f, 0.0f}, {1.5e19f, 1.5e19f, 2e38f, 1e-20f},
		{1.0f, 0x1p-27f, 0x1p-27f, 0.0f}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct exact_sum sum = {0}, expected = {0};
		double norm, exact, factor;
		float scale;

		cuda_sum_squares(&context, &sum, rows[i], 4);
		exact_sum_add_squares(&expected, rows[i], 4);
		exact_sum_normalise(&expected);
		assert_memory_equal(&sum, &expected, sizeof(sum));
		cuda_device_clip_scale(&context, &sum, 2.5, &norm, &scale);
		exact = sqrt(exact_sum_value(&expected));
		factor = 2.5 / (exact + 1e-6);
		assert_true(norm == exact);
		assert_true(scale == (factor < 1.0 ? (float)factor : 1.0f));
	}
}

static void test_sum_of_not_a_number(void **state)
{
	const float x[3] = {1.0f, NAN, 2.0f}, y[2] = {INFINITY, 1.0f};
	struct exact_sum sum = {0};
	double norm;
	float scale;

	(void)state;
	cuda_sum_squares(&context, &sum, x, 3);
	cuda_device_clip_scale(&context, &sum, 1.0, &norm, &scale);
	assert_true(isnan(norm) && isnan(scale) && isnan(exact_sum_value(&sum)));
	memset(&sum, 0, sizeof(sum));
	cuda_sum_squares(&context, &sum, y, 2);
	cuda_device_clip_scale(&context, &sum, 1.0, &norm, &scale);
	assert_true(isinf(norm) && scale == 0.0f);
}

static void test_adamw_of_device_scale(void **state)
{
	float w[2][5], m[2][5], v[2][5], g[5], scale = 0.25f;
	uint16_t copy[5];
	struct adamw_factors now;
	struct adamw a = third_adamw(5);

	(void)state;
	for (int i = 0; i < 5; i++) {
		w[0][i] = w[1][i] = g[i] = (float)(i - 2);
		m[0][i] = m[1][i] = v[0][i] = v[1][i] = 0.5f;
	}
	a.w = w[0], a.m = m[0], a.v = v[0], a.g = g;
	a.gradient_scale = scale;
	kernels_reference()->adamw(&reference_context, &a);
	a.w = w[1], a.m = m[1], a.v = v[1];
	a.gradient_scale = 77.0f;
	now = adamw_factors(&a);
	a.lr = a.bias_correction1 = a.bias_correction2 = 3;
	cuda_device_adamw(&context, &a, copy, &now, &scale);
	assert_memory_equal(w[0], w[1], sizeof(w[0]));
	assert_memory_equal(v[0], v[1], sizeof(v[0]));
	for (int i = 0; i < 5; i++)
		assert_int_equal(copy[i], bf16_from_float(w[1][i]));
}

static void test_sgd_of_device_factors(void **state)
{
	const struct sgd_factors now = {.rate = 0.125f, .decay = 0.5f};
	const float g[5] = {1, 2, 3, 4, 5}, scale = 0.25f;
	float w[2][5];

	(void)state;
	for (int i = 0; i < 5; i++)
		w[0][i] = w[1][i] = (float)(2 - i);
	kernels_reference()->sgd(&reference_context, &(struct sgd){.n = 5,
							     .w = w[0],
							     .g = g,
							     .lr = now.rate,
							     .weight_decay = now.decay,
							     .gradient_scale = scale});
	kernels_cuda()->device->sgd(
		&context, &(struct sgd){.n = 5, .w = w[1], .g = g}, &now, &scale);
	assert_memory_equal(w[0], w[1], sizeof(w[0]));
}

/* Bits of the reference, from odd and even elements on, aligned and not, to the tail; the step's
 * part of the random stream may come from the device. One pack has a NaN, one has infinities. */
static void test_stochastic_rounding(void **state)
{
	enum { N = 43 };
	static const int64_t firsts[] = {0, 1, 6, ((int64_t)1 << 33) - 5};
	uint16_t states[2][3][N + 1], copy[N];
	struct adamw_factors now;
	float g[N];

	(void)state;
	for (int round = 0; round < 4 * 2 * 2; round++) {
		int off = round / 4 % 2;
		struct adamw a = third_adamw(N);

		a.g = g;
		a.dtype = DTYPE_BF16;
		a.rounding = (struct rounding){{1, 2}, {3, 4}, firsts[round % 4]};
		for (int i = 0; i < N; i++)
			g[i] = i == 5 ? NAN : 0.3f * sinf((float)(5 * i));
		for (int i = 0; i < 3 * (N + 1); i++)
			states[0][i % 3][i / 3] = states[1][i % 3][i / 3] =
				bf16_from_float(0.01f * fabsf(cosf((float)i)));
		states[0][0][17] = states[1][0][17] = bf16_from_float(INFINITY);
		states[0][0][18] = states[1][0][18] = bf16_from_float(-INFINITY);
		for (int table = 0; table < 2; table++) {
			a.w = states[table][0] + off;
			a.m = states[table][1] + off;
			a.v = states[table][2] + off;
			if (table == 0) {
				kernels_reference()->adamw(&reference_context, &a);
				continue;
			}
			now = adamw_factors(&a);
			a.rounding.stream[1] = 99;
			if (round < 8)
				now.draw = 4;
			else
				a.rounding.stream[1] = 4;
			cuda_device_adamw(&context, &a, copy, round < 8 ? &now : NULL, NULL);
			assert_memory_equal(copy, a.w, sizeof(copy));
		}
		assert_memory_equal(states[0], states[1], sizeof(states[0]));
	}
}

static double gelu_of(double x)
{
	return 0.5 * x * (1.0 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static void test_epilogues(void **state)
{
	const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1}, bias[2] = {10, -20};
	const float expected[4] = {14, -15, 20, -9};
	float c[4], aux[4];
	const struct gemm g = {
		.m = 2, .n = 2, .k = 3, .a = a, .b = b, .c = c, .lda = 3, .ldb = 2, .ldc = 2};

	(void)state;
	assert_true(cuda_gemm_epilogue(&context, &g, &(struct gemm_epilogue){.bias = bias}));
	assert_memory_equal(c, expected, sizeof(c));
	assert_true(cuda_gemm_epilogue(
		&context, &g, &(struct gemm_epilogue){.bias = bias, .before_gelu = aux}));
	for (int i = 0; i < 4; i++)
		assert_true(aux[i] == expected[i] && fabs(c[i] - gelu_of(aux[i])) < 1e-6);
	assert_true(cuda_gemm_epilogue(
		&context, &g, &(struct gemm_epilogue){.bias = bias, .addend = expected}));
	for (int i = 0; i < 4; i++)
		assert_true(c[i] == 2 * expected[i]);
}

/* dx = (dy W) gelu'(x), beside the product and gelu_backward one after the other; fp32 and bf16. */
static void test_gelu_backward_epilogue(void **state)
{
	enum { M = 5, N = 7, K = 3 };
	uint16_t bf16[4][M * N];
	float a[M * K], b[K * N], x[M * N], c[M * N], expected[M * N];
	struct gemm g = {
		.m = M, .n = N, .k = K, .a = a, .b = b, .c = c, .lda = K, .ldb = N, .ldc = N};

	(void)state;
	for (int i = 0; i < M * N; i++) {
		x[i] = 3.0f * sinf((float)(7 * i));
		bf16[2][i] = bf16_from_float(x[i]);
	}
	for (int i = 0; i < M * K; i++)
		bf16[0][i] = bf16_from_float(a[i] = cosf((float)i));
	for (int i = 0; i < K * N; i++)
		bf16[1][i] = bf16_from_float(b[i] = sinf((float)i));
	cuda_gemm(&context, &g);
	kernels_reference()->gelu_backward(
		&reference_context, DTYPE_FP32, GELU_TANH, expected, c, x, M * N);
	assert_true(cuda_gemm_epilogue(&context, &g, &(struct gemm_epilogue){.gelu_input = x}));
	for (int i = 0; i < M * N; i++)
		assert_true(fabsf(c[i] - expected[i]) < 1e-5f);
	g.dtype = g.c_dtype = DTYPE_BF16;
	g.a = bf16[0];
	g.b = bf16[1];
	g.c = bf16[3];
	assert_true(
		cuda_gemm_epilogue(&context, &g, &(struct gemm_epilogue){.gelu_input = bf16[2]}));
	for (int i = 0; i < M * N; i++)
		assert_true(fabsf(bf16_to_float(bf16[3][i]) - expected[i]) <
			    0.02f * (1.0f + fabsf(expected[i])));
}

/* dW = dy^T x, and the sums of dy's columns beside it. */
static void test_bias_gradient(void **state)
{
	const float dy[6] = {1, 2, 3, 4, 5, 6}, x[3] = {1, 10, 100};
	float dw[2], dbias[2];
	const struct gemm g = {.m = 2,
		.n = 1,
		.k = 3,
		.a = dy,
		.b = x,
		.c = dw,
		.lda = 2,
		.ldb = 1,
		.ldc = 1,
		.transpose_a = true};

	(void)state;
	assert_true(cuda_gemm_epilogue(&context, &g, &(struct gemm_epilogue){.dbias = dbias}));
	assert_true(dw[0] == 531.0f && dw[1] == 642.0f);
	assert_true(dbias[0] == 9.0f && dbias[1] == 12.0f);
}

/* The answer is kept, nothing is written, and it is no error. */
static void test_epilogue_that_is_refused(void **state)
{
	const float a[8] = {0}, bias[2] = {1, 2};
	float c[4] = {7, 7, 7, 7};
	const struct gemm g = {
		.m = 2, .n = 2, .k = 4, .a = a, .b = a, .c = c, .lda = 4, .ldb = 2, .ldc = 2};
	const struct gemm_epilogue e = {.bias = bias};
	int64_t before = cuda_calls.heuristics;

	(void)state;
	cuda_calls.without_epilogues = true;
	assert_false(cuda_prepare_gemm_epilogue(&context, &g, &e));
	assert_false(cuda_gemm_epilogue(&context, &g, &e));
	cuda_calls.without_epilogues = false;
	assert_false(cuda_gemm_epilogue(&context, &g, &e));
	assert_true(c[0] == 7.0f && context.error.message[0] == '\0');
	assert_int_equal(cuda_calls.heuristics, before + 1);
}

/* A shape is looked up once; another type or alignment is another shape. */
static void test_products_are_kept(void **state)
{
	float x[128] = {0}, c[64];
	struct gemm g = {
		.m = 4, .n = 4, .k = 4, .a = x, .b = x, .c = c, .lda = 4, .ldb = 4, .ldc = 4};
	int64_t before = cuda_calls.heuristics;

	(void)state;
	for (int i = 0; i < 5; i++)
		cuda_gemm(&context, &g);
	assert_int_equal(cuda_calls.heuristics, before + 1);
	g.a = x + 1;
	cuda_gemm(&context, &g);
	cuda_gemm(&context, &g);
	assert_int_equal(cuda_calls.heuristics, before + 2);
}

static void test_faults(void **state)
{
	float table[4] = {1, 2, 3, 4}, out[4];
	const int32_t ids[2] = {1, 7};

	(void)state;
	assert_true(cuda_faults(&context));
	cuda_embedding(&context, &(struct embedding){.tokens = 2,
					 .width = 2,
					 .length = 2,
					 .vocabulary = 2,
					 .ids = ids,
					 .table = table,
					 .out = out});
	assert_true(out[0] == 3.0f && out[2] == 0.0f && out[3] == 0.0f);
	assert_false(cuda_faults(&context));
	assert_string_equal(context.error.message,
		"a token id or target is outside the vocabulary (the largest is 7)");
	memset(&context.error, 0, sizeof(context.error));
	assert_true(cuda_faults(&context));
}

/* More sources than travel with a launch. */
static void test_many_sources(void **state)
{
	enum { SOURCES = 301 };
	static float x[SOURCES], y, expected;
	const void *sources[SOURCES];

	(void)state;
	for (int i = 0; i < SOURCES; i++) {
		x[i] = 1.0f / (float)(i + 1);
		sources[i] = &x[i];
	}
	cuda_tree_reduce(&context, DTYPE_FP32, &y, sources, SOURCES, 1);
	kernels_reference()->tree_reduce(
		&reference_context, DTYPE_FP32, &expected, sources, SOURCES, 1);
	assert_true(y == expected);
}

static int setup(void **state)
{
	(void)state;
	cuda_api_use(&cuda_on_cpu);
	context_init(&context, kernels_cuda());
	context_init(&reference_context, kernels_reference());
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	context_finish(&context, kernels_cuda());
	context_finish(&reference_context, kernels_reference());
	assert_int_equal(cuda_calls.allocations, cuda_calls.frees);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_shape),
		cmocka_unit_test(test_attention_of_generations),
		cmocka_unit_test(test_small_workspace_of_attention),
		cmocka_unit_test(test_races_are_seen),
		cmocka_unit_test(test_pack),
		cmocka_unit_test(test_clip_scale),
		cmocka_unit_test(test_sum_of_not_a_number),
		cmocka_unit_test(test_adamw_of_device_scale),
		cmocka_unit_test(test_sgd_of_device_factors),
		cmocka_unit_test(test_stochastic_rounding),
		cmocka_unit_test(test_epilogues),
		cmocka_unit_test(test_gelu_backward_epilogue),
		cmocka_unit_test(test_bias_gradient),
		cmocka_unit_test(test_epilogue_that_is_refused),
		cmocka_unit_test(test_products_are_kept),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_many_sources),
	};

	thorough = argc > 1 && strcmp(argv[1], "all") == 0;
	return cmocka_run_group_tests(tests, setup, teardown);
}
