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

/* Free blocks of a size: the one freed last. */
struct free_size {
	int64_t bytes;
	int first;
};

/* Ascending; behind the last one a size that is larger than all, with no block: a walk ends there.
 */
struct free_list {
	int n, capacity;
	struct free_size *sizes;
};

/* An expandable segment: its last block (-1: none) and its end, a multiple of the page. */
struct growing {
	int tail;
	int64_t end;
};

struct allocator {
	int64_t limit; /* bytes of all segments; 0: none */
	bool expandable;
	int64_t reserved, peak_reserved;
	int64_t active, peak_active; /* of them in blocks that are taken */
	int retries;
	int64_t n_taken, n_given_back; /* segments, or pages of expandable ones */
	/* At a retry, before anything goes back: blocks that wait for a stream. NULL: none do. */
	void (*synchronise)(void *self);
	void *self;
	bool failed; /* a request did not fit even after a retry */
	struct arena *arena;
	struct allocator_block *blocks;
	int n_segments;                       /* that were taken so far, none of them expandable */
	int n_blocks, block_capacity, unused; /* `unused`: list of blocks that are no more, -1 */
	struct free_list free[ALLOCATOR_STREAMS][2]; /* [1]: of small requests */
	struct growing growing[ALLOCATOR_STREAMS][2];
};

/* What it needs comes from `arena`. */
void allocator_init(
	struct allocator *allocator, int64_t limit, bool expandable, struct arena *arena);
/* A block; -1 after a failure. */
int allocator_take(struct allocator *allocator, int stream, int64_t bytes);
void allocator_give(struct allocator *allocator, int block);

/* Whether a request is kept apart from larger ones. Of one stream, small and large requests touch
 * one another only by way of the limit. */
static inline bool allocator_is_small(int64_t bytes)
{
	return bytes <= (INT64_C(1) << 20);
}

/* Bytes of the block that a request gets, at least. */
static inline int64_t allocator_rounded(int64_t bytes)
{
	return (max_i64(bytes, 1) + 511) & ~INT64_C(511);
}

/* A hash of all segments, whatever their order: sizes of their blocks, and which are free. Equal
 * ones go on alike. */
uint64_t allocator_layout(const struct allocator *allocator);
/* A hash of the free blocks of a lane: where they are, and which comes first. If those that are
 * taken are the same, what follows goes on alike. */
uint64_t allocator_state(const struct allocator *allocator, int stream, bool small);

#endif
