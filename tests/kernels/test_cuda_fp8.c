/* Products in fp8: numbers and their codes by hand and against every code's value, and on the
 * machine of cuda_on_cpu the copies and products against the reference, bit by bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/bf16.h"
#include "kernels/cuda/backend.h"
#include "tests/kernels/cuda_on_cpu/api.h"
#include "tests/kernels/cuda_on_cpu/machine.h"
#include "tests/kernels/problem.h"
#include "tests/kernels/reference/reference.h"

static struct kernel_context context;

/* --- numbers --- */

/* Micikevicius et al., table 1; ties go to the even mantissa. */
static void test_codes_by_hand(void **state)
{
	static const struct {
		float x;
		uint8_t e4m3, e5m2;
	} cases[] = {{0, 0, 0}, {-0.0f, 0x80, 0x80}, {1, 0x38, 0x3c}, {-1, 0xb8, 0xbc},
		{448, 0x7e, 0x5f}, {449, 0x7e, 0x5f}, {1e9f, 0x7e, 0x7b}, {INFINITY, 0x7e, 0x7b},
		{-INFINITY, 0xfe, 0xfb}, {NAN, 0x7f, 0x7f}, {57344, 0x7e, 0x7b},
		{61441, 0x7e, 0x7b}, {1.0625f, 0x38, 0x3c}, {1.1875f, 0x3a, 0x3d},
		{1.125f, 0x39, 0x3c}, {1.375f, 0x3b, 0x3e}, {0.015625f, 0x08, 0x24},
		{0.001953125f, 0x01, 0x18}, {0.0009765625f, 0x00, 0x14},
		{0.00097656256f, 0x01, 0x14}, {0.0029296875f, 0x02, 0x1a},
		{6.103515625e-05f, 0x00, 0x04}, {1.52587890625e-05f, 0x00, 0x01},
		{7.62939453125e-06f, 0x00, 0x00}, {7.7e-06f, 0x00, 0x01},
		{2.288818359375e-05f, 0x00, 0x02}, {1e-40f, 0x00, 0x00}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		float x = cases[i].x;

		if (fp8_round(x, FP8_E4M3) != cases[i].e4m3 ||
			fp8_round(x, FP8_E5M2) != cases[i].e5m2)
			fail_msg("%g is %02x and %02x", (double)x, fp8_round(x, FP8_E4M3),
				fp8_round(x, FP8_E5M2));
	}
	assert_true(fp8_scale(fp8_bits_of(448.0f), FP8_E4M3) == 1.0f);
	assert_true(fp8_scale(fp8_bits_of(7.0f), FP8_E5M2) == 8192.0f);
	assert_true(fp8_scale(0, FP8_E4M3) == 448.0f / 1e-12f);
	assert_true(fp8_scale(fp8_bits_of(INFINITY), FP8_E4M3) == 0.0f);
	assert_true(isnan(fp8_scale(fp8_bits_of(NAN), FP8_E4M3)));
}

/* All codes, what lies half-way between two, and what lies beside that. */
static void test_codes_by_values(void **state)
{
	(void)state;
	for (int format = FP8_E4M3; format <= FP8_E5M2; format++)
		for (int code = 0; code < 256; code++) {
			float x = (float)reference_fp8_value((uint8_t)code, format);
			float next = (float)reference_fp8_value((uint8_t)(code + 1), format);
			float half = x + (next - x) / 2;
			const float beside[] = {x, nextafterf(x, INFINITY), half,
				nextafterf(half, INFINITY), nextafterf(half, -INFINITY)};

			for (int i = 0; i < 5; i++)
				assert_int_equal(fp8_round(beside[i], format),
					reference_fp8_round(beside[i], format));
			if (isfinite(x))
				assert_int_equal(fp8_round(x, format), code);
		}
}

/* --- products --- */

enum { MOST = 208 * 208 };

struct buffers {
	uint16_t *a, *b, *c, *expected;
	void *copies;
	uint8_t *codes;
	float *undo;
};

static void *memory(size_t bytes)
{
	void *address = aligned_alloc(256, (bytes + 255) / 256 * 256);

	assert_non_null(address);
	return memset(address, 0xff, bytes);
}

