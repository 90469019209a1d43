/* The model that the golden traces were made with: embedding 11 x 8, four blocks of two linear
 * layers (8 -> 25 -> 8, with biases), a head that is tied (FSDP1 traces) or not (FSDP2 traces). */
#ifndef TESTS_SCHEDULE_TOY_H
#define TESTS_SCHEDULE_TOY_H

#include "schedule/schedule.h"

enum { TOY_BLOCKS = 4 };

struct model *toy_model(struct arena *arena, int blocks, bool tied);
/* One node of `devices` GPUs of the catalogue's A100 node. */
struct topology *toy_topology(struct arena *arena, int64_t devices);

/* "NAME=VALUE" strings until NULL; fails the test on an error. */
struct plan toy_plan(struct arena *arena, const struct model *model,
	const struct topology *topology, ...) __attribute__((sentinel));
struct schedule *toy_schedule(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology);

#endif
