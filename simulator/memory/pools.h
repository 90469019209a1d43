/* Private to memory/: carries out what operations take from the caching allocator and give back. */
#ifndef SIMULATOR_MEMORY_POOLS_H
#define SIMULATOR_MEMORY_POOLS_H

#include "simulator/memory/allocator.h"
#include "simulator/memory/pieces.h"

/* The blocks of all buffers that an operation has taken in one iteration. */
struct taken {
	struct allocator_block **blocks;
	int capacity;
	int left; /* blocks not given back yet; at 0 the entry can be used again */
	int next; /* the next unused entry */
};

struct pools {
	const struct engine *engine;
	struct cutter cutter;
	bool at_once; /* frees never wait for other streams (memory_defers_frees is false) */
	/* [2][instances of a step] of even and odd steps: an index in `all`; 0: nothing taken. */
	int *taken[2];
	struct taken *all;
	int n, capacity, unused;
	int *first; /* [buffers] its first block among those of the operation that takes it */
	struct arena *arena;
	struct allocator allocator;
};

/* Also takes what exists before the first step. `limit`: bytes of segments; 0: none. */
void pools_init(
	struct pools *pools, const struct engine *engine, int64_t limit, struct arena *arena);
/* The operation is issued: it takes its buffers, and gives those whose free is not deferred. */
void pools_issue(struct pools *pools, const struct cursor *at);
/* Gives back the buffers whose free becomes effective when the operation is issued; with `issued`
 * false, those whose free waits until it has finished. */
void pools_give(struct pools *pools, const struct cursor *at, bool issued);

#endif
