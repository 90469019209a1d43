/* The questions that the planner's speed and gaps are measured by: sixty, and forty whose models
 * are divided. */
#ifndef BENCH_PLANNER_QUESTIONS_H
#define BENCH_PLANNER_QUESTIONS_H

#include <stdint.h>

struct asked {
	const char *model, *topology;
	int nics; /* of a node, and Gbit/s of each; 0: the catalogue's */
	double gbit;
	int64_t devices;     /* of the topology; 0: all */
	const char *options; /* "seq_len=4096 global_batch=1024": knobs that the user gave */
};

extern const struct asked asked_questions[];
extern const int n_asked_questions;
extern const struct asked asked_of_axes[];
extern const int n_asked_of_axes;

#endif
