/* What the ranks are told of the prediction: how long each operation may be held, and how long to
 * wait for other ranks.
 *
 * Pacing: an operation that ends before its modelled time is up waits for it, so that a step takes
 * the course that the prediction gave it. The bits stay what they are. A collective's time counts
 * from when all of its members have come to it, as a link's does. */
#ifndef EXECUTOR_RANKS_EXPECTATION_H
#define EXECUTOR_RANKS_EXPECTATION_H

#include "executor/job/job.h"

struct expectation {
	int n_ops;
	double *held;     /* [n_ops] s, at least; 0 = as long as it takes */
	double *patience; /* [n_ops] s: collectives, until a rank that does not come hangs */
};

/* Of one thread: what could not be held because it took longer, and by how much in all. */
struct pace_tally {
	int64_t n_held, n_late;
	double late; /* s */
};

/* From a predicted step, of which there is a timeline for each class of ranks, as text for the
 * ranks of `class`. Modelled times are multiplied by `slow_motion` (>= 1). A rank that does not
 * come to a collective is called hung after `timeout` s; 0: after 10 s and 20 times the predicted
 * time since the end of the collective before it, as so late can no rank be that came to that one.
 */
void expectation_write(const struct schedule *schedule, int class,
	const struct timeline *const *predicted, enum pace pace, double slow_motion, double timeout,
	struct text *text);
/* Of n_ops operations behind `before` others. `text` NULL: nothing is held, and no patience is
 * known (0). False when it has fewer. */
bool expectation_read(const char *text, int before, int n_ops, struct arena *arena,
	struct expectation *expectation);

/* Until the time is up that operation `op` is held for since `start` (clock_now); `stop` ends it
 * early. */
void expectation_hold(const struct expectation *expectation, int op, double start,
	const _Atomic uint32_t *stop, struct pace_tally *tally);
/* An operation that was held, and ended so many s late without that. */
void expectation_count(double late, struct pace_tally *tally);
/* Whether anything is held. */
bool expectation_paces(const struct expectation *expectation);
/* Lets this thread, and those that it starts, wake up when they asked for it. */
void expectation_sharpen(void);

/* Until a rank that does not come is called hung: for operations without a patience of their own,
 * and for what is exchanged between steps. */
double expectation_patience(double predicted, double slow_motion);
#define PATIENCE_UNKNOWN 600.0 /* s, without a prediction; also while files are written */

#endif
