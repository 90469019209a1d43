/* Private to memory/: what operations take from the caching allocator and give back to it. */
#ifndef SIMULATOR_MEMORY_POOLS_H
#define SIMULATOR_MEMORY_POOLS_H

#include "simulator/memory/allocator.h"
#include "simulator/memory/pieces.h"

/* What an operation has taken and not given back, in one iteration: the blocks of all its buffers.
 */
struct taken {
	struct allocator_block **blocks;
	int capacity;
	int left; /* of them, to be given back; 0: it serves another operation */
	int next; /* of those that serve again */
};

struct pools {
	const struct engine *engine;
	struct cutter cutter;
	bool at_once; /* gives to other streams need not wait for them */
	/* Of even and odd steps, by position in the list: which of `all`; [0] is nothing. */
	int *taken[2];
	struct taken *all;
	int n, capacity, unused;
	int *first; /* by buffer: where the operation that takes it has its blocks */
	struct arena *arena;
	struct allocator allocator;
};

/* What is there before the first step is taken. `limit`: bytes of segments, 0 = any. */
void pools_init(
	struct pools *pools, const struct engine *engine, int64_t limit, struct arena *arena);
/* The operation takes what it takes, and gives what it gives as soon as it is issued. */
void pools_issue(struct pools *pools, const struct cursor *at);
/* Its gives that become effective when it is issued, or else when it has finished. */
void pools_give(struct pools *pools, const struct cursor *at, bool issued);

#endif
