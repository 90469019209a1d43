/* Private to memory/: the tensors that a buffer consists of, and where it was taken. */
#ifndef SIMULATOR_MEMORY_PIECES_H
#define SIMULATOR_MEMORY_PIECES_H

#include "simulator/engine/engine.h"

struct cut {
	int n, n_small; /* of them, requests that the allocator keeps apart */
	int64_t *bytes; /* NULL before it was asked for; alike buffers share it */
};

struct pieces;

struct cutter {
	const struct engine *engine;
	const struct schedule *schedule;
	const struct program *program;
	struct activation_rules rules;
	struct cut *cuts;            /* by buffer */
	int *takers;                 /* by buffer: the operation that takes it; -1 */
	int last[BUFFER_ROLE_COUNT]; /* the buffer of each role that was cut last; -1 */
	struct pieces *pieces;       /* of the one that is being cut */
	struct arena *arena;
};

void cutter_init(struct cutter *cutter, const struct engine *engine, struct arena *arena);
const struct cut *cutter_cut(struct cutter *cutter, int buffer);

/* Calls `take` for every buffer that is there before the first step, block by block. The
 * optimizer's state is not. */
void cutter_each_resident(
	const struct cutter *cutter, void (*take)(void *self, int buffer), void *self);

/* Where what the i-th index names was taken, for the operation at a cursor, and in the block that
 * many further on: a position in this step, below 0 in the one before. */
int64_t cutter_taken_at(
	const struct cutter *cutter, int op, const struct cursor *at, int i, int block);
/* Of the buffers from index `first` on, the end of those of one block: they stand for as many. */
int cutter_end_of_block(const struct cutter *cutter, const struct op *op, int first, int end);

#endif
