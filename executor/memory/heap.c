#include "executor/memory/heap.h"

#include <stdlib.h>

#include "base/base.h"
#include "executor/memory/sanitizer.h"

#if HAVE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

void heap_init(struct heap *heap, void *base, int64_t capacity, int blocks)
{
	/* Between any two live blocks there may be a free one. */
	int descriptors = 2 * blocks + 2;

	*heap = (struct heap){.base = base, .capacity = capacity / HEAP_ALIGNMENT * HEAP_ALIGNMENT};
	heap->blocks = calloc((size_t)descriptors, sizeof(heap->blocks[0]));
	if (heap->blocks == NULL)
		base_out_of_memory((size_t)descriptors * sizeof(heap->blocks[0]));
	heap->capacity_blocks = descriptors;
	heap->n_blocks = 1;
	heap->unused = -1;
	heap->blocks[0] = (struct heap_block){.span = heap->capacity, .previous = -1, .next = -1};
	ASAN_POISON_MEMORY_REGION(base, (size_t)capacity);
}

void heap_finish(struct heap *heap)
{
	if (heap->base != NULL)
		ASAN_UNPOISON_MEMORY_REGION(heap->base, (size_t)heap->capacity);
	free(heap->blocks);
	*heap = (struct heap){0};
}

static int descriptor_new(struct heap *heap)
{
	int i = heap->unused;

	if (i >= 0) {
		heap->unused = heap->blocks[i].next;
		return i;
	}
	return heap->n_blocks < heap->capacity_blocks ? heap->n_blocks++ : -1;
}

/* The smallest hole that is large enough, the lowest of equals. The open end of the range is the
 * largest hole as long as the range is generous, so it is used last. */
static int best_hole(const struct heap *heap, int64_t span)
{
	int best = -1;

	for (int i = 0; i >= 0; i = heap->blocks[i].next) {
		const struct heap_block *block = &heap->blocks[i];

		if (block->bytes == 0 && block->span >= span &&
			(best < 0 || block->span < heap->blocks[best].span))
			best = i;
	}
	return best;
}

/* Cuts what `span` leaves over into a hole of its own. */
static bool split(struct heap *heap, int i, int64_t span)
{
	struct heap_block *block = &heap->blocks[i];

	if (block->span == span)
		return true;
	int rest = descriptor_new(heap);
	if (rest < 0)
		return false;
	heap->blocks[rest] = (struct heap_block){.offset = block->offset + span,
		.span = block->span - span,
		.previous = i,
		.next = block->next};
	if (block->next >= 0)
		heap->blocks[block->next].previous = rest;
	block->next = rest;
	block->span = span;
	return true;
}

int heap_take(struct heap *heap, int64_t bytes, struct error *error)
{
	int64_t wanted = max_i64(bytes, 1), span = round_up(wanted, HEAP_ALIGNMENT);
	int i = best_hole(heap, span);

	if (i < 0 || !split(heap, i, span)) {
		error_set(error, EXIT_CODE_INTERNAL,
			"no room for %lld bytes beside %lld live ones in a range of %lld",
			(long long)bytes, (long long)heap->live, (long long)heap->capacity);
		return -1;
	}
	heap->blocks[i].bytes = wanted;
	heap->live += wanted;
	heap->live_peak = max_i64(heap->live_peak, heap->live);
	heap->high_water = max_i64(heap->high_water, heap->blocks[i].offset + span);
	ASAN_UNPOISON_MEMORY_REGION(heap_address(heap, i), (size_t)wanted);
	return i;
}

/* Lets block i swallow the one after it. */
static void merge_next(struct heap *heap, int i)
{
	struct heap_block *block = &heap->blocks[i];
	int gone = block->next;

	block->span += heap->blocks[gone].span;
	block->next = heap->blocks[gone].next;
	if (block->next >= 0)
		heap->blocks[block->next].previous = i;
	heap->blocks[gone] = (struct heap_block){.previous = -1, .next = heap->unused};
	heap->unused = gone;
}

static bool is_hole(const struct heap *heap, int i)
{
	return i >= 0 && heap->blocks[i].bytes == 0;
}

void heap_give(struct heap *heap, int i)
{
	struct heap_block *block = &heap->blocks[i];

	ASAN_POISON_MEMORY_REGION(heap_address(heap, i), (size_t)block->span);
	heap->live -= block->bytes;
	block->bytes = 0;
	if (is_hole(heap, block->next))
		merge_next(heap, i);
	if (is_hole(heap, block->previous))
		merge_next(heap, block->previous);
}
