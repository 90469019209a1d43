#include <string.h>

#include "simulator/memory/blocks.h"

enum {
	MIB = 1 << 20,
	ROUND = 512,
	SMALL_REQUEST = MIB,
	SMALL_SEGMENT = 2 * MIB,
	LARGE_REQUEST = 10 * MIB,
	LARGE_SEGMENT = 20 * MIB,
	SEGMENT_ROUND = 2 * MIB,
};

enum { FIRST_SIZES = 16, STRIDE = 8 };

static struct block_chunk *chunk_new(struct allocator *a)
{
	struct block_chunk *chunk = arena_alloc_unset(a->arena, 1, sizeof(*chunk));
	chunk->n = 0;
	chunk->next = NULL;
	if (a->last_chunk != NULL)
		a->last_chunk->next = chunk;
	return a->last_chunk = chunk;
}

static void end_sizes(struct free_size *sizes, int n)
{
	for (int i = 0; i < n; i++)
		sizes[i] = (struct free_size){.bytes = INT64_MAX};
}

void allocator_init(
	struct allocator *allocator, int64_t limit, bool expandable, struct arena *arena)
{
	enum { LISTS = 2 * ALLOCATOR_STREAMS, ROOM = FIRST_SIZES + STRIDE };
	struct free_size *sizes = arena_alloc_unset(arena, (size_t)LISTS * ROOM, sizeof(*sizes));
	*allocator = (struct allocator){.limit = limit, .expandable = expandable, .arena = arena};
	allocator->chunks = chunk_new(allocator);
	end_sizes(sizes, LISTS * ROOM);
	for (int i = 0; i < LISTS; i++, sizes += ROOM) {
		bool small = i % 2 != 0;
		allocator->lists[i / 2][small] = (struct free_list){.capacity = FIRST_SIZES,
			.sizes = sizes,
			.least_rest = small || expandable ? ROUND : SMALL_REQUEST + 1,
			.stream = i / 2,
			.small = small};
	}
}

/* A block whose contents are not set. */
static inline struct allocator_block *block_new(struct allocator *a)
{
	struct allocator_block *block = a->unused;
	if (block != NULL) {
		a->unused = block->next;
		return block;
	}
	struct block_chunk *chunk = a->last_chunk;
	if (chunk->n == CHUNK)
		chunk = chunk_new(a);
	return &chunk->blocks[chunk->n++];
}

static inline void block_drop(struct allocator *a, struct allocator_block *block)
{
	block->next = a->unused;
	block->bytes = 0;
	block->is_free = false;
	a->unused = block;
}

/* --- free blocks --------------------------------------------------------------------------------
 */

/* The first size that is not smaller. There are about ten sizes, thirty in a model with experts,
 * and requests repeat, so the processor predicts the length of a linear search, while a bisection
 * would wait for each step. */
static inline struct free_size *size_from(const struct free_list *list, int64_t bytes)
{
	struct free_size *size = list->sizes;
	while (size[STRIDE - 1].bytes < bytes)
		size += STRIDE;
	while (size->bytes < bytes)
		size++;
	return size;
}

static void more_sizes(struct allocator *a, struct free_list *list)
{
	const struct free_size *old = list->sizes;
	list->capacity *= 2;
	list->sizes = arena_alloc_unset(
		a->arena, (size_t)(list->capacity + STRIDE), sizeof(*list->sizes));
	memcpy(list->sizes, old, (size_t)list->n * sizeof(*old));
	end_sizes(list->sizes + list->n, list->capacity + STRIDE - list->n);
}

static inline void size_drop(struct free_list *list, struct free_size *size)
{
	for (struct free_size *end = list->sizes + list->n--; size < end; size++)
		size[0] = size[1];
}

/* Takes the first block of a size out of its list; `next` follows it. */
static inline void pop(struct free_list *list, struct free_size *size, struct allocator_block *next)
{
	size->first = next;
	if (next != NULL)
		next->free_before = NULL;
	else
		size_drop(list, size);
}

/* Adds a block to its size. */
static inline void push(struct free_size *size, struct allocator_block *block)
{
	block->is_free = true;
	block->free_before = NULL;
	block->free_after = size->first;
	size->first->free_before = block;
	size->first = block;
}

/* Makes a block the only one of its size. */
static inline void stand_alone(struct free_size *size, struct allocator_block *block)
{
	block->is_free = true;
	block->free_before = block->free_after = NULL;
	*size = (struct free_size){block->bytes, block};
}

