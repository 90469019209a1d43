/* What the tests of pipeline orders share: an order in torch's words, and a run of all ranks. */
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

#endif
