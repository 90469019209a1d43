/* Every table against the reference, over every case and shape; repeated calls give the same bits;
 * element-wise kernels give the same bits at any alignment; and the judge itself is judged: a table
 * whose outputs are off by a little must fail. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/bf16.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/problem.h"

struct pair {
	const struct kernel_case *kernel_case;
	const int64_t *shape;
	const struct kernels *kernels;
	struct kernel_context *context, *reference_context;
};

static int failures;

static void report(const struct pair *pair, double distance, const char *where)
{
	failures++;
	print_error("%s %s %lld,%lld,%lld,%lld,%lld,%lld: %.3g times the tolerance, %s\n",
		pair->kernels->name, pair->kernel_case->name, (long long)pair->shape[0],
		(long long)pair->shape[1], (long long)pair->shape[2], (long long)pair->shape[3],
		(long long)pair->shape[4], (long long)pair->shape[5], distance, where);
}

typedef void pair_check(const struct pair *pair);

static void for_each_shape(struct pair *pair, pair_check *check)
{
	for (int i = 0; pair->kernel_case->shapes[i][0] >= 0; i++) {
		pair->shape = pair->kernel_case->shapes[i];
		check(pair);
	}
}

static void for_each_case(const struct kernels *kernels, pair_check *check)
{
	struct kernel_context context, reference_context;
	struct pair pair = {NULL, NULL, kernels, &context, &reference_context};

	context_init(&reference_context, kernels_reference());
	context_init(&context, kernels);
	for (int list = 0; case_lists[list]; list++) {
		for (int i = 0; case_lists[list][i].name; i++) {
			pair.kernel_case = &case_lists[list][i];
			for_each_shape(&pair, check);
		}
	}
	assert_string_equal(context.error.message, "");
	context_finish(&context, kernels);
	context_finish(&reference_context, kernels_reference());
}

static void for_each_table(pair_check *check)
{
	for (const struct kernels *const *table = kernels_all(); *table; table++)
		for_each_case(*table, check);
}

static void check_against_reference(const struct pair *pair)
{
	struct problem candidate, reference;
	char where[WHERE];
	double distance;

	problem_init(&candidate, pair->kernel_case, pair->shape, pair->kernels, pair->context, 0);
	problem_init(&reference, pair->kernel_case, pair->shape, kernels_reference(),
		pair->reference_context, 0);
	pair->kernel_case->call(&candidate);
	pair->kernel_case->call(&reference);
	distance = problem_distance(&candidate, &reference, where);
	if (!(distance <= 1.0))
		report(pair, distance, where);
	problem_finish(&candidate);
	problem_finish(&reference);
}

static void test_against_reference(void **state)
{
	(void)state;
	failures = 0;
	for_each_table(check_against_reference);
	assert_int_equal(failures, 0);
}

static void compare_offsets(const struct pair *pair, int64_t first_offset, int64_t second_offset)
{
	struct problem first, second;

	problem_init(
		&first, pair->kernel_case, pair->shape, pair->kernels, pair->context, first_offset);
	problem_init(&second, pair->kernel_case, pair->shape, pair->kernels, pair->context,
		second_offset);
	pair->kernel_case->call(&first);
	/* Whatever the first call left in the workspace must not matter. */
	memset(pair->context->workspace, 0x7f, KERNELS_WORKSPACE_BYTES);
	pair->kernel_case->call(&second);
	if (!problem_same_bits(&first, &second))
		report(pair, INFINITY, "bits differ");
	problem_finish(&first);
	problem_finish(&second);
}

static void check_repeats(const struct pair *pair)
{
	compare_offsets(pair, 0, 0);
}

static void test_same_bits_again(void **state)
{
	(void)state;
	failures = 0;
	for_each_table(check_repeats);
	assert_int_equal(failures, 0);
}

static void check_alignment(const struct pair *pair)
{
	compare_offsets(pair, 0, 1);
	compare_offsets(pair, 0, 7);
}

static void test_same_bits_at_any_alignment(void **state)
{
	(void)state;
	failures = 0;
	for_each_table(check_alignment);
	assert_int_equal(failures, 0);
}