static void open_buffers(struct buffers *b)
{
	*b = (struct buffers){memory(2 * MOST), memory(2 * MOST), memory(4 * MOST),
		memory(4 * MOST), memory(4 * MOST), memory(2 * MOST), memory(4 * MOST)};
}

static void close_buffers(const struct buffers *b)
{
	void *const all[] = {b->a, b->b, b->c, b->expected, b->copies, b->codes, b->undo};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
}

/* Fills in values of all sizes, rows far apart in size, and one row of zeros. */
static void fill(uint16_t *x, int64_t n, uint32_t seed)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t r = seed = seed * 1664525u + 1013904223u;
		float value = ldexpf((float)(int32_t)r, -31 - (int)(i / 97 % 9) - (int)(r % 5));

		x[i] = bf16_from_float(i / 48 == 3 ? 0.0f : value);
	}
}

static void check_copy(const struct reference_operand *o, const struct buffers *b,
	const uint8_t *codes, const float *undo)
{
	reference_fp8_copy(o, b->codes, b->undo);
	assert_memory_equal(codes, b->codes, (size_t)(o->rows * o->k));
	assert_memory_equal(undo, b->undo, (size_t)(o->by_rows ? o->rows : 1) * sizeof(*undo));
}

/* Copies, scales and the product. */
static void check_product(struct buffers *b, const struct gemm *g, const struct gemm_fp8 *how)
{
	size_t bytes = (size_t)(g->m * g->ldc * dtype_bytes(g->c_dtype));
	const uint8_t *codes = how->copies;
	const float *undo = (const float *)(codes + (g->m + g->n) * g->k) + g->m + g->n;
	struct gemm expected = *g;

	memset(how->copies, 0xff, (size_t)fp8_product_bytes(g->m, g->n, g->k));
	memcpy(b->expected, g->c, bytes);
	expected.c = b->expected;
	reference_gemm_fp8(&expected, how);
	cuda_gemm_fp8(&context, g, how);
	assert_string_equal(context.error.message, "");
	check_copy(&(struct reference_operand){g->a, g->m, g->k, g->lda, g->transpose_a,
			   how->by_rows, how->a},
		b, codes, undo);
	check_copy(&(struct reference_operand){g->b, g->n, g->k, g->ldb, !g->transpose_b,
			   how->by_rows, how->b},
		b, codes + g->m * g->k, undo + g->m);
	assert_memory_equal(g->c, b->expected, bytes);
	assert_int_equal(cuda_calls.e5m2, how->a == FP8_E5M2 ? 2 : 0);
}

/* y = x W^T, dx = dy W, dW = dy^T x, where dy has gaps between its rows. */
static void test_products(void **state)
{
	static const int64_t shapes[][3] = {{16, 16, 16}, {48, 80, 208}, {128, 64, 32}};
	struct buffers b;

	(void)state;
	open_buffers(&b);
	for (int i = 0; i < 3 * 3 * 2 * 2; i++) {
		const int64_t *shape = shapes[i % 3], m = shape[0], n = shape[1], k = shape[2];
		bool by_rows = i / 3 % 2, turned_a = i / 6 % 3 == 2, turned_b = i / 6 % 3 == 0;
		bool gradient = i / 6 % 3 > 0, sums = turned_a && i / 18 == 1;
		const struct gemm g = {.m = m,
			.n = n,
			.k = k,
			.a = b.a,
			.b = b.b,
			.c = b.c,
			.lda = (turned_a ? m : k) + (gradient ? 16 : 0),
			.ldb = turned_b ? k : n,
			.ldc = n,
			.transpose_a = turned_a,
			.transpose_b = turned_b,
			.accumulate = i / 18 == 1,
			.dtype = DTYPE_BF16,
			.c_dtype = sums ? DTYPE_FP32 : DTYPE_BF16};

		fill(b.a, MOST, (uint32_t)i);
		fill(b.b, MOST, (uint32_t)i + 100);
		memset(b.c, 0, 4 * MOST);
		cuda_backwards = i % 2;
		check_product(&b, &g,
			&(struct gemm_fp8){gradient && !by_rows ? FP8_E5M2 : FP8_E4M3, FP8_E4M3,
				by_rows, b.copies});
		cuda_backwards = false;
	}
	close_buffers(&b);
}

