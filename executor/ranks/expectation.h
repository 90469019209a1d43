/* What the ranks know of the prediction: how long each operation is held, and how long to wait for
 * other ranks.
 *
 * Pacing: an operation that ends early is held until its predicted time is over, so that a step
 * takes the course that was predicted. It changes no bits. The time of a collective counts from the
 * moment at which all of its members have come, because only then a link would be busy. */
#ifndef EXECUTOR_RANKS_EXPECTATION_H
#define EXECUTOR_RANKS_EXPECTATION_H

#include "executor/job/job.h"

struct expectation {
	int n_ops;
	double *held;     /* [n_ops] s that it lasts at least; 0 = it is not held */
	double *patience; /* [n_ops] s after which a rank that does not come counts as hung */
};

/* For one thread: operations that were to be held, those that took longer than predicted, and by
 * how much in total. */
struct pace_tally {
	int64_t n_held, n_late;
	double late; /* s */
};

/* Writes what the ranks of `class` have to know of a predicted step, from the timelines of all
 * classes. Predicted times are multiplied by `slow_motion` (>= 1). A rank that does not come to a
 * collective counts as hung after `timeout` s; 0: after expectation_patience() of the time
 * predicted since the end of the collective before, to which all ranks came. */
void expectation_write(const struct schedule *schedule, int class,
	const struct timeline *const *predicted, enum pace pace, double slow_motion, double timeout,
	struct text *text);
/* Reads this back for n_ops operations after the first `before` ones. `text` NULL: nothing is held,
 * and no patience is known (0). False when the text has fewer. */
bool expectation_read(const char *text, int before, int n_ops, struct arena *arena,
	struct expectation *expectation);

/* Sleeps until operation `op`, which began at `start` (clock_now), has lasted as long as it is
 * held; `stop` ends the sleep early. */
void expectation_hold(const struct expectation *expectation, int op, double start,
	const _Atomic uint32_t *stop, struct pace_tally *tally);
/* Counts an operation that was to be held, and that ended `late` s after its time (< 0: before). */
void expectation_count(double late, struct pace_tally *tally);
/* Is any operation held? */
bool expectation_paces(const struct expectation *expectation);
/* Lets sleeps of this thread, and of those that it starts, end within microseconds of their time.
 */
void expectation_sharpen(void);

/* s after which a rank that does not come counts as hung: 10 s and 20 times the predicted time.
 * Also for exchanges between steps. */
double expectation_patience(double predicted, double slow_motion);
#define PATIENCE_UNKNOWN 600.0 /* s, without a prediction; also while files are written */

#endif
