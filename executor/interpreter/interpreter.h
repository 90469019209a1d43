/* The second interpreter: walks the operations of a step with real memory and real collectives.
 *
 * It decides nothing. The walking thread issues in list order and computes; collectives, and what
 * follows them on their streams, go to the engine. Every operation is timed, every byte that a step
 * takes is counted. */
#ifndef EXECUTOR_INTERPRET_H
#define EXECUTOR_INTERPRET_H

#include "executor/interpreter/communication_thread.h"
#include "executor/memory/buffers.h"
#include "executor/ranks/expectation.h"
#include "executor/transports/comm.h"

/* Of a device that works on its own while the walk goes on: the walk enqueues everything itself, in
 * list order, and calls these instead of waiting. False ends the step, with an error or (when the
 * run was aborted) without. A step ends when the device has done all of it, so nothing of one step
 * waits for the step before. */
struct asynchronous {
	/* `walk` is set to whether the operations are to be issued: a device that can repeat a step
	 * by itself carries it out in end_step. */
	bool (*begin_step)(void *device, bool rehearsal, bool *walk, struct error *error);
	/* What follows belongs to `op`: it starts behind the operations that `op` waits for. On the
	 * host's own stream the host waits for them. */
	bool (*begin)(void *device, int op, struct error *error);
	bool (*end)(void *device, int op, struct error *error);
	/* The host waits until that operation of this step has finished. */
	bool (*wait)(void *device, int op, struct error *error);
	/* Everything has finished; fills starts and ends, in seconds of the step (and when it was
	 * issued, where the step was not walked). */
	bool (*end_step)(void *device, struct span *spans, struct error *error);
	void *(*stream)(void *device, enum stream stream); /* for collectives */
	/* Pacing: `op` starts now (a collective's transport notes at `clock` when all have come);
	 * what follows it on its stream comes `seconds` after that, at the earliest; and by how
	 * many s it was late in the step that has ended. */
	bool (*start)(void *device, int op, struct error *error);
	void *(*clock)(void *device, int op);
	bool (*hold)(void *device, int op, double seconds, struct error *error);
	double (*late)(void *device, int op);
};

/* What carries out operations that are not collectives. `host` computes, `null` does not, `cuda`
 * enqueues. False ends the step; the error is in `error`. */
struct backend {
	const char *name;
	bool (*run)(void *data, int op, struct error *error);
	void *data;
	const struct asynchronous *asynchronous; /* NULL: `run` returns when the work is done */
	void *device;
};

struct interpreter {
	/* Set by the caller. */
	const struct schedule *schedule;
	const struct program *program;
	struct buffers *buffers;
	struct comm *comm;
	struct backend backend;
	_Atomic int32_t *board_step, *board_op; /* where to say what is being done; may be NULL */
	const struct expectation *expected;     /* of the program; NULL = nothing is known */
	struct fault fault;
	/* Results of the last step. */
	struct timeline timeline; /* spans from the start of the step, and the measured ledger */
	struct pace_tally tally, engine_tally; /* since it was opened: of the two threads */
	/* private */
	struct arena arena;
	struct engine engine;
	struct event *finished;   /* [n_ops] the last pass in which it finished, from 1 */
	_Atomic uint32_t stop;    /* the engine or the walk has failed */
	struct patience patience; /* of all waits inside the rank */
	struct error engine_error;
	uint32_t pass;
	int64_t step;
	double start;
	bool rehearsal;
	int *pending, n_pending, first_pending; /* collectives whose gives are not reusable yet */
	int last_in_engine;
	int leaked;                 /* block of a seeded fault; -1 */
	struct comm_counters moved; /* by the last step that was walked */
};

bool interpreter_open(struct interpreter *in, struct error *error);
void interpreter_close(struct interpreter *in);

/* One step. A rehearsal takes and gives the same buffers and calls the backend, but moves nothing
 * between ranks. False with an error, or without one when the run was aborted. */
bool interpret_step(struct interpreter *in, int64_t step, bool rehearsal, struct error *error);

/* The largest sum over categories in the measured ledger and its first operation. */
int interpreter_peak(const struct interpreter *in, int64_t *peak_bytes);

#endif
