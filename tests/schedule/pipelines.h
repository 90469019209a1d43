/* Shared by the tests of pipeline schedules: an order in torch's words, and a run of all ranks. */
#ifndef TESTS_SCHEDULE_PIPELINES_H
#define TESTS_SCHEDULE_PIPELINES_H

#include "schedule/pipeline/pipeline.h"
#include "support.h"

/* "0F0 0F1+4B0 0I0 0W0": stage, pass, micro-batch; + between what is computed together. */
const char *order_words(const struct pipeline *pipeline, int rank, struct arena *arena);

/* Seconds of a pass of one stage; a pair takes `pair` (0: one after the other). */
struct pass_times {
	double forward, input, weight, pair;
};

/* All ranks compute their slots in order, each as soon as what it waits for is there; messages
 * take no time. */
struct pipeline_run {
	bool ends;    /* else no rank could go on: a deadlock */
	double end;   /* of the last rank */
	double *span; /* of each rank: from its first slot's start to its last one's end */
	double *busy; /* of each rank */
	int *held;    /* most forwards of a rank that wait for the end of their backward */
};
struct pipeline_run run_pipeline(
	const struct pipeline *pipeline, const struct pass_times *times, struct arena *arena);

/* Seconds of a step in which the rank that has least to do idles, where all stages are equal and
 * messages take no time:
 *
 * gpipe, 1f1b  (p-1)(F+I+W)      1811.06965, 2104.04473 section 2.2.1
 * interleaved  (p-1)(F+I+W)      where m >= p; of stages a v-th as long (2104.04473 section 2.2.2)
 * zb-h1        (p-1)(F+I-W)      where m >= p, W <= I and W <= F (2401.10241 section 2)
 * zbv          (p-1)F            where m >= 2p-1 and F = I = W: each rank ends as much later than
 *                                the ranks before it as it begins, and does not idle between
 *                                (2401.10241 section 6: "zero bubble")
 * dualpipev    (p-1)(pair+I-2W)  where F = I = W and the two of a pair begin together (DeepSeek's
 *              DualPipe, README); torch computes them one after the other, and idles less
 *
 * NaN where none holds, and with `pairs`. */
double pipeline_bubble(const struct pipeline *pipeline, const struct pass_times *times);

#endif
