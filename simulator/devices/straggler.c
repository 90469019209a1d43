/* Devices of one type differ (silicon, temperature, power), and every gradient waits for the
 * slowest. With speeds spread about their mean by a relative standard deviation, a step over n
 * devices takes 1 + spread * E[max of n] times what it does on an average one. */
#include "simulator/devices/devices.h"

#include <math.h>

/* Fitted on the calibrating part of bench/accuracy: llm-foundry's steps over 8 to 128 A100, sigma
 * 0.036 with a constant of its own for each model and sequence length (n = 48, exposed
 * communication below 5 % of the step; docs/cost-model.md). Over 64 thousand GPUs it says 10 %;
 * PRISM (arXiv 2510.15596) observed 9 % there. */
static const double device_spread = 0.035;

enum { REFERENCE_DEVICES = 8 };

double expected_maximum(int64_t n)
{
	static const double log_4_pi = 2.5310242469692907;
	double a;

	if (n < 2)
		return 0;
	a = sqrt(2 * log((double)n));
	return fmax(0.5641895835477563 /* 1 / sqrt(pi), two */,
		a - (log(log((double)n)) + log_4_pi) / (2 * a));
}

double straggler_of(const struct topology *topology, int64_t devices)
{
	if (devices <= REFERENCE_DEVICES || topology->device.kind != DEVICE_GPU)
		return 1;
	return 1 +
	       device_spread * (expected_maximum(devices) - expected_maximum(REFERENCE_DEVICES));
}

/* The parameters that a token uses in products and that have gradients too. */
static double work_of(const struct model *model)
{
	double work = (double)model->active_parameter_count;

	for (int m = 0; m < model->n_modules && model->modules[m].kind != MODULE_BLOCK; m++)
		if (model->modules[m].kind == MODULE_EMBEDDING ||
			model->modules[m].kind == MODULE_POSITION_EMBEDDING)
			work -= (double)model_trained_elements(model, m);
	return work;
}

/* The number of stages with at least this much work. */
static int stages_with(const struct schedule *schedule, double least)
{
	int n = 0;

	for (int c = 0; c < schedule->n_classes; c++)
		n += work_of(schedule->programs[c].model) >= least;
	return n;
}

static double most_below(const struct schedule *schedule, double bound)
{
	double most = 0;

	for (int c = 0; c < schedule->n_classes; c++) {
		double work = work_of(schedule->programs[c].model);
		if (work < bound)
			most = fmax(most, work);
	}
	return most;
}

/* Are all stages known? Some schedules have only one class. */
static bool has_all_stages(const struct schedule *schedule)
{
	for (int c = 0; c < schedule->n_classes; c++)
		if (schedule->programs[c].model == NULL)
			return false;
	return true;
}

/* A pipeline is as slow as its slowest stage. That has the slowest device of the stages with most
 * work, or the slowest of more devices whose stages have less. */
double straggler_of_stages(const struct schedule *schedule)
{
	int64_t ranks = plan_ranks(&schedule->plan) / schedule->n_classes;
	double slowest = straggler_of(schedule->topology, ranks);

	if (!has_all_stages(schedule))
		return slowest;
	double most = most_below(schedule, INFINITY);
	for (double work = most; work > 0; work = most_below(schedule, work))
		slowest = fmax(slowest, work / most *
						straggler_of(schedule->topology,
							ranks * stages_with(schedule, work)));
	return slowest;
}
