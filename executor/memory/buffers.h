/* The buffers of a program in one rank's memory, and their ledger.
 *
 * Two accounts are kept. The ledger goes in list order: a give counts when the walk passes the
 * operation that gives, so it does not depend on time and must equal schedule_ledger byte for byte.
 * The physical account goes in time order: a block counts until it can be reused. Both count what
 * was really allocated, not what the schedule says. */
#ifndef EXECUTOR_MEMORY_BUFFERS_H
#define EXECUTOR_MEMORY_BUFFERS_H

#include "executor/memory/heap.h"
#include "schedule/memory/memory.h"
#include "schedule/schedule.h"

struct buffers {
	struct heap heap; /* the device, in memory that other ranks can read */
	struct heap host; /* the second tier (CPU offload), of this rank alone */
	void *host_memory;
	int64_t host_reserved;                 /* bytes of address space */
	int64_t host_limit;                    /* bytes that may be live in it */
	int64_t host_ledger, host_ledger_peak; /* list order */
	const struct addresses *addresses; /* of a device; NULL: addresses are found in the heaps */
	char *device_base, *host_base;
	const struct program *program;
	int *blocks;                      /* [n_buffers] block in the heap; -1 = not there */
	int64_t ledger[CATEGORY_COUNT];   /* list order, now */
	int64_t physical[CATEGORY_COUNT]; /* time order, now */
	int64_t physical_total, physical_peak;
	int64_t physical_at_peak[CATEGORY_COUNT];
	int64_t physical_category_peak[CATEGORY_COUNT];
};

/* Bytes of address space that a rank should reserve for that program: plenty, because what is not
 * touched costs nothing and fragmentation must not end a run. */
int64_t buffers_capacity(const struct schedule *schedule, int class);
/* Returns the same for the program that needs the most. */
int64_t buffers_most_capacity(const struct schedule *schedule);

/* The resident buffers are taken at once, zeroed. `base` is zeroed memory that the caller owns; the
 * host's tier is mapped here, and holds as much as the program ever has there, no byte more. */
bool buffers_init(struct buffers *buffers, const struct program *program, void *base,
	int64_t capacity, struct error *error);
/* Does the same in memory of a device, at the given addresses; all arguments are borrowed. The host
 * may be unable to touch that memory, so nothing is written. Both accounts then go in list order.
 */
void buffers_init_placed(struct buffers *buffers, const struct program *program,
	const struct addresses *addresses, void *device_base, void *host_base);
void buffers_finish(struct buffers *buffers);

/* These take a buffer (it counts in both accounts), give it back in the ledger, and make its block
 * reusable. */
bool buffers_take(struct buffers *buffers, int buffer, struct error *error);
void buffers_give(struct buffers *buffers, int buffer);
void buffers_release(struct buffers *buffers, int buffer);

/* NULL when it is not there. */
void *buffers_address(const struct buffers *buffers, int buffer);
/* The bytes that were allocated for it; 0: it does not exist. */
int64_t buffers_bytes(const struct buffers *buffers, int buffer);

#endif
