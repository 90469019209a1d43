/* PyTorch's caching allocator, rule by rule (c10/cuda/CUDACachingAllocator.cpp). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "simulator/memory/blocks.h"

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
		struct arena arena = {0};
		struct allocator a;
		allocator_init(&a, 0, false, &arena);
		assert_non_null(allocator_take(&a, 0, cases[c].bytes));
		assert_int_equal(a.reserved, cases[c].reserved);
		arena_finish(&arena);
	}
}

/* Four requests of 512 KiB share a segment, whose rest is 512 bytes at least or stays; large blocks
 * are split when more than 1 MiB is left. */
static void test_split(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator a;
	allocator_init(&a, 0, false, &arena);
	for (int i = 0; i < 4; i++)
		allocator_take(&a, 0, 512 * KIB);
	assert_int_equal(a.reserved, 2 * MIB);
	allocator_take(&a, 0, 1);
	assert_int_equal(a.reserved, 4 * MIB);
	arena_finish(&arena);
	allocator_init(&a, 0, false, &arena);
	struct allocator_block *block = allocator_take(&a, 0, 100 * MIB);
	allocator_give(&a, block);
	allocator_take(&a, 0, 99 * MIB); /* 1 MiB is left: not split, so nothing is free */
	assert_int_equal(a.lists[0][0].n, 0);
	arena_finish(&arena);
	allocator_init(&a, 0, false, &arena);
	allocator_give(&a, allocator_take(&a, 0, 100 * MIB));
	allocator_take(&a, 0, 98 * MIB);
	assert_int_equal(a.lists[0][0].n, 1);
	allocator_take(&a, 0, 2 * MIB);
	assert_int_equal(a.reserved, 100 * MIB);
	arena_finish(&arena);
}

/* The smallest that is large enough, never another stream's, small and large apart. */
static void test_best_fit(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator a;
	allocator_init(&a, 0, false, &arena);
	struct allocator_block *big = allocator_take(&a, 0, 64 * MIB);
	struct allocator_block *small = allocator_take(&a, 0, 32 * MIB);
	allocator_give(&a, big);
	allocator_give(&a, small);
	assert_ptr_equal(allocator_take(&a, 0, 30 * MIB + 512 * KIB), small);
	assert_int_equal(a.reserved, 96 * MIB);
	allocator_take(&a, 1, 30 * MIB);
	assert_int_equal(a.reserved, 126 * MIB);
	allocator_take(&a, 0, 512);
	assert_int_equal(a.reserved, 128 * MIB);
	arena_finish(&arena);
}

