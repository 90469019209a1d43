/* What a plan says of its pipeline: the order of micro-batches, and what each rank holds. */
#ifndef SCHEDULE_STAGES_H
#define SCHEDULE_STAGES_H

#include "schedule/pipeline/pipeline.h"

struct pipeline plan_pipeline(const struct plan *plan);

/* How many blocks every stage has (ranks x chunks of them), as the plan lists them or as its
 * runtime cuts a model of so many. EXIT_CODE_USAGE: it cannot. */
bool plan_split(const struct plan *plan, int64_t blocks, int *stages, struct error *error);

/* What a rank holds of `model`, whole or divided by other axes: the model itself where there is one
 * rank. *chunks: of each of its blocks, which of the rank's stages it belongs to; in the arena. */
const struct model *plan_stage(const struct plan *plan, const struct model *model, int rank,
	struct arena *arena, const int **chunks);

#endif
