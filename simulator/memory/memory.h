/* The memory of a finished run. */
#ifndef SIMULATOR_MEMORY_MEMORY_H
#define SIMULATOR_MEMORY_MEMORY_H

#include "schedule/documents/documents.h"
#include "simulator/engine/engine.h"

/* in_use.c: bytes in use on the device. A buffer is in use from the start of the operation that
 * takes it to the end of the one that gives it back. A meter observes the engine while it runs;
 * what one step leaves to the next is in use from the beginning. */
struct memory_peaks {
	int64_t peak_bytes;
	int64_t at_peak[CATEGORY_COUNT], category_peak[CATEGORY_COUNT];
	int peak_op;             /* -1: none */
	struct cursor peak_at;   /* the loop iterations in which peak_op ran then */
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
/* meter_init comes before engine_run, meter_finish after it. `curve` may be NULL. */
void meter_init(struct meter *meter, struct engine *engine, struct memory_curve *curve,
	struct arena *arena);
void meter_finish(struct meter *meter);

/* Does a freed block wait until other streams that used it have passed (PyTorch's record_stream)?
 */
bool memory_defers_frees(const struct schedule *schedule);

/* reserved.c: what PyTorch's caching allocator reserves over all steps. The replay stops when it
 * passes `limit` bytes of segments (0: never). Where frees are deferred the engine must have
 * recorded its run. */
struct reserved {
	int64_t bytes;
	int64_t active; /* peak of bytes in blocks that are taken, or whose free is deferred */
	bool within;    /* the limit was not passed */
};
struct reserved memory_reserved(const struct engine *engine, int64_t limit, struct arena *arena);
/* The same, request by request. memory_reserved calls it where lanes (lanes.h) do not suffice;
 * tests compare the two. */
struct reserved memory_replay(const struct engine *engine, int64_t limit, struct arena *arena);

/* retries.c: the issuing thread takes memory from an allocator that may hold `limit` bytes, and
 * waits for its retries. Call it between engine_init and engine_run of an engine that records its
 * run. The engine is starved when there is no memory even after a retry. */
struct shortage;
struct shortage *memory_shortage(struct engine *engine, int64_t limit, struct arena *arena);
/* What the allocator held in the finished run; it was within the limit. */
struct reserved memory_held(const struct shortage *shortage);
/* Retries per step, in which the allocator gives back the segments that it has cached. */
double memory_retries(const struct shortage *shortage);

#endif
