/* One rank's memory: best fit over a reserved range of addresses.
 *
 * Bookkeeping lies apart from the memory that it manages and is allocated once, so that a step
 * allocates nothing. Blocks are aligned to 64 bytes; free neighbours are joined. Under
 * AddressSanitizer all memory outside of blocks is poisoned, so a kernel that leaves its buffer is
 * caught. */
#ifndef EXECUTOR_MEMORY_HEAP_H
#define EXECUTOR_MEMORY_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum { HEAP_ALIGNMENT = 64 };

struct heap_block {
	int64_t offset, span; /* span = bytes, rounded up */
	int64_t bytes;        /* as asked for; 0 = free */
	int previous, next;   /* by address; -1 = none */
};

struct heap {
	char *base;
	int64_t capacity;
	struct heap_block *blocks; /* [0] is always the first by address */
	int n_blocks, capacity_blocks;
	int unused;         /* list of free descriptors through `next`; -1 */
	int64_t live;       /* bytes asked for and not given back */
	int64_t live_peak;  /* the largest `live` so far */
	int64_t high_water; /* end of the highest block so far: what was ever touched */
};

/* The caller owns the memory. At most `blocks` are live at once. */
void heap_init(struct heap *heap, void *base, int64_t capacity, int blocks);
void heap_finish(struct heap *heap);

/* The block's index; -1 with EXIT_CODE_INTERNAL when no hole is large enough. Zero bytes take one
 * aligned unit. */
int heap_take(struct heap *heap, int64_t bytes, struct error *error);
void heap_give(struct heap *heap, int block);

static inline void *heap_address(const struct heap *heap, int block)
{
	return heap->base + heap->blocks[block].offset;
}

static inline int64_t heap_bytes(const struct heap *heap, int block)
{
	return heap->blocks[block].bytes;
}

static inline bool heap_holds(const struct heap *heap, const void *address)
{
	const char *byte = address;

	return byte >= heap->base && byte < heap->base + heap->capacity;
}

#endif
