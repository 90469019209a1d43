/* A call allocates nothing, once its shape is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/allocations.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/problem.h"

/* What the second call of a shape asks for. */
static struct allocations second_call(const struct kernel_case *kernel_case, const int64_t *shape,
	const struct kernels *kernels, struct kernel_context *context)
{
	struct problem problem;
	struct allocations before, after;

	problem_init(&problem, kernel_case, shape, kernels, context, 0);
	kernel_case->call(&problem);
	before = allocations_so_far();
	kernel_case->call(&problem);
	after = allocations_so_far();
	problem_finish(&problem);
	return (struct allocations){after.calls - before.calls, after.bytes - before.bytes};
}

static struct allocations all_second_calls(const struct kernels *kernels, int threads)
{
	struct kernel_context context;
	struct allocations sum = {0};

	context_init(&context, kernels);
	context.threads = threads;
	for (int list = 0; case_lists[list]; list++) {
		for (const struct kernel_case *c = case_lists[list]; c->name; c++) {
			for (int i = 0; c->shapes[i][0] >= 0; i++) {
				struct allocations one =
					second_call(c, c->shapes[i], kernels, &context);
				if (one.calls > 0)
					print_message("%s %s: %lld calls, %lld bytes\n",
						kernels->name, c->name, (long long)one.calls,
						(long long)one.bytes);
				sum.calls += one.calls;
				sum.bytes += one.bytes;
			}
		}
	}
	context_finish(&context, kernels);
	return sum;
}

/* Every table whose product is built in. Libraries are not asked: they make no such promise. */
static void test_no_allocation(void **state)
{
	(void)state;
	if (!allocations_counted())
		skip();
	for (const struct kernels *const *table = kernels_all(); *table; table++) {
		if (strcmp((*table)->library, "built-in") == 0)
			assert_int_equal(all_second_calls(*table, 1).calls, 0);
	}
}

/* OpenMP keeps its team from the first call on. */
static void test_no_allocation_with_threads(void **state)
{
	(void)state;
	if (!allocations_counted())
		skip();
	assert_int_equal(all_second_calls(kernels_cpu(), 2).calls, 0);
}

static void call_that_allocates(struct problem *problem)
{
	void *block = malloc(100 + (size_t)problem->dim[0]);

	/* The compiler must not see that the block is unused. */
	__asm__ volatile("" : : "r"(block) : "memory");
	free(block);
}

static void make_nothing(struct problem *problem)
{
	(void)problem;
}

/* Negative control. */
static void test_an_allocation_is_seen(void **state)
{
	static const int64_t shape[MOST_DIMS] = {28};
	const struct kernel_case guilty = {"guilty", make_nothing, call_that_allocates};
	struct kernel_context context;
	struct allocations seen;

	(void)state;
	if (!allocations_counted())
		skip();
	context_init(&context, kernels_cpu());
	seen = second_call(&guilty, shape, kernels_cpu(), &context);
	context_finish(&context, kernels_cpu());
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.bytes, 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_allocation),
		cmocka_unit_test(test_no_allocation_with_threads),
		cmocka_unit_test(test_an_allocation_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
