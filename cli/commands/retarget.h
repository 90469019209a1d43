/* Adapts a plan for another runtime, machine or number of ranks so that this machine can train
 * it. */
#ifndef CLI_ADAPT_H
#define CLI_ADAPT_H

#include "cli/question/question.h"

struct adaptation {
	const struct plan *from;
	struct plan plan;
	struct topology *topology; /* local or emulated, with the plan's ranks */
	/* One sentence for each knob that changed. Example: "runtime: pytorch-fsdp2 ->
	 * shardplan". */
	int n_changes;
	const char **changes;
};

/* Can `train` execute the plan unchanged on `ranks` ranks with this clipping? */
bool plan_is_trainable(const struct plan_file *file, int64_t ranks, double clip);

/* Is the plan for this many ranks of our runtime on CPUs, on any number of nodes? */
bool plan_runs_on_cpus(const struct plan_file *file, int64_t ranks, double clip);

/* Can GPUs execute the plan unchanged: as many ranks of our runtime, whatever machine it is for? */
bool plan_runs_on_gpus(const struct plan_file *file, int64_t ranks, double clip);

/* The target of an adapted plan. */
struct adaptation_target {
	int64_t ranks; /* 0: all ranks of `emulate` */
	double clip;
	bool gpus;           /* keeps the plan's topology and dtypes, with this many ranks */
	bool exact_sums;     /* of gradients; false: as in the plan */
	const char *emulate; /* a topology that local ranks emulate; NULL: none */
};

/* Adapts the plan: the same knobs, as far as our runtime has them there. */
bool adapt_plan(struct arena *arena, const struct plan_file *file,
	const struct adaptation_target *target, struct adaptation *adaptation, struct error *error);

/* The slow motion of an emulated run: how much slower than predicted it has to be so that this
 * machine can keep up, by the predicted times of the plan here plus a reserve of half. At least 1.
 * `arithmetic` false: nothing is computed. */
bool adapt_slow_motion(struct arena *arena, const struct evaluation *emulated,
	const struct model *model, bool arithmetic, double *factor, struct error *error);

/* Does the same for ranks that share a GPU of this machine, by datasheets: its arithmetic for all
 * of them in turn, plus a reserve of a quarter. */
bool adapt_gpu_slow_motion(
	struct arena *arena, const struct plan_file *emulated, double *factor, struct error *error);

#endif
