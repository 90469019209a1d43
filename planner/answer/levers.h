/* Private to answer/: parts of the answer about lines of the script. */
#ifndef PLANNER_ANSWER_LEVERS_H
#define PLANNER_ANSWER_LEVERS_H

#include "schedule/documents/documents.h"
#include "schedule/schedule.h"

/* One line of the script, changed alone in the chosen plan. */
struct lever {
	enum knob_id id;   /* KNOB_COUNT: of the model */
	const char *typed; /* "--loss fused" */
	double gain;       /* share of the step time that it saves; < 0: it costs */
	double step_time;  /* s */
	int64_t peak_memory_bytes;
};

/* What would make something fit. */
struct way_out {
	const char *typed;    /* to be added to what was typed; "": another topology */
	const char *topology; /* instead of the one that was typed; NULL: the same */
	int64_t devices;
	const char *note; /* "the longest sequence", or "" */
	struct plan plan;
	struct prediction prediction;
};

#endif
