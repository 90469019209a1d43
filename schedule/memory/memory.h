/* Memory of a schedule: the ledger, places on a device, what lies outside of all buffers, and what
 * lives between steps. */
#ifndef SCHEDULE_MEMORY_H
#define SCHEDULE_MEMORY_H

#include "schedule/program/program.h"

/* The ledger: live bytes of the device in list order. `live[op]` is what is live while op runs:
 * after its takes, before its gives. Deterministic, and equal in both interpreters. */
struct ledger {
	int64_t (*live)[CATEGORY_COUNT]; /* n_ops rows, from `arena`; NULL where that is */
	int64_t peak_bytes;              /* of the sum over categories */
	int peak_op;                     /* the first operation at the peak */
	int64_t category_peak_bytes[CATEGORY_COUNT];
	int64_t host_peak_bytes; /* of the host's pool (CPU offload), which counts nowhere else */
};
void schedule_ledger(
	const struct schedule *schedule, int class, struct arena *arena, struct ledger *ledger);

/* Where the buffers of a program lie on a device, for a runtime without an allocator: one place
 * each, the same in every step, decided before the first one.
 *
 * Two buffers may share bytes only where the schedule orders them: the operation that gives one
 * back happens before the operation that takes the other. Then nothing has to be asked while a step
 * runs, no address changes from step to step, and an address is never reused too early however far
 * the host runs ahead of the device. */
enum { PLACEMENT_ALIGNMENT = 256 };
struct addresses {
	const int64_t *offsets;           /* [n_buffers], in the tier of the buffer */
	int64_t device_bytes, host_bytes; /* of the tiers */
};
/* Arrays come from `arena`. Largest buffers first, each as low as it goes. The program has no
 * loops. */
void schedule_addresses(
	const struct program *program, struct arena *arena, struct addresses *addresses);

/* The bytes of a rank in no buffer of the schedule: those of the topology, else those of the
 * runtime. On CPU devices they are only those of the process. */
struct fixed_memory {
	int64_t context;       /* or process */
	int64_t communicators; /* all of them, one an engine that reaches another rank; and NCCL's
				  own */
};
struct fixed_memory schedule_fixed_memory(const struct schedule *schedule);

/* Bytes between steps on the device: parameters (master shard, and what is kept in the compute
 * dtype), gradients (as when the optimizer reads them; ZeRO-1: whole, as accumulated), optimizer
 * state. */
struct model_states {
	int64_t parameters, gradients, optimizer_state;
};
struct model_states schedule_model_states(const struct schedule *schedule, int class);

#endif
