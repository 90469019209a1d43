/* Private to simulator/: results of a finished run of the engine. */
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

/* critical.c: the critical path of the last step, found from its last operation backwards. */
void critical_path(const struct engine *engine, struct arena *arena, struct critical_path *path);

/* exposure.c: a meter of exposed communication. exposure_init comes after meter_init and before
 * engine_run, exposure_finish after it. */
struct exposure_mark {
	struct exposed exposed;
	double at;
};
struct exposure_meter {
	const struct engine *engine;
	const struct observer *other; /* the earlier observer, which is called too; NULL: none */
	struct observer observer;
	struct exposed exposed;
	double at;                 /* time of the last event */
	int running[STREAM_COUNT]; /* 1 + the operation; 0: none */
	struct exposure_mark marked[LOOP_DEPTH], before[LOOP_DEPTH];
	struct exposed round_begin; /* when the round began that stands for others */
};
void exposure_init(struct exposure_meter *meter, struct engine *engine);
struct exposed exposure_finish(struct exposure_meter *meter);

/* places.c: the bytes of the places that a runtime without an allocator gives the buffers of a
 * class on a GPU. */
int64_t places_of_class(const struct schedule *schedule, int class, struct arena *arena);

/* Results that all classes of a run share. */
struct common {
	double recomputed; /* FLOPs of a rank's recomputation, the mean over classes */
	double lower_bound, plan_lower_bound;
};
/* bounds.c: a lower bound for the step of this plan only. */
double plan_lower_bound(const struct engines *engines);
struct common common_of(const struct engines *engines, const struct simulation_options *options);

/* A finished run, and the class of it that a prediction is made for. */
struct finished {
	const struct engines *engines;
	const struct common *common;
	const struct engine *engine; /* of that class */
	const struct memory_peaks *peaks;
	const struct ledger *ledger;
	double waited; /* s of the step in which the data loader is awaited */
	/* If the allocator reached its limit in this run: the prediction of a run without a limit,
	 * and retries per step and what the allocator held. Else NULL. */
	const struct prediction *unlimited;
	double retries;
	struct reserved held;
	bool is_light; /* neither allocator nor places are followed: another class needs more */
};

/* predict.c: fills the prediction except for the schedule's digest, which the caller fills.
 * FITS_TIGHT with no retries means that the allocator reaches its limit, and that only another run,
 * with that limit, can tell whether the plan fits. */
void predict(const struct finished *finished, const struct simulation_options *options,
	struct arena *scratch, struct arena *arena, struct prediction *prediction);

#endif
