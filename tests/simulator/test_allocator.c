/* PyTorch's caching allocator, rule by rule (c10/cuda/CUDACachingAllocator.cpp). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "simulator/allocator.h"

#define KIB (INT64_C(1) << 10)
#define MIB (INT64_C(1) << 20)

/* What one request makes the device reserve. */
static void test_segments(void **state)
{
	(void)state;
	static const struct {
		int64_t bytes, reserved;
	} cases[] = {{0, 2 * MIB}, {1, 2 * MIB}, {MIB, 2 * MIB}, {MIB + 1, 20 * MIB},
		{10 * MIB - 512, 20 * MIB}, {10 * MIB, 10 * MIB}, {10 * MIB + 1, 12 * MIB},
		{21 * MIB, 22 * MIB}, {1000 * MIB, 1000 * MIB}};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct allocator a;
		allocator_init(&a, 0);
		assert_true(allocator_take(&a, 0, cases[c].bytes) >= 0);
		assert_int_equal(a.reserved, cases[c].reserved);
		allocator_finish(&a);
	}
}

/* Four requests of 512 KiB share a segment, whose rest is 512 bytes at least or stays; large blocks
 * are split when more than 1 MiB is left. */
static void test_split(void **state)
{
	(void)state;
	struct allocator a;
	allocator_init(&a, 0);
	for (int i = 0; i < 4; i++)
		allocator_take(&a, 0, 512 * KIB);
	assert_int_equal(a.reserved, 2 * MIB);
	allocator_take(&a, 0, 1);
	assert_int_equal(a.reserved, 4 * MIB);
	allocator_finish(&a);
	allocator_init(&a, 0);
	int block = allocator_take(&a, 0, 100 * MIB);
	allocator_give(&a, block);
	allocator_take(&a, 0, 99 * MIB); /* 1 MiB is left: not split, so nothing is free */
	assert_int_equal(a.free[0][0].n, 0);
	allocator_finish(&a);
	allocator_init(&a, 0);
	allocator_give(&a, allocator_take(&a, 0, 100 * MIB));
	allocator_take(&a, 0, 98 * MIB);
	assert_int_equal(a.free[0][0].n, 1);
	allocator_take(&a, 0, 2 * MIB);
	assert_int_equal(a.reserved, 100 * MIB);
	allocator_finish(&a);
}

/* The smallest that is large enough, never another stream's, small and large apart. */
static void test_best_fit(void **state)
{
	(void)state;
	struct allocator a;
	allocator_init(&a, 0);
	int big = allocator_take(&a, 0, 64 * MIB), small = allocator_take(&a, 0, 32 * MIB);
	allocator_give(&a, big);
	allocator_give(&a, small);
	assert_int_equal(allocator_take(&a, 0, 30 * MIB + 512 * KIB), small);
	assert_int_equal(a.reserved, 96 * MIB);
	allocator_take(&a, 1, 30 * MIB);
	assert_int_equal(a.reserved, 126 * MIB);
	allocator_take(&a, 0, 512);
	assert_int_equal(a.reserved, 128 * MIB);
	allocator_finish(&a);
}

/* Free neighbours become one block again, in any order of giving. */
static void test_merge(void **state)
{
	(void)state;
	static const int orders[6][3] = {
		{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	for (int o = 0; o < 6; o++) {
		struct allocator a;
		int blocks[3];
		allocator_init(&a, 0);
		allocator_give(&a, allocator_take(&a, 0, 90 * MIB));
		for (int i = 0; i < 3; i++)
			blocks[i] = allocator_take(&a, 0, 30 * MIB);
		assert_int_equal(a.reserved, 90 * MIB);
		for (int i = 0; i < 3; i++)
			allocator_give(&a, blocks[orders[o][i]]);
		assert_int_equal(a.free[0][0].n, 1);
		allocator_take(&a, 0, 90 * MIB);
		assert_int_equal(a.reserved, 90 * MIB);
		allocator_finish(&a);
	}
}

/* A hole that is too small makes a new segment: reserved exceeds what was ever in use. */
static void test_fragmentation(void **state)
{
	(void)state;
	struct allocator a;
	allocator_init(&a, 0);
	int first = allocator_take(&a, 0, 100 * MIB);
	allocator_give(&a, first);
	allocator_take(&a, 0, 20 * MIB);
	allocator_take(&a, 0, 100 * MIB);
	assert_int_equal(a.reserved, 200 * MIB);
	assert_int_equal(a.retries, 0);
	allocator_finish(&a);
}

/* At the limit wholly free segments go back once; what is split stays. */
static void test_retry(void **state)
{
	(void)state;
	struct allocator a;
	allocator_init(&a, 100 * MIB);
	int block = allocator_take(&a, 0, 60 * MIB);
	allocator_give(&a, block);
	assert_true(allocator_take(&a, 1, 60 * MIB) >= 0);
	assert_int_equal(a.retries, 1);
	assert_int_equal(a.reserved, 60 * MIB);
	assert_int_equal(a.peak_reserved, 60 * MIB);
	assert_false(a.failed);
	assert_int_equal(allocator_take(&a, 0, 60 * MIB), -1);
	assert_true(a.failed);
	allocator_finish(&a);
	allocator_init(&a, 100 * MIB);
	allocator_give(&a, allocator_take(&a, 0, 60 * MIB));
	allocator_take(&a, 0, 2 * MIB); /* a part of it */
	assert_int_equal(allocator_take(&a, 1, 60 * MIB), -1);
	allocator_finish(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_best_fit),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_fragmentation),
		cmocka_unit_test(test_retry),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
