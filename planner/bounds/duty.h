/* Private to path.c and duty.c: what each rank of a pipeline has to do in a step. */
#ifndef PLANNER_BOUNDS_DUTY_H
#define PLANNER_BOUNDS_DUTY_H

#include "planner/bounds/parts.h"

enum way { FORWARD, BACKWARD, WAYS };
enum { FIRST, MIDDLE, LAST, PROBED };

/* Seconds between passes in which all that may happen ahead happens. */
#define APART 1e5

/* Seconds after a pass has begun. */
struct lasting {
	double sent;  /* until its result may be sent */
	double asked; /* until what the next one needs is asked for */
	double busy;  /* until the next one may begin */
	double held;  /* until all is exchanged */
};

/* The first forward of a chunk: when it ends at the earliest, s of the step, behind so many other
 * forwards. */
struct first {
	struct lasting ends;
	int before;
};

/* A pass without the exchanges of rows, which run beside another one. */
struct beside_pass {
	struct lasting pass;
	double rows;          /* s of these exchanges, between its compute */
	double loss;          /* the least of bound_loss */
	double cover[SHARES]; /* of bound_contention */
};

/* What a rank has to do. Arrays are in the arena of duty_measure, with zeros where nothing was read
 * off. */
struct duty {
	struct lasting (*passes)[WAYS][PROBED];      /* by chunk */
	struct beside_pass (*besides)[WAYS][PROBED]; /* of --expert-overlap */
	struct first *firsts;                        /* by chunk */
	double rest;                                 /* s of the step after the last pass */
	int64_t message;                             /* bytes */
	/* Bytes that the rank sends (bound_wire): of a micro-batch in the middle; of all else. */
	double middle_wire, rest_wire;
	double middle_issue, rest_issue; /* s of its issuing thread, the same */
};

enum way duty_way(const struct pipeline_slot *slot);

/* Of a rank, read off a list of PROBED micro-batches. `pipeline` has as many; `models`: what each
 * rank holds. False: it cannot be read off. */
bool duty_measure(const struct pipeline *pipeline, const struct model *const *models,
	const struct plan *plan, const struct model *model, const struct topology *topology,
	int rank, struct arena *arena, struct duty *duty);

#endif
