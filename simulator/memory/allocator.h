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

/* Free blocks of one size, the one freed last first. */
struct size_class {
	int64_t bytes;
	int first;
};
struct free_list {
	struct size_class *classes; /* ascending; none is empty */
	int n, capacity;
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
	bool failed; /* a request did not fit even after a retry */
	struct allocator_block *blocks;
	int n_blocks, block_capacity, unused; /* `unused`: list of blocks that are no more, -1 */
	struct free_list free[ALLOCATOR_STREAMS][2]; /* [1]: of small requests */
	struct growing growing[ALLOCATOR_STREAMS][2];
};

void allocator_init(struct allocator *allocator, int64_t limit, bool expandable);
void allocator_finish(struct allocator *allocator);
/* A block; -1 after a failure. */
int allocator_take(struct allocator *allocator, int stream, int64_t bytes);
void allocator_give(struct allocator *allocator, int block);

/* A hash of all segments, whatever their order: sizes of their blocks, and which are free. Equal
 * ones go on alike. */
uint64_t allocator_layout(const struct allocator *allocator);

#endif
