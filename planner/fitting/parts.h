/* Private to fitting/. Constants are moved by x: each is the topology's times exp(x). */
#ifndef PLANNER_FITTING_PARTS_H
#define PLANNER_FITTING_PARTS_H

#include "planner/fitting/fitting.h"
#include "simulator/simulator.h"

enum { CONSTANTS = FIT_CONSTANT_COUNT };

/* --- constants.c ------------------------------------------------------------------------------ */

/* 0: the topology has none. */
double constant_value(enum fit_constant constant, const struct topology *topology);
const char *constant_unit(enum fit_constant constant);
/* The standard deviation of x that predictions start from. */
double constant_doubt(enum fit_constant constant, const struct time_doubt *doubt);
/* `topology` becomes `from`, its rates stated, with its constants moved; nothing is shared that is
 * changed. Rates stop at the datasheet's. */
void constants_move(const double x[CONSTANTS], const struct topology *from, struct arena *arena,
	struct topology *topology);
/* The keys of a topology file that a constant stands in, NULL-terminated. */
const char *const *constant_keys(enum fit_constant constant);

/* --- steps.c ---------------------------------------------------------------------------------- */

/* What is asked of the simulator. */
struct step_point {
	const struct schedule *schedule;
	double x[CONSTANTS];
	double log_step; /* of s; NAN: it could not be simulated */
};

struct steps {
	const struct lent *lent; /* NULL: one after another */
	int workers;
	struct arena *arenas, *scratch; /* by worker */
	struct step_point *points;      /* of one call */
};

void steps_init(struct steps *steps, const struct lent *lent, struct arena *arena);
void steps_finish(struct steps *steps);
void steps_simulate(struct steps *steps, struct step_point *points, int n);
/* d log_step / dx at x of n schedules, by differences on both sides, for the constants of `moves`.
 */
void steps_derive(struct steps *steps, const struct schedule *const *schedules, int n,
	const double x[CONSTANTS], const bool moves[CONSTANTS], double (*slopes)[CONSTANTS]);

/* --- solve.c ---------------------------------------------------------------------------------- */

/* The fit around x, as if steps were linear there. */
struct linear {
	double doubt[CONSTANTS]; /* of x beforehand, a standard deviation */
	bool free[CONSTANTS];    /* the others stay at x */
	double x[CONSTANTS];
	double spread; /* of a run, beyond what is its own of the constants' doubts */
	int n;
	const double (*slopes)[CONSTANTS];
	const double *residuals; /* ln(measured / predicted) at x */
	const bool *used;        /* by run */
};

struct posterior {
	double step[CONSTANTS];                  /* from x to the most likely point */
	double covariance[CONSTANTS][CONSTANTS]; /* 0 where one is not free */
};

/* Of a constant as one run meets it, around what it is to all. */
double own_variance(const struct linear *linear, enum fit_constant constant);
/* Of a run's residual, whatever the constants are. */
double run_variance(const struct linear *linear, int run);
/* `without`: a run that is left out too; -1: none. */
void linear_solve(const struct linear *linear, int without, struct posterior *posterior);
/* Of the predicted log_step of a run with these slopes. */
double posterior_variance(const struct posterior *posterior, const double slopes[CONSTANTS]);
/* The spread of runs by what is left of their residuals after a step, and by the prior. */
double linear_spread(const struct linear *linear, int without, const struct posterior *posterior,
	double prior_spread);

/* --- advice.c --------------------------------------------------------------------------------- */

/* What the fit knows when it is done. */
struct fit_state {
	const struct topology *topology;
	const struct fit_run *runs;
	struct steps *steps;
	struct linear linear; /* all constants that the topology has are free */
	struct posterior posterior;
};

/* For each constant the run that would tell most of it. */
void advise(const struct fit_state *state, struct arena *arena, struct fitted_constant *constants);

#endif
