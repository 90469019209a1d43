/* The fit: Gauss-Newton with step halving. Runs that no constant explains are left out, and
 * constants of which the runs say too little are not changed. */
#include "planner/fitting/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/fold/fold.h"

/* Standard deviations within which 80 % of a normal distribution lie. */
static const double deviations = 1.2816;
/* A constant is told when its doubt falls below this share of its prior doubt. */
static const double told = 0.9;
/* A run is an outlier when it is `outlying` standard deviations from the prediction of a fit to the
 * others, and `unexplained` spreads from the fit to all. */
static const double outlying = 4, unexplained = 2.5;
enum { ITERATIONS = 8, HALVINGS = 4, LEAST_LEFT = FIT_LEAST_RUNS };

struct fit {
	const struct topology *topology;
	const struct fit_run *runs;
	int n;
	struct arena *arena;
	struct steps steps;
	const struct schedule **schedules;
	double *measured; /* ln */
	double prior_spread;
	bool there[CONSTANTS]; /* the topology has this constant */
	bool *used;
	double *residuals;
	double (*slopes)[CONSTANTS];
	struct linear linear;
};

/* --- where the fit is ------------------------------------------------------------------------- */

static bool init_runs(struct fit *fit, struct error *error)
{
	for (int i = 0; i < fit->n; i++) {
		const struct fit_run *run = &fit->runs[i];

		fit->measured[i] = log(run->step_time);
		fit->schedules[i] =
			schedule_fold(fit->arena, &run->plan, run->model, run->topology);
		fit->used[i] = true;
		if (fit->schedules[i] == NULL)
			return error_set(error, EXIT_CODE_INTERNAL, "%s: no schedule", run->name);
	}
	return true;
}

static void init_constants(struct fit *fit)
{
	const struct time_doubt doubt = time_doubt(fit->topology);
	const double none[CONSTANTS] = {0};
	struct topology stated;

	constants_move(none, fit->topology, fit->arena, &stated);
	for (int j = 0; j < CONSTANTS; j++) {
		fit->there[j] = constant_value((enum fit_constant)j, &stated) > 0;
		fit->linear.doubt[j] = constant_doubt((enum fit_constant)j, &doubt);
		fit->linear.free[j] = fit->there[j];
	}
	fit->prior_spread = fit->linear.spread = doubt.rest;
}

static bool fit_init(struct fit *fit, const struct lent *lent, struct error *error)
{
	fit->schedules = ARENA_ARRAY(fit->arena, const struct schedule *, fit->n);
	fit->measured = ARENA_ARRAY(fit->arena, double, fit->n);
	fit->residuals = ARENA_ARRAY(fit->arena, double, fit->n);
	fit->used = ARENA_ARRAY(fit->arena, bool, fit->n);
	fit->slopes = arena_alloc(fit->arena, (size_t)fit->n, sizeof(*fit->slopes));
	fit->linear = (struct linear){.n = fit->n,
		.slopes = (const double(*)[CONSTANTS])fit->slopes,
		.residuals = fit->residuals,
		.used = fit->used};
	steps_init(&fit->steps, lent, fit->arena);
	init_constants(fit);
	return init_runs(fit, error);
}

/* Residuals of all runs at x. */
static bool look(struct fit *fit, const double x[CONSTANTS], double *residuals, struct error *error)
{
	struct arena arena = {0};
	struct step_point *points = ARENA_ARRAY(&arena, struct step_point, fit->n);
	bool ok = true;

	for (int i = 0; i < fit->n; i++) {
		points[i].schedule = fit->schedules[i];
		memcpy(points[i].x, x, sizeof(points[i].x));
	}
	steps_simulate(&fit->steps, points, fit->n);
	for (int i = 0; i < fit->n; i++) {
		residuals[i] = fit->measured[i] - points[i].log_step;
		if (!isfinite(residuals[i]))
			ok = error_set(error, EXIT_CODE_INTERNAL, "%s: cannot be simulated",
				fit->runs[i].name);
	}
	arena_finish(&arena);
	return ok;
}

/* Twice the negative logarithm of the posterior. */
static double misfit(const struct fit *fit, const double x[CONSTANTS], const double *residuals)
{
	double sum = 0;

	for (int i = 0; i < fit->n; i++)
		if (fit->used[i])
			sum += residuals[i] * residuals[i] / run_variance(&fit->linear, i);
	for (int j = 0; j < CONSTANTS; j++)
		sum += pow(x[j] / fit->linear.doubt[j], 2);
	return sum;
}