/* Free neighbours become one block again, in any order of giving. */
static void test_merge(void **state)
{
	(void)state;
	static const int orders[6][3] = {
		{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	for (int o = 0; o < 6; o++) {
		struct arena arena = {0};
		struct allocator a;
		struct allocator_block *blocks[3];
		allocator_init(&a, 0, false, &arena);
		allocator_give(&a, allocator_take(&a, 0, 90 * MIB));
		for (int i = 0; i < 3; i++)
			blocks[i] = allocator_take(&a, 0, 30 * MIB);
		assert_int_equal(a.reserved, 90 * MIB);
		for (int i = 0; i < 3; i++)
			allocator_give(&a, blocks[orders[o][i]]);
		assert_int_equal(a.lists[0][0].n, 1);
		allocator_take(&a, 0, 90 * MIB);
		assert_int_equal(a.reserved, 90 * MIB);
		arena_finish(&arena);
	}
}

/* A hole that is too small makes a new segment: reserved exceeds what was ever in use. */
static void test_fragmentation(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator a;
	allocator_init(&a, 0, false, &arena);
	struct allocator_block *first = allocator_take(&a, 0, 100 * MIB);
	allocator_give(&a, first);
	allocator_take(&a, 0, 20 * MIB);
	allocator_take(&a, 0, 100 * MIB);
	assert_int_equal(a.reserved, 200 * MIB);
	assert_int_equal(a.retries, 0);
	arena_finish(&arena);
}

/* At the limit wholly free segments go back once; what is split stays. */
static void test_retry(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator a;
	allocator_init(&a, 100 * MIB, false, &arena);
	struct allocator_block *block = allocator_take(&a, 0, 60 * MIB);
	allocator_give(&a, block);
	assert_non_null(allocator_take(&a, 1, 60 * MIB));
	assert_int_equal(a.retries, 1);
	assert_int_equal(a.reserved, 60 * MIB);
	assert_int_equal(a.peak_reserved, 60 * MIB);
	assert_false(a.failed);
	assert_null(allocator_take(&a, 0, 60 * MIB));
	assert_true(a.failed);
	arena_finish(&arena);
	allocator_init(&a, 100 * MIB, false, &arena);
	allocator_give(&a, allocator_take(&a, 0, 60 * MIB));
	allocator_take(&a, 0, 2 * MIB); /* a part of it */
	assert_null(allocator_take(&a, 1, 60 * MIB));
	arena_finish(&arena);
}

/* One segment that grows: no holes that are too small, and every rest is split off. */
static void test_expandable(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator a;
	allocator_init(&a, 0, true, &arena);
	struct allocator_block *first = allocator_take(&a, 0, 100 * MIB);
	allocator_give(&a, first);
	allocator_take(&a, 0, 20 * MIB);
	assert_int_equal(a.reserved, 100 * MIB);
	struct allocator_block *second =
		allocator_take(&a, 0, 100 * MIB); /* 80 are free at the end */
	assert_int_equal(a.reserved, 120 * MIB);
	allocator_take(&a, 0, 21 * MIB); /* 40 more: pages of 20 */
	assert_int_equal(a.reserved, 160 * MIB);
	allocator_take(&a, 0, 19 * MIB);
	assert_int_equal(a.reserved, 160 * MIB);
	allocator_take(&a, 0, 1000);
	assert_int_equal(a.reserved, 162 * MIB); /* small ones have theirs, pages of 2 */
	allocator_take(&a, 1, 3 * MIB);
	assert_int_equal(a.reserved, 182 * MIB); /* so has each stream */
	allocator_give(&a, second);
	allocator_take(&a, 0, 50 * MIB);
	allocator_take(&a, 0, 50 * MIB);
	assert_int_equal(a.reserved, 182 * MIB);
	assert_int_equal(a.retries, 0);
	arena_finish(&arena);
}

/* At the limit all free pages go back, also those of a segment in use. */
static void test_expandable_retry(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator a;
	allocator_init(&a, 100 * MIB, true, &arena);
	struct allocator_block *first = allocator_take(&a, 0, 30 * MIB);
	struct allocator_block *second = allocator_take(&a, 0, 30 * MIB);
	struct allocator_block *third = allocator_take(&a, 0, 10 * MIB);
	assert_int_equal(a.reserved, 80 * MIB);
	allocator_give(&a, second); /* 30 to 60: the page from 40 to 60 is free as a whole */
	assert_non_null(allocator_take(&a, 1, 40 * MIB));
	assert_int_equal(a.retries, 1);
	assert_int_equal(a.reserved, 100 * MIB);
	allocator_take(&a, 0, 10 * MIB); /* what is left of the second */
	assert_int_equal(a.reserved, 100 * MIB);
	allocator_give(&a, third);
	allocator_take(&a, 0, 20 * MIB); /* at the end, where 20 are free again */
	assert_int_equal(a.reserved, 100 * MIB);
	assert_false(a.failed);
	allocator_give(&a, first);
	assert_null(allocator_take(&a, 1, 60 * MIB));
	assert_true(a.failed);
	arena_finish(&arena);
}

/* What is taken together, and given together. */
struct group {
	int n;
	struct allocator_block *single[8], *together[8];
};

static void take_group(
	struct allocator *single, struct allocator *together, struct group *group, uint64_t random)
{
	/* Few sizes, of which many are free, and any: rests of all sizes. */
	int64_t bytes = random % 3 != 0 ? (int64_t)(1 + random / 3 % 5) * 16 * MIB
					: (int64_t)(1 + random / 3 % 100) * 700 * KIB;
	group->n = 1 + (int)(random / 1000 % COUNT_OF(group->single));
	for (int i = 0; i < group->n; i++)
		group->single[i] = allocator_take(single, 0, bytes);
	allocator_take_all(together, 0, bytes, group->n, group->together);
}

static void give_group(struct allocator *single, struct allocator *together, struct group *group)
{
	for (int i = 0; i < group->n; i++)
		allocator_give(single, group->single[i]);
	allocator_give_all(together, group->n, group->together);
	for (int i = 0; i < group->n; i++)
		assert_null(group->together[i]);
	group->n = 0;
}

/* Requests in a row are what they are one by one. */
static void test_together(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator single, together;
	static struct group groups[40];
	uint64_t random = 12345;
	int sizes = 0;
	allocator_init(&single, 0, false, &arena);
	allocator_init(&together, 0, false, &arena);
	for (int round = 0; round < 4000; round++) {
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
		struct group *group = &groups[(random >> 40) % COUNT_OF(groups)];
		if (group->n == 0)
			take_group(&single, &together, group, random >> 20);
		else
			give_group(&single, &together, group);
		sizes = together.lists[0][0].n > sizes ? together.lists[0][0].n : sizes;
		assert_int_equal(together.reserved, single.reserved);
		assert_int_equal(together.active, single.active);
		assert_int_equal(together.peak_active, single.peak_active);
		for (int small = 0; small < 2; small++)
			assert_int_equal(allocator_state(&together, 0, small),
				allocator_state(&single, 0, small));
		assert_int_equal(allocator_layout(&together), allocator_layout(&single));
	}
	assert_true(sizes > 32);
	arena_finish(&arena);
}

/* A hash of the free blocks in their order. */
static uint64_t places_of(const struct free_list *list)
{
	uint64_t hash = (uint64_t)list->end;
	for (int i = 0; i < list->n; i++)
		for (const struct allocator_block *block = list->sizes[i].first; block != NULL;
			block = block->free_after)
			hash = hash * 31 + (uint64_t)(block->bytes ^ block->offset ^
						      (int64_t)block->segment << 40);
	return hash;
}

/* What is never given back can be part of one block: all else goes on as if it were not. */
static void test_kept(void **state)
{
	(void)state;
	for (int expandable = 0; expandable < 2; expandable++) {
		struct arena arena = {0};
		struct allocator apart, kept;
		struct allocator_block *blocks[2][40] = {{NULL}};
		uint64_t random = 4711;
		allocator_init(&apart, 0, expandable, &arena);
		allocator_init(&kept, 0, expandable, &arena);
		for (int round = 0; round < 4000; round++) {
			random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
			int64_t bytes = (int64_t)(random >> 20) % (round % 2 ? MIB : 12 * MIB);
			int i = (int)(random >> 40) % COUNT_OF(blocks[0]);
			for (int n = round % 4; n > 0 && round % 5 == 0; n--)
				allocator_take(&apart, 0, bytes);
			if (round % 5 == 0) {
				allocator_keep(&kept, 0, bytes, round % 4);
			} else if (blocks[0][i] == NULL) {
				blocks[0][i] = allocator_take(&apart, 0, bytes);
				blocks[1][i] = allocator_take(&kept, 0, bytes);
			} else {
				allocator_give(&apart, blocks[0][i]);
				allocator_give(&kept, blocks[1][i]);
				blocks[0][i] = blocks[1][i] = NULL;
			}
			assert_int_equal(kept.reserved, apart.reserved);
			assert_int_equal(kept.active, apart.active);
			assert_int_equal(kept.peak_active, apart.peak_active);
			for (int small = 0; small < 2; small++)
				assert_int_equal(places_of(&kept.lists[0][small]),
					places_of(&apart.lists[0][small]));
		}
		arena_finish(&arena);
	}
}

/* Fills a segment with three blocks and gives back the one in the middle. */
static void make_hole(struct allocator *allocator, bool kept, int64_t before, int64_t bytes)
{
	const int64_t sizes[] = {before, bytes, 20 * MIB - before - bytes};
	struct allocator_block *middle = NULL;
	for (int i = 0; i < COUNT_OF(sizes); i++) {
		if (i == 1)
			middle = allocator_take(allocator, 0, sizes[i]);
		else if (kept)
			allocator_keep(allocator, 0, sizes[i], 1);
		else
			allocator_take(allocator, 0, sizes[i]);
	}
	allocator_give(allocator, middle);
}

/* Free blocks of one size can stand for one another where no neighbour is ever given back. */
static void test_alike(void **state)
{
	(void)state;
	for (int kept = 0; kept < 2; kept++) {
		struct arena arena = {0};
		struct allocator allocator;
		allocator_init(&allocator, 0, false, &arena);
		make_hole(&allocator, kept, 5 * MIB, 4 * MIB);
		make_hole(&allocator, kept, 7 * MIB, 4 * MIB);
		uint64_t before = allocator_state(&allocator, 0, false);
		struct allocator_block *blocks[] = {allocator_take(&allocator, 0, 4 * MIB),
			allocator_take(&allocator, 0, 4 * MIB)};
		allocator_give(&allocator, blocks[0]);
		allocator_give(&allocator, blocks[1]);
		bool same = allocator_state(&allocator, 0, false) == before;
		assert_int_equal(same, kept);
		arena_finish(&arena);
	}
}

/* The end of a segment that grows is like no other block. */
static void test_end_of_segment(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator allocator;
	allocator_init(&allocator, 0, true, &arena);
	allocator_keep(&allocator, 0, 5 * MIB, 1);
	struct allocator_block *hole = allocator_take(&allocator, 0, 4 * MIB);
	allocator_keep(&allocator, 0, 7 * MIB, 1);
	allocator_give(&allocator, hole); /* and 4 MiB behind what is kept */
	uint64_t before = allocator_state(&allocator, 0, false);
	struct allocator_block *blocks[] = {
		allocator_take(&allocator, 0, 4 * MIB), allocator_take(&allocator, 0, 4 * MIB)};
	allocator_give(&allocator, blocks[0]);
	allocator_give(&allocator, blocks[1]);
	assert_int_not_equal(allocator_state(&allocator, 0, false), before);
	arena_finish(&arena);
}

static void test_kept_as_one(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct allocator parts, whole;
	allocator_init(&parts, 0, false, &arena);
	allocator_init(&whole, 0, false, &arena);
	allocator_keep(&parts, 0, 100 * KIB, 3);
	allocator_keep(&parts, 0, 64 * KIB, 1);
	allocator_keep(&whole, 0, 364 * KIB, 1);
	assert_int_equal(allocator_layout(&parts), allocator_layout(&whole));
	arena_finish(&arena);
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
		cmocka_unit_test(test_expandable),
		cmocka_unit_test(test_expandable_retry),
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_alike),
		cmocka_unit_test(test_end_of_segment),
		cmocka_unit_test(test_kept_as_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