/* The largest output element moved by `steps` tolerances must be seen, for every kernel. */
static double distance_of_perturbed(const struct pair *pair, double steps, bool *has_output)
{
	struct problem candidate, reference;
	struct buffer *target = NULL;
	char where[WHERE];
	double distance;
	int64_t at = 0;

	problem_init(&candidate, pair->kernel_case, pair->shape, kernels_reference(),
		pair->reference_context, 0);
	problem_init(&reference, pair->kernel_case, pair->shape, kernels_reference(),
		pair->reference_context, 0);
	pair->kernel_case->call(&candidate);
	pair->kernel_case->call(&reference);
	for (int slot = 0; slot < MOST_BUFFERS && !target; slot++) {
		if (candidate.buffer[slot].output && candidate.buffer[slot].count > 0)
			target = &candidate.buffer[slot];
	}
	*has_output = target;
	if (target) {
		float x = 0.0f;

		for (int64_t i = 0; i < target->count; i++) {
			float other = element_get(target->dtype, target->data, i);

			at = fabsf(other) > fabsf(x) ? i : at;
			x = element_get(target->dtype, target->data, at);
		}
		if (steps > 0.0)
			x += x == 0.0f ? 1e-30f
				       : (float)(steps * 2.0 * target->tolerance * fabsf(x));
		element_put(target->dtype, target->data, at, x);
	}
	distance = problem_distance(&candidate, &reference, where);
	problem_finish(&candidate);
	problem_finish(&reference);
	return distance;
}

static void check_perturbed(const struct pair *pair)
{
	bool has_output;
	double distance = distance_of_perturbed(pair, 4.0, &has_output);

	if (has_output && distance <= 1.0)
		report(pair, distance, "a wrong result passed");
	if (distance_of_perturbed(pair, 0.0, &has_output) > 0.0 && distance < INFINITY)
		report(pair, distance, "an equal result failed");
}

static void test_negative_control(void **state)
{
	(void)state;
	failures = 0;
	for_each_case(kernels_reference(), check_perturbed);
	assert_int_equal(failures, 0);
}

/* What the levels share besides: products of bf16 have the same bits with and without the CPU's
 * instruction for them, with and without fused multiply-adds. */
static void check_levels(const struct pair *pair)
{
	const struct kernels *const *table = kernels_all();
	struct problem best, other;

	if (pair->kernel_case->dtype != DTYPE_BF16 ||
		strncmp(pair->kernel_case->name, "gemm", 4) != 0)
		return;
	problem_init(&best, pair->kernel_case, pair->shape, *table, pair->context, 0);
	problem_init(&other, pair->kernel_case, pair->shape, pair->kernels, pair->context, 0);
	pair->kernel_case->call(&best);
	pair->kernel_case->call(&other);
	if (!problem_same_bits(&best, &other))
		report(pair, INFINITY, "bits differ from those of the best level");
	problem_finish(&best);
	problem_finish(&other);
}

static void test_bf16_products_on_all_levels(void **state)
{
	(void)state;
	failures = 0;
	for (const struct kernels *const *table = kernels_all(); *table; table++)
		if (strncmp((*table)->name, "cpu-", 4) == 0 &&
			strcmp((*table)->library, "built-in") == 0)
			for_each_case(*table, check_levels);
	assert_int_equal(failures, 0);
}

static void test_names(void **state)
{
	(void)state;
	assert_ptr_equal(kernels_by_name("cpu"), kernels_cpu());
	assert_ptr_equal(kernels_by_name("reference"), kernels_reference());
	assert_null(kernels_by_name("abacus"));
	for (const struct kernels *const *table = kernels_all(); *table; table++)
		assert_ptr_equal(kernels_by_name((*table)->name), *table);
}

static void test_small_workspace(void **state)
{
	struct kernel_context context = {.workspace_bytes = KERNELS_WORKSPACE_BYTES - 1};
	struct error error = {0};

	(void)state;
	assert_false(kernels_cpu()->open(&context, &error));
	assert_int_equal(error.code, EXIT_CODE_INTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_reference),
		cmocka_unit_test(test_same_bits_again),
		cmocka_unit_test(test_same_bits_at_any_alignment),
		cmocka_unit_test(test_negative_control),
		cmocka_unit_test(test_bf16_products_on_all_levels),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_small_workspace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
