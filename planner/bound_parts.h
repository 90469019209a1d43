/* Private to planner/: what bounds of whole plans (bound.c) and of mixed ones (mix_bound.c) share.
 */
#ifndef PLANNER_BOUND_PARTS_H
#define PLANNER_BOUND_PARTS_H

#include "planner/bound.h"
#include "simulator/simulator.h"

enum { ENGINES_MAX = 4 };

struct work {
	double compute;              /* s on the compute stream, without the load */
	double engines[ENGINES_MAX]; /* s of collectives */
	double wire;                 /* bytes that leave the network's end (struct bound) */
};

/* Micro-batches of a probe: the first, one in the middle, the last. */
int64_t bound_micro_batches(const struct plan *plan);

/* The plan's schedule with another batch, and what its operations cost, in `arena` (which is
 * emptied). A plan that cannot be built bounds nothing: `*schedule` is NULL. */
bool bound_probe(const struct question *question, struct arena *arena, const struct plan *plan,
	int64_t micro_batch, int64_t grad_accum, struct schedule **schedule, struct cost **costs,
	struct error *error);

/* Knobs that do not matter for a load, and for a shape: bits of plan_fields. */
struct bound_ignored {
	uint64_t load, shape;
};
struct bound_ignored bound_ignored(void);
/* Whether two plans have one load; one shape, up to the number of micro-batches in the middle. */
bool bound_same_load(
	const struct bound_ignored *ignored, const struct plan *a, const struct plan *b);
bool bound_same_shape(
	const struct bound_ignored *ignored, const struct plan *a, const struct plan *b);

/* Operations of the compute stream that touch a buffer; first > last: none. */
struct touches {
	int first, last;
};
struct touches *bound_touches(const struct program *program, struct arena *arena);

/* What is saved for backward; what is there at the loss whatever is prefetched. */
bool bound_is_load(const struct buffer *buffer);
bool bound_is_kept(const struct buffer *buffer);

/* Process, or context and one communicator an engine. */
int64_t bound_fixed_bytes(const struct schedule *schedule);

/* The share of an overlapping collective that arithmetic loses: min(c / n, 1/2). */
double bound_loss(const struct topology *topology, double multiprocessors);

#endif
