/* The text of `diagnose` without a trace: what a step time or an MFU alone can tell. */
#include <math.h>

#include "reports/text/text.h"

/* What nothing can reach was measured of something else. */
static void add_impossible(
	const struct figures_diagnosis *d, const struct style *style, struct text *text)
{
	char bound[32];
	struct text line = {0};

	text_printf(&line,
		"No step of this plan can be shorter than %s: "
		"the unit, the batch, the model or the devices of the run are others.",
		format_seconds(bound, d->prediction->plan_lower_bound));
	put_line("", 0, text_string(&line), style->width, text);
	text_finish(&line);
}

static void add_head(
	const struct figures_diagnosis *d, const struct style *style, struct text *text)
{
	const struct prediction *p = d->prediction;
	char step[32], predicted[32], gap[32], mfu[32], expected[32], change[32];
	struct text line = {0};

	text_printf(&line, "%s a step, predicted %s (%s)", format_seconds(step, d->step_time),
		format_seconds(predicted, p->step_time),
		format_change(change, d->step_time / p->step_time - 1));
	if (p->mfu > 0) {
		text_printf(&line, "; MFU %s, predicted %s of ",
			format_percent(mfu, p->mfu * p->step_time / d->step_time),
			format_percent(expected, p->mfu));
		add_terminal(&line, or_empty(p->peak_name));
		text_add(&line, " (attention counted in full)");
	}
	text_add_char(&line, '.');
	put_line("", 0, text_string(&line), style->width, text);
	text_finish(&line);
	if (d->step_time > 1.03 * p->step_time)
		text_printf(text, "To explain: %s a step.\n",
			format_seconds(gap, d->step_time - p->step_time));
	else if (d->step_time < p->plan_lower_bound)
		add_impossible(d, style, text);
	else
		text_add(text, "Nothing to explain: it is as fast as predicted, or faster.\n");
}

static void add_conventions(
	const struct figures_diagnosis *d, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"MFU, by what it counts", GRID_LEFT},
		{"predicted", GRID_RIGHT}, {"at this step time", GRID_RIGHT}};
	struct grid grid;
	char given[32];

	if (d->n_conventions == 0)
		return;
	text_add_char(text, '\n');
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int i = 0; i < d->n_conventions; i++) {
		const struct mfu_convention *c = &d->conventions[i];
		grid_row(&grid, c == d->convention ? GRID_GOOD : GRID_PLAIN);
		grid_add(&grid, "%s", c->name);
		grid_add_percent(&grid, c->predicted);
		grid_add_percent(&grid, c->measured);
	}
	put_text(&grid, style, text);
	if (d->mfu <= 0)
		return;
	format_percent(given, d->mfu);
	if (d->convention != NULL)
		text_printf(text, " An MFU of %s at this step time is counted so: %s.\n", given,
			d->convention->name);
	else
		text_printf(text,
			" An MFU of %s is none of these: "
			"its peak, batch or number of devices is %.2f times the plan's.\n",
			given, d->conventions[0].measured / d->mfu);
}

static void add_candidates(
	const struct figures_diagnosis *d, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {
		{"one thing that is not as planned", GRID_LEFT}, {"step", GRID_RIGHT},
		{"explains", GRID_RIGHT}, {"look at", GRID_WRAP}};
	double gap = d->step_time - d->prediction->step_time;
	struct grid grid;

	text_add_char(text, '\n');
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int i = 0; i < d->n_candidates; i++) {
		const struct figure_candidate *c = &d->candidates[i];
		grid_row(&grid, GRID_PLAIN);
		grid_add(&grid, "%s", c->title);
		grid_add_seconds(&grid, c->step_time);
		if (c->effect > 2 * gap)
			grid_add(&grid, "too much");
		else
			grid_add(&grid, "%.0f %%", 100 * c->effect / gap);
		grid_add(&grid, "[%s] %s", c->id,
			c->fits ? c->look : "ruled out: it would not fit in memory");
	}
	put_text(&grid, style, text);
	text_add(text, " Each alone, simulated, the largest effect first; "
		       "explains: its part of the difference.\n");
}

static void add_conditions(
	const struct figures_diagnosis *d, const struct style *style, struct text *text)
{
	text_add(text, "\nOr, were it one of these alone:\n");
	for (int i = 0; i < d->n_conditions; i++) {
		struct text line = {0};
		text_printf(&line, "%s  [%s]", d->conditions[i].text, d->conditions[i].id);
		put_line(" - ", 3, text_string(&line), style->width, text);
		text_finish(&line);
	}
	if (d->n_steps >= 5 && d->spread > 0.1)
		text_printf(text,
			" - something else runs on these machines: "
			"%d steps of equal work differ by %.0f %% (standard deviation over mean)  "
			"[busy-machine]\n",
			d->n_steps, 100 * d->spread);
	text_add(text, "A trace tells which: "
		       "`shardplan help diagnose` has the lines to record one.\n");
}

void report_figures_text(
	const struct figures_diagnosis *d, const struct style *style, struct text *text)
{
	add_head(d, style, text);
	add_conventions(d, style, text);
	if (d->step_time <= 1.03 * d->prediction->step_time)
		return;
	if (d->n_candidates > 0)
		add_candidates(d, style, text);
	add_conditions(d, style, text);
}