/* --- the most likely constants ---------------------------------------------------------------- */

/* Halves the step until the posterior rises; false: it does not. */
static bool step_along(struct fit *fit, const double step[CONSTANTS], struct error *error)
{
	double *residuals = ARENA_ARRAY(fit->arena, double, fit->n), x[CONSTANTS], part = 1;
	double before = misfit(fit, fit->linear.x, fit->residuals);

	for (int halving = 0; halving < HALVINGS; halving++, part /= 2) {
		for (int j = 0; j < CONSTANTS; j++)
			x[j] = fit->linear.x[j] + part * step[j];
		if (!look(fit, x, residuals, error))
			return false;
		if (misfit(fit, x, residuals) >= before)
			continue;
		memcpy(fit->linear.x, x, sizeof(x));
		memcpy(fit->residuals, residuals, (size_t)fit->n * sizeof(residuals[0]));
		return true;
	}
	return false;
}

static bool is_small(const struct fit *fit, const double step[CONSTANTS])
{
	for (int j = 0; j < CONSTANTS; j++)
		if (fabs(step[j]) > 0.02 * fit->linear.doubt[j])
			return false;
	return true;
}

/* Climbs from the current x to the maximum, and computes the slopes there. */
static bool climb(struct fit *fit, struct error *error)
{
	struct posterior posterior;

	if (!look(fit, fit->linear.x, fit->residuals, error))
		return false;
	for (int i = 0; i < ITERATIONS; i++) {
		steps_derive(&fit->steps, fit->schedules, fit->n, fit->linear.x, fit->there,
			fit->slopes);
		linear_solve(&fit->linear, -1, &posterior);
		fit->linear.spread = linear_spread(&fit->linear, -1, &posterior, fit->prior_spread);
		linear_solve(&fit->linear, -1, &posterior);
		if (is_small(fit, posterior.step) || !step_along(fit, posterior.step, error))
			break;
	}
	return error == NULL || error->code == EXIT_CODE_OK;
}

/* --- outliers --------------------------------------------------------------------------------- */

/* The fit and the spread without one run. */
static struct linear without(const struct fit *fit, int run, struct posterior *posterior)
{
	struct linear others = fit->linear;

	linear_solve(&others, run, posterior);
	others.spread = linear_spread(&others, run, posterior, fit->prior_spread);
	linear_solve(&others, run, posterior);
	return others;
}

/* The distance of a run from the prediction of a fit to the others, in standard deviations; 0:
 * constants explain it. */
static double outlies(const struct fit *fit, int run)
{
	struct posterior posterior;
	const struct linear others = without(fit, run, &posterior);
	double off = fit->residuals[run], own = run_variance(&others, run);

	if (fabs(off) < unexplained * sqrt(own))
		return 0;
	for (int j = 0; j < CONSTANTS; j++)
		off -= fit->slopes[run][j] * posterior.step[j];
	return fabs(off) / sqrt(own + posterior_variance(&posterior, fit->slopes[run]));
}

static bool drop_outlier(struct fit *fit, int *left)
{
	double most = outlying;
	int worst = -1;

	for (int i = 0; i<fit->n && * left> LEAST_LEFT; i++) {
		double by = fit->used[i] ? outlies(fit, i) : 0;

		if (by > most) {
			most = by;
			worst = i;
		}
	}
	if (worst < 0)
		return false;
	fit->used[worst] = false;
	--*left;
	return true;
}

/* At most a quarter of the runs are outliers: with more, it is not clear which they are. */
static bool climb_robustly(struct fit *fit, struct error *error)
{
	int left = fit->n;

	if (!climb(fit, error))
		return false;
	while (4 * (fit->n - left + 1) <= fit->n && drop_outlier(fit, &left))
		if (!climb(fit, error))
			return false;
	return true;
}

/* --- constants that runs do not tell ---------------------------------------------------------- */

/* The free constant that is told least; -1: all are told. */
static int least_told(const struct fit *fit, const struct posterior *posterior)
{
	double most = told;
	int least = -1;

	for (int j = 0; j < CONSTANTS; j++) {
		double share = sqrt(posterior->covariance[j][j]) / fit->linear.doubt[j];

		if (fit->linear.free[j] && share > most) {
			most = share;
			least = j;
		}
	}
	return least;
}

/* Fixes constants one after the other: of two that cannot be told apart, one can be told once the
 * other is fixed. */
