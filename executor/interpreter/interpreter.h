/* The second interpreter: walks the operations of a step with real memory and real collectives.
 *
 * It decides nothing. One thread, the walking one, issues operations in list order and computes.
 * Collectives, and the operations that follow them on their streams, go to the communication
 * thread. Every operation is timed, and every byte that a step takes is counted. */
#ifndef EXECUTOR_INTERPRETER_H
#define EXECUTOR_INTERPRETER_H

#include "executor/interpreter/communication_thread.h"
#include "executor/interpreter/recorder.h"
#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"
#include "executor/transports/transports.h"

struct row_exchange;

/* Carries out operations that are not collectives: `host` computes, `null` does nothing, `cuda`
 * enqueues. Functions that return false end the step and fill `error`. */
struct backend {
	const char *name;
	bool (*run)(void *data, int op, struct error *error);
	/* The address of the rank's input to an exchange between tensor ranks; may be NULL. */
	void *(*exchanged)(void *data, int op);
	/* Called before and after an exchange of rows of experts: the first fills in what is sent
	 * and received, the second uses what has come. */
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
	_Atomic int32_t *board_step, *board_op; /* set to what is being done; may be NULL */
	const struct expectation *expected;     /* of the program; NULL = nothing is known */
	struct fault fault;
	/* Results of the last step. */
	struct timeline timeline; /* spans from the start of the step, and the measured ledger */
	struct pace_tally tally, thread_tally; /* of the two threads, since it was opened */
	/* private */
	struct arena arena;
	struct comm_thread thread;
	struct event *finished;   /* [n_ops] the last step, from 1, in which it finished */
	_Atomic uint32_t stop;    /* set when one of the two threads has failed */
	struct patience patience; /* limits all waits between the two threads */
	struct error thread_error;
	uint32_t pass;
	int64_t step;
	double start;
	bool rehearsal;
	/* Collectives that have been issued and whose buffers cannot be reused yet. */
	int *pending, n_pending, first_pending;
	/* Messages that the current step sends. Only the communication thread uses this. */
	struct sends {
		uint32_t pass, before; /* of this step; messages that earlier steps have sent */
		int *ops, n, taken;    /* SENDs in order; how many have reached their receiver */
	} sends[BOARD_DIRECTIONS];
	int last_in_thread;
	int leaked;                 /* a block that a seeded fault leaks; -1 */
	struct comm_counters moved; /* in the last step that was walked */
};

bool interpreter_open(struct interpreter *in, struct error *error);
void interpreter_close(struct interpreter *in);

/* Runs one step. A rehearsal takes and gives the same buffers and calls the backend, but moves
 * nothing between ranks. False with an error, or without one when the run was aborted. */
bool interpret_step(struct interpreter *in, int64_t step, bool rehearsal, struct error *error);

#endif
