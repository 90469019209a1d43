/* What no simulation of a plan can go below.
 *
 * A plan's work is the sum of two parts that can be looked at apart: its *load* (what is computed
 * and saved: runtime, micro-batch, checkpointing) and its *shape* (what is kept, moved and reduced:
 * strategy, shard group, wrap). Both are read off small folded schedules, one for each load and
 * each shape, so that a bound costs a few additions. Proofs are in bounds.c; tests/planner compares
 * with the simulator. */
#ifndef PLANNER_BOUNDS_BOUNDS_H
#define PLANNER_BOUNDS_BOUNDS_H

#include "planner/space/space.h"

struct bound {
	double time;    /* s per step, <= step_time */
	int64_t memory; /* bytes, <= peak_memory_bytes, and <= what `fits` looks at */
	double network; /* bytes per step, <= what leaves a node (one node: a rank) */
	int64_t host;   /* bytes that CPU offload keeps of a node's memory, <= host_memory_bytes */
	bool whole;     /* else of the states or the load alone: bounds_complete says more */
};

struct sampler;

struct bounds {
	struct bound *of;        /* malloc'ed; by plan of the space */
	struct sampler *sampler; /* what they were read off, for bounds_complete */
};

/* Of plans whose states no device or no node holds, the bounds of memory are of these alone, and
 * there are no others. Of other pipelines they are whole. Of plans whose saved tensors no device
 * holds, bounds may be of fewer; of all others they are of the load alone. bounds_finish frees what
 * it allocates. */
void bounds_build(
	const struct question *question, const struct space *space, struct bounds *bounds);
/* What ranks have of the model under the divisions of all plans, until bounds_finish. */
const struct divided_models *bounds_models(const struct bounds *bounds);
/* Bounds of a plan are those of its load and its shape, too. `space`: as it was. */
void bounds_complete(struct bounds *bounds, const struct space *space, int plan);
/* Gives back what that has used; it takes it again. */
void bounds_release(struct bounds *bounds);
/* Of all that may fit a device. */
void bounds_complete_all(struct bounds *bounds, const struct space *space);
/* The bound of memory that a class of a plan's own schedule gives, whole or folded. Allocates from
 * `arena`. */
int64_t bounds_memory(const struct schedule *schedule, int class, struct arena *arena);
/* The rank of a pipeline whose blocks have the most parameters, the first of these. `model`: what a
 * rank has of it but for the pipeline. */
int bounds_heaviest_stage(const struct plan *plan, const struct model *model);
/* What a step of a pipeline takes at least, by the longest path through its passes, and what its
 * ranks send: the `time` and `network` of a bound. False: it is not followed, and both are 0. Takes
 * longer than bounds_build. `model`: what a rank has of it but for the pipeline. Allocates from
 * `arena`. */
bool bounds_path(const struct plan *plan, const struct model *model,
	const struct topology *topology, struct bound *bound, struct arena *arena);
/* Takes out what was measured, for other searches (struct earlier) while `question` is there. The
 * bounds stay, but none can be completed. sampler_free takes NULL, too. */
struct sampler *bounds_leave(struct bounds *bounds);
void sampler_free(struct sampler *sampler);
void bounds_finish(struct bounds *bounds);

/* What a stage's work is made of: seconds of a micro-batch, one block's and the ends'; and bytes of
 * a block, saved of a micro-batch until its backward, and of states. Means over all blocks, on a
 * rank; what is sharded is not gathered. */
struct block_load {
	double block, embedding, head; /* s */
	double saved, states;          /* bytes */
};
struct block_load bounds_block(const struct question *question, const struct plan *plan);

#endif
