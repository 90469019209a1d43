/* Seeded faults: the negative controls of the tests. docs/reliability.md says what each breaks and
 * who must notice. */
#ifndef EXECUTOR_JOB_FAULT_H
#define EXECUTOR_JOB_FAULT_H

#include "base/base.h"

/* 0: meson setup -Dfaults=false */
#ifndef HAVE_FAULTS
#define HAVE_FAULTS 1
#endif

/* X(suffix, name) */
#define FAULTS(X)                                                                                  \
	X(NONE, "none")                                                                            \
	X(DROP_WAIT, "drop_wait")                                                                  \
	X(MISSING_DIVIDE, "missing_divide")                                                        \
	X(SCALE_GRADIENT, "scale_gradient")                                                        \
	X(WRONG_SHARD_OFFSET, "wrong_shard_offset")                                                \
	X(SKIP_REDUCE, "skip_reduce")                                                              \
	X(REDUCE_ORDER, "reduce_order")                                                            \
	X(SKIP_REPLICATE, "skip_replicate")                                                        \
	X(STALE_GATHER, "stale_gather")                                                            \
	X(DIRTY_GRADIENT, "dirty_gradient")                                                        \
	X(DOUBLE_ACCUMULATE, "double_accumulate")                                                  \
	X(SKIP_OPTIMIZER, "skip_optimizer")                                                        \
	X(DROP_LAST_ELEMENT, "drop_last_element")                                                  \
	X(ROUND_BY_SHARD, "round_by_shard")                                                        \
	X(BF16_REDUCE, "bf16_reduce")                                                              \
	X(STALE_RECOMPUTE, "stale_recompute")                                                      \
	X(STALE_COPY, "stale_copy")                                                                \
	X(WRONG_SEQUENCE, "wrong_sequence")                                                        \
	X(WILD_TOKEN, "wild_token")                                                                \
	X(UNDECLARED_BUFFER, "undeclared_buffer")                                                  \
	X(LEDGER_LEAK, "ledger_leak")                                                              \
	X(NAN, "nan")                                                                              \
	X(KILL, "kill_rank")                                                                       \
	X(EXIT, "exit_rank")                                                                       \
	X(STOP, "stop_rank")                                                                       \
	X(MISMATCH, "mismatch_rank")                                                               \
	X(CHECKPOINT_ERROR, "checkpoint_error")                                                    \
	X(CHECKPOINT_SHORT, "checkpoint_short")                                                    \
	X(CHECKPOINT_FULL, "checkpoint_full")                                                      \
	X(CHECKPOINT_KILL, "checkpoint_kill")

enum fault_kind {
#define X(suffix, name) FAULT_##suffix,
	FAULTS(X)
#undef X
		FAULT_COUNT
};

struct fault {
	enum fault_kind kind;
	int64_t rank; /* -1: any */
	int64_t step; /* -1: every */
};

/* NAME[=RANK][@step=STEP]; NULL or "" is none. An unknown name is EXIT_CODE_USAGE. A build
 * without faults knows none: EXIT_CODE_ENVIRONMENT. */
bool fault_parse(const char *text, struct fault *fault, struct error *error);

static inline bool fault_hits(
	const struct fault *fault, enum fault_kind kind, int64_t rank, int64_t step)
{
	return HAVE_FAULTS && fault->kind == kind && (fault->rank < 0 || fault->rank == rank) &&
	       (fault->step < 0 || fault->step == step);
}

#endif
