/* Private to memory/: a quick replay of the allocator without a limit, lane by lane. A lane is the
 * small or the large requests of one stream; lanes never share a block. Without a limit no segment
 * goes back to the device, so the reserved bytes at the end are their peak. */
#ifndef SIMULATOR_MEMORY_LANES_H
#define SIMULATOR_MEMORY_LANES_H

#include "simulator/memory/allocator.h"
#include "simulator/memory/memory.h"
#include "simulator/memory/pieces.h"

enum { LANES_MAX = 2 * STREAM_COUNT };

/* `n` requests or gives in a row. bytes > 0: requests of that size, whose blocks are kept in the
 * slots from `slot` on (slot -1: taken in the first step and never given back). bytes 0: blocks of
 * this stretch are given back. bytes -1: blocks that another stretch took are given back. */
struct event {
	int64_t bytes;
	int n;
	/* The first slot of the tape, which is `further` later in the next iteration of the run;
	 * with bytes -1 an index of the tape's references. */
	int slot, further;
	/* The number of operations that take memory issued since the stretch began; for frees it
	 * includes the operation of the event. */
	int point;
};

/* Events [first, first + n) that are repeated `times` times, for the blocks of a model. `point`
 * grows by `points` each time. */
struct run {
	int first, n, times, points;
};

/* A block that another stretch took: the position where, by how much that is later for the next
 * iteration of the run (`inner`) and for the next micro-batch (`outer`), its buffer and piece. */
struct reference {
	int64_t position, inner, outer;
	int buffer, piece;
};

/* The effect of a stretch on a lane. A closed tape (not `open`) gives back exactly what it takes,
 * so afterwards all blocks are free that were free before, and all that the lane has grown by. */
struct tape {
	int n, n_runs, n_references, n_slots;
	struct event *events;
	struct run *runs;
	struct reference *references;
	int capacity, run_capacity, reference_capacity;
	int *slots, length; /* [length] the first slot of the operation at each place */
	bool open, keeps;
	int base;       /* of its slots among the lane's */
	bool is_steady; /* played in this state, it left the lane in the same state */
	uint64_t state;
	int64_t *levels; /* [points] bytes taken when it was played last */
};

/* Operations [first, first + n) of one micro-batch, or of none. With loops counted out they are
 * `length` instances, of which `points` take memory. They run `times` times in a row, from
 * `position` on. Consecutive stretches that do the same to a lane share a tape. */
struct stretch {
	int first, n, times, length, points;
	int loop; /* the loop of micro-batches; -1: none */
	int64_t position;
	struct tape **tapes; /* [lanes] */
	int64_t active;      /* active bytes of all lanes when it last began */
};

struct lane {
	int stream;
	bool small;
	uint64_t state;
	int n_slots;
	struct allocator_block **slots[2]; /* [n_slots] of even and odd steps; NULL: not taken */
};

struct lanes {
	const struct engine *engine;
	struct cutter cutter;
	struct arena *arena;
	int n, of[STREAM_COUNT]
		 [2]; /* the lane of a stream's large [0] and small [1] requests; -1 */
	struct lane lanes[LANES_MAX];
	struct tape *spare[LANES_MAX]; /* the tapes that are being recorded */
	int (*offsets)[2]; /* [buffers][small] its first slot among those of its operation */
	int *n_taken;      /* [operations][lanes] pieces that the operation takes */
	int n_stretches;
	struct stretch *stretches;
	struct allocator allocator;
	int64_t limit; /* bytes beyond which the replay stops; the allocator itself has none */
	int64_t peak_active, *sums;
};

/* tapes.c: finds all stretches and records their tapes. False: micro-batches are not in a row. */
bool lanes_record(struct lanes *lanes);

/* The same result as memory_replay. Stops when more than `limit` bytes are reserved (0: never).
 * False: this program needs memory_replay. */
bool lanes_reserved(
	const struct engine *engine, int64_t limit, struct arena *arena, struct reserved *reserved);

#endif
