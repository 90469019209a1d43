/* The second interpreter: walks the operations of a step with real memory and real collectives.
 *
 * It decides nothing. The walking thread issues in list order and computes; collectives, and what
 * follows them on their streams, go to the communication thread. Every operation is timed, every
 * byte that a step takes is counted. */
#ifndef EXECUTOR_INTERPRETER_H
#define EXECUTOR_INTERPRETER_H

#include "executor/interpreter/communication_thread.h"
#include "executor/interpreter/recorder.h"
#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"
#include "executor/transports/transports.h"

struct row_exchange;

/* What carries out operations that are not collectives. `host` computes, `null` does not, `cuda`
 * enqueues. False ends the step; the error is in `error`. */
struct backend {
	const char *name;
	bool (*run)(void *data, int op, struct error *error);
	/* Where lies what the rank gives in an exchange between tensor ranks; may be NULL. */
	void *(*exchanged)(void *data, int op);
	/* Around an exchange of rows of experts: what goes, how much to whom, and what comes. */
	bool (*begin_rows)(void *data, int op, struct row_exchange *exchange, struct error *error);
	bool (*end_rows)(
		void *data, int op, const struct row_exchange *exchange, struct error *error);
	void *data;
	const struct device_ops *asynchronous; /* NULL: `run` returns when the work is done */
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
	struct pace_tally tally, thread_tally; /* since it was opened: of the two threads */
	/* private */
	struct arena arena;
	struct comm_thread thread;
	struct event *finished;   /* [n_ops] the last pass in which it finished, from 1 */
	_Atomic uint32_t stop;    /* the communication thread or the interpreting one has failed */
	struct patience patience; /* of all waits inside the rank */
	struct error thread_error;
	uint32_t pass;
	int64_t step;
	double start;
	bool rehearsal;
	int *pending, n_pending, first_pending; /* collectives whose gives are not reusable yet */
	/* Messages of the step that is being carried out, of the communication thread alone. */
	struct sends {
		uint32_t pass, before; /* of the step; messages that were sent in earlier ones */
		int *ops, n, taken;    /* in their order */
	} sends[BOARD_DIRECTIONS];
	int last_in_thread;
	int leaked;                 /* block of a seeded fault; -1 */
	struct comm_counters moved; /* by the last step that was walked */
};

bool interpreter_open(struct interpreter *in, struct error *error);
void interpreter_close(struct interpreter *in);

/* One step. A rehearsal takes and gives the same buffers and calls the backend, but moves nothing
 * between ranks. False with an error, or without one when the run was aborted. */
bool interpret_step(struct interpreter *in, int64_t step, bool rehearsal, struct error *error);

#endif
