/* Autotuning finds which of several algorithms is fastest on a GPU. Nothing is tried while a model
 * trains, where the outcome of a race would decide over bits. So it is tried here, and what won is
 * written down. */
#include "executor/calibration/gpu/bench.h"

#include <math.h>

enum { ROUNDS = 3 };

bool autotune_fastest(const struct autotune *c, int algorithms, int *fastest, struct error *error)
{
	double budget = c->gpu->base.budget, least = 0;
	bool ok = true;

	*fastest = -1;
	c->gpu->base.budget = 0;
	for (int i = 0; i < algorithms && ok; i++) {
		double seconds = 0;
		bool refused;

		ok = c->time(c, i, &seconds, &refused, error);
		if (!ok || refused || (*fastest >= 0 && seconds >= least))
			continue;
		least = seconds;
		*fastest = i;
	}
	c->gpu->base.budget = budget;
	return ok;
}

bool autotune_gain(const struct autotune *c, int algorithm, double *gain, struct error *error)
{
	double first = INFINITY, other = INFINITY;

	*gain = 0;
	for (int i = 0; i < ROUNDS; i++) {
		double one = 0, two = 0;
		bool refused;

		if (!c->time(c, AUTOTUNE_DEFAULT, &one, &refused, error) ||
			!c->time(c, algorithm, &two, &refused, error))
			return false;
		if (refused)
			return true;
		first = fmin(first, one);
		other = fmin(other, two);
	}
	*gain = first / other;
	return true;
}

bool autotune_is_faster(double gain)
{
	/* A smaller gain may be chance. */
	return gain >= 1.02;
}
