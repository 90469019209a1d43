/* Private to memory/: the allocator's requests that a buffer consists of (its pieces, one for each
 * tensor), and where it was taken. */
#ifndef SIMULATOR_MEMORY_PIECES_H
#define SIMULATOR_MEMORY_PIECES_H

#include "simulator/engine/engine.h"

/* The pieces of a buffer. */
struct cut {
	int n, n_small; /* n_small of the n are small requests (allocator_is_small) */
	int64_t *bytes; /* [n] shared by equal buffers; NULL until cutter_cut is called */
};

struct pieces;

struct cutter {
	const struct engine *engine;
	const struct schedule *schedule;
	const struct program *program;
	struct activation_rules rules;
	struct cut *cuts;            /* [buffers] */
	int *takers;                 /* [buffers] the operation that takes it; -1: none */
	int last[BUFFER_ROLE_COUNT]; /* the buffer of each role that was cut last; -1: none */
	struct pieces *pieces;       /* of the buffer that is being cut */
	struct arena *arena;
};

void cutter_init(struct cutter *cutter, const struct engine *engine, struct arena *arena);
const struct cut *cutter_cut(struct cutter *cutter, int buffer);

/* Calls `take` for every buffer that exists before the first step, block by block. The optimizer's
 * state does not: the first step makes it. */
void cutter_each_resident(
	const struct cutter *cutter, void (*take)(void *self, int buffer), void *self);

/* The position at which the buffer in program->indices[i] was taken that operation `op` at the
 * cursor gives back, for the block that is `block` further on. Below 0: in the step before. */
int64_t cutter_taken_at(
	const struct cutter *cutter, int op, const struct cursor *at, int i, int block);
/* The end of the buffers of one block from index `first` on: the following buffers that stand for
 * as many blocks. */
int cutter_end_of_block(const struct cutter *cutter, const struct op *op, int first, int end);

#endif