static bool leave_untold(struct fit *fit, struct error *error)
{
	struct linear *linear = &fit->linear;
	struct posterior posterior;
	bool left = false;
	int least;

	while (linear_solve(linear, -1, &posterior), (least = least_told(fit, &posterior)) >= 0) {
		for (int i = 0; i < fit->n; i++)
			fit->residuals[i] += fit->slopes[i][least] * linear->x[least];
		linear->x[least] = 0;
		linear->free[least] = false;
		left = true;
	}
	return !left || climb(fit, error);
}

/* --- the result ------------------------------------------------------------------------------- */

static enum fit_verdict verdict_of(const struct fit *fit, int constant)
{
	if (!fit->there[constant])
		return FIT_ABSENT;
	return fit->linear.free[constant] ? FIT_TOLD : FIT_UNTOLD;
}

static void fill_constants(
	const struct fit *fit, const struct posterior *posterior, struct fitting *fitting)
{
	const double none[CONSTANTS] = {0};
	struct topology before;

	constants_move(none, fit->topology, fit->arena, &before);
	for (int j = 0; j < CONSTANTS; j++) {
		struct fitted_constant *constant = &fitting->constants[j];
		enum fit_constant id = (enum fit_constant)j;
		double doubt = sqrt(posterior->covariance[j][j]);

		*constant = (struct fitted_constant){.id = fit_constant_ids[j],
			.name = fit_constant_names[j],
			.verdict = verdict_of(fit, j),
			.unit = constant_unit(id),
			.prior_doubt = fit->linear.doubt[j],
			.doubt = doubt,
			.factor = 1,
			.advice = {.left = 1}};
		if (!fit->there[j])
			continue;
		constant->before = constant_value(id, &before);
		constant->after = constant_value(id, fitting->topology);
		constant->factor = constant->after / constant->before;
		constant->low = constant->after * exp(-deviations * doubt);
		constant->high = constant->after * exp(deviations * doubt);
	}
}

/* Predicts every run from the others; an outlier is left out of the fit already. */
static bool fill_runs(struct fit *fit, struct fitting *fitting, struct error *error)
{
	const double none[CONSTANTS] = {0};
	double *residuals = ARENA_ARRAY(fit->arena, double, fit->n);
	struct step_point *points = ARENA_ARRAY(fit->arena, struct step_point, fit->n);
	struct posterior posterior;

	fitting->runs = ARENA_ARRAY(fit->arena, struct fitted_run, fit->n);
	if (!look(fit, none, residuals, error))
		return false;
	for (int i = 0; i < fit->n; i++) {
		without(fit, i, &posterior);
		points[i].schedule = fit->schedules[i];
		for (int j = 0; j < CONSTANTS; j++)
			points[i].x[j] = fit->linear.x[j] + posterior.step[j];
	}
	steps_simulate(&fit->steps, points, fit->n);
	for (int i = 0; i < fit->n; i++) {
		double measured = fit->runs[i].step_time;

		fitting->runs[i] = (struct fitted_run){.name = fit->runs[i].name,
			.measured = measured,
			.before = measured * exp(-residuals[i]),
			.after = measured * exp(-fit->residuals[i]),
			.left_out = exp(points[i].log_step),
			.outlier = !fit->used[i]};
		fitting->n_outliers += !fit->used[i];
	}
	return true;
}

