/* struct timeline: when each operation of a step ran. Both interpreters fill it, indexed by
 * operation, so that prediction and measurement are compared by walking two arrays. */
#ifndef SCHEDULE_TIMELINE_H
#define SCHEDULE_TIMELINE_H

#include "base/base.h"
#include "schedule/program/program.h"

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
	double begins; /* s, 0 or less: since when the last class begins the step */
};

/* `spans` zeroed; `live` allocated. From `arena`. */
void timeline_init(struct timeline *timeline, int n_ops, struct arena *arena);

/* Memory over the step: bytes by category from times[i] until times[i + 1]. */
struct memory_curve {
	int n;
	double *times; /* s from the start of the step, ascending */
	int64_t (*bytes)[CATEGORY_COUNT];
};

/* Why an operation of the critical path started when it did. */
enum critical_reason {
	CRITICAL_HOST,      /* the host had not issued it */
	CRITICAL_STREAM,    /* its stream was busy with the operation before it */
	CRITICAL_ENGINE,    /* its communicator was busy */
	CRITICAL_WAIT,      /* it waited for another stream's operation */
	CRITICAL_START,     /* the step begins */
	CRITICAL_ALLOCATOR, /* the host waited until the device was idle, for memory */
};
extern const char *const critical_reason_names[];

/* The chain of operations that makes the step as long as it is, first to last. */
struct critical_path {
	int n;
	int *ops;
	enum critical_reason *reasons;
};

/* The `timeline:` value of a document: {step_time_s, spans: [[issued, start, end], ...], live:
 * ...}, and its inverse. */
void timeline_write(const struct timeline *timeline, struct writer *writer);
bool timeline_read(struct arena *arena, const struct node *map, struct timeline *timeline,
	struct error *error);

#endif
