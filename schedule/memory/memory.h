/* Memory of a schedule: the ledger, what lies outside of all buffers, and what lives between steps.
 */
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
