/* The questions on which the planner's speed and gaps are measured: sixty, and forty with divided
 * models. */
#ifndef BENCH_PLANNER_QUESTIONS_H
#define BENCH_PLANNER_QUESTIONS_H

#include <stdint.h>

struct asked {
	const char *model, *topology;
	int nics; /* of a node, and Gbit/s of each; 0: those of the catalogue */
	double gbit;
	int64_t devices;     /* of the topology; 0: all */
	const char *options; /* "seq_len=4096 global_batch=1024": knobs given by the user */
};

extern const struct asked asked_questions[];
extern const int n_asked_questions;
extern const struct asked asked_of_axes[];
extern const int n_asked_of_axes;

#endif