/* Y = X W^T, rows one behind the other. */
static struct gemm forward_of(const struct buffers *b, int64_t m, int64_t n, int64_t k)
{
	return (struct gemm){.m = m,
		.n = n,
		.k = k,
		.a = b->a,
		.b = b->b,
		.c = b->c,
		.lda = k,
		.ldb = k,
		.ldc = n,
		.transpose_b = true,
		.dtype = DTYPE_BF16,
		.c_dtype = DTYPE_BF16};
}

/* A number that is none is in the result: a run that went wrong ends. */
static void test_what_is_no_number(void **state)
{
	struct buffers b;

	(void)state;
	open_buffers(&b);
	const struct gemm g = forward_of(&b, 16, 16, 16);
	for (int i = 0; i < 2; i++) {
		fill(b.a, 256, 1);
		fill(b.b, 256, 2);
		b.a[40] = bf16_from_float(i == 0 ? INFINITY : NAN);
		cuda_gemm_fp8(
			&context, &g, &(struct gemm_fp8){FP8_E4M3, FP8_E4M3, i == 1, b.copies});
		assert_true(isnan(bf16_to_float(b.c[2 * 16])));
	}
	close_buffers(&b);
}

/* What is prepared is there; recipes and formats are products of their own. */
static void test_products_are_kept(void **state)
{
	struct buffers b;
	int64_t before = cuda_calls.heuristics, launches;

	(void)state;
	open_buffers(&b);
	fill(b.a, MOST, 1);
	fill(b.b, MOST, 2);
	const struct gemm g = forward_of(&b, 16, 32, 16);
	const struct gemm_fp8 ways[] = {{FP8_E4M3, FP8_E4M3, false, b.copies},
		{FP8_E5M2, FP8_E4M3, false, b.copies}, {FP8_E4M3, FP8_E4M3, true, b.copies}};

	for (int i = 0; i < 6; i++) {
		launches = cuda_calls.launches;
		cuda_prepare_gemm_fp8(&context, &g, &ways[i % 3]);
		assert_int_equal(cuda_calls.launches, launches);
	}
	assert_int_equal(cuda_calls.heuristics, before + 3);
	for (int i = 0; i < 3; i++)
		cuda_gemm_fp8(&context, &g, &ways[i]);
	assert_int_equal(cuda_calls.heuristics, before + 3);
	assert_string_equal(context.error.message, "");
	close_buffers(&b);
}

static void expect_error(const struct gemm *g, const struct gemm_fp8 *how, const char *message)
{
	cuda_prepare_gemm_fp8(&context, g, how);
	if (strstr(context.error.message, message) == NULL)
		fail_msg("\"%s\"", context.error.message);
	memset(&context.error, 0, sizeof(context.error));
}

static void test_what_is_refused(void **state)
{
	struct buffers b;

	(void)state;
	open_buffers(&b);
	struct gemm g = forward_of(&b, 32, 32, 48);
	struct gemm_fp8 how = {FP8_E4M3, FP8_E4M3, true, b.copies};

	cuda_calls.version = 120803;
	expect_error(&g, &how, "--fp8 rowwise needs cuBLAS 12.9, this one is 120803");
	how.by_rows = false;
	cuda_prepare_gemm_fp8(&context, &g, &how);
	assert_string_equal(context.error.message, "");
	cuda_calls.version = 0;
	g.k = 40;
	expect_error(&g, &how, "32 x 32 x 40 in fp8 is not aligned");
	g.k = 48;
	g.c = b.c + 1;
	expect_error(&g, &how, "not aligned");
	close_buffers(&b);
}

static int setup(void **state)
{
	(void)state;
	cuda_api_use(&cuda_on_cpu);
	context_init(&context, kernels_cuda());
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	context_finish(&context, kernels_cuda());
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_codes_by_hand),
		cmocka_unit_test(test_codes_by_values),
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_what_is_no_number),
		cmocka_unit_test(test_products_are_kept),
		cmocka_unit_test(test_what_is_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
