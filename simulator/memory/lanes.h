/* Private to memory/: what the allocator does without a limit, lane by lane. A lane is the small or
 * the large requests of one stream: no block of it is ever of another one. Nothing is given back to
 * the device, so that what is reserved is most at the end. */
#ifndef SIMULATOR_MEMORY_LANES_H
#define SIMULATOR_MEMORY_LANES_H

#include "simulator/memory/allocator.h"
#include "simulator/memory/memory.h"
#include "simulator/memory/pieces.h"

enum { LANES_MAX = 2 * STREAM_COUNT };

/* `n` requests, bytes > 0, of which slots in a row keep the blocks (-1: for good, in the first step
 * only); what this stretch has taken, 0, or what another one has, -1, is given back. */
struct event {
	int64_t bytes;
	int n;
	/* Of the tape, and in the next iteration of the run so much further on. Of another stretch:
	 * which of the references. */
	int slot, further;
	int point; /* operations that take something and are issued before, since the stretch began;
		    * its own is one of them when it gives */
};

/* Events [first, first + n), `times` in a row: the blocks of a model. Each time `points` further.
 */
struct run {
	int first, n, times, points;
};

/* What is given back of another stretch: where it was taken, and how much later in the list an
 * iteration of the run, and a micro-batch, further on; its buffer and piece. */
struct reference {
	int64_t position, inner, outer;
	int buffer, piece;
};

/* What a stretch does to a lane. One that is closed gives back all that it takes, and nothing else:
 * afterwards all is free that was free before, and what it has added. */
struct tape {
	int n, n_runs, n_references, n_slots;
	struct event *events;
	struct run *runs;
	struct reference *references;
	int capacity, run_capacity, reference_capacity;
	int *slots, length; /* by place in the stretch: the first of the operation there */
	bool open, keeps;
	int base;       /* where its slots are */
	bool is_steady; /* it left the lane as it found it: in this state */
	uint64_t state;
	int64_t *levels; /* of bytes that are taken, by point, when it was played last */
};

/* Operations [first, first + n) of one micro-batch, or of none: `length` when they are carried out,
 * of which `points` take something; `times` in a row, from `position` on. Stretches that follow one
 * another and do the same to a lane share its tape. */
struct stretch {
	int first, n, times, length, points;
	int loop; /* of micro-batches; -1 */
	int64_t position;
	struct tape **tapes; /* by lane */
	int64_t active;      /* of all lanes, when it began the last time */
};

struct lane {
	int stream;
	bool small;
	uint64_t state;
	int n_slots;
	struct allocator_block **slots[2]; /* of even and odd steps; NULL */
};

struct lanes {
	const struct engine *engine;
	struct cutter cutter;
	struct arena *arena;
	int n, of[STREAM_COUNT][2]; /* by stream and size; -1 */
	struct lane lanes[LANES_MAX];
	struct tape *spare[LANES_MAX]; /* that are being recorded */
	int (*offsets)[2]; /* by buffer and size: slots of its operation before its own */
	int *n_taken;      /* by operation and lane: pieces */
	int n_stretches;
	struct stretch *stretches;
	struct allocator allocator;
	int64_t limit; /* of interest, not the allocator's */
	int64_t peak_active, *sums;
};

/* tapes.c: all stretches, and what they do. False: micro-batches are not in a row. */
bool lanes_record(struct lanes *lanes);

/* False: it cannot be told this way. Of what passes `limit` (0: none) no more is told. */
bool lanes_reserved(
	const struct engine *engine, int64_t limit, struct arena *arena, struct reserved *reserved);

#endif
