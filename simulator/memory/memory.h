/* The memory of a finished run. */
#ifndef SIMULATOR_MEMORY_MEMORY_H
#define SIMULATOR_MEMORY_MEMORY_H

#include "schedule/documents/documents.h"
#include "simulator/engine/engine.h"

/* in_use.c: bytes in use at the same time on the device, over all steps: from the start of the
 * taking operation to the end of the giving one. */
struct memory_peaks {
	int64_t peak_bytes;
	int64_t at_peak[CATEGORY_COUNT], category_peak[CATEGORY_COUNT];
	int peak_op;
	int64_t host_peak_bytes; /* of one rank, in host memory (CPU offload) */
};
/* `curve` (of the last step) may be NULL. */
void memory_peaks(const struct engine *engine, struct arena *arena, struct memory_peaks *peaks,
	struct memory_curve *curve);

/* reserved.c: what PyTorch's caching allocator reserves over all steps, at most `limit` bytes of
 * segments (0: any): the peak, how often it gave cached segments back to stay below, and whether
 * that sufficed. */
struct reserved {
	int64_t bytes;
	int64_t active; /* peak of what is in blocks that are taken, or given and still waited for
			 */
	int retries;
	bool fits;
};
struct reserved memory_reserved(const struct engine *engine, int64_t limit, struct arena *arena);

#endif