static inline void list_put(struct allocator *a, struct allocator_block *block)
{
	struct free_list *list = block->list;
	if (list->n == list->capacity)
		more_sizes(a, list);
	struct free_size *size = size_from(list, block->bytes);
	if (size->bytes == block->bytes) {
		push(size, block);
		return;
	}
	for (struct free_size *s = list->sizes + ++list->n; s > size; s--)
		s[0] = s[-1];
	stand_alone(size, block);
}

static inline void list_cut(struct allocator_block *block)
{
	block->is_free = false;
	if (block->free_before == NULL) {
		pop(block->list, size_from(block->list, block->bytes), block->free_after);
		return;
	}
	block->free_before->free_after = block->free_after;
	if (block->free_after != NULL)
		block->free_after->free_before = block->free_before;
}

/* Takes out the first block of a size, which `next` follows, and puts in a smaller one, by moving
 * the sizes between them. */
static inline void list_sink(struct allocator *a, struct free_size *from,
	struct allocator_block *next, struct allocator_block *block)
{
	struct free_list *list = block->list;
	struct free_size *to = from;
	while (to > list->sizes && to[-1].bytes >= block->bytes)
		to--;
	if (to->bytes == block->bytes || next != NULL) {
		pop(list, from, next);
		list_put(a, block);
		return;
	}
	for (; from > to; from--)
		from[0] = from[-1];
	stand_alone(to, block);
}

/* The same for a larger block. */
static inline void list_rise(struct allocator *a, struct free_size *from,
	struct allocator_block *next, struct allocator_block *block)
{
	struct free_size *to = from;
	while (to[1].bytes < block->bytes)
		to++;
	if (to[1].bytes == block->bytes || next != NULL) {
		pop(block->list, from, next);
		list_put(a, block);
		return;
	}
	for (; from < to; from++)
		from[0] = from[1];
	stand_alone(to, block);
}

/* --- segments -----------------------------------------------------------------------------------
 */

static int64_t segment_bytes(int64_t bytes)
{
	if (bytes <= SMALL_REQUEST)
		return SMALL_SEGMENT;
	return bytes < LARGE_REQUEST ? LARGE_SEGMENT : round_up(bytes, SEGMENT_ROUND);
}

static void release_list(struct allocator *a, const struct free_list *list)
{
	/* Blocks of a size are removed one by one, and the size with its last block. */
	for (int i = list->n - 1; i >= 0; i--) {
		for (struct allocator_block *block = list->sizes[i].first, *next; block != NULL;
			block = next) {
			next = block->free_after;
			if (!is_segment(block))
				continue;
			a->reserved -= block->bytes;
			a->n_given_back++;
			list_cut(block);
			block_drop(a, block);
		}
	}
}

static int64_t page_of(const struct free_list *list)
{
	return list->small ? SMALL_SEGMENT : LARGE_SEGMENT;
}

/* Makes the rest of a free block behind an unmapped stretch a block of its own, followed by the
 * next block. */
static void cut_behind(struct allocator *a, const struct allocator_block *block, int64_t offset)
{
	int64_t bytes = block->offset + block->bytes - offset;
	struct allocator_block *next = block->next, *rest = NULL;
	if (bytes > 0) {
		rest = block_new(a);
		*rest = *block;
		rest->bytes = bytes;
		rest->offset = offset;
		rest->previous = NULL;
		list_put(a, rest);
	}
	if (next != NULL)
		next->previous = rest;
}

/* Gives back the pages that are wholly in a free block. Their addresses are reused only at the end
 * of the segment; the real allocator fills holes first. */
static void unmap(struct allocator *a, struct allocator_block *block)
{
	struct free_list *list = block->list;
	int64_t page = page_of(list), first = round_up(block->offset, page);
	int64_t last = (block->offset + block->bytes) / page * page;
	if (last <= first)
		return;
	a->reserved -= last - first;
	a->n_given_back += (last - first) / page;
	list_cut(block);
	if (list->tail == block) {
		list->end = first;
		list->tail = first > block->offset ? block : block->previous;
	} else {
		cut_behind(a, block, last);
	}
	block->bytes = first - block->offset;
	block->next = NULL;
	if (block->bytes > 0) {
		list_put(a, block);
		return;
	}
	if (block->previous != NULL)
		block->previous->next = NULL;
	block_drop(a, block);
}

/* Blocks that unmap makes meanwhile contain no whole page. */
static void unmap_free(struct allocator *a)
{
	for (struct block_chunk *chunk = a->chunks; chunk != NULL; chunk = chunk->next)
		for (int i = 0; i < chunk->n; i++)
			if (chunk->blocks[i].is_free)
				unmap(a, &chunk->blocks[i]);
}

