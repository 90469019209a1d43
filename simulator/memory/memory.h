/* The memory of a finished run. */
#ifndef SIMULATOR_MEMORY_MEMORY_H
#define SIMULATOR_MEMORY_MEMORY_H

#include "schedule/documents/documents.h"
#include "simulator/engine/engine.h"

/* in_use.c: bytes in use at the same time on the device, from the start of the taking operation to
 * the end of the giving one. A meter watches the engine while it runs; what one step leaves to the
 * next is there from the beginning. */
struct memory_peaks {
	int64_t peak_bytes;
	int64_t at_peak[CATEGORY_COUNT], category_peak[CATEGORY_COUNT];
	int peak_op;             /* -1: none */
	struct cursor peak_at;   /* iterations of the loops round it */
	int64_t host_peak_bytes; /* of one rank, in host memory (CPU offload) */
};
struct in_use {
	int64_t device[CATEGORY_COUNT], total; /* of the device */
	int64_t host;
};
struct meter {
	const struct engine *engine;
	struct observer observer;
	struct memory_peaks peaks;
	struct memory_curve *curve; /* of the last step; NULL: not wanted */
	struct in_use live, marked[LOOP_DEPTH], before[LOOP_DEPTH];
};
/* Before and after engine_run. `curve` may be NULL. */
void meter_init(struct meter *meter, struct engine *engine, struct memory_curve *curve,
	struct arena *arena);
void meter_finish(struct meter *meter);

/* Frees wait until other streams have passed: PyTorch's record_stream. */
bool memory_defers_frees(const struct schedule *schedule);

/* reserved.c: what PyTorch's caching allocator reserves over all steps. One that would pass `limit`
 * bytes of segments (0: none) is followed until then. The engine must have recorded, where frees
 * are deferred. */
struct reserved {
	int64_t bytes;
	int64_t active; /* peak of what is in blocks that are taken, or given and still waited for
			 */
	bool within;    /* the limit */
};
struct reserved memory_reserved(const struct engine *engine, int64_t limit, struct arena *arena);
/* The same, request by request: what memory_reserved does where lanes do not suffice, and what it
 * is held against. */
struct reserved memory_replay(const struct engine *engine, int64_t limit, struct arena *arena);

/* retries.c: the issuing thread takes memory from an allocator that may hold `limit` bytes, and
 * waits where that takes time. Between engine_init and engine_run; the engine records, and is
 * starved when there is no memory even after a retry. */
struct shortage;
struct shortage *memory_shortage(struct engine *engine, int64_t limit, struct arena *arena);
/* How often a step the allocator gave back what it had cached. */
double memory_retries(const struct shortage *shortage);

#endif
