/* Fits the constants of a topology (rates of links, devices and hosts) to the step times of a few
 * runs on a cluster (docs/topologies.md, Fit your cluster).
 *
 * It is a maximum a posteriori estimate in logarithms. A constant is the topology's times exp(x);
 * the prior of x is normal around 0, with the doubt that predictions have of the constant. A run's
 * ln(measured / predicted) is normal with a spread that is estimated too. */
#ifndef PLANNER_FITTING_FITTING_H
#define PLANNER_FITTING_FITTING_H

#include "planner/answer/answer.h"
#include "schedule/documents/documents.h"

/* X(suffix, id, name): in the order of tables. */
#define FIT_CONSTANTS(X)                                                                           \
	X(PRODUCTS, "products", "matrix products in a step")                                       \
	X(ATTENTION, "attention", "attention")                                                     \
	X(MEMORY, "memory", "device memory")                                                       \
	X(FABRIC, "fabric", "links inside a node")                                                 \
	X(NETWORK, "network", "NICs of a node")                                                    \
	X(LATENCY, "latency", "network latency")                                                   \
	X(HOST, "host", "host time")

enum fit_constant {
#define X(suffix, id, name) FIT_##suffix,
	FIT_CONSTANTS(X)
#undef X
		FIT_CONSTANT_COUNT
};
extern const char *const fit_constant_ids[];
extern const char *const fit_constant_names[];

/* A measured run on the cluster. */
struct fit_run {
	const char *name;
	const struct model *model;
	const struct topology *topology; /* the fitted one, cut to this run's devices */
	struct plan plan;
	double step_time; /* s, measured */
};

enum fit_verdict {
	FIT_TOLD,   /* changed */
	FIT_UNTOLD, /* unchanged: these runs say too little about it */
	FIT_ABSENT  /* the topology has no such constant */
};
extern const char *const fit_verdict_names[];

/* Another run that would say more about a constant: one of the given runs with other choices. */
struct fit_advice {
	const char *run;    /* the name of the given run; NULL: no other run would say more */
	const char *change; /* what to change in it: "gpus 16, micro_batch 4" */
	double left;        /* the constant's doubt with that run too / its doubt now */
};

/* `before`, `after` and the ends of the 80 % interval are in `unit`. */
struct fitted_constant {
	const char *id, *name;
	enum fit_verdict verdict;
	const char *unit; /* "B/s", "s", "FLOP/s", "of alone", "of the runtime's" */
	double before, after, low, high;
	double factor;             /* after / before */
	double prior_doubt, doubt; /* standard deviations of ln(factor) before and after */
	struct fit_advice advice;
};

struct fitted_run {
	const char *name;
	double measured, before, after; /* s; the latter predicted before and after the fit */
	double left_out;                /* s; predicted by a fit to the other runs only */
	bool outlier;                   /* no constant explains it, so the fit left it out */
};

/* Medians of |predicted / measured - 1| over the runs that are no outliers. */
struct fit_errors {
	double before, after, left_out;
};

struct fitting {
	struct topology *topology; /* with the fitted constants */
	struct fitted_constant constants[FIT_CONSTANT_COUNT];
	int n_runs, n_outliers;
	struct fitted_run *runs;
	double spread; /* relative standard deviation of steps that constants do not explain */
	struct fit_errors errors;
};

/* Is any constant told? Else the topology is as it was. */
bool fitting_tells(const struct fitting *fitting);

enum { FIT_LEAST_RUNS = 3, FIT_MOST_RUNS = 1000 };

/* `n` must be FIT_LEAST_RUNS to FIT_MOST_RUNS; `lent` may be NULL. Strings and the topology come
 * from `arena`. Errors are those of building and simulating plans. */
bool fit_topology(const struct topology *topology, const struct fit_run *runs, int n,
	const struct lent *lent, struct arena *arena, struct fitting *fitting, struct error *error);

#endif
