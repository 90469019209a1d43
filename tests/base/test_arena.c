/* The arena, grown arrays, running out of memory, and arithmetic that notices overflow. */
#include "tests/base/support.h"

static bool is_zero(const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] != 0)
			return false;
	}
	return true;
}

/* All sizes around the block sizes: aligned, zeroed, and not overlapping one another. */
static void test_alloc(void **state)
{
	static const size_t sizes[] = {
		0, 1, 7, 8, 16, 17, 4095, 4096, 4097, 1 << 20, (1 << 20) + 1};
	struct arena arena = {0};
	char *pieces[3 * 11];

	(void)state;
	for (int i = 0; i < COUNT_OF(pieces); i++) {
		size_t size = sizes[i % COUNT_OF(sizes)];
		pieces[i] = arena_alloc(&arena, 1, size);
		assert_non_null(pieces[i]);
		assert_int_equal((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
		assert_true(is_zero(pieces[i], size));
		memset(pieces[i], i + 1, size);
	}
	for (int i = 0; i < COUNT_OF(pieces); i++) {
		for (size_t k = 0; k < sizes[i % COUNT_OF(sizes)]; k++)
			assert_int_equal(pieces[i][k], i + 1);
	}
	arena_finish(&arena);
	assert_null(arena.first);
	arena_finish(&arena);
}

/* After a reset the memory is handed out again, zeroed although it was used. */
static void test_reset(void **state)
{
	struct arena arena = {0};

	(void)state;
	arena_reset(&arena);
	for (int round = 0; round < 100; round++) {
		char *bytes = arena_alloc(&arena, 100, 3);
		assert_true(is_zero(bytes, 300));
		memset(bytes, 0x5a, 300);
		if (round % 10 == 0)
			arena_alloc(&arena, 1, 10000);
		arena_reset(&arena);
	}
	char *large = arena_alloc(&arena, 1, 3 << 20);
	assert_true(is_zero(large, 3 << 20));
	memset(large, 0x5a, 3 << 20);
	arena_reset(&arena);
	assert_true(is_zero(arena_alloc(&arena, 1, 3 << 20), 3 << 20));
	arena_reset(&arena);
	char *first = arena_alloc(&arena, 1, 64);
	arena_reset(&arena);
	assert_ptr_equal(arena_alloc(&arena, 1, 64), first);
	arena_finish(&arena);
}

static void test_strings(void **state)
{
	struct arena arena = {0};

	(void)state;
	assert_string_equal(arena_strdup(&arena, "unit"), "unit");
	assert_string_equal(arena_strdup(&arena, ""), "");
	assert_string_equal(arena_strndup(&arena, "all-gather", 3), "all");
	assert_string_equal(arena_strndup(&arena, NULL, 0), "");
	assert_string_equal(arena_printf(&arena, "%d of %s", 3, "8"), "3 of 8");
	char *wide = arena_printf(&arena, "%05000d", 7);
	assert_int_equal(strlen(wide), 5000);
	assert_int_equal(wide[4999], '7');
	struct error *error = ARENA_NEW(&arena, struct error);
	assert_int_equal(error->code, EXIT_CODE_OK);
	int *numbers = ARENA_ARRAY(&arena, int, 5);
	assert_int_equal(numbers[4], 0);
	arena_finish(&arena);
}

static void test_array_grow(void **state)
{
	int *array = NULL, capacity = 0, changes = 0;

	(void)state;
	for (int i = 0; i < 10000; i++) {
		int before = capacity;
		array = array_grow(array, &capacity, i + 1, sizeof(*array));
		assert_in_range(capacity, i + 1, 2 * (i + 1) + 8);
		changes += capacity != before;
		array[i] = i;
	}
	assert_in_range(changes, 8, 14); /* doubling: log2(10000 / 8) */
	for (int i = 0; i < 10000; i++)
		assert_int_equal(array[i], i);
	free(array);
}

static jmp_buf out_of_memory;
static size_t wanted;

static void remember(size_t bytes)
{
	wanted = bytes;
	longjmp(out_of_memory, 1);
}

static void grow_too_far(void)
{
	int capacity = 0;

	array_grow(NULL, &capacity, INT32_MAX, SIZE_MAX / 4);
}

static void overflow_product(void)
{
	struct arena arena = {0};

	arena_alloc(&arena, SIZE_MAX / 2, 4);
}

static void overflow_sum(void)
{
	struct arena arena = {0};

	arena_alloc(&arena, SIZE_MAX - 3, 1);
}

/* A product that overflows must not turn into a small allocation. */
static void test_out_of_memory(void **state)
{
	void (*const cases[])(void) = {grow_too_far, overflow_product, overflow_sum};

	(void)state;
	base_set_out_of_memory_handler(remember);
	for (int i = 0; i < COUNT_OF(cases); i++) {
		wanted = 0;
		if (setjmp(out_of_memory) == 0) {
			cases[i]();
			fail_msg("case %d came back", i);
		}
		assert_true(wanted >= SIZE_MAX / 2);
	}
	base_set_out_of_memory_handler(NULL);
}

static void test_checked(void **state)
{
	int64_t result = -1;

	(void)state;
	assert_true(checked_add(INT64_MAX - 1, 1, &result));
	assert_true(result == INT64_MAX);
	assert_false(checked_add(INT64_MAX, 1, &result));
	assert_true(checked_mul(3037000499, 3037000499, &result));
	assert_true(result == 9223372030926249001);
	assert_false(checked_mul(3037000500, 3037000500, &result));
	assert_false(checked_mul(INT64_MIN, -1, &result));
	assert_int_equal(ceil_div(0, 8), 0);
	assert_int_equal(ceil_div(8, 8), 1);
	assert_int_equal(ceil_div(9, 8), 2);
	assert_true(ceil_div(INT64_MAX, 2) == INT64_MAX / 2 + 1);
	assert_int_equal(round_up(0, 4), 0);
	assert_int_equal(round_up(5, 4), 8);
	assert_int_equal(min_i64(-2, 3), -2);
	assert_int_equal(max_i64(-2, 3), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alloc),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_array_grow),
		cmocka_unit_test(test_out_of_memory),
		cmocka_unit_test(test_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
