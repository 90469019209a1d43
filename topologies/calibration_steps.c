/* What real steps take beyond the model, by kind of work. */
#include <math.h>

#include "topologies/calibration.h"

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

struct calibration_step calibration_step_middle(const struct calibration_step *steps, int n)
{
	struct calibration_step middle = steps[0];

	for (int work = 0; work < STEP_WORK_COUNT; work++) {
		double factors[CALIBRATION_VISITS];
		int known = 0;

		for (int i = 0; i < n; i++)
			if (steps[i].factors[work] > 0)
				factors[known++] = steps[i].factors[work];
		sort_numbers(factors, known);
		middle.factors[work] = known > 0 ? quantile(factors, known, 0.5) : 0;
	}
	return middle;
}

/* What another hour does is not seen in minutes: a spread of visits is no less than this. */
static const double least_spread = 0.04;

void calibration_take_levels(struct calibration *calibration, double *levels, int n, int visits)
{
	/* From half of an 80 % interval to a standard deviation; of visits that have their own
	 * middle to a run that has another: its own deviation, and that of a median of `visits`. */
	double deviations = 1.2816, wider = sqrt((visits + 1.57) / (visits - 1));

	sort_numbers(levels, n);
	double low = quantile(levels, n, 0.1), high = quantile(levels, n, 0.9);
	calibration->compute_best = fmin(low, 1);
	calibration->residual_spread = fmax((high - low) / 2 / deviations * wider, least_spread);
}

void calibration_take_steps(struct calibration *calibration, double *ratios, int n)
{
	sort_numbers(ratios, n);
	calibration->step_p95 = n > 0 ? fmax(quantile(ratios, n, 0.95), 1) : 0;
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
