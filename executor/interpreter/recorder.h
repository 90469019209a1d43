/* Makes struct measurement from the records of a run. */
#ifndef EXECUTOR_INTERPRETER_RECORDER_H
#define EXECUTOR_INTERPRETER_RECORDER_H

#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"
#include "executor/transports/transports.h"
#include "schedule/documents/documents.h"
#include "schedule/schedule.h"

/* The first steps warm caches and allocators; figures are over the others. */
enum { WARM_UP_STEPS = 2 };

/* Step times, losses and norms of a run, and timelines of some of its steps, because which one is
 * the median is known only at the end. Nothing is allocated after the start. */
struct recorder {
	int64_t steps, done;
	double *step_times, *losses, *gradient_norms; /* [steps] */
	int n_ops;
	int64_t every;      /* each `every`-th step keeps its timeline */
	struct span *spans; /* [kept][n_ops] */
};

void recorder_open(struct recorder *recorder, int64_t steps, int n_ops, struct arena *arena);
void recorder_add(struct recorder *recorder, const struct timeline *timeline, double step_time,
	double loss, double gradient_norm);

/* The report of each rank to the first one at the end. */
struct rank_report {
	int64_t pss_growth, undeclared, wire_bytes, network_bytes, row_bytes;
	/* Bytes of its GPU in use at the end, and before it was opened (-1 = unknown). */
	int64_t device_used, device_before;
	struct digest digest; /* "" where the rank did not hash */
};

struct measure_inputs {
	const struct schedule *schedule;
	const struct program *program; /* of the rank that measures */
	const struct recorder *recorder;
	const struct buffers *buffers;
	const struct timeline *last; /* of the last step: the measured ledger */
	const struct comm *comm;
	int ranks_per_node;
	int device_ranks;                  /* that share a GPU; 0 = there is none */
	bool only_repeats;                 /* bits are promised for this very plan only */
	const char *cuda_graphs;           /* on a GPU; else NULL */
	const char *nccl;                  /* with NCCL; else NULL */
	const char *nccl_buffers;          /* with NCCL; else NULL */
	const char *product_choices;       /* NULL: none were measured */
	const char *attention_choices;     /* the same of attention */
	const struct rank_report *reports; /* [ranks] */
	const char *kernels;               /* "cpu-v4 (built-in)" */
	int64_t gradient_bytes, pss_before;
	struct pace_tally paced;
	double slow_motion; /* that times have been divided by */
	int64_t cpus;       /* of this machine */
};

/* Strings and arrays come from `arena` or are static. */
void measure(
	const struct measure_inputs *inputs, struct arena *arena, struct measurement *measurement);

/* How times spread: values are sorted in place. */
struct spread {
	double mean, p10, p50, p90, p95, variance;
};
struct spread measure_spread(double *values, int64_t n);

/* How the time of a step is split over kinds of work, from the spans of its operations. */
struct time_split measure_time_split(
	const struct program *program, const struct span *spans, struct arena *arena);

#endif
