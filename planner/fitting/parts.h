/* Private to fitting/. A vector x moves the constants: each is the topology's times exp(x). */
#ifndef PLANNER_FITTING_PARTS_H
#define PLANNER_FITTING_PARTS_H

#include "planner/fitting/fitting.h"
#include "simulator/simulator.h"

enum { CONSTANTS = FIT_CONSTANT_COUNT };

/* --- constants.c ------------------------------------------------------------------------------ */

/* The value in the topology; 0: it has no such constant. */
double constant_value(enum fit_constant constant, const struct topology *topology);
const char *constant_unit(enum fit_constant constant);
/* The standard deviation of the prior of x. */
double constant_doubt(enum fit_constant constant, const struct time_doubt *doubt);
/* Makes `topology`, a copy of `from` with its rates stated (state_rates) and its constants moved by
 * x. Rates stop at the datasheet's. What is changed is not shared with `from`. */
void constants_move(const double x[CONSTANTS], const struct topology *from, struct arena *arena,
	struct topology *topology);
/* The keys of a topology file that hold the constant, NULL-terminated. */
const char *const *constant_keys(enum fit_constant constant);

/* --- steps.c ---------------------------------------------------------------------------------- */

/* A schedule to be simulated with constants moved by x, and the result. */
struct step_point {
	const struct schedule *schedule;
	double x[CONSTANTS];
	double log_step; /* ln of the step time in s; NAN: it could not be simulated */
};

struct steps {
	const struct lent *lent; /* NULL: points are simulated one after another */
	int workers;
	struct arena *arenas, *scratch; /* [workers] */
	struct step_point *points;      /* those of the call under way */
};

void steps_init(struct steps *steps, const struct lent *lent, struct arena *arena);
void steps_finish(struct steps *steps);
void steps_simulate(struct steps *steps, struct step_point *points, int n);
/* slopes[n]: d log_step / dx at x of n schedules for the constants in `moves`, by central
 * differences. */
void steps_derive(struct steps *steps, const struct schedule *const *schedules, int n,
	const double x[CONSTANTS], const bool moves[CONSTANTS], double (*slopes)[CONSTANTS]);

/* --- solve.c ---------------------------------------------------------------------------------- */

/* The problem linearised around x. */
struct linear {
	double doubt[CONSTANTS]; /* standard deviation of the prior of x */
	bool free[CONSTANTS];    /* these are fitted; the others stay at x */
	double x[CONSTANTS];
	double spread; /* standard deviation of a run's residual beside own_variance's part */
	int n;
	const double (*slopes)[CONSTANTS]; /* [n] */
	const double *residuals;           /* [n] ln(measured / predicted) at x */
	const bool *used;                  /* [n] */
};

struct posterior {
	double step[CONSTANTS];                  /* from x to the most likely point */
	double covariance[CONSTANTS][CONSTANTS]; /* 0 where a constant is not free */
};

/* The variance of x between runs: a constant is a little different in each run. */
double own_variance(const struct linear *linear, enum fit_constant constant);
/* The variance of a run's residual when the constants are known: spread^2 + sum over constants of
 * own_variance * slope^2. */
double run_variance(const struct linear *linear, int run);
/* The posterior from the used runs except `without` (-1: none). */
void linear_solve(const struct linear *linear, int without, struct posterior *posterior);
/* The variance of the predicted log_step of a run with these slopes. */
double posterior_variance(const struct posterior *posterior, const double slopes[CONSTANTS]);
/* Estimates the spread from the residuals that are left after the posterior's step, and from
 * `prior_spread`. */
double linear_spread(const struct linear *linear, int without, const struct posterior *posterior,
	double prior_spread);

/* --- advice.c --------------------------------------------------------------------------------- */

/* The result of the fit, for advice. */
struct fit_state {
	const struct topology *topology;
	const struct fit_run *runs;
	struct steps *steps;
	struct linear linear; /* in which all constants that the topology has are free */
	struct posterior posterior;
};

/* Fills the advice of each constant: the run that would leave the least doubt of it. */
void advise(const struct fit_state *state, struct arena *arena, struct fitted_constant *constants);

#endif
