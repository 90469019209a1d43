/* Least squares with a prior: a handful of unknowns, so that a dense Cholesky factor is enough. */
#include "planner/fitting/parts.h"

#include <math.h>

/* The weight of the spread's prior, in runs. It is large because errors of the model are shared by
 * similar runs: a few runs that agree prove little about others. */
static const double prior_runs = 10;
/* The part of a constant's doubt that differs between runs: a link, for example, reaches another
 * share of its rate in another collective. */
static const double own_share = 0.5;

double own_variance(const struct linear *linear, enum fit_constant constant)
{
	return pow(own_share * linear->doubt[constant], 2);
}

double run_variance(const struct linear *linear, int run)
{
	double variance = linear->spread * linear->spread;

	for (int j = 0; j < CONSTANTS; j++)
		variance +=
			own_variance(linear, (enum fit_constant)j) * pow(linear->slopes[run][j], 2);
	return variance;
}

static bool counts(const struct linear *linear, int run, int without)
{
	return linear->used[run] && run != without;
}

/* Cholesky: a = l lᵀ, with l in the lower half of a. `a` is positive definite because the prior is.
 */
static void factor(double a[CONSTANTS][CONSTANTS])
{
	for (int j = 0; j < CONSTANTS; j++) {
		for (int k = 0; k < j; k++)
			for (int i = j; i < CONSTANTS; i++)
				a[i][j] -= a[i][k] * a[j][k];
		double root = sqrt(a[j][j]);
		for (int i = j; i < CONSTANTS; i++)
			a[i][j] /= root;
	}
}

/* Column `column` of the inverse of l lᵀ. */
static void invert(double l[CONSTANTS][CONSTANTS], int column, double inverse[CONSTANTS])
{
	for (int i = 0; i < CONSTANTS; i++) {
		inverse[i] = i == column;
		for (int k = 0; k < i; k++)
			inverse[i] -= l[i][k] * inverse[k];
		inverse[i] /= l[i][i];
	}
	for (int i = CONSTANTS - 1; i >= 0; i--) {
		for (int k = i + 1; k < CONSTANTS; k++)
			inverse[i] -= l[k][i] * inverse[k];
		inverse[i] /= l[i][i];
	}
}

/* The normal equations: the precision matrix of x, and the gradient of the log posterior. */
static void gather(const struct linear *linear, int without, double a[CONSTANTS][CONSTANTS],
	double pull[CONSTANTS])
{
	for (int j = 0; j < CONSTANTS; j++) {
		double precision = 1 / pow(linear->doubt[j], 2);

		for (int k = 0; k < CONSTANTS; k++)
			a[j][k] = j == k ? precision : 0;
		pull[j] = linear->free[j] ? -precision * linear->x[j] : 0;
	}
	for (int i = 0; i < linear->n; i++) {
		double weight = 1 / run_variance(linear, i);

		for (int j = 0; j < CONSTANTS && counts(linear, i, without); j++) {
			double slope = linear->free[j] ? weight * linear->slopes[i][j] : 0;

			pull[j] += slope * linear->residuals[i];
			for (int k = 0; k < CONSTANTS; k++)
				a[j][k] += linear->free[k] ? slope * linear->slopes[i][k] : 0;
		}
	}
}

void linear_solve(const struct linear *linear, int without, struct posterior *posterior)
{
	double a[CONSTANTS][CONSTANTS], pull[CONSTANTS];

	gather(linear, without, a, pull);
	factor(a);
	for (int j = 0; j < CONSTANTS; j++) {
		posterior->step[j] = 0;
		invert(a, j, posterior->covariance[j]);
		for (int k = 0; k < CONSTANTS; k++) {
			posterior->covariance[j][k] *= linear->free[j] && linear->free[k];
			posterior->step[j] += posterior->covariance[j][k] * pull[k];
		}
	}
}

double posterior_variance(const struct posterior *posterior, const double slopes[CONSTANTS])
{
	double variance = 0;

	for (int j = 0; j < CONSTANTS; j++)
		for (int k = 0; k < CONSTANTS; k++)
			variance += slopes[j] * posterior->covariance[j][k] * slopes[k];
	return variance;
}

/* A run's residual after the step. */
static double left(const struct linear *linear, int run, const struct posterior *posterior)
{
	double residual = linear->residuals[run];

	for (int j = 0; j < CONSTANTS; j++)
		residual -= linear->slopes[run][j] * posterior->step[j];
	return residual;
}

/* The degrees of freedom of the residuals: runs less what fitting the constants used up. */
double linear_spread(const struct linear *linear, int without, const struct posterior *posterior,
	double prior_spread)
{
	double squares = prior_runs * prior_spread * prior_spread, runs = prior_runs;

	for (int i = 0; i < linear->n; i++) {
		double residual = left(linear, i, posterior), variance = run_variance(linear, i);

		if (!counts(linear, i, without))
			continue;
		squares += residual * residual * linear->spread * linear->spread / variance;
		runs += 1 - fmin(1, posterior_variance(posterior, linear->slopes[i]) / variance);
	}
	return sqrt(squares / runs);
}
