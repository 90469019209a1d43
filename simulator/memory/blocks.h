/* Private to the allocator: its blocks. */
#ifndef SIMULATOR_MEMORY_BLOCKS_H
#define SIMULATOR_MEMORY_BLOCKS_H

#include "simulator/memory/allocator.h"

struct allocator_block {
	int64_t bytes, offset;                            /* offset: in its segment */
	struct allocator_block *previous, *next;          /* in the segment */
	struct allocator_block *free_before, *free_after; /* of its size in the free list */
	struct free_list *list;                           /* that it is in when it is free */
	int segment;                                      /* its number; 0 in an expandable one */
	bool is_free;
	bool is_kept; /* never given back: what is kept behind it can be part of it */
};

static inline bool is_segment(const struct allocator_block *block)
{
	return block->previous == NULL && block->next == NULL;
}

enum { CHUNK = 256 };

/* Blocks from `n` on were never used, and hold anything. */
struct block_chunk {
	int n;
	struct block_chunk *next;
	struct allocator_block blocks[CHUNK];
};

#endif