/* Gives back to the device all segments that are wholly free; of expandable segments, all free
 * pages. */
static void release_cached(struct allocator *a)
{
	a->retries++;
	if (a->synchronise != NULL)
		a->synchronise(a->self);
	if (a->expandable)
		unmap_free(a);
	for (int s = 0; s < ALLOCATOR_STREAMS && !a->expandable; s++) {
		release_list(a, &a->lists[s][0]);
		release_list(a, &a->lists[s][1]);
	}
}

static bool has_room(const struct allocator *a, int64_t bytes)
{
	return a->limit == 0 || bytes <= a->limit - a->reserved;
}

static struct allocator_block *segment_new(
	struct allocator *a, struct free_list *list, int64_t bytes)
{
	int64_t segment = segment_bytes(bytes);
	if (!has_room(a, segment))
		release_cached(a);
	if (!has_room(a, segment)) {
		a->failed = true;
		return NULL;
	}
	a->reserved += segment;
	a->n_taken++;
	a->peak_reserved = max_i64(a->peak_reserved, a->reserved);
	struct allocator_block *block = block_new(a);
	*block = (struct allocator_block){
		.bytes = segment, .segment = a->n_segments++, .list = list};
	return block;
}

/* The bytes, in whole pages, by which a segment must grow to hold the request behind the free block
 * at its end. */
static int64_t growth_for(const struct free_list *list, int64_t bytes)
{
	bool free_tail = list->tail != NULL && list->tail->is_free;
	int64_t there = free_tail ? list->tail->bytes : 0;
	return round_up(max_i64(segment_bytes(bytes) - there, 1), page_of(list));
}

/* Grows a segment. Returns its last block, which is in no list and large enough. */
static struct allocator_block *segment_grow(
	struct allocator *a, struct free_list *list, int64_t bytes)
{
	if (!has_room(a, growth_for(list, bytes)))
		release_cached(a);
	int64_t more = growth_for(list, bytes);
	if (!has_room(a, more)) {
		a->failed = true;
		return NULL;
	}
	a->reserved += more;
	a->n_taken += more / page_of(list);
	a->peak_reserved = max_i64(a->peak_reserved, a->reserved);
	struct allocator_block *tail = list->tail;
	if (tail != NULL && tail->is_free) {
		list_cut(tail);
		tail->bytes += more;
	} else {
		list->tail = block_new(a);
		*list->tail = (struct allocator_block){
			.bytes = more, .offset = list->end, .previous = tail, .list = list};
		if (tail != NULL)
			tail->next = list->tail;
	}
	list->end += more;
	return list->tail;
}

/* --- requests -----------------------------------------------------------------------------------
 */

/* Makes the last `left` bytes of a block a block of their own, in no list. */
static inline struct allocator_block *split(
	struct allocator *a, struct allocator_block *block, int64_t left)
{
	struct allocator_block *rest = block_new(a), *next = block->next;
	block->bytes -= left;
	block->next = rest;
	rest->bytes = left;
	rest->offset = block->offset + block->bytes;
	rest->previous = block;
	rest->next = next;
	rest->list = block->list;
	rest->segment = block->segment;
	rest->is_kept = false;
	if (next != NULL)
		next->previous = rest;
	else if (block->list->tail == block)
		block->list->tail = rest;
	return rest;
}

static struct allocator_block *take_new(struct allocator *a, struct free_list *list, int64_t bytes)
{
	struct allocator_block *block =
		a->expandable ? segment_grow(a, list, bytes) : segment_new(a, list, bytes);
	if (block != NULL && block->bytes - bytes >= list->least_rest)
		list_put(a, split(a, block, block->bytes - bytes));
	return block;
}

static inline void count_taken(struct allocator *a, int64_t bytes)
{
	a->active += bytes;
	a->peak_active = max_i64(a->peak_active, a->active);
}

/* Takes the block that was freed last of the smallest size that is large enough; or a new one. */
static inline struct allocator_block *take_of(
	struct allocator *a, struct free_list *list, struct free_size *size, int64_t bytes)
{
	struct allocator_block *block = size->first;
	int64_t left = size->bytes - bytes;
	if (block == NULL) {
		block = take_new(a, list, bytes);
		if (block == NULL)
			return NULL;
	} else if (left < list->least_rest) {
		block->is_free = false;
		pop(list, size, block->free_after);
	} else {
		block->is_free = false;
		list_sink(a, size, block->free_after, split(a, block, left));
	}
	count_taken(a, block->bytes);
	return block;
}

