/* Private to mixed/: what small schedules tell about the blocks and units of mixed plans.
 *
 * What blocks compute and save does not depend on how units are sharded, and what units keep and
 * move does not depend on the micro-batch (bound.c), so one schedule serves many subproblems. */
#ifndef PLANNER_MIXED_SAMPLES_H
#define PLANNER_MIXED_SAMPLES_H

#include "planner/evaluation/evaluation.h"

struct load_row {
	double compute, issue, cover[SHARES]; /* s per micro-batch */
	double before;                        /* s of compute up to the loss */
	int64_t saved;                        /* bytes at the loss */
};

/* Of one micro-batch. */
struct load_sample {
	struct plan plan;      /* the first that has it */
	struct load_row *rows; /* by block; rows[layers] is everything outside of blocks */
	struct bound_edges edges;
};

struct shape_row {
	struct work middle, rest; /* of a micro-batch in the middle; of everything else */
	int64_t kept;             /* bytes at the loss, of the pool that compute takes from */
	int64_t pooled;           /* the same of other pools, but those of reductions */
	int64_t held;   /* bytes of reduced gradients that the optimizer finds in another */
	int64_t at_end; /* bytes at the optimizer */
};

struct shape_sample {
	struct plan plan;       /* the first that has it */
	int n;                  /* units; 0: it cannot be built */
	struct shape_row *rows; /* by unit; rows[n] is everything else; NULL: it cannot be built */
	int *places;            /* of a unit among those that reshard; -1: not */
	int *host_places;       /* the same among those that offload */
	int64_t apart, reduced; /* bytes of other pools, whenever they are there; of reductions' */
	int64_t fixed;          /* bytes outside of buffers */
	struct bound_communication communication;
};

struct samples {
	const struct question *question;
	struct bound_ignored ignored;
	struct arena arena, scratch;
	int n_loads, load_capacity, n_shapes, shape_capacity;
	struct load_sample **loads;
	struct shape_sample **shapes;
};

void samples_init(struct samples *samples, const struct question *question);
void samples_finish(struct samples *samples);
/* `*sample` lives as long as `samples`. */
bool sample_load(struct samples *samples, const struct plan *plan,
	const struct load_sample **sample, struct error *error);
bool sample_shape(struct samples *samples, const struct plan *plan,
	const struct shape_sample **sample, struct error *error);

#endif
