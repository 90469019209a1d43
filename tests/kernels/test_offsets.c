/* Sharding cuts arrays anywhere, so what a kernel does to an element must not depend on where the
 * array was cut: pieces of an element-wise kernel give the bits of the whole, and a matrix product
 * gives a row the same bits among any other rows, and a column among any other columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/bf16.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/problem.h"

/* Moves every buffer of a flat problem to a piece of the whole. */
static void narrow(struct problem *problem, int64_t first, int64_t count)
{
	for (int slot = 0; slot < MOST_BUFFERS; slot++) {
		if (problem->buffer[slot].data)
			problem->buffer[slot].data = element_at(
				problem->buffer[slot].dtype, problem->buffer[slot].data, first);
	}
	problem->dim[0] = count;
	problem->first = first;
}

static void call_in_pieces(struct problem *problem, const int64_t *cuts)
{
	struct problem piece;
	int64_t first = 0, n = problem->dim[0];

	for (int i = 0; first < n; i++) {
		int64_t count = cuts[i % 8] < n - first ? cuts[i % 8] : n - first;

		piece = *problem;
		narrow(&piece, first, count);
		problem->kernel_case->call(&piece);
		first += count;
	}
}

static void check_flat(const struct kernel_case *kernel_case, const int64_t *shape,
	const struct kernels *kernels, struct kernel_context *context)
{
	static const int64_t cuts[][8] = {{1, 1, 1, 1, 1, 1, 1, 1}, {3, 16, 5, 1, 33, 2, 64, 7},
		{100, 1, 15, 17, 31, 2, 200, 9}};
	struct problem whole, pieces;

	for (int i = 0; i < 3; i++) {
		problem_init(&whole, kernel_case, shape, kernels, context, 0);
		problem_init(&pieces, kernel_case, shape, kernels, context, 0);
		kernel_case->call(&whole);
		call_in_pieces(&pieces, cuts[i]);
		if (!problem_same_bits(&whole, &pieces))
			fail_msg("%s %s: %lld elements in pieces %d differ", kernels->name,
				kernel_case->name, (long long)shape[0], i);
		problem_finish(&whole);
		problem_finish(&pieces);
	}
}

static void test_flat_kernels_in_pieces(void **state)
{
	struct kernel_context context;

	(void)state;
	for (const struct kernels *const *table = kernels_all(); *table; table++) {
		context_init(&context, *table);
		for (const struct kernel_case *c = flat_cases; c->name; c++) {
			for (int i = 0; c->shapes[i][0] >= 0; i++)
				check_flat(c, c->shapes[i], *table, &context);
		}
		context_finish(&context, *table);
	}
}

static struct gemm whole_gemm(const struct problem *p)
{
	int64_t m = p->dim[0], n = p->dim[1], k = p->dim[2];

	return (struct gemm){
		.m = m,
		.n = n,
		.k = k,
		.a = p->buffer[0].data,
		.b = p->buffer[1].data,
		.c = p->buffer[2].data,
		.lda = p->dim[3] & 1 ? m : k,
		.ldb = p->dim[3] & 2 ? k : n,
		.ldc = n,
		.transpose_a = p->dim[3] & 1,
		.transpose_b = p->dim[3] & 2,
		.accumulate = p->dim[3] & 4,
		.dtype = p->kernel_case->dtype,
		.c_dtype = gradient_dtype(p),
	};
}

/* Computes the same product as rows [0, row) and the rest, each as columns [0, column) and the
 * rest. */
static void gemm_in_quarters(const struct problem *p, int64_t row, int64_t column)
{
	struct gemm whole = whole_gemm(p);

	for (int quarter = 0; quarter < 4; quarter++) {
		int64_t i = quarter & 1 ? row : 0, j = quarter & 2 ? column : 0;
		struct gemm g = whole;

		g.m = quarter & 1 ? whole.m - row : row;
		g.n = quarter & 2 ? whole.n - column : column;
		g.a = element_of(g.dtype, g.a, g.transpose_a ? i : i * g.lda);
		g.b = element_of(g.dtype, g.b, g.transpose_b ? j * g.ldb : j);
		g.c = element_at(g.c_dtype, g.c, i * g.ldc + j);
		p->kernels->gemm(p->context, &g);
	}
}

static bool quarters_agree(const struct kernels *kernels, const struct kernel_case *kernel_case,
	const int64_t *shape, int64_t row, int64_t column)
{
	struct kernel_context context;
	struct problem whole, quarters;
	bool agree;

	context_init(&context, kernels);
	problem_init(&whole, kernel_case, shape, kernels, &context, 0);
	problem_init(&quarters, kernel_case, shape, kernels, &context, 0);
	kernel_case->call(&whole);
	gemm_in_quarters(&quarters, row, column);
	agree = problem_same_bits(&whole, &quarters);
	problem_finish(&whole);
	problem_finish(&quarters);
	context_finish(&context, kernels);
	return agree;
}

