/* A plan for another runtime, machine or number of ranks, made one that this machine can train. */
#ifndef CLI_ADAPT_H
#define CLI_ADAPT_H

#include "cli/question/question.h"

struct adaptation {
	const struct plan *from;
	struct plan plan;
	struct topology *topology; /* local, or what is emulated; with the plan's ranks */
	/* One sentence per knob that changed: "runtime: pytorch-fsdp2 -> shardplan". */
	int n_changes;
	const char **changes;
};

/* Whether `train` can execute the plan unchanged on `ranks` ranks with that clipping. */
bool plan_is_trainable(const struct plan_file *file, int64_t ranks, double clip);

/* Whether it is for that many ranks of our runtime on CPUs, on however many nodes. */
bool plan_runs_on_cpus(const struct plan_file *file, int64_t ranks, double clip);

/* Whether GPUs can execute it unchanged: as many ranks of our runtime, wherever it was made for.
 */
bool plan_runs_on_gpus(const struct plan_file *file, int64_t ranks, double clip);

/* What the adapted plan is for. */
struct adaptation_target {
	int64_t ranks; /* 0: of `emulate` all */
	double clip;
	bool gpus;           /* the plan's own topology and dtypes, with that many ranks */
	bool exact_sums;     /* of gradients; false: as the plan has them */
	const char *emulate; /* a topology that local ranks emulate; NULL: this machine */
};

/* The same knobs wherever `shardplan` there has them. */
bool adapt_plan(struct arena *arena, const struct plan_file *file,
	const struct adaptation_target *target, struct adaptation *adaptation, struct error *error);

/* How much slower than modelled an emulated run has to be, so that this machine keeps up: by
 * predicted times of the plan here, with half as much again in reserve. At least 1. `arithmetic`
 * false: nothing is computed. */
bool adapt_slow_motion(struct arena *arena, const struct evaluation *emulated,
	const struct model *model, bool arithmetic, double *factor, struct error *error);

/* The same where ranks share a GPU of this machine, by the datasheets: its arithmetic for all of
 * them, one after the other, with a quarter in reserve. */
bool adapt_gpu_slow_motion(
	struct arena *arena, const struct plan_file *emulated, double *factor, struct error *error);

#endif
