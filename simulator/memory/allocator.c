#include "simulator/memory/allocator.h"

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
	int64_t bytes, offset;        /* offset: in its segment */
	int segment;                  /* its number; 0 in an expandable one */
	int previous, next;           /* in the segment; -1 */
	int free_previous, free_next; /* of its size in the free list; -1 */
	int16_t stream;
	bool small, is_free; /* in its free list */
};

enum { FIRST_SIZES = 16, FIRST_BLOCKS = 512 };

void allocator_init(
	struct allocator *allocator, int64_t limit, bool expandable, struct arena *arena)
{
	*allocator = (struct allocator){
		.limit = limit, .expandable = expandable, .arena = arena, .unused = -1};
	struct free_size *sizes =
		ARENA_ARRAY(arena, struct free_size, 2 * ALLOCATOR_STREAMS * (FIRST_SIZES + 1));
	for (int i = 0; i < 2 * ALLOCATOR_STREAMS; i++, sizes += FIRST_SIZES + 1) {
		*sizes = (struct free_size){INT64_MAX, -1};
		allocator->free[i / 2][i % 2] = (struct free_list){0, FIRST_SIZES, sizes};
		allocator->growing[i / 2][i % 2].tail = -1;
	}
}

static void *grow(struct arena *arena, const void *old, int n, int capacity, size_t size)
{
	void *array = arena_alloc(arena, (size_t)capacity, size);
	if (n > 0)
		memcpy(array, old, (size_t)n * size);
	return array;
}

/* Of any content. */
static int block_take(struct allocator *a)
{
	int index = a->unused;
	if (index >= 0) {
		a->unused = a->blocks[index].next;
		return index;
	}
	if (a->n_blocks == a->block_capacity) {
		a->block_capacity = a->n_blocks > 0 ? 2 * a->n_blocks : FIRST_BLOCKS;
		a->blocks = grow(
			a->arena, a->blocks, a->n_blocks, a->block_capacity, sizeof(*a->blocks));
	}
	return a->n_blocks++;
}

static int block_new(struct allocator *a, struct allocator_block block)
{
	int index = block_take(a);
	a->blocks[index] = block;
	return index;
}

static void block_drop(struct allocator *a, int index)
{
	a->blocks[index].next = a->unused;
	a->blocks[index].bytes = 0;
	a->blocks[index].is_free = false;
	a->unused = index;
}

static struct free_list *list_of(struct allocator *a, const struct allocator_block *block)
{
	return &a->free[block->stream][block->small];
}

/* --- free blocks --------------------------------------------------------------------------------
 */

/* The first size that is not smaller. There are about ten, and blocks repeat: a processor foresees
 * how far a walk goes, while a search by halves waits for each step. */
static inline struct free_size *size_from(const struct free_list *list, int64_t bytes)
{
	struct free_size *size = list->sizes;
	while (size->bytes < bytes)
		size++;
	return size;
}

static void more_sizes(struct allocator *a, struct free_list *list)
{
	int n = list->n + 1;
	list->capacity *= 2;
	list->sizes = grow(a->arena, list->sizes, n, list->capacity + 1, sizeof(*list->sizes));
}

/* Before `at`. There is room for one more. */
static inline void size_new(struct free_list *list, struct free_size *at, struct free_size size)
{
	for (struct free_size *s = list->sizes + ++list->n; s > at; s--)
		s[0] = s[-1];
	*at = size;
}

static inline void size_drop(struct free_list *list, struct free_size *size)
{
	for (struct free_size *end = list->sizes + list->n--; size < end; size++)
		size[0] = size[1];
}

/* A block becomes the first of its size. */
static inline void push(struct allocator *a, struct free_size *size, int index)
{
	a->blocks[index].free_next = size->first;
	a->blocks[size->first].free_previous = index;
	size->first = index;
}

/* `next` is the first of a size now, where there is one. */
static inline void pop(
	struct allocator *a, struct free_list *list, struct free_size *size, int next)
{
	size->first = next;
	if (next >= 0)
		a->blocks[next].free_previous = -1;
	else
		size_drop(list, size);
}

