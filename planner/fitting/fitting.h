/* A few runs of a cluster say what its links, its devices and its hosts really do: the constants of
 * a topology that explain the measured steps best (docs/topologies.md, Fit your cluster).
 *
 * Maximum a posteriori in logarithms: a constant is the topology's times exp(x), x normal around 0
 * with the doubt that predictions have of it; ln(measured / predicted) of a run is normal with a
 * spread that is estimated too. */
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

/* A step of the cluster, with the devices that it ran on. */
struct fit_run {
	const char *name;
	const struct model *model;
	const struct topology *topology; /* the fitted one, cut to this run's devices */
	struct plan plan;
	double step_time; /* s, measured */
};

enum fit_verdict {
	FIT_TOLD,   /* changed */
	FIT_UNTOLD, /* these runs do not tell; as it was */
	FIT_ABSENT  /* the topology has none */
};
extern const char *const fit_verdict_names[];

/* A run that would tell more: one of the given, with other choices. */
struct fit_advice {
	const char *run;    /* it is like this one; NULL: none would tell more */
	const char *change; /* but: "gpus 16, micro_batch 4" */
	double left;        /* of the constant's doubt, with that run besides, of what it is now */
};

/* `before` and `after` are of `unit`; the interval is of 80 %. */
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
	double measured, before, after; /* s; predicted before and after the fit */
	double left_out;                /* s; predicted from the other runs alone */
	bool outlier;                   /* no constant explains it: it was not fitted to */
};

/* Medians of |predicted / measured - 1| over the runs that were fitted to. */
struct fit_errors {
	double before, after, left_out;
};

struct fitting {
	struct topology *topology; /* with the constants that were told */
	struct fitted_constant constants[FIT_CONSTANT_COUNT];
	int n_runs, n_outliers;
	struct fitted_run *runs;
	double spread; /* of a run's step beyond what constants explain, relative */
	struct fit_errors errors;
};

enum { FIT_LEAST_RUNS = 3, FIT_MOST_RUNS = 1000 };

/* n from FIT_LEAST_RUNS to FIT_MOST_RUNS. Strings and the topology come from `arena`. `lent` may be
 * NULL. Errors are those of building and simulating plans. */
bool fit_topology(const struct topology *topology, const struct fit_run *runs, int n,
	const struct lent *lent, struct arena *arena, struct fitting *fitting, struct error *error);

#endif
