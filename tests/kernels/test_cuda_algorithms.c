/* GEMM algorithms that were chosen before: cuBLASLt's heuristic results as numbers and back, and
 * which products take them, on the cuBLASLt of cuda_on_cpu. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/backend.h"
#include "tests/kernels/cuda_on_cpu/api.h"
#include "tests/kernels/problem.h"

enum { SIDE = 8, ALGORITHMS = 8, FIRST = 42, THIRD = 44, HUNGRY = 46 };

static struct kernel_context context;
static _Alignas(16) float x[SIDE * SIDE + 4], y[SIDE * SIDE];

static struct gemm square(void)
{
	return (struct gemm){.m = SIDE,
		.n = SIDE,
		.k = SIDE,
		.a = x,
		.b = x,
		.c = y,
		.lda = SIDE,
		.ldb = SIDE,
		.ldc = SIDE};
}

static struct gemm_choice choice(const struct gemm *g, const struct gemm_algorithm *algorithm)
{
	return (struct gemm_choice){.m = g->m,
		.n = g->n,
		.k = g->k,
		.transpose_a = g->transpose_a,
		.transpose_b = g->transpose_b,
		.algorithm = *algorithm};
}

static int64_t algorithm_of(const struct gemm *g)
{
	cuda_gemm(&context, g);
	assert_string_equal(context.error.message, "");
	return cuda_calls.algorithm;
}

/* What communication holds is not counted on, and products are prepared for each share. */
static void test_a_share_of_the_gpu(void **state)
{
	static const struct {
		int beside, target;
	} cases[] = {{0, 0}, {1, 2}, {KERNELS_SOME, 0}, {2, 1}, {1, 2}};
	const struct gemm g = square();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		context.beside = cases[i].beside;
		algorithm_of(&g);
		assert_int_equal(cuda_calls.multiprocessors, cases[i].target);
	}
	context.beside = 0;
}

/* Not the one that adds up in place; every number comes back. */
static void test_proposals(void **state)
{
	const struct gemm g = square();
	struct gemm_algorithm algorithms[ALGORITHMS];

	(void)state;
	assert_int_equal(cuda_gemm_algorithms(&context, &g, algorithms, ALGORITHMS), 3);
	assert_int_equal(algorithms[0].id, FIRST);
	assert_int_equal(algorithms[2].id, THIRD);
	assert_int_equal(algorithms[2].tile, 101);
	assert_int_equal(algorithms[2].swizzle, 104);
	assert_int_equal(algorithms[2].custom, 105);
	assert_int_equal(algorithms[2].stages, 106);
	assert_int_equal(algorithms[2].inner_shape, 107);
	assert_int_equal(algorithms[2].cluster, 108);
	assert_int_equal(cuda_gemm_algorithms(&context, &g, algorithms, 1), 1);
	assert_int_equal(cuda_gemm_version(&context), 130000);
}

static void test_choice_is_taken(void **state)
{
	struct gemm g = square();
	struct gemm_algorithm algorithms[ALGORITHMS];
	struct gemm_choice chosen;

	(void)state;
	assert_int_equal(cuda_gemm_algorithms(&context, &g, algorithms, ALGORITHMS), 3);
	chosen = choice(&g, &algorithms[2]);
	assert_int_equal(algorithm_of(&g), FIRST);
	cuda_choose_gemms(&context, &chosen, 1);
	assert_false(chosen.taken);
	assert_int_equal(algorithm_of(&g), THIRD);
	assert_true(chosen.taken);
	g.accumulate = true;
	assert_int_equal(algorithm_of(&g), THIRD);
	cuda_choose_gemms(&context, NULL, 0);
	assert_int_equal(algorithm_of(&g), FIRST);
}

/* Another shape or layout, operands that begin anywhere, an epilogue that it does not have. */
static void test_others_are_not(void **state)
{
	struct gemm g = square(), other = g;
	struct gemm_algorithm algorithms[ALGORITHMS];
	struct gemm_choice chosen;
	_Alignas(16) float dbias[SIDE];

	(void)state;
	assert_int_equal(cuda_gemm_algorithms(&context, &g, algorithms, ALGORITHMS), 3);
	chosen = choice(&g, &algorithms[2]);
	cuda_choose_gemms(&context, &chosen, 1);
	other.k = SIDE / 2;
	assert_int_equal(algorithm_of(&other), FIRST);
	other = g;
	other.transpose_b = true;
	assert_int_equal(algorithm_of(&other), FIRST);
	other = g;
	other.a = x + 1;
	assert_int_equal(algorithm_of(&other), FIRST);
	assert_true(cuda_gemm_epilogue(&context, &g, &(struct gemm_epilogue){.dbias = dbias}));
	assert_int_equal(cuda_calls.algorithm, FIRST);
	assert_false(chosen.taken);
	cuda_choose_gemms(&context, NULL, 0);
}

/* What the library no longer has, or what needs more memory than there is, is no error. */
static void test_unknown_ways(void **state)
{
	const struct gemm g = square();
	static const int32_t algorithms[] = {7, HUNGRY};

	(void)state;
	for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
		struct gemm_choice chosen =
			choice(&g, &(struct gemm_algorithm){.id = algorithms[i]});

		cuda_choose_gemms(&context, &chosen, 1);
		assert_int_equal(algorithm_of(&g), FIRST);
		assert_false(chosen.taken);
	}
	cuda_choose_gemms(&context, NULL, 0);
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
	assert_int_equal(cuda_calls.allocations, cuda_calls.frees);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_share_of_the_gpu),
		cmocka_unit_test(test_proposals),
		cmocka_unit_test(test_choice_is_taken),
		cmocka_unit_test(test_others_are_not),
		cmocka_unit_test(test_unknown_ways),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
