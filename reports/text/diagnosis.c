/* The text of `diagnose`: measured and predicted parts of a step, and the causes of the
 * difference. */
#include <math.h>

#include "reports/text/text.h"

/* A row of the table: one kind of work or waiting. */
struct place {
	const char *name;
	double measured, expected, count, expected_count;
};

static int places(const struct diagnosis *d, struct place places[ACTIVITY_KIND_COUNT + 4])
{
	const struct activity_summary *m = &d->measured, *e = &d->expected;
	int n = 0;

	for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++)
		places[n++] = (struct place){activity_names[kind], m->exposed[kind],
			e->exposed[kind], m->count[kind], e->count[kind]};
	places[n++] =
		(struct place){"waiting for the host", m->waiting_host, e->waiting_host, 0, 0};
	places[n++] = (struct place){"waiting for data", m->waiting_data, e->waiting_data, 0, 0};
	places[n++] = (struct place){"waiting for the allocator", m->waiting_allocator,
		e->waiting_allocator, m->allocator_calls, e->allocator_calls};
	places[n++] = (struct place){"waiting otherwise", m->waiting_other, e->waiting_other, 0, 0};
	return n;
}

/* Adds a count; an empty cell if it is unknown. */
static void add_count(struct grid *grid, double count)
{
	if (count > 0)
		grid_add(grid, "%.0f", count);
	else
		grid_add(grid, "%s", "");
}

/* The table of the parts of a step, measured beside predicted. */
static void diagnosis_grid(const struct diagnosis *d, struct grid *grid)
{
	static const struct grid_column columns[] = {{"what the device did", GRID_LEFT},
		{"measured", GRID_RIGHT}, {"of step", GRID_RIGHT}, {"predicted", GRID_RIGHT},
		{"difference", GRID_RIGHT}, {"number", GRID_RIGHT}, {"planned", GRID_RIGHT}};
	struct place all[ACTIVITY_KIND_COUNT + 4];
	int n = places(d, all);

	grid_init(grid, columns, COUNT_OF(columns));
	for (int i = 0; i < n; i++) {
		char percent[32];
		double more = all[i].measured - all[i].expected;
		more = fabs(more) < 1e-6 * d->measured.step_time ? 0 : more;
		if (fmax(all[i].measured, all[i].expected) < 1e-6 * d->measured.step_time)
			continue;
		grid_row(grid, more > 0.03 * d->measured.step_time ? GRID_WARNING : GRID_PLAIN);
		grid_add(grid, "%s", all[i].name);
		grid_add_seconds(grid, all[i].measured);
		grid_add(grid, "%s",
			format_percent(percent, all[i].measured / d->measured.step_time));
		grid_add_seconds(grid, all[i].expected);
		grid_add_seconds(grid, more);
		add_count(grid, all[i].count);
		add_count(grid, all[i].expected_count);
	}
}

/* Says which step a percentage refers to: gains are shares of the planned step, costs of the
 * measured one. */
static const char *gain_differs(const struct diagnosis_cause *cause)
{
	if (cause->seconds <= 0 || cause->gain > 2 * cause->seconds)
		return ", by simulation; as measured much of it is not exposed, or counted above";
	if (cause->gain < 0.5 * cause->seconds)
		return ": the step as planned loses no more by it; "
		       "the rest of the cost comes with the other causes";
	return "";
}

static void add_cause(const struct diagnosis *d, const struct diagnosis_cause *cause, int number,
	struct text *text)
{
	char seconds[32];

	text_printf(text, "\n%d. %s  [%s]\n   %s.\n   To do: %s.\n", number, cause->title,
		cause->id, cause->evidence, cause->advice);
	if (cause->seconds > 0)
		text_printf(text, "   It costs %s a step as measured (%.1f %%).\n",
			format_seconds(seconds, cause->seconds),
			100 * cause->seconds / d->measured.step_time);
	if (!isnan(cause->gain) && cause->gain > 0)
		text_printf(text, "   Predicted gain: %s a step (%.1f %%)%s.\n",
			format_seconds(seconds, cause->gain),
			100 * cause->gain / d->measured.step_time, gain_differs(cause));
}

/* Was another plan measured? The step is far shorter than predicted, or lacks the plan's
 * collectives. */
static bool is_another(const struct diagnosis *d)
{
	double gathers = d->measured.count[ACTIVITY_ALL_GATHER];
	double reductions =
		d->measured.count[ACTIVITY_REDUCE_SCATTER] + d->measured.count[ACTIVITY_ALL_REDUCE];

	return d->measured.step_time < 0.7 * d->expected.step_time ||
	       (d->expected.count[ACTIVITY_ALL_GATHER] > 0 && gathers <= 0) ||
	       (d->expected.count[ACTIVITY_REDUCE_SCATTER] > 0 && reductions <= 0);
}

static void add_mfu(const struct diagnosis *d, struct text *text)
{
	char measured[32], expected[32];

	if (d->mfu <= 0)
		return;
	text_printf(text, "; MFU %s, predicted %s of ", format_percent(measured, d->mfu),
		format_percent(expected, d->expected_mfu));
	add_terminal(text, or_empty(d->peak_name));
	text_add(text, " (attention counted in full)");
}

/* Example: "Of the step 63 % is exposed communication (3.07 s), 37 % compute (1.83 s)." */
static void add_parts(const struct diagnosis *d, struct text *text)
{
	const char *before = "Of the step ";
	char seconds[32];

	for (int i = 0; i < DIAGNOSIS_PARTS; i++) {
		const struct diagnosis_part *part = &d->parts[i];
		double percent = 100 * part->measured / d->measured.step_time;
		if (percent < 1)
			break;
		text_printf(text, i == 0 ? "%s%.0f %% is %s (%s)" : "%s%.0f %% %s (%s)", before,
			percent, part->name, format_seconds(seconds, part->measured));
		before = ", ";
	}
	text_add(text, ".\n");
}

static void add_loss(const struct diagnosis *d, struct text *text)
{
	char more[32];

	if (d->loss == NULL || d->loss->measured - d->loss->expected < 0.01 * d->measured.step_time)
		return;
	text_printf(text, "The largest loss: %s, %s more than predicted.\n", d->loss->name,
		format_seconds(more, d->loss->measured - d->loss->expected));
}

void report_diagnosis_text(const struct diagnosis *d, const struct style *style, struct text *text)
{
	struct grid grid;
	struct text lines = {0};
	char measured[32], expected[32], change[32];

	text_printf(&lines, "%s a step, predicted %s (%s)",
		format_seconds(measured, d->measured.step_time),
		format_seconds(expected, d->expected.step_time),
		format_change(change, d->measured.step_time / d->expected.step_time - 1));
	add_mfu(d, &lines);
	text_add(&lines, ".\n");
	add_loss(d, &lines);
	add_parts(d, &lines);
	put_lines(text_string(&lines), 0, style, text);
	text_add_char(text, '\n');
	diagnosis_grid(d, &grid);
	put_text(&grid, style, text);
	text_add(text, " Every moment counts once: "
		       "as compute while a kernel computes, else as the first kind that runs.\n");
	if (is_another(d))
		text_add(text, "\nThis does not look like a step of this plan: "
			       "is it the right trace, and the right plan?\n");
	else if (d->n_causes == 0)
		text_add(text, "\nNothing departs from the plan by more than 3 % of the step.\n");
	text_clear(&lines);
	for (int i = 0; i < d->n_causes; i++)
		add_cause(d, &d->causes[i], i + 1, &lines);
	put_lines(text_string(&lines), 3, style, text);
	text_finish(&lines);
}
