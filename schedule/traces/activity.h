/* The activity of a device during a few steps, by the simulator, our executor or a profiler. The
 * same rules sum up all of them, so that they can be compared. */
#ifndef SCHEDULE_ACTIVITY_H
#define SCHEDULE_ACTIVITY_H

#include "schedule/documents/documents.h"
#include "schedule/program/program.h"

/* X(suffix, name) */
#define ACTIVITY_KINDS(X)                                                                          \
	X(COMPUTE, "compute")                                                                      \
	X(ALL_GATHER, "all-gather")                                                                \
	X(REDUCE_SCATTER, "reduce-scatter")                                                        \
	X(ALL_REDUCE, "all-reduce")                                                                \
	X(OTHER_COLLECTIVE, "other collectives")                                                   \
	X(COPY_IN, "copies from the host")                                                         \
	X(COPY_OUT, "copies to the host")

enum activity_kind {
#define X(suffix, name) ACTIVITY_##suffix,
	ACTIVITY_KINDS(X)
#undef X
		ACTIVITY_KIND_COUNT
};
extern const char *const activity_names[];

/* Times in seconds, of any origin. */
struct activity {
	enum activity_kind kind;
	double start, end;
	double launched; /* by the host; NAN = not known */
	int64_t bytes;   /* collectives: the full (gathered) size; copies; 0 = not known */
};

/* Activities of the host that may keep the device waiting. */
enum host_kind { HOST_DATA, HOST_ALLOCATOR, HOST_KIND_COUNT };
struct host_activity {
	enum host_kind kind;
	double start, end;
};

struct activities {
	int n, capacity;
	struct activity *of; /* from malloc */
	int n_host, host_capacity;
	struct host_activity *host; /* from malloc */
	double start, end;          /* of whole steps */
	int steps;
};
void activities_add(struct activities *activities, const struct activity *activity);
void activities_add_host(struct activities *activities, const struct host_activity *activity);
void activities_finish(struct activities *activities);

/* Facts of a trace other than times; NAN: not known. */
struct trace_facts {
	double fp32_reduced, fp32_gathered; /* shares of the bytes of reductions and gathers */
	double fp32_products;               /* share of the time of matrix products */
	double softmax_kernels;             /* of attention that is not fused, per step */
	double data_wait;                   /* s per step that the host waited for a batch */
	int counted_steps;                  /* of the same work, with times of their own */
	double other_load;  /* processes that wanted a core beside the run's, per core */
	double step_spread; /* their standard deviation over their mean */
};
extern const struct trace_facts trace_facts_unknown;
/* counted_steps and step_spread of so many step times, s. */
void trace_facts_of_steps(struct trace_facts *facts, const double *times, int n);

/* One step of a schedule, as a timeline has it. */
void activities_of_timeline(const struct schedule *schedule, const struct timeline *timeline,
	struct activities *activities);

/* Per step. Every moment is counted once: as compute while any kernel computes, else as exposed
 * time of the first kind that runs, else as waiting for what the host does. */
struct activity_summary {
	double step_time;
	double seconds[ACTIVITY_KIND_COUNT]; /* sum of durations */
	double exposed[ACTIVITY_KIND_COUNT]; /* nothing computes; COMPUTE: some kernel computes */
	double count[ACTIVITY_KIND_COUNT];
	double bytes[ACTIVITY_KIND_COUNT];
	double typical[ACTIVITY_KIND_COUNT]; /* median duration */
	double least[ACTIVITY_KIND_COUNT]; /* 10th percentile of duration over that of like size */
	double waiting_host;               /* the next kernel had not been launched */
	double longest_wait;               /* of it in one piece; not per step */
	double waiting_data;               /* the host was fetching a batch */
	double waiting_allocator;          /* the host was in cudaMalloc or cudaFree */
	double waiting_other;
	double allocator_calls;
};
/* Sorts the activities. */
void activities_summarise(struct activities *activities, struct activity_summary *summary);

#endif
