/* struct timeline: when each operation of a step ran. Both interpreters fill it, indexed by
 * operation, so that prediction and measurement are compared by walking two arrays. */
#ifndef SCHEDULE_TIMELINE_H
#define SCHEDULE_TIMELINE_H

#include "base/base.h"
#include "schedule/buffer.h"

/* Seconds from the start of the step. */
struct span {
	double issued; /* the host reached it */
	double start, end;
};

struct timeline {
	int n_ops;
	struct span *spans;
	int64_t (
		*live)[CATEGORY_COUNT]; /* ledger bytes while the operation runs; NULL if unknown */
	double step_time;               /* s */
};

/* `spans` zeroed; `live` allocated. From `arena`. */
void timeline_init(struct timeline *timeline, int n_ops, struct arena *arena);

/* The `timeline:` value of a document: {step_time_s, spans: [[issued, start, end], ...], live:
 * ...}, and its inverse. */
void timeline_write(const struct timeline *timeline, struct writer *writer);
bool timeline_read(struct arena *arena, const struct node *map, struct timeline *timeline,
	struct error *error);

#endif