static void test_gemm_in_quarters(void **state)
{
	static const int64_t shapes[][MOST_DIMS] = {
		{67, 131, 777, 0}, {67, 131, 1500, 5}, {67, 131, 300, 6}, {67, 131, 33, 3}};
	static const int64_t cuts[][2] = {{1, 1}, {12, 32}, {5, 77}, {66, 130}, {31, 16}};

	(void)state;
	for (const struct kernels *const *table = kernels_all(); *table; table++) {
		for (int i = 0; i < 4 && strcmp((*table)->library, "built-in") == 0; i++) {
			for (int j = 0; j < 15; j++)
				assert_true(quarters_agree(*table, &matrix_cases[j / 5], shapes[i],
					cuts[j % 5][0], cuts[j % 5][1]));
		}
	}
}

/* A few rows take another way than many. */
static void test_few_rows_of_many(void **state)
{
	static const int64_t shapes[][MOST_DIMS] = {
		{15, 290, 1535, 0}, {15, 290, 1100, 5}, {15, 290, 71, 6}, {15, 290, 1030, 3}};

	(void)state;
	for (const struct kernels *const *table = kernels_all(); *table; table++)
		for (int i = 0; i < 12 * 7 && strcmp((*table)->library, "built-in") == 0; i++)
			if (!quarters_agree(*table, &matrix_cases[i / 28], shapes[i / 7 % 4],
				    i % 7 + 1, 270))
				fail_msg("%s, %s: %d rows have other bits than 15", (*table)->name,
					matrix_cases[i / 28].name, i % 7 + 1);
}

/* Negative control: accumulating the terms of k in two calls rounds elsewhere, and is seen. */
static void test_splitting_k_is_seen(void **state)
{
	static const int64_t shape[MOST_DIMS] = {67, 131, 777, 0};
	struct kernel_context context;
	struct problem whole, split;
	struct gemm g;

	(void)state;
	context_init(&context, kernels_cpu());
	problem_init(&whole, &matrix_cases[0], shape, kernels_cpu(), &context, 0);
	problem_init(&split, &matrix_cases[0], shape, kernels_cpu(), &context, 0);
	matrix_cases[0].call(&whole);
	g = whole_gemm(&split);
	g.k = 100;
	kernels_cpu()->gemm(&context, &g);
	g.a = element_of(g.dtype, g.a, 100);
	g.b = element_of(g.dtype, g.b, 100 * g.ldb);
	g.k = 677;
	g.accumulate = true;
	kernels_cpu()->gemm(&context, &g);
	assert_false(problem_same_bits(&whole, &split));
	problem_finish(&whole);
	problem_finish(&split);
	context_finish(&context, kernels_cpu());
}

/* Solves the same problem by one thread and by several. */
static void check_threads(const struct kernel_case *kernel_case, const int64_t *shape, int threads,
	struct kernel_context *context)
{
	struct problem one, several;

	context->threads = 1;
	problem_init(&one, kernel_case, shape, kernels_cpu(), context, 0);
	kernel_case->call(&one);
	problem_init(&several, kernel_case, shape, kernels_cpu(), context, 0);
	context->threads = threads;
	memset(context->workspace, 0xff, KERNELS_WORKSPACE_BYTES);
	kernel_case->call(&several);
	if (!problem_same_bits(&one, &several))
		fail_msg("%s: %d threads change bits", kernel_case->name, threads);
	problem_finish(&one);
	problem_finish(&several);
}

static void test_threads_change_no_bit(void **state)
{
	static const int64_t large[][MOST_DIMS] = {
		{300, 700, 600, 0}, {700, 300, 600, 7}, {3300, 65, 513, 10}, {1, 5000, 1000, 2}};
	static const int threads[] = {2, 5, 12, 23}; /* a grid of 12 has two sides */
	struct kernel_context context;

	(void)state;
	context_init(&context, kernels_cpu());
	for (int t = 0; t < COUNT_OF(threads); t++) {
		for (const struct kernel_case *c = matrix_cases; c->name; c++) {
			for (int i = 0; c->shapes[i][0] >= 0; i++)
				check_threads(c, c->shapes[i], threads[t], &context);
		}
		for (int i = 0; i < 12; i++)
			check_threads(&matrix_cases[i / 4], large[i % 4], threads[t], &context);
	}
	context_finish(&context, kernels_cpu());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flat_kernels_in_pieces),
		cmocka_unit_test(test_gemm_in_quarters),
		cmocka_unit_test(test_few_rows_of_many),
		cmocka_unit_test(test_splitting_k_is_seen),
		cmocka_unit_test(test_threads_change_no_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
