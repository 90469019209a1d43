/* The face of schedule/: a plan, a model and a topology compile to a schedule, which the simulator
 * and the executor interpret. The laws that every schedule keeps are in validate.c. */
#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

#include "schedule/buffer.h"
#include "schedule/op.h"
#include "schedule/per_unit.h"
#include "schedule/plan.h"
#include "schedule/plan_file.h"
#include "schedule/prediction.h"
#include "schedule/timeline.h"
#include "schedule/unit.h"

enum group_kind { GROUP_SHARD, GROUP_REPLICATE, GROUP_WORLD, GROUP_RESHARD };
extern const char *const group_kind_names[];

/* Ranks {first, first + stride, ...}; rank r is in the group of its axis. */
struct group {
	enum group_kind kind;
	int64_t size, stride;
	int engine; /* collectives of one engine (communicator) run one at a time, in issue order */
};

/* What all ranks of one class do in one step. */
struct program {
	int n_ops;
	struct op *ops;
	int n_buffers;
	struct buffer *buffers;
	int n_indices;
	int *indices; /* waits, host_waits, takes, gives, uses of all operations */
};

struct schedule {
	struct arena *arena; /* owner of everything below; not owned */
	struct plan plan;
	const struct model *model;       /* NULL after schedule_parse */
	const struct topology *topology; /* NULL after schedule_parse */
	int n_units;
	struct unit *units;
	int n_groups;
	struct group *groups;
	int n_engines;
	int n_classes; /* of ranks; class c runs programs[c]. One, as long as all ranks do the same
			*/
	struct program *programs;
};

/* Compiles. The plan must have passed plan_resolve or plan_check; an option that the builder cannot
 * honour is EXIT_CODE_USAGE. The result has passed schedule_validate. */
bool schedule_build(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, struct schedule **schedule, struct error *error);

/* The same without schedule_validate: for inner loops, whose winner is built again. */
struct schedule *schedule_emit(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology);

/* The laws; the first broken one is EXIT_CODE_INTERNAL and names the operations. */
bool schedule_validate(const struct schedule *schedule, struct error *error);

/* Text form; parsing it back and printing again gives identical text. */
void schedule_print(const struct schedule *schedule, struct text *text);
bool schedule_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct schedule **schedule, struct error *error);
/* Of the text form. */
struct digest schedule_digest(const struct schedule *schedule);

static inline const int *slice_of(const struct program *program, struct slice slice)
{
	return program->indices + slice.first;
}

/* The first buffer of that role among what `op` uses; -1 when there is none. */
int op_buffer(const struct program *program, const struct op *op, enum buffer_role role);

/* Bytes one rank sends in a collective of payload `bytes` over `ranks`: (r-1)/r * bytes for
 * all-gather and reduce-scatter, twice that for all-reduce (ring, and our ordered exchange alike).
 */
double collective_wire_bytes(enum op_kind kind, int64_t ranks, int64_t bytes);

/* The ledger: live bytes of the device in list order. `live[op]` is what is live while op runs:
 * after its takes, before its gives. Deterministic, and equal in both interpreters. */
struct ledger {
	int64_t (*live)[CATEGORY_COUNT]; /* n_ops rows, from `arena` */
	int64_t peak_bytes;              /* of the sum over categories */
	int peak_op;                     /* the first operation at the peak */
	int64_t category_peak_bytes[CATEGORY_COUNT];
	int64_t host_peak_bytes; /* of the host's pool (CPU offload), which counts nowhere else */
};
void schedule_ledger(
	const struct schedule *schedule, int class, struct arena *arena, struct ledger *ledger);

/* What exact sums of gradients add to the end of backward's work: fp32 gradients of one leaf's
 * parameters, for one sequence. */
int64_t schedule_gradient_scratch_bytes(const struct model *model);

/* Bytes of a rank that no buffer of the schedule holds: what the topology says, else what the
 * runtime has. On CPU devices the process alone. */
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
struct model_states schedule_model_states(const struct schedule *schedule);

#endif
