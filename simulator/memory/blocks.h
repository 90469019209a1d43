/* Private to the allocator: its blocks, which come from chunks and are used again. */
#ifndef SIMULATOR_MEMORY_BLOCKS_H
#define SIMULATOR_MEMORY_BLOCKS_H

#include "simulator/memory/allocator.h"

struct allocator_block {
	int64_t bytes, offset;                            /* offset: from the segment's begin */
	struct allocator_block *previous, *next;          /* neighbours in the segment */
	struct allocator_block *free_before, *free_after; /* free blocks of the same size */
	struct free_list *list;                           /* the list it is in when it is free */
	int segment;                                      /* its number; 0: an expandable one */
	bool is_free;
	bool is_kept; /* never given back, so that a kept block behind it can be merged into it */
};

/* Is the block a whole segment? */
static inline bool is_segment(const struct allocator_block *block)
{
	return block->previous == NULL && block->next == NULL;
}

enum { CHUNK = 256 };

/* Blocks from `n` on were never used and are not initialised. */
struct block_chunk {
	int n;
	struct block_chunk *next;
	struct allocator_block blocks[CHUNK];
};

#endif