static int compare_doubles(const void *left, const void *right)
{
	const double *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

static double before(const struct fitted_run *run)
{
	return run->before;
}

static double after(const struct fitted_run *run)
{
	return run->after;
}

static double left_out(const struct fitted_run *run)
{
	return run->left_out;
}

static double median_error(const struct fit *fit, const struct fitting *fitting,
	double (*predicted)(const struct fitted_run *run))
{
	double *errors = ARENA_ARRAY(fit->arena, double, fit->n);
	int n = 0;

	for (int i = 0; i < fit->n; i++) {
		const struct fitted_run *run = &fitting->runs[i];

		if (!run->outlier)
			errors[n++] = fabs(predicted(run) / run->measured - 1);
	}
	qsort(errors, (size_t)n, sizeof(errors[0]), compare_doubles);
	return (errors[(n - 1) / 2] + errors[n / 2]) / 2;
}

/* --- the topology ----------------------------------------------------------------------------- */

static void say_where_from(const char *key, const char *text, struct topology *topology)
{
	for (int i = 0; i < topology->n_provenance; i++) {
		if (strcmp(topology->provenance[i].key, key) == 0) {
			topology->provenance[i].text = text;
			return;
		}
	}
	topology->provenance[topology->n_provenance++] = (struct provenance){key, text};
}

static const char *fitted_text(const struct fit *fit, const struct fitted_constant *c, int runs)
{
	return arena_printf(fit->arena, "fitted to %d runs: x %.3f (%.3f to %.3f)", runs, c->factor,
		c->low / c->before, c->high / c->before);
}

/* Writes only that figure of the network which changed. */
static bool is_fitted(const struct fit *fit, const struct topology *fitted, const char *key)
{
	const struct network *before = &fit->topology->network, *after = &fitted->network;

	if (strcmp(key, "network.nic_bandwidth") == 0)
		return after->nic_bandwidth != before->nic_bandwidth;
	if (strcmp(key, "network.oversubscription") == 0)
		return after->oversubscription != before->oversubscription;
	return true;
}

bool fitting_tells(const struct fitting *fitting)
{
	for (int j = 0; j < CONSTANTS; j++)
		if (fitting->constants[j].verdict == FIT_TOLD)
			return true;
	return false;
}

static void keep_provenance(const struct fit *fit, const struct fitting *fitting)
{
	struct topology *topology = fitting->topology;
	int most = topology->n_provenance + 2 * CONSTANTS,
	    used = fitting->n_runs - fitting->n_outliers;
	struct provenance *all = ARENA_ARRAY(fit->arena, struct provenance, most);

	for (int i = 0; i < topology->n_provenance; i++)
		all[i] = topology->provenance[i];
	topology->provenance = all;
	for (int j = 0; j < CONSTANTS; j++) {
		const struct fitted_constant *c = &fitting->constants[j];
		const char *const *key = constant_keys((enum fit_constant)j);

		for (; c->verdict == FIT_TOLD && *key != NULL; key++)
			if (is_fitted(fit, topology, *key))
				say_where_from(*key, fitted_text(fit, c, used), topology);
	}
	struct calibration *c = &topology->calibration;
	const char *fitted = arena_printf(fit->arena, "fitted to %d runs of this cluster", used);
	c->provenance = c->provenance != NULL && strcmp(c->provenance, "") != 0
				? arena_printf(fit->arena, "%s; %s", c->provenance, fitted)
				: fitted;
}

static double spread_of(
	const struct fit *fit, const struct posterior *posterior, enum fit_constant constant)
{
	return sqrt(
		posterior->covariance[constant][constant] + own_variance(&fit->linear, constant));
}

/* The remaining doubt is kept beside the constants, for the intervals of later predictions. */
static void fill_topology(
	const struct fit *fit, const struct posterior *posterior, struct fitting *fitting)
{
	struct calibration *c;

	fitting->topology = ARENA_NEW(fit->arena, struct topology);
	constants_move(fit->linear.x, fit->topology, fit->arena, fitting->topology);
	c = &fitting->topology->calibration;
	if (fit->linear.free[FIT_PRODUCTS])
		c->compute_spread = spread_of(fit, posterior, FIT_PRODUCTS);
	if (fit->linear.free[FIT_HOST])
		c->host_spread = spread_of(fit, posterior, FIT_HOST);
	c->residual_spread = fit->linear.spread;
}

static bool fill(struct fit *fit, struct fitting *fitting, struct error *error)
{
	struct fit_state state = {fit->topology, fit->runs, &fit->steps, fit->linear, {{0}, {{0}}}};

	memcpy(state.linear.free, fit->there, sizeof(fit->there));
	linear_solve(&state.linear, -1, &state.posterior);
	fill_topology(fit, &state.posterior, fitting);
	fill_constants(fit, &state.posterior, fitting);
	if (!fill_runs(fit, fitting, error))
		return false;
	fitting->errors = (struct fit_errors){median_error(fit, fitting, before),
		median_error(fit, fitting, after), median_error(fit, fitting, left_out)};
	if (fitting_tells(fitting))
		keep_provenance(fit, fitting);
	else
		*fitting->topology = *fit->topology;
	advise(&state, fit->arena, fitting->constants);
	return true;
}

bool fit_topology(const struct topology *topology, const struct fit_run *runs, int n,
	const struct lent *lent, struct arena *arena, struct fitting *fitting, struct error *error)
{
	struct fit fit = {.topology = topology, .runs = runs, .n = n, .arena = arena};

	*fitting = (struct fitting){.n_runs = n};
	bool ok = fit_init(&fit, lent, error) && climb_robustly(&fit, error) &&
		  leave_untold(&fit, error) && fill(&fit, fitting, error);
	fitting->spread = fit.linear.spread;
	steps_finish(&fit.steps);
	return ok;
}
