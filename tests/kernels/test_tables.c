/* Every table against the reference, over every case and shape; repeated calls give the same bits;
 * element-wise kernels give the same bits at any alignment; and the judge itself is judged: a table
 * whose outputs are off by a little must fail. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/common/bf16.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/problem.h"
#include "tests/kernels/reference/reference.h"
#include "tests/sampled.h"

struct pair {
	const struct kernel_case *kernel_case;
	const int64_t *shape;
	const struct kernels *kernels;
	struct kernel_context *context;
	const struct problem *reference; /* what it makes of this case and shape; NULL: not asked */
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

/* --- a workspace that is quickly spoiled --- */

/* A private mapping of a file full of 0x7f: pages that a kernel wrote are dropped, the others hold
 * 0x7f still. Filling 16 MiB before every call took longer than the calls. The pages beside it end
 * the test when they are touched. */
static void *open_workspace(void)
{
	static int fd = -1;
	int64_t page = sysconf(_SC_PAGESIZE);

	if (fd < 0) {
		void *filling = malloc(KERNELS_WORKSPACE_BYTES);

		fd = memfd_create("workspace", MFD_CLOEXEC);
		assert_non_null(filling);
		memset(filling, 0x7f, KERNELS_WORKSPACE_BYTES);
		assert_int_equal(
			write(fd, filling, KERNELS_WORKSPACE_BYTES), KERNELS_WORKSPACE_BYTES);
		free(filling);
	}
	char *range = mmap(NULL, (size_t)(KERNELS_WORKSPACE_BYTES + 2 * page), PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(range != MAP_FAILED);
	void *workspace = mmap(range + page, KERNELS_WORKSPACE_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_FIXED, fd, 0);
	assert_true(workspace != MAP_FAILED);
	return workspace;
}

static void spoil_workspace(struct kernel_context *context)
{
	assert_int_equal(madvise(context->workspace, KERNELS_WORKSPACE_BYTES, MADV_DONTNEED), 0);
	assert_int_equal(*(const char *)context->workspace, 0x7f);
}

/* --- every table, case and shape --- */

enum { MOST_TABLES = 12 };

/* All tables there are, ready to be called. */
static struct {
	struct kernel_context context;
	void *given; /* the workspace that it was opened with */
} opened[MOST_TABLES];
static struct kernel_context reference_context;

static int open_tables(void **state)
{
	(void)state;
	kernels_add(kernels_reference());
	const struct kernels *const *tables = kernels_all();
	context_init(&reference_context, kernels_reference());
	for (int i = 0; tables[i]; i++) {
		assert_true(i < MOST_TABLES);
		context_init(&opened[i].context, tables[i]);
		opened[i].given = opened[i].context.workspace;
		opened[i].context.workspace = open_workspace();
		/* What it does not write is NaN, as long as nothing is spoiled. */
		memset(opened[i].context.workspace, 0xff, KERNELS_WORKSPACE_BYTES);
	}
	return 0;
}

static int close_tables(void **state)
{
	const struct kernels *const *tables = kernels_all();

	(void)state;
	for (int i = 0; tables[i]; i++) {
		assert_string_equal(opened[i].context.error.message, "");
		munmap(opened[i].context.workspace, KERNELS_WORKSPACE_BYTES);
		opened[i].context.workspace = opened[i].given;
		context_finish(&opened[i].context, tables[i]);
	}
	assert_string_equal(reference_context.error.message, "");
	context_finish(&reference_context, kernels_reference());
	return 0;
}

typedef bool table_filter(const struct kernels *kernels);

/* One shape on all tables. */
static void check_tables(struct pair *pair, table_filter *wanted, pair_check *check)
{
	const struct kernels *const *tables = kernels_all();

	for (int i = 0; tables[i]; i++) {
		pair->kernels = tables[i];
		pair->context = &opened[i].context;
		if (wanted(tables[i]))
			check(pair);
	}
}

/* Checks the same beside what the reference computes, once. */
static void check_beside_reference(struct pair *pair, table_filter *wanted, pair_check *check)
{
	struct problem reference;

	problem_init(&reference, pair->kernel_case, pair->shape, kernels_reference(),
		&reference_context, 0);
	pair->kernel_case->call(&reference);
	pair->reference = &reference;
	check_tables(pair, wanted, check);
	pair->reference = NULL;
	problem_finish(&reference);
}

typedef void shape_check(struct pair *pair, table_filter *wanted, pair_check *check);

static void for_each_shape(shape_check *check_shape, table_filter *wanted, pair_check *check)
{
	struct pair pair = {0};

	failures = 0;
	for (int list = 0; case_lists[list]; list++) {
		for (int i = 0; case_lists[list][i].name; i++) {
			pair.kernel_case = &case_lists[list][i];
			for (int j = 0; pair.kernel_case->shapes[j][0] >= 0; j++) {
				pair.shape = pair.kernel_case->shapes[j];
				check_shape(&pair, wanted, check);
			}
		}
	}
	assert_int_equal(failures, 0);
}

static bool is_reference(const struct kernels *kernels)
{
	return kernels == kernels_reference();
}

/* The oracle is plain code, and the same as itself. */
static bool is_judged(const struct kernels *kernels)
{
	return !is_reference(kernels);
}

static void check_against_reference(const struct pair *pair)
{
	struct problem candidate;
	char where[WHERE];
	double distance;

	problem_init(&candidate, pair->kernel_case, pair->shape, pair->kernels, pair->context, 0);
	pair->kernel_case->call(&candidate);
	distance = problem_distance(&candidate, pair->reference, where);
	if (!(distance <= 1.0))
		report(pair, distance, where);
	problem_finish(&candidate);
}

static void test_against_reference(void **state)
{
	(void)state;
	for_each_shape(check_beside_reference, is_judged, check_against_reference);
}

/* At other alignments, and again. */
static void check_bits(const struct pair *pair)
{
	static const int64_t offsets[] = {1, 7, 0};
	struct problem first, other;

	problem_init(&first, pair->kernel_case, pair->shape, pair->kernels, pair->context, 0);
	pair->kernel_case->call(&first);
	for (int i = 0; i < (SAMPLED_EACH > 1 ? 1 : 3); i++) {
		problem_init(&other, pair->kernel_case, pair->shape, pair->kernels, pair->context,
			offsets[i]);
		/* Whatever the last call left in the workspace must not matter. */
		spoil_workspace(pair->context);
		pair->kernel_case->call(&other);
		if (!problem_same_bits(&first, &other))
			report(pair, INFINITY,
				offsets[i] ? "bits differ where it is not aligned"
					   : "bits differ when it is repeated");
		problem_finish(&other);
	}
	problem_finish(&first);
}

static void test_same_bits_again_and_at_any_alignment(void **state)
{
	(void)state;
	for_each_shape(check_tables, is_judged, check_bits);
}

/* The largest output element moved by `steps` tolerances must be seen, for every kernel. */
static double distance_of_perturbed(const struct pair *pair, double steps, bool *has_output)
{
	struct problem candidate;
	struct buffer *target = NULL;
	char where[WHERE];
	double distance;
	int64_t at = 0;

	problem_init(&candidate, pair->kernel_case, pair->shape, pair->kernels, pair->context, 0);
	pair->kernel_case->call(&candidate);
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
	distance = problem_distance(&candidate, pair->reference, where);
	problem_finish(&candidate);
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
	if (SAMPLED_EACH == 1)
		for_each_shape(check_beside_reference, is_reference, check_perturbed);
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

static bool is_level(const struct kernels *kernels)
{
	return strncmp(kernels->name, "cpu-", 4) == 0 && strcmp(kernels->library, "built-in") == 0;
}

static void test_bf16_products_on_all_levels(void **state)
{
	(void)state;
	if (SAMPLED_EACH == 1)
		for_each_shape(check_tables, is_level, check_levels);
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
		cmocka_unit_test(test_same_bits_again_and_at_any_alignment),
		cmocka_unit_test(test_negative_control),
		cmocka_unit_test(test_bf16_products_on_all_levels),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_small_workspace),
	};

	return cmocka_run_group_tests(tests, open_tables, close_tables);
}