/* Takes blocks that are kept. If the block before a free one is kept too, it grows by the bytes
 * instead. */
void allocator_keep(struct allocator *a, int stream, int64_t bytes, int n)
{
	bytes = allocator_rounded(bytes);
	struct free_list *list = &a->lists[stream][allocator_is_small(bytes)];
	for (; n > 0; n--) {
		struct free_size *size = size_from(list, bytes);
		struct allocator_block *block = size->first, *front = NULL;
		if (block != NULL && size->bytes - bytes >= list->least_rest)
			front = block->previous;
		if (front == NULL || !front->is_kept) {
			block = take_of(a, list, size, bytes);
			if (block != NULL)
				block->is_kept = true;
			continue;
		}
		front->bytes += bytes;
		block->offset += bytes;
		block->bytes -= bytes;
		list_sink(a, size, block->free_after, block);
		count_taken(a, bytes);
	}
}

struct allocator_block *allocator_take(struct allocator *a, int stream, int64_t bytes)
{
	bytes = allocator_rounded(bytes);
	struct free_list *list = &a->lists[stream][allocator_is_small(bytes)];
	return take_of(a, list, size_from(list, bytes), bytes);
}

/* Takes blocks of one size while there are several that need not be split, since the next request
 * would find that size again. The last one is left. */
static inline int take_alike(struct allocator *a, const struct free_list *list,
	struct free_size *size, int64_t bytes, int n, struct allocator_block **blocks)
{
	struct allocator_block *block = size->first;
	int taken = 0;
	if (block == NULL || size->bytes - bytes >= list->least_rest)
		return 0;
	for (; taken < n && block->free_after != NULL; block = block->free_after) {
		block->is_free = false;
		blocks[taken++] = block;
	}
	size->first = block;
	block->free_before = NULL;
	count_taken(a, taken * size->bytes);
	return taken;
}

void allocator_take_all(
	struct allocator *a, int stream, int64_t bytes, int n, struct allocator_block **blocks)
{
	bytes = allocator_rounded(bytes);
	struct free_list *list = &a->lists[stream][allocator_is_small(bytes)];
	for (int i = 0; i < n;) {
		struct free_size *size = size_from(list, bytes);
		i += take_alike(a, list, size, bytes, n - i, blocks + i);
		if (i < n)
			blocks[i++] = take_of(a, list, size, bytes);
	}
}

/* Merges two blocks; `second` follows `first`. */
static inline void merge(
	struct allocator *a, struct allocator_block *first, struct allocator_block *second)
{
	struct allocator_block *next = second->next;
	first->bytes += second->bytes;
	first->next = next;
	if (next != NULL)
		next->previous = first;
	else if (first->list->tail == second)
		first->list->tail = first;
	block_drop(a, second);
}

/* Makes two neighbours one free block. `listed` is the one of them that is free already. */
static inline void join(struct allocator *a, struct allocator_block *first,
	struct allocator_block *second, struct allocator_block *listed)
{
	if (listed->free_before != NULL) {
		list_cut(listed);
		merge(a, first, second);
		list_put(a, first);
		return;
	}
	struct free_size *size = size_from(listed->list, listed->bytes);
	struct allocator_block *next = listed->free_after;
	merge(a, first, second);
	list_rise(a, size, next, first);
}

static inline bool is_free(const struct allocator_block *neighbour)
{
	return neighbour != NULL && neighbour->is_free;
}

void allocator_give(struct allocator *a, struct allocator_block *block)
{
	if (block == NULL)
		return;
	struct allocator_block *previous = block->previous, *next = block->next;
	a->active -= block->bytes;
	bool after = is_free(next), before = is_free(previous);
	if (after && before) {
		list_cut(next);
		merge(a, block, next);
	}
	if (before)
		join(a, previous, block, previous);
	else if (after)
		join(a, block, next, next);
	else
		list_put(a, block);
}

/* The size of each block is looked for first where that of the one before was found. */
void allocator_give_all(struct allocator *a, int n, struct allocator_block **blocks)
{
	int64_t at = 0;
	for (int i = 0; i < n; i++) {
		struct allocator_block *block = blocks[i];
		blocks[i] = NULL;
		if (block == NULL || is_free(block->previous) || is_free(block->next)) {
			allocator_give(a, block);
			continue;
		}
		struct free_size *size = &block->list->sizes[at];
		if (size->bytes != block->bytes)
			size = size_from(block->list, block->bytes);
		at = size - block->list->sizes;
		a->active -= block->bytes;
		if (size->bytes == block->bytes)
			push(size, block);
		else
			list_put(a, block);
	}
}
