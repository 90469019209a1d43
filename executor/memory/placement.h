/* Where the buffers of a program lie on a device: one place each, the same in every step, decided
 * before the first one.
 *
 * Two buffers may share bytes only where the schedule orders them: the operation that gives one
 * back happens before the operation that takes the other. Then nothing has to be asked while a step
 * runs, no address changes from step to step, and an address is never reused too early however far
 * the host runs ahead of the device. */
#ifndef EXECUTOR_MEMORY_PLACEMENT_H
#define EXECUTOR_MEMORY_PLACEMENT_H

#include "schedule/schedule.h"

enum { PLACEMENT_ALIGNMENT = 256 };

struct addresses {
	const int64_t *offsets;           /* [n_buffers], in the tier of the buffer */
	int64_t device_bytes, host_bytes; /* of the tiers */
};

/* Arrays come from `arena`. Largest buffers first, each as low as it goes. */
void addresses_make(
	const struct program *program, struct arena *arena, struct addresses *addresses);

#endif
