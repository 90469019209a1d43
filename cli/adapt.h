/* A plan for another runtime, machine or number of ranks, made one that this machine can train. */
#ifndef CLI_ADAPT_H
#define CLI_ADAPT_H

#include "cli/question.h"

struct adaptation {
	const struct plan *from;
	struct plan plan;
	struct topology *topology; /* local, with the plan's ranks */
	/* One sentence per knob that changed: "runtime: pytorch-fsdp2 -> shardplan". */
	int n_changes;
	const char **changes;
};

/* Whether `train` can execute the plan as it stands on `ranks` ranks with that clipping. */
bool plan_is_trainable(const struct plan_file *file, int64_t ranks, double clip);

/* The same knobs wherever `shardplan` on `local` has them. */
bool adapt_plan(struct arena *arena, const struct plan_file *file, int64_t ranks, double clip,
	struct adaptation *adaptation, struct error *error);

#endif
