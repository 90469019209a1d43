/* The text of `topologies fit`: the fitted constants, and how well they explain the runs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reports/text/text.h"

static const char *value_text(char buffer[32], const char *unit, double value)
{
	if (strcmp(unit, "B/s") == 0)
		return format_bandwidth(buffer, value);
	if (strcmp(unit, "s") == 0)
		return format_seconds(buffer, value);
	if (strcmp(unit, "FLOP/s") == 0)
		snprintf(buffer, 32, "%.4g TFLOP/s", value / 1e12);
	else
		snprintf(buffer, 32, "%.3f", value);
	return buffer;
}

static void add_constant(const struct fitted_constant *c, struct grid *grid)
{
	char before[32], after[32], low[32], high[32];

	grid_row(grid, c->verdict == FIT_TOLD ? GRID_PLAIN : GRID_WARNING);
	grid_add(grid, "%s", c->name);
	grid_add_value(grid, c->before, "%s", value_text(before, c->unit, c->before));
	if (c->verdict == FIT_UNTOLD) {
		grid_add(grid, "-");
		grid_add(grid, "cannot tell");
		return;
	}
	grid_add_value(grid, c->after, "%s", value_text(after, c->unit, c->after));
	grid_add(grid, "%s to %s", value_text(low, c->unit, c->low),
		value_text(high, c->unit, c->high));
	grid_add_value(grid, c->factor, "x %.3f", c->factor);
}

static void constants_grid(const struct fitting *fitting, struct grid *grid)
{
	static const struct grid_column columns[] = {{"constant", GRID_LEFT},
		{"before", GRID_RIGHT}, {"after", GRID_RIGHT}, {"80 % sure", GRID_RIGHT},
		{"factor", GRID_RIGHT}};

	grid_init(grid, columns, COUNT_OF(columns));
	for (int i = 0; i < FIT_CONSTANT_COUNT; i++)
		if (fitting->constants[i].verdict != FIT_ABSENT)
			add_constant(&fitting->constants[i], grid);
}

static void add_error(const struct fitted_run *run, double predicted, struct grid *grid)
{
	double error = predicted / run->measured - 1;
	char change[32];

	grid_add_value(grid, error, "%s", format_change(change, error));
}

static void runs_grid(const struct fitting *fitting, struct grid *grid)
{
	static const struct grid_column columns[] = {{"run", GRID_LEFT}, {"measured", GRID_RIGHT},
		{"before", GRID_RIGHT}, {"after", GRID_RIGHT}, {"left out", GRID_RIGHT},
		{"", GRID_LEFT}};

	grid_init(grid, columns, COUNT_OF(columns));
	for (int i = 0; i < fitting->n_runs; i++) {
		const struct fitted_run *run = &fitting->runs[i];

		grid_row(grid, run->outlier ? GRID_BAD : GRID_PLAIN);
		grid_add(grid, "%s", run->name);
		grid_add_seconds(grid, run->measured);
		add_error(run, run->before, grid);
		add_error(run, run->after, grid);
		add_error(run, run->left_out, grid);
		grid_add(grid, "%s", run->outlier ? "no constant explains it" : "");
	}
}

static void add_advice(const struct fitted_constant *c, struct text *text)
{
	text_printf(text, " - %s: ", c->name);
	if (c->advice.run == NULL) {
		text_add(text, "no change of one of these runs would tell it\n");
		return;
	}
	text_add(text, "like ");
	add_terminal(text, c->advice.run);
	text_printf(text, ", but %s (%.0f %% of the doubt left)\n", c->advice.change,
		100 * c->advice.left);
}

/* Proposes runs: first for constants that the runs do not tell, then for the one that a run would
 * improve most. */
static void add_advices(const struct fitting *fitting, struct text *text)
{
	const struct fitted_constant *best = NULL;
	int n = 0;

	for (int i = 0; i < FIT_CONSTANT_COUNT; i++) {
		const struct fitted_constant *c = &fitting->constants[i];

		if (c->verdict == FIT_UNTOLD) {
			if (n++ == 0)
				text_add(text, "These runs do not tell the following; "
					       "a run that would help:\n");
			add_advice(c, text);
		} else if (c->verdict == FIT_TOLD && c->advice.run != NULL &&
			   (best == NULL || c->advice.left < best->advice.left)) {
			best = c;
		}
	}
	if (best == NULL)
		return;
	text_add(text, "Of the others, one more run would help this one most:\n");
	add_advice(best, text);
}

/* No hardware is so far from its description. */
#define FAR 3.0

static double distance(const struct fitted_run *run)
{
	return fabs(log(run->measured / run->before));
}

/* Names the run that is farthest from what was predicted, where that is far: it is a slip rather
 * than a property of the cluster. */
static void add_farthest(
	const struct fitting *fitting, const struct style *style, struct text *text)
{
	const struct fitted_run *farthest = &fitting->runs[0];
	struct text line = {0};
	int far = 0;

	for (int i = 0; i < fitting->n_runs; i++) {
		far += distance(&fitting->runs[i]) > log(FAR);
		if (distance(&fitting->runs[i]) > distance(farthest))
			farthest = &fitting->runs[i];
	}
	if (far == 0)
		return;
	bool longer = farthest->measured > farthest->before;
	text_add(&line, "Look at ");
	add_terminal(&line, farthest->name);
	double times = exp(distance(farthest));
	text_printf(&line, ": it was %.*f times as %s as predicted", times < 10, times,
		longer ? "long" : "fast");
	if (far > 1)
		text_printf(&line, ", and %d of %d runs were more than %g times", far,
			fitting->n_runs, FAR);
	text_add(&line, ". Is the unit seconds, and does the row say what ran?");
	put_line("", 0, text_string(&line), style->width, text);
	text_add_char(text, '\n');
	text_finish(&line);
}

/* Of runs that tell nothing the file is as it was. */
static void add_untold(const struct fitting *fitting, struct text *text)
{
	text_printf(text,
		"Nothing was fitted: these %d runs tell none of the constants. The median error is "
		"%.1f %%.\n\n",
		fitting->n_runs, 100 * fitting->errors.before);
}

void report_fitting_text(
	const struct fitting *fitting, const struct style *style, struct text *text)
{
	struct grid constants, runs;
	const struct fit_errors *errors = &fitting->errors;

	if (!fitting_tells(fitting))
		add_untold(fitting, text);
	else
		text_printf(text,
			"Fitted to %d of %d runs. The median error is %.1f %% (before: %.1f %%); "
			"each run predicted from\nthe others alone: %.1f %%. "
			"Runs differ by %.1f %% beside what the constants explain.\n\n",
			fitting->n_runs - fitting->n_outliers, fitting->n_runs, 100 * errors->after,
			100 * errors->before, 100 * errors->left_out, 100 * fitting->spread);
	add_farthest(fitting, style, text);
	constants_grid(fitting, &constants);
	put_text(&constants, style, text);
	runs_grid(fitting, &runs);
	put_text(&runs, style, text);
	add_advices(fitting, text);
}
