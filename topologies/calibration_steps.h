/* The times of real steps relative to the rest of a calibration, and the spread of measurements. */
#ifndef TOPOLOGIES_CALIBRATION_STEPS_H
#define TOPOLOGIES_CALIBRATION_STEPS_H

#include "base/base.h"

struct calibration;

/* X(suffix, name): the work of a step that is held against the model, named as the operations of a
 * schedule. */
#define STEP_WORKS(X)                                                                              \
	X(FORWARD, "forward")                                                                      \
	X(LOSS, "loss")                                                                            \
	X(RECOMPUTE, "recompute")                                                                  \
	X(BACKWARD, "backward")                                                                    \
	X(CAST_PARAMETERS, "cast_parameters")                                                      \
	X(GRADIENT_NORM, "gradient_norm")                                                          \
	X(OPTIMIZER, "optimizer")

enum step_work {
#define X(suffix, name) STEP_##suffix,
	STEP_WORKS(X)
#undef X
		STEP_WORK_COUNT
};
extern const char *const step_work_names[];

/* Two matrices and a function between them, or three with a gate. */
enum step_mlp { STEP_MLP_PLAIN, STEP_MLP_GATED };
/* How many threads a rank has: one, or all that the machine has. For a GPU it is ALL. */
enum step_threads { STEP_THREADS_ONE, STEP_THREADS_ALL };
extern const char *const step_mlp_names[];     /* "plain", "gated" */
extern const char *const step_threads_names[]; /* "one", "all" */

/* Measured seconds of real steps over the seconds that the rest of the calibration says. */
struct calibration_step {
	enum step_mlp mlp;
	enum dtype dtype;
	enum step_threads threads;
	double factors[STEP_WORK_COUNT]; /* 0: not measured */
};

enum { CALIBRATION_STEPS = 8 }; /* mlp x fp32 and bf16 x threads */

/* Puts `step` where it belongs. False, and nothing done, when that (mlp, dtype, threads) is there
 * or there is no room. */
bool calibration_add_step(struct calibration *calibration, const struct calibration_step *step);

/* At most this many measurements of one quantity, apart in time. */
enum { CALIBRATION_VISITS = 5 };
/* The median of 1 to CALIBRATION_VISITS measurements of one combination: for each kind of work that
 * of the measurements that have a factor. */
struct calibration_step calibration_step_middle(const struct calibration_step *steps, int n);

/* Sets compute_best and residual_spread from `levels`, the seconds of n figures, each divided by
 * the median of its own visits (2 or more); sorts them. */
void calibration_take_levels(struct calibration *calibration, double *levels, int n, int visits);
/* Sets step_p95 from seconds of n steps, each divided by the median of its run; sorts them. */
void calibration_take_steps(struct calibration *calibration, double *ratios, int n);

/* The factor for the model's seconds of that work. `all`: 0 for a rank of one thread, 1 for one
 * that has all; between them in proportion (of logarithms). 1 if nothing was measured. */
double calibration_step_factor(const struct calibration *calibration, enum step_mlp mlp,
	enum dtype dtype, enum step_work work, double all);

/* The least of all factors, at most 1: no work is faster than modelled by more. */
double calibration_least_factor(const struct calibration *calibration);

#endif
