/* The text of `plan --find`: the values that were tried, and the answer. */
#include <math.h>
#include <string.h>

#include "reports/text/text.h"

/* Are machines of several sizes compared, in total and per device? */
static bool has_efficiency(const struct finding *finding)
{
	for (int i = 0; i < finding->n; i++) {
		if (finding->rows[i].ratio > 0)
			return true;
	}
	return false;
}

static void add_row(const struct found *row, bool efficiency, struct grid *grid)
{
	const struct prediction *p = &row->prediction;
	double tokens_per_s = p->tokens_per_s_per_gpu * (double)row->devices;
	char tokens[32];
	/* Example: "FULL_SHARD, checkpointing full: 6 sequences". The line of the plan has the
	 * rest. */
	const char *colon = row->has_plan ? strstr(row->what, ": ") : NULL;

	grid_row(grid, row->answer                            ? GRID_GOOD
		       : !row->has_plan || p->fits == FITS_NO ? GRID_BAD
							      : GRID_PLAIN);
	grid_add_value(grid, row->value, "%s", colon != NULL ? colon + 2 : row->what);
	if (!row->has_plan) {
		for (int i = 2; i < grid->n_columns; i++)
			grid_add_value(grid, INFINITY, "-");
		grid_add_value(grid, INFINITY, "-");
		return;
	}
	grid_add_seconds(grid, p->step_time);
	grid_add_value(grid, p->tokens_per_s_per_gpu, "%s",
		format_tokens(tokens, p->tokens_per_s_per_gpu));
	if (efficiency)
		grid_add_value(grid, tokens_per_s, "%s", format_tokens(tokens, tokens_per_s));
	grid_add_percent(grid, p->mfu);
	if (efficiency)
		grid_add_percent(grid, row->ratio);
	grid_add_bytes(grid, (double)p->peak_memory_bytes);
	grid_add(grid, "%s", fits_names[p->fits]);
}

/* Lengths and sizes have a column of their own; machines are rows with a name. */
static void finding_grid(const struct finding *finding, struct grid *grid)
{
	static const struct grid_column columns[] = {{"tried", GRID_LEFT},
		{"step time", GRID_RIGHT}, {"tokens/s/GPU", GRID_RIGHT}, {"MFU", GRID_RIGHT},
		{"peak memory", GRID_RIGHT}, {"fits", GRID_LEFT}};
	static const struct grid_column more[] = {{"tried", GRID_LEFT}, {"step time", GRID_RIGHT},
		{"tokens/s/GPU", GRID_RIGHT}, {"tokens/s", GRID_RIGHT}, {"MFU", GRID_RIGHT},
		{"efficiency", GRID_RIGHT}, {"peak memory", GRID_RIGHT}, {"fits", GRID_LEFT}};
	bool efficiency = has_efficiency(finding);

	grid_init(
		grid, efficiency ? more : columns, efficiency ? COUNT_OF(more) : COUNT_OF(columns));
	for (int i = 0; i < finding->n; i++)
		add_row(&finding->rows[i], efficiency, grid);
}

/* Puts the plan of a row on a line below it, because a screen has no columns left beside it. */
static void put_rows(const struct finding *finding, const struct style *style, struct text *text)
{
	struct grid grid;
	struct text table = {0}, plan = {0};

	finding_grid(finding, &grid);
	grid_text(&grid, style, &table);
	grid_finish(&grid);
	const char *lines = text_string(&table);
	for (int i = -1; i < finding->n; i++) {
		const struct found *row = &finding->rows[i < 0 ? 0 : i];
		const char *note = or_empty(row->note);
		size_t length = strcspn(lines, "\n");
		text_add_bytes(text, lines, length);
		text_add_char(text, '\n');
		lines += length + (lines[length] == '\n');
		if (i < 0 || (!row->has_plan && note[0] == '\0'))
			continue;
		text_clear(&plan);
		text_add(&plan, "   ");
		if (row->has_plan)
			plan_summary(&row->plan, &plan);
		text_printf(&plan, "%s%s", row->has_plan && note[0] != '\0' ? "; " : "", note);
		put_lines(text_string(&plan), 3, style, text);
	}
	text_add_char(text, '\n');
	text_finish(&table);
	text_finish(&plan);
}

void report_finding_text(const struct question *question, const struct finding *finding,
	const struct style *style, struct text *text)
{
	struct text lines = {0};

	add_subject_line(question->model, question->topology, &lines);
	text_printf(&lines, "\n\n%s.\n", finding->statement);
	put_lines(text_string(&lines), 0, style, text);
	text_clear(&lines);
	text_printf(&lines, "Held fixed: %s; the rest is searched as `plan` does.", finding->held);
	put_lines(text_string(&lines), 12, style, text);
	text_finish(&lines);
	text_add_char(text, '\n');
	put_rows(finding, style, text);
	text_printf(text, "%lld plans simulated.\n", (long long)finding->evaluated);
}

void report_comparison_text(
	const struct comparison *comparison, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"knob", GRID_LEFT}, {"yours", GRID_LEFT},
		{"best plan", GRID_LEFT}, {"step time", GRID_RIGHT}, {"change", GRID_RIGHT},
		{"peak memory", GRID_RIGHT}, {"note", GRID_WRAP}};
	const struct prediction *mine = &comparison->mine.prediction;
	struct text lines = {0};
	struct grid grid;

	text_add(&lines, "Your plan: ");
	plan_summary(&comparison->mine.plan, &lines);
	text_add_char(&lines, '\n');
	add_answer_figures(mine, &lines);
	text_printf(&lines, "\n%s.\n", comparison->statement);
	put_lines(text_string(&lines), 0, style, text);
	text_finish(&lines);
	text_add_char(text, '\n');
	if (comparison->n == 0)
		return;
	text_add(text, "Your plan with one knob as in the best plan\n");
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int i = 0; i < comparison->n; i++) {
		const struct change *change = &comparison->changes[i];
		grid_row(&grid, GRID_PLAIN);
		grid_add(&grid, "%s", change->knob);
		grid_add(&grid, "%s", change->from);
		grid_add(&grid, "%s", change->to);
		if (change->built) {
			double ratio = change->prediction.step_time / mine->step_time - 1;
			grid_add_seconds(&grid, change->prediction.step_time);
			grid_add_value(&grid, ratio, "%+.1f %%", ratio * 100);
			grid_add_bytes(&grid, (double)change->prediction.peak_memory_bytes);
		} else {
			for (int j = 0; j < 3; j++)
				grid_add_value(&grid, INFINITY, "-");
		}
		grid_add(&grid, "%s", or_empty(change->note));
	}
	put_text(&grid, style, text);
}
