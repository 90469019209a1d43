/* Private to memory/: PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, 2.6.0),
 * replayed. Sizes are rounded to 512 bytes; requests up to 1 MiB share segments of 2 MiB, up to 10
 * MiB of 20 MiB, larger ones get a segment of their own, rounded to 2 MiB. Free blocks belong to a
 * stream; the smallest that is large enough is taken, and split when the rest is worth it.
 * Neighbours that are free become one. Segments stay until the limit is reached: then all that are
 * wholly free go back, which stalls the device, and the request is tried again.
 *
 * With expandable_segments each stream has one segment for small and one for large requests. It
 * grows at its end by pages of 2 and 20 MiB, as far as what is free there does not suffice, every
 * rest of 512 bytes is split off, and a retry gives back all pages that are free. */
#ifndef SIMULATOR_MEMORY_ALLOCATOR_H
#define SIMULATOR_MEMORY_ALLOCATOR_H

#include "base/base.h"

enum { ALLOCATOR_STREAMS = 16 };

struct allocator_block;

/* The free blocks of one size; `first` is the one that was freed last. */
struct free_size {
	int64_t bytes;
	struct allocator_block *first;
};

/* The free blocks for small or for large requests of a stream. */
struct free_list {
	int n, capacity;
	struct free_size *sizes; /* [n] ascending; behind them sentinels that are larger than all */
	int64_t least_rest;      /* the least bytes that are split off a block */
	int stream;
	bool small;
	/* An expandable segment: its last block (NULL: none) and its end, a multiple of the page.
	 */
	struct allocator_block *tail;
	int64_t end;
};

struct allocator {
	int64_t limit; /* bytes of all segments; 0: none */
	bool expandable;
	int64_t reserved, peak_reserved;
	int64_t active, peak_active; /* bytes in blocks that are taken */
	int retries;
	int64_t n_taken, n_given_back; /* segments, or pages of expandable ones */
	/* Called at a retry before any segment goes back: gives the blocks whose free is deferred.
	 * NULL: there are none. */
	void (*synchronise)(void *self);
	void *self;
	bool failed; /* a request did not fit even after a retry */
	struct arena *arena;
	struct block_chunk *chunks, *last_chunk;      /* in the order in which they were made */
	struct allocator_block *unused;               /* list of block structs to use again */
	int n_segments;                               /* taken so far, none of them expandable */
	struct free_list lists[ALLOCATOR_STREAMS][2]; /* [1]: of small requests */
};

/* All its memory comes from `arena`. */
void allocator_init(
	struct allocator *allocator, int64_t limit, bool expandable, struct arena *arena);
/* A block; NULL after a failure. */
struct allocator_block *allocator_take(struct allocator *allocator, int stream, int64_t bytes);
/* `n` requests of one size, in a row, that are never given back. */
void allocator_keep(struct allocator *allocator, int stream, int64_t bytes, int n);
/* Frees a block, which may be NULL. */
void allocator_give(struct allocator *allocator, struct allocator_block *block);
/* The same as `n` calls, of allocator_take with one size, and of allocator_give; given blocks
 * become NULL. */
void allocator_take_all(struct allocator *allocator, int stream, int64_t bytes, int n,
	struct allocator_block **blocks);
void allocator_give_all(struct allocator *allocator, int n, struct allocator_block **blocks);

/* Is a request served from segments for small ones? Small and large requests of a stream affect one
 * another only through the limit. */
static inline bool allocator_is_small(int64_t bytes)
{
	return bytes <= (INT64_C(1) << 20);
}

/* The least bytes of the block that a request gets. */
static inline int64_t allocator_rounded(int64_t bytes)
{
	return (max_i64(bytes, 1) + 511) & ~INT64_C(511);
}

/* A hash of all segments, independent of their order: the sizes of their blocks, and which are
 * free. Allocators with equal hashes serve equal requests equally. */
uint64_t allocator_layout(const struct allocator *allocator);
/* A hash of the free blocks of a lane: their order in the free list, and their places where these
 * matter. Where the taken blocks are the same too, equal hashes serve equal requests equally. */
uint64_t allocator_state(const struct allocator *allocator, int stream, bool small);

#endif