static void list_put(struct allocator *a, int index)
{
	struct allocator_block *block = &a->blocks[index];
	struct free_list *list = list_of(a, block);
	if (list->n == list->capacity)
		more_sizes(a, list);
	struct free_size *size = size_from(list, block->bytes);
	block->is_free = true;
	block->free_previous = block->free_next = -1;
	if (size->bytes == block->bytes)
		push(a, size, index);
	else
		size_new(list, size, (struct free_size){block->bytes, index});
}

static void list_cut(struct allocator *a, int index)
{
	struct allocator_block *block = &a->blocks[index];
	struct free_list *list = list_of(a, block);
	block->is_free = false;
	if (block->free_previous < 0) {
		pop(a, list, size_from(list, block->bytes), block->free_next);
		return;
	}
	a->blocks[block->free_previous].free_next = block->free_next;
	if (block->free_next >= 0)
		a->blocks[block->free_next].free_previous = block->free_previous;
}

/* The first of a size goes, `next` follows it there, and a smaller block comes: sizes between the
 * two make way. */
static inline void list_sink(
	struct allocator *a, struct free_list *list, struct free_size *from, int next, int index)
{
	struct allocator_block *block = &a->blocks[index];
	struct free_size *to = from;
	while (to > list->sizes && to[-1].bytes >= block->bytes)
		to--;
	block->is_free = true;
	if (to->bytes == block->bytes || next >= 0) {
		pop(a, list, from, next);
		list_put(a, index);
		return;
	}
	block->free_previous = block->free_next = -1;
	for (; from > to; from--)
		from[0] = from[-1];
	*to = (struct free_size){block->bytes, index};
}

