/* The state that a rank shows to the others, in memory to which all of them can write. */
#ifndef EXECUTOR_RANKS_BOARD_H
#define EXECUTOR_RANKS_BOARD_H

#include "executor/ranks/event.h"

/* One collective as its rank sees it; members that must agree between ranks come first. */
struct post {
	uint32_t sequence; /* number of the collective in its lane, from 1 */
	int32_t kind;      /* enum collective_kind */
	int32_t element;   /* enum comm_element */
	int32_t first, size, stride;
	int64_t count;
	int64_t offset; /* of the memory that others read, in this rank's window */
	int64_t result; /* of the output, if it is there too */
	int32_t step, op, unit;
};

enum { BOARD_POSTS = 64 };

/* The most ranks of an all-to-all with chunks of different sizes. */
enum { BOARD_SPLITS = 64 };

/* Collectives are numbered in three lanes, because each has an order of its own: those of ranks
 * with one program, those of all ranks, and those that join the first and the last program. */
enum lane { LANE_PROGRAM, LANE_ALL, LANE_ENDS, LANES };
struct posted {
	struct event progress; /* PHASES * sequence + enum phase */
	struct post posts[BOARD_POSTS];
};

/* A message between stages of a pipeline as its sender sees it. All but `offset` and `op` must be
 * what the receiver expects. */
struct parcel {
	int32_t sender, receiver, micro_batch, chunk;
	int64_t step, bytes;
	int64_t offset; /* of the memory that the receiver reads, in the sender's window */
	int32_t op;
};

/* Messages of a rank in one direction: number n of them, from 1, is parcels[n % BOARD_PARCELS]. */
enum { BOARD_DIRECTIONS = 2, BOARD_PARCELS = 64 };
struct channel {
	struct event sent, taken;
	struct parcel parcels[BOARD_PARCELS];
};

/* The state that a rank shows to the others. Its last posts stay, so that a report of a hang can
 * name them. */
struct board {
	_Atomic int32_t state; /* enum board_state */
	_Atomic int32_t step, op;
	_Atomic int32_t pid;    /* over machines; 0 = not there yet */
	_Atomic uint32_t beats; /* counts while it waits for other machines: no fault of its own */
	_Atomic int32_t call;   /* enum rank_call */
	_Atomic int64_t call_since; /* ns of clock_of_machine() */
	/* For an all-to-all with chunks of different sizes: the chunk for member i is elements
	 * [splits[i], splits[i + 1]) of the input. Members read this until all are done. */
	int64_t splits[BOARD_SPLITS + 1];
	struct posted lanes[LANES];
	struct channel channels[BOARD_DIRECTIONS]; /* enum direction */
} __attribute__((aligned(64)));

/* Calls into MPI, which knows no deadline: the process that started the rank has one for each. */
enum rank_call { CALL_NONE, CALL_MPI_START, CALL_MPI_SHARE, CALL_MPI_MOVE, CALL_MPI_STOP };

/* BOARD_GAVE_UP: because of another rank, which tells why. */
enum board_state { BOARD_STARTING, BOARD_RUNNING, BOARD_DONE, BOARD_GAVE_UP };

#endif
