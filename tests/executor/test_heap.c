/* The allocator: placement, coalescing, accounts, and that its invariants can be seen to break. */
#include "support.h"

#include <stdlib.h>

#include "executor/compute/random.h"
#include "executor/memory/heap.h"
#include "kernels/plain/plain.h"
#include "schedule/memory/memory.h"

enum { CAPACITY = 1 << 16 };

static _Alignas(64) char memory[CAPACITY];

static int take(struct heap *heap, int64_t bytes)
{
	struct error error = {0};
	int block = heap_take(heap, bytes, &error);

	assert_true(block >= 0);
	assert_int_equal((intptr_t)heap_address(heap, block) % HEAP_ALIGNMENT, 0);
	assert_true(heap_check(heap));
	return block;
}

static void give(struct heap *heap, int block)
{
	heap_give(heap, block);
	assert_true(heap_check(heap));
}

static void the_smallest_hole_is_used(void **state)
{
	struct heap heap;

	(void)state;
	heap_init(&heap, memory, CAPACITY, 16);
	int a = take(&heap, 1000), wall = take(&heap, 64), b = take(&heap, 200);
	int wall2 = take(&heap, 64);
	void *b_address = heap_address(&heap, b), *a_address = heap_address(&heap, a);
	give(&heap, a);
	give(&heap, b);
	int c = take(&heap, 150);
	assert_ptr_equal(heap_address(&heap, c), b_address);
	int d = take(&heap, 1000);
	assert_ptr_equal(heap_address(&heap, d), a_address);
	assert_int_equal(heap.live, 64 + 64 + 150 + 1000);
	assert_int_equal(heap.live_peak, 64 + 64 + 1000 + 200);
	(void)wall, (void)wall2;
	heap_finish(&heap);
}

static void neighbours_become_one_hole(void **state)
{
	struct heap heap;
	int blocks[4];

	(void)state;
	heap_init(&heap, memory, CAPACITY, 8);
	for (int i = 0; i < 4; i++)
		blocks[i] = take(&heap, 100);
	give(&heap, blocks[0]);
	give(&heap, blocks[2]);
	give(&heap, blocks[1]); /* joins both sides */
	int joined = take(&heap, 3 * 128);
	assert_ptr_equal(heap_address(&heap, joined), memory);
	give(&heap, joined);
	give(&heap, blocks[3]);
	assert_int_equal(heap.blocks[0].span, CAPACITY);
	assert_int_equal(heap.live, 0);
	assert_int_equal(heap.high_water, 4 * 128);
	heap_finish(&heap);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct heap heap;
	struct error error = {0};

	(void)state;
	heap_init(&heap, memory, CAPACITY, 8);
	assert_int_equal(heap_take(&heap, CAPACITY + 1, &error), -1);
	assert_int_equal(error.code, EXIT_CODE_INTERNAL);
	assert_non_null(strstr(error.message, "65537"));
	int all = take(&heap, CAPACITY);
	error_clear(&error);
	assert_int_equal(heap_take(&heap, 1, &error), -1);
	give(&heap, all);
	heap_finish(&heap);
}

/* Blocks keep their content while others come and go. */
static void random_traffic(void **state)
{
	enum { SLOTS = 40, ROUNDS = 20000 };
	struct {
		int block;
		int64_t bytes;
	} slots[SLOTS] = {0};
	struct heap heap;
	int64_t live = 0;

	(void)state;
	heap_init(&heap, memory, CAPACITY, SLOTS);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		const uint32_t counter[4] = {round}, key[2] = {99, 0};
		uint32_t bits[4];

		philox4x32(counter, key, bits);
		int s = (int)(bits[0] % SLOTS);
		if (slots[s].bytes > 0) {
			const char *content = heap_address(&heap, slots[s].block);

			for (int64_t i = 0; i < slots[s].bytes; i++)
				if (content[i] != (char)s)
					fail_msg("slot %d was overwritten", s);
			live -= slots[s].bytes;
			give(&heap, slots[s].block);
			slots[s].bytes = 0;
		} else {
			slots[s].bytes = 1 + bits[1] % 1200;
			slots[s].block = take(&heap, slots[s].bytes);
			memset(heap_address(&heap, slots[s].block), s, (size_t)slots[s].bytes);
			live += slots[s].bytes;
		}
		assert_int_equal(heap.live, live);
	}
	heap_finish(&heap);
}

static void the_check_sees_damage(void **state)
{
	struct heap heap;

	(void)state;
	heap_init(&heap, memory, CAPACITY, 8);
	int a = take(&heap, 100);
	heap.blocks[a].span += HEAP_ALIGNMENT;
	assert_false(heap_check(&heap));
	heap.blocks[a].span -= HEAP_ALIGNMENT;
	heap.live++;
	assert_false(heap_check(&heap));
	heap.live--;
	assert_true(heap_check(&heap));
	heap_finish(&heap);
}

/* Returns the bytes of the largest gradient that comes and goes. */
static int64_t gradient_bytes(const struct program *program)
{
	int64_t most = 0;

	for (int b = 0; b < program->n_buffers; b++)
		if (program->buffers[b].role == BUFFER_GRADIENT)
			most = max_i64(most, program->buffers[b].bytes);
	return most;
}

/* A device has places for two gradients that await their reduction beside the one that is made, not
 * for those of all blocks: 12 of them take more than the largest, the embedding's. */
static void gradients_share_places(void **state)
{
	static const char *const strategies[] = {"FULL_SHARD", "ZERO_2", "ZERO_2 grad_accum=3"};

	(void)state;
	for (int i = 0; i < COUNT_OF(strategies); i++) {
		char options[128];
		struct run run;
		struct ledger ledger;
		struct addresses addresses;

		snprintf(options, sizeof(options),
			"seq_len=64 activation_checkpointing=full strategy=%s", strategies[i]);
		run_plan(&run, "gpt2-124m", 4, options);
		schedule_ledger(run.schedule, 0, &run.arena, &ledger);
		schedule_addresses(&run.schedule->programs[0], &run.arena, &addresses);
		assert_in_range(addresses.device_bytes, ledger.peak_bytes,
			ledger.peak_bytes + gradient_bytes(&run.schedule->programs[0]));
		run_finish(&run);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_smallest_hole_is_used),
		cmocka_unit_test(neighbours_become_one_hole),
		cmocka_unit_test(what_does_not_fit_is_refused),
		cmocka_unit_test(random_traffic),
		cmocka_unit_test(the_check_sees_damage),
		cmocka_unit_test(gradients_share_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