/* The same for a larger one. */
static inline void list_rise(
	struct allocator *a, struct free_list *list, struct free_size *from, int next, int index)
{
	struct allocator_block *block = &a->blocks[index];
	struct free_size *to = from;
	while (to[1].bytes < block->bytes)
		to++;
	block->is_free = true;
	if (to[1].bytes == block->bytes || next >= 0) {
		pop(a, list, from, next);
		list_put(a, index);
		return;
	}
	block->free_previous = block->free_next = -1;
	for (; from < to; from++)
		from[0] = from[1];
	*to = (struct free_size){block->bytes, index};
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

static void release_list(struct allocator *a, const struct free_list *list)
{
	/* Blocks of a size go one by one, and the size with the last of them. */
	for (int i = list->n - 1; i >= 0; i--) {
		for (int block = list->sizes[i].first, next; block >= 0; block = next) {
			next = a->blocks[block].free_next;
			if (!is_segment(&a->blocks[block]))
				continue;
			a->reserved -= a->blocks[block].bytes;
			a->n_given_back++;
			list_cut(a, block);
			block_drop(a, block);
		}
	}
}

static struct growing *growing_of(struct allocator *a, const struct allocator_block *block)
{
	return &a->growing[block->stream][block->small];
}

static int64_t page_of(bool small)
{
	return small ? SMALL_SEGMENT : LARGE_SEGMENT;
}

/* What follows an unmapped stretch: the rest of a free block, or the block behind it. */
static void cut_behind(struct allocator *a, struct allocator_block block, int64_t offset)
{
	int64_t bytes = block.offset + block.bytes - offset;
	int next = block.next;
	block.bytes = bytes;
	block.offset = offset;
	block.previous = -1;
	int rest = bytes > 0 ? block_new(a, block) : -1;
	if (next >= 0)
		a->blocks[next].previous = rest;
	if (rest >= 0)
		list_put(a, rest);
}

/* The pages that are wholly in a free block go back. Their addresses are used again only at the end
 * of the segment; the real one fills holes first. */
static void unmap(struct allocator *a, int index)
{
	struct allocator_block block = a->blocks[index];
	struct growing *growing = growing_of(a, &block);
	int64_t page = page_of(block.small), first = round_up(block.offset, page);
	int64_t end = block.offset + block.bytes, last = end / page * page;
	if (last <= first)
		return;
	a->reserved -= last - first;
	a->n_given_back += (last - first) / page;
	list_cut(a, index);
	if (growing->tail == index) {
		growing->end = first;
		growing->tail = first > block.offset ? index : block.previous;
	} else {
		cut_behind(a, block, last);
	}
	a->blocks[index].bytes = first - block.offset;
	a->blocks[index].next = -1;
	if (first > block.offset) {
		list_put(a, index);
		return;
	}
	if (block.previous >= 0)
		a->blocks[block.previous].next = -1;
	block_drop(a, index);
}

static void unmap_free(struct allocator *a)
{
	for (int i = 0, n = a->n_blocks; i < n; i++)
		if (a->blocks[i].is_free)
			unmap(a, i);
}

/* All segments that are wholly free go back to the device; of expandable ones, all pages. */
static void release_cached(struct allocator *a)
{
	a->retries++;
	if (a->synchronise != NULL)
		a->synchronise(a->self);
	if (a->expandable)
		unmap_free(a);
	for (int s = 0; s < ALLOCATOR_STREAMS && !a->expandable; s++) {
		release_list(a, &a->free[s][0]);
		release_list(a, &a->free[s][1]);
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
	a->n_taken++;
	a->peak_reserved = max_i64(a->peak_reserved, a->reserved);
	return block_new(a, (struct allocator_block){.bytes = segment,
				    .previous = -1,
				    .next = -1,
				    .segment = a->n_segments++,
				    .stream = stream,
				    .small = bytes <= SMALL_REQUEST});
}

/* What the segment of this stream must grow by, in whole pages, to hold the request behind what is
 * free at its end. */
static int64_t growth_for(const struct allocator *a, const struct growing *growing, int64_t bytes)
{
	bool free_tail = growing->tail >= 0 && a->blocks[growing->tail].is_free;
	int64_t there = free_tail ? a->blocks[growing->tail].bytes : 0;
	return round_up(max_i64(segment_bytes(bytes) - there, 1), page_of(bytes <= SMALL_REQUEST));
}

/* The last block of the segment, in no list and large enough. */
static int segment_grow(struct allocator *a, int stream, int64_t bytes)
{
	bool small = bytes <= SMALL_REQUEST;
	struct growing *growing = &a->growing[stream][small];
	if (!has_room(a, growth_for(a, growing, bytes)))
		release_cached(a);
	int64_t more = growth_for(a, growing, bytes);
	if (!has_room(a, more)) {
		a->failed = true;
		return -1;
	}
	a->reserved += more;
	a->n_taken += more / page_of(small);
	a->peak_reserved = max_i64(a->peak_reserved, a->reserved);
	int tail = growing->tail;
	if (tail >= 0 && a->blocks[tail].is_free) {
		list_cut(a, tail);
		a->blocks[tail].bytes += more;
	} else {
		growing->tail = block_new(a, (struct allocator_block){.bytes = more,
						     .offset = growing->end,
						     .previous = tail,
						     .next = -1,
						     .stream = stream,
						     .small = small});
		if (tail >= 0)
			a->blocks[tail].next = growing->tail;
	}
	growing->end += more;
	return growing->tail;
}

/* What a block of `bytes` more than a request must have for the rest to be split off. */
static int64_t least_rest(const struct allocator *a, bool small)
{
	return small || a->expandable ? ROUND : SMALL_REQUEST + 1;
}

/* Makes the last `left` bytes of a block a block of their own, which is in no list. */
static inline int split(struct allocator *a, int index, int64_t left)
{
	int second = block_take(a);
	struct allocator_block *block = &a->blocks[index], *rest = &a->blocks[second];
	int next = block->next;
	block->bytes -= left;
	block->next = second;
	*rest = (struct allocator_block){.bytes = left,
		.offset = block->offset + block->bytes,
		.segment = block->segment,
		.previous = index,
		.next = next,
		.stream = block->stream,
		.small = block->small};
	if (next >= 0)
		a->blocks[next].previous = second;
	else if (a->expandable && growing_of(a, rest)->tail == index)
		growing_of(a, rest)->tail = second;
	return second;
}

static int take_new(struct allocator *a, int stream, int64_t bytes)
{
	int index = a->expandable ? segment_grow(a, stream, bytes) : segment_new(a, stream, bytes);
	int64_t left = index >= 0 ? a->blocks[index].bytes - bytes : 0;
	if (left >= least_rest(a, bytes <= SMALL_REQUEST))
		list_put(a, split(a, index, left));
	return index;
}

/* The smallest free block that is large enough, of equal ones the one freed last. */
int allocator_take(struct allocator *a, int stream, int64_t bytes)
{
	bytes = allocator_rounded(bytes);
	bool small = bytes <= SMALL_REQUEST;
	struct free_list *list = &a->free[stream][small];
	struct free_size *size = size_from(list, bytes);
	int64_t left = size->bytes - bytes;
	int index = size->first;
	if (index < 0) {
		index = take_new(a, stream, bytes);
		if (index < 0)
			return index;
	} else {
		int next = a->blocks[index].free_next;
		a->blocks[index].is_free = false;
		if (left < least_rest(a, small))
			pop(a, list, size, next);
		else
			list_sink(a, list, size, next, split(a, index, left));
	}
	a->active += a->blocks[index].bytes;
	a->peak_active = max_i64(a->peak_active, a->active);
	return index;
}

/* `second` follows `first`. */
static inline void merge(struct allocator *a, int first, int second)
{
	int next = a->blocks[second].next;
	a->blocks[first].bytes += a->blocks[second].bytes;
	a->blocks[first].next = next;
	if (next >= 0)
		a->blocks[next].previous = first;
	else if (a->expandable && growing_of(a, &a->blocks[first])->tail == second)
		growing_of(a, &a->blocks[first])->tail = first;
	block_drop(a, second);
}

static inline bool is_free(const struct allocator *a, int index)
{
	return index >= 0 && a->blocks[index].is_free;
}

/* Makes two neighbours one free block; `listed`, one of the two, is free already. */
static inline void join(struct allocator *a, int first, int second, int listed)
{
	const struct allocator_block *block = &a->blocks[listed];
	struct free_list *list = list_of(a, block);
	int next = block->free_next;
	if (block->free_previous >= 0) {
		list_cut(a, listed);
		merge(a, first, second);
		list_put(a, first);
		return;
	}
	struct free_size *size = size_from(list, block->bytes);
	merge(a, first, second);
	list_rise(a, list, size, next, first);
}

void allocator_give(struct allocator *a, int index)
{
	if (index < 0)
		return;
	int previous = a->blocks[index].previous, next = a->blocks[index].next;
	a->active -= a->blocks[index].bytes;
	bool after = is_free(a, next), before = is_free(a, previous);
	if (after && before) {
		list_cut(a, next);
		merge(a, index, next);
	}
	if (before)
		join(a, previous, index, previous);
	else if (after)
		join(a, index, next, next);
	else
		list_put(a, index);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ (hash >> 29);
}

/* Segments that are wholly free can stand for one another. */
uint64_t allocator_state(const struct allocator *a, int stream, bool small)
{
	const struct free_list *list = &a->free[stream][small];
	uint64_t hash = mix(0, (uint64_t)a->growing[stream][small].end);
	for (int i = 0; i < list->n; i++) {
		hash = mix(hash, (uint64_t)list->sizes[i].bytes);
		for (int b = list->sizes[i].first; b >= 0; b = a->blocks[b].free_next) {
			const struct allocator_block *block = &a->blocks[b];
			uint64_t place = ((uint64_t)block->segment << 40) + (uint64_t)block->offset;
			hash = mix(hash, is_segment(block) ? 1 : place);
		}
	}
	return hash;
}

/* Blocks that are no more have no neighbour before them either: they are marked. */
uint64_t allocator_layout(const struct allocator *a)
{
	uint64_t sum = mix(0, (uint64_t)a->retries);
	for (int i = 0; i < a->n_blocks; i++) {
		if (a->blocks[i].previous >= 0 || a->blocks[i].bytes == 0)
			continue;
		uint64_t hash = (uint64_t)(2 * a->blocks[i].stream + a->blocks[i].small);
		for (int block = i; block >= 0; block = a->blocks[block].next)
			hash = mix(hash,
				(uint64_t)(2 * a->blocks[block].bytes) | a->blocks[block].is_free);
		sum += hash;
	}
	return sum;
}
