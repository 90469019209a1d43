/* What real steps take beyond the model, by kind of work. */
#include <math.h>

#include "topologies/calibration.h"

const double calibration_settled = 0.03;

const char *const step_work_names[] = {
#define X(suffix, name) name,
	STEP_WORKS(X)
#undef X
		NULL};
const char *const step_mlp_names[] = {"plain", "gated", NULL};
const char *const step_threads_names[] = {"one", "all", NULL};

static int place_of(const struct calibration_step *step)
{
	return ((int)step->mlp * DTYPE_COUNT + (int)step->dtype) * 2 + (int)step->threads;
}

struct calibration_step calibration_step_least(const struct calibration_step *steps, int n)
{
	struct calibration_step least = steps[0];

	for (int i = 1; i < n; i++) {
		for (int work = 0; work < STEP_WORK_COUNT; work++) {
			double factor = steps[i].factors[work];

			if (least.factors[work] == 0 ||
				(factor > 0 && factor < least.factors[work]))
				least.factors[work] = factor;
		}
	}
	return least;
}

bool calibration_step_is_settled(const struct calibration_step *steps, int n, enum step_work work)
{
	double least = calibration_step_least(steps, n).factors[work];
	double near = least * (1 + calibration_settled);
	int met = 0;

	for (int i = 0; i < n; i++)
		met += steps[i].factors[work] > 0 && steps[i].factors[work] < near;
	return least == 0 || met > 1;
}

static double measured(const struct calibration *calibration, enum step_work work,
	const struct calibration_step *key)
{
	for (int i = 0; i < calibration->n_steps; i++)
		if (place_of(&calibration->steps[i]) == place_of(key))
			return calibration->steps[i].factors[work];
	return 0;
}

double calibration_step_factor(const struct calibration *calibration, enum step_mlp mlp,
	enum dtype dtype, enum step_work work, double all)
{
	const struct calibration_step alone = {.mlp = mlp, .dtype = dtype};
	const struct calibration_step together = {
		.mlp = mlp, .dtype = dtype, .threads = STEP_THREADS_ALL};
	double one = measured(calibration, work, &alone);
	double every = measured(calibration, work, &together);

	/* A machine of one core has measured one of the two. */
	one = one > 0 ? one : every;
	every = every > 0 ? every : one;
	return one > 0 ? pow(one, 1 - all) * pow(every, all) : 1;
}

double calibration_least_factor(const struct calibration *calibration)
{
	double least = 1;

	for (int i = 0; i < calibration->n_steps; i++)
		for (int work = 0; work < STEP_WORK_COUNT; work++)
			if (calibration->steps[i].factors[work] > 0)
				least = fmin(least, calibration->steps[i].factors[work]);
	return least;
}
