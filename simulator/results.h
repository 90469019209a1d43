/* Private to simulator/: what is read off a finished run. */
#ifndef SIMULATOR_RESULTS_H
#define SIMULATOR_RESULTS_H

#include "schedule/memory/memory.h"
#include "simulator/memory/memory.h"
#include "simulator/simulator.h"

static inline struct engine_options engine_options_of(const struct simulation_options *options)
{
	return (struct engine_options){options->no_contention, options->host_runs_ahead,
		options->exchange_wait, options->without};
}

/* critical.c: of the last step, from its last operation backwards. */
void critical_path(const struct engine *engine, struct arena *arena, struct critical_path *path);

/* exposure.c: before and after engine_run, behind meter_init. */
struct exposure_mark {
	struct exposed exposed;
	double at;
};
struct exposure_meter {
	const struct engine *engine;
	const struct observer *other; /* who watched before; NULL */
	struct observer observer;
	struct exposed exposed;
	double at;                 /* the last event */
	int running[STREAM_COUNT]; /* the operation, from 1 on; 0: none */
	struct exposure_mark marked[LOOP_DEPTH], before[LOOP_DEPTH];
};
void exposure_init(struct exposure_meter *meter, struct engine *engine);
struct exposed exposure_finish(struct exposure_meter *meter);

/* What all classes of a run have in common. */
struct common {
	double recomputed; /* FLOPs of a rank, the mean over classes */
	double lower_bound, plan_lower_bound;
};
struct common common_of(const struct engines *engines, const struct simulation_options *options);

/* A finished run. */
struct finished {
	const struct engines *engines;
	const struct common *common;
	const struct engine *engine; /* of the class that is told of */
	const struct memory_peaks *peaks;
	const struct ledger *ledger;
	double waited; /* s by which the step is longer for the data loader */
	/* Of a run in which the allocator reaches its limit: what is predicted without a limit, and
	 * retries. NULL: of one without. */
	const struct prediction *unlimited;
	double retries; /* a step */
	bool is_light;  /* the allocator is not followed: another class needs more */
};

/* predict.c: everything but the digest of the schedule that is the caller's. FITS_TIGHT without
 * retries says that the allocator reaches its limit: whether it fits then is still to be found. */
void predict(const struct finished *finished, const struct simulation_options *options,
	struct arena *scratch, struct arena *arena, struct prediction *prediction);

/* interval.c: how sure the step time is. */
/* Fills step_time_low, step_time_high, step_time_p95 (of GPUs) and uncertainty_source of a
 * prediction that has its step time and bounds. Simulates once more for each cause, unless
 * options->quick_interval. */
void interval(const struct schedule *schedule, const struct simulation_options *options,
	struct arena *arena, struct prediction *prediction);

#endif
