/* Pipelines drawn by hand: every class is a stage without parameters, which computes one forward
 * and one backward of each micro-batch. What it receives, it asks for as early as its stream
 * allows. */
#ifndef TESTS_SCHEDULE_STAGES_H
#define TESTS_SCHEDULE_STAGES_H

#include "schedule/schedule.h"

enum { STAGES_BYTES = 4096 }; /* of a message */

enum stages_order { STAGES_1F1B, STAGES_GPIPE };

/* One rank a stage; plan, model and topology are of the toy. */
struct schedule *stages_schedule(
	struct arena *arena, int stages, int micro_batches, enum stages_order order);

/* The operation of that kind in the micro-batch and direction (of messages); fails without one. */
int stages_find(const struct program *program, enum op_kind kind, int micro_batch,
	enum direction direction);

/* Adds an operation at the end of a class, without buffers. */
int stages_add(struct schedule *schedule, int class, struct op op);

#endif
