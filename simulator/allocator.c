#include "simulator/allocator.h"

#include <stdlib.h>
#include <string.h>

enum {
	MIB = 1 << 20,
	ROUND = 512,
	SMALL_REQUEST = MIB,
	SMALL_SEGMENT = 2 * MIB,
	LARGE_REQUEST = 10 * MIB,
	LARGE_SEGMENT = 20 * MIB,
	SEGMENT_ROUND = 2 * MIB,
};

struct allocator_block {
	int64_t bytes;
	int previous, next; /* in the segment; -1 */
	int stream;
	bool small, is_free; /* in its free list */
};

void allocator_init(struct allocator *allocator, int64_t limit)
{
	*allocator = (struct allocator){.limit = limit, .unused = -1};
}

void allocator_finish(struct allocator *allocator)
{
	for (int s = 0; s < ALLOCATOR_STREAMS; s++) {
		free(allocator->free[s][0].blocks);
		free(allocator->free[s][1].blocks);
	}
	free(allocator->blocks);
}

static int block_new(struct allocator *a, struct allocator_block block)
{
	int index = a->unused;
	if (index >= 0) {
		a->unused = a->blocks[index].next;
	} else {
		a->blocks = array_grow(
			a->blocks, &a->block_capacity, a->n_blocks + 1, sizeof(*a->blocks));
		index = a->n_blocks++;
	}
	a->blocks[index] = block;
	return index;
}

static void block_drop(struct allocator *a, int index)
{
	a->blocks[index].next = a->unused;
	a->unused = index;
}

static struct free_list *list_of(struct allocator *a, const struct allocator_block *block)
{
	return &a->free[block->stream][block->small];
}

/* The first of the list that is not smaller; lists ascend in size. */
static int lower_bound(const struct allocator *a, const struct free_list *list, int64_t bytes)
{
	int low = 0, high = list->n;
	while (low < high) {
		int middle = (low + high) / 2;
		if (a->blocks[list->blocks[middle]].bytes < bytes)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void list_put(struct allocator *a, int index)
{
	struct free_list *list = list_of(a, &a->blocks[index]);
	int place = lower_bound(a, list, a->blocks[index].bytes);
	list->blocks = array_grow(list->blocks, &list->capacity, list->n + 1, sizeof(int));
	memmove(list->blocks + place + 1, list->blocks + place,
		(size_t)(list->n++ - place) * sizeof(int));
	list->blocks[place] = index;
	a->blocks[index].is_free = true;
}

static void list_cut(struct allocator *a, int index)
{
	struct free_list *list = list_of(a, &a->blocks[index]);
	int place = lower_bound(a, list, a->blocks[index].bytes);
	while (list->blocks[place] != index)
		place++;
	memmove(list->blocks + place, list->blocks + place + 1,
		(size_t)(--list->n - place) * sizeof(int));
	a->blocks[index].is_free = false;
}

/* The smallest that is large enough; -1. */
static int best_fit(const struct allocator *a, const struct free_list *list, int64_t bytes)
{
	int place = lower_bound(a, list, bytes);
	return place < list->n ? list->blocks[place] : -1;
}

static int64_t segment_bytes(int64_t bytes)
{
	if (bytes <= SMALL_REQUEST)
		return SMALL_SEGMENT;
	return bytes < LARGE_REQUEST ? LARGE_SEGMENT : round_up(bytes, SEGMENT_ROUND);
}

static bool is_segment(const struct allocator_block *block)
{
	return block->previous < 0 && block->next < 0;
}

/* All segments that are wholly free go back to the device. */
static void release_cached(struct allocator *a)
{
	a->retries++;
	for (int s = 0; s < ALLOCATOR_STREAMS; s++)
		for (int small = 0; small < 2; small++)
			for (int i = a->free[s][small].n - 1; i >= 0; i--) {
				int block = a->free[s][small].blocks[i];
				if (!is_segment(&a->blocks[block]))
					continue;
				a->reserved -= a->blocks[block].bytes;
				list_cut(a, block);
				block_drop(a, block);
			}
}

static bool has_room(const struct allocator *a, int64_t bytes)
{
	return a->limit == 0 || bytes <= a->limit - a->reserved;
}

static int segment_new(struct allocator *a, int stream, int64_t bytes)
{
	int64_t segment = segment_bytes(bytes);
	if (!has_room(a, segment))
		release_cached(a);
	if (!has_room(a, segment)) {
		a->failed = true;
		return -1;
	}
	a->reserved += segment;
	a->peak_reserved = max_i64(a->peak_reserved, a->reserved);
	return block_new(a, (struct allocator_block){.bytes = segment,
				    .previous = -1,
				    .next = -1,
				    .stream = stream,
				    .small = bytes <= SMALL_REQUEST});
}

static void split(struct allocator *a, int index, int64_t bytes)
{
	struct allocator_block rest = a->blocks[index];
	int64_t left = rest.bytes - bytes;
	if (rest.small ? left < ROUND : left <= SMALL_REQUEST)
		return;
	rest.bytes = left;
	rest.is_free = false;
	rest.previous = index;
	int second = block_new(a, rest);
	if (rest.next >= 0)
		a->blocks[rest.next].previous = second;
	a->blocks[index].next = second;
	a->blocks[index].bytes = bytes;
	list_put(a, second);
}

int allocator_take(struct allocator *a, int stream, int64_t bytes)
{
	bytes = round_up(max_i64(bytes, 1), ROUND);
	int index = best_fit(a, &a->free[stream][bytes <= SMALL_REQUEST], bytes);
	if (index >= 0)
		list_cut(a, index);
	else
		index = segment_new(a, stream, bytes);
	if (index >= 0)
		split(a, index, bytes);
	return index;
}

/* `second` follows `first`; both are free and in no list. */
static void merge(struct allocator *a, int first, int second)
{
	int next = a->blocks[second].next;
	a->blocks[first].bytes += a->blocks[second].bytes;
	a->blocks[first].next = next;
	if (next >= 0)
		a->blocks[next].previous = first;
	block_drop(a, second);
}

static bool is_free(const struct allocator *a, int index)
{
	return index >= 0 && a->blocks[index].is_free;
}

void allocator_give(struct allocator *a, int index)
{
	if (index < 0)
		return;
	int previous = a->blocks[index].previous, next = a->blocks[index].next;
	if (is_free(a, next)) {
		list_cut(a, next);
		merge(a, index, next);
	}
	if (is_free(a, previous)) {
		list_cut(a, previous);
		merge(a, previous, index);
		index = previous;
	}
	list_put(a, index);
}
