/* `plan --find`: what was tried, and the answer. */
#include <math.h>

#include "reports/text/text.h"

/* Machines of several sizes, compared: in all, and by a device of the first. */
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
	struct text summary = {0};
	char tokens[32];

	grid_row(grid, row->answer                            ? GRID_GOOD
		       : !row->has_plan || p->fits == FITS_NO ? GRID_BAD
							      : GRID_PLAIN);
	grid_add_value(grid, row->value, "%s", row->what);
	if (!row->has_plan) {
		for (int i = 2; i < grid->n_columns; i++)
			grid_add_value(grid, INFINITY, "-");
		grid_add(grid, "%s", or_empty(row->note));
		return;
	}
	plan_summary(&row->plan, &summary);
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
	grid_add(grid, "%s%s%s", text_string(&summary), or_empty(row->note)[0] != '\0' ? "; " : "",
		or_empty(row->note));
	text_finish(&summary);
}

/* Lengths and sizes are columns of their own, machines name themselves. */
static void finding_grid(const struct finding *finding, struct grid *grid)
{
	static const struct grid_column columns[] = {{"tried", GRID_LEFT},
		{"step time", GRID_RIGHT}, {"tokens/s/GPU", GRID_RIGHT}, {"MFU", GRID_RIGHT},
		{"peak memory", GRID_RIGHT}, {"fits", GRID_LEFT}, {"best plan", GRID_WRAP}};
	static const struct grid_column more[] = {{"tried", GRID_LEFT}, {"step time", GRID_RIGHT},
		{"tokens/s/GPU", GRID_RIGHT}, {"tokens/s", GRID_RIGHT}, {"MFU", GRID_RIGHT},
		{"efficiency", GRID_RIGHT}, {"peak memory", GRID_RIGHT}, {"fits", GRID_LEFT},
		{"best plan", GRID_WRAP}};
	bool efficiency = has_efficiency(finding);

	grid_init(
		grid, efficiency ? more : columns, efficiency ? COUNT_OF(more) : COUNT_OF(columns));
	for (int i = 0; i < finding->n; i++)
		add_row(&finding->rows[i], efficiency, grid);
}

void report_finding_text(const struct question *question, const struct finding *finding,
	const struct style *style, struct text *text)
{
	struct grid grid;

	add_subject_line(question->model, question->topology, text);
	text_add(text, style->color ? "\n\n\033[1m" : "\n\n");
	text_printf(text, "%s.", finding->statement);
	text_add(text, style->color ? "\033[0m\n" : "\n");
	struct text held = {0};
	text_printf(&held, "%s; the rest is searched as `plan` does.", finding->held);
	put_line("Held fixed:", 12, text_string(&held), style->width, text);
	text_finish(&held);
	text_add_char(text, '\n');
	finding_grid(finding, &grid);
	put_text(&grid, style, text);
	text_printf(text, "%lld plans simulated.\n", (long long)finding->evaluated);
}

void report_comparison_text(
	const struct comparison *comparison, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"knob", GRID_LEFT}, {"yours", GRID_LEFT},
		{"best plan", GRID_LEFT}, {"step time", GRID_RIGHT}, {"change", GRID_RIGHT},
		{"peak memory", GRID_RIGHT}, {"note", GRID_WRAP}};
	const struct prediction *mine = &comparison->mine.prediction;
	struct text summary = {0};
	struct grid grid;

	plan_summary(&comparison->mine.plan, &summary);
	text_printf(text, "Your plan: %s\n", text_string(&summary));
	text_finish(&summary);
	add_answer_figures(mine, text);
	text_printf(text, "\n%s.\n\n", comparison->statement);
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
