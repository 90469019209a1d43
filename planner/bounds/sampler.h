/* Private to bounds/: small folded schedules, and the loads that are read off them. */
#ifndef PLANNER_BOUNDS_SAMPLER_H
#define PLANNER_BOUNDS_SAMPLER_H

#include "planner/bounds/bounds.h"
#include "planner/bounds/parts.h"
#include "simulator/costs/costs.h"

/* What a micro-batch computes and saves, whatever is sharded. */
struct load {
	const struct plan *plan;              /* the first that has it */
	double compute, issue, cover[SHARES]; /* s per micro-batch */
	double exchanges;                     /* the same, for which compute waits */
	int64_t saved;                        /* bytes at the loss */
	struct stage_load stages;
	struct stage_load waits; /* s of these that are exchanges */
};

struct shape;

/* What was measured of one question. bounds_finish frees all of it. */
struct sampler {
	const struct question *question;
	struct divided_models divided;
	struct arena arena;
	struct arena models; /* `few`, and the plans of loads and shapes */
	/* With PROBED_BLOCKS blocks that are alike, and with one more; NULL: blocks differ. */
	const struct model *few[2];
	int n_loads, load_capacity, n_shapes, shape_capacity;
	struct load *loads;
	struct load at_length; /* one of them, of another pipeline */
	struct shape *shapes;
	uint64_t no_load, no_shape; /* knobs that do not matter for a load, and for a shape */
};

/* A plan's folded schedule with another batch, and what its operations cost. */
struct sample {
	struct schedule *schedule;
	struct cost *costs;
	double *issue; /* bound_issue */
};

/* A copy that stays as it is. */
const struct plan *sampler_keep(struct sampler *sampler, const struct plan *plan);
/* Does what was measured with one plan serve the other? Their batch and shards alone may differ. */
bool sampler_serves(const struct plan *measured, const struct plan *plan);
/* In the sampler's arena, until the next one is taken. */
struct sample sample_take(struct sampler *sampler, const struct model *model,
	const struct plan *plan, int64_t micro_batch, int64_t grad_accum);

/* loads.c. Builds the same model of few blocks, where there is one kind of them. */
void sampler_make_few(struct sampler *sampler);
/* The plan's own. */
void load_measure(struct sampler *sampler, const struct plan *plan, struct load *load);
/* The plan's, or one that saves less and yet more than `limit` bytes. Valid until the next call. */
const struct load *load_find(struct sampler *sampler, const struct plan *plan, int64_t limit);

#endif
