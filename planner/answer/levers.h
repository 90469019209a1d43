/* Private to answer/: parts of the answer about levers, options that change a line of the training
 * script. */
#ifndef PLANNER_ANSWER_LEVERS_H
#define PLANNER_ANSWER_LEVERS_H

#include "schedule/documents/documents.h"
#include "schedule/schedule.h"

/* The chosen plan with one lever pulled. */
struct lever {
	enum knob_id id;      /* KNOB_COUNT: the lever changes the model */
	const char *typed;    /* "--loss fused" */
	double gain;          /* share of the time of a token that it saves; < 0: it costs */
	double step_time;     /* s */
	int64_t global_batch; /* sequences a step */
	int64_t peak_memory_bytes;
};

/* A change with which some plan fits. */
struct way_out {
	const char *typed;    /* options to add; "": only the topology changes */
	const char *topology; /* its name, in place of the user's; NULL: the same */
	int64_t devices;
	const char *note; /* "the longest sequence", or "" */
	struct plan plan;
	struct prediction prediction;
};

#endif
