/* Steps in which one thing goes wrong, and their traces as the PyTorch profiler writes them. */
#ifndef TESTS_PLANNER_SEEDS_H
#define TESTS_PLANNER_SEEDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/planner.h"
#include "schedule/traces/traces.h"

#define BASE   "runtime=pytorch-fsdp1 strategy=FULL_SHARD micro_batch=1 "
#define NARROW "reduce_dtype=bf16 "

/* What is changed in the activities of a step after it was simulated. */
typedef void spoil_fn(struct activities *activities);

struct seed {
	const char *id;            /* NULL: nothing is wrong */
	const char *planned, *ran; /* choices */
	double network;            /* bandwidth that there is, of what the plan assumes */
	spoil_fn *spoil;
	bool busy; /* steps of the same work differ */
};

struct scene {
	struct arena arena;
	struct plan_file file;
	struct topology *slower;
};

extern const struct seed seeds[];
extern const int n_seeds;

/* A model on a cluster and the same with a slower `network`; its arena is the caller's to finish.
 */
void scene_load(struct scene *s, double network);
/* `options`: words such as "wrap=model". */
void scene_choose(
	struct scene *s, const char *options, const struct topology *topology, struct plan *plan);
/* The caller finishes `activities`. */
void scene_simulate(struct scene *s, const struct plan *plan, const struct topology *topology,
	struct activities *activities);
/* What the seed's trace is diagnosed as. Opens the scene. */
void seed_diagnose(const struct seed *seed, struct scene *s, struct diagnosis *diagnosis);
/* The seed's trace. */
void seed_trace(const struct seed *seed, struct text *text);

/* Everything from `from` on comes `by` seconds later. */
void delay(struct activities *a, double from, double by);
void launch_late(struct activities *a);
void ask_for_memory(struct activities *a);
void slow_kernels(struct activities *a);

/* An event after another one; `start` and `end`, s; `arguments`, JSON members. */
void trace_event(struct text *text, const char *category, const char *name, double start,
	double end, const char *arguments);
/* In pieces of all lengths; the caller finishes it. */
void trace_read(const struct text *text, struct kineto *kineto);

#endif
