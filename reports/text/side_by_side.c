/* A table of several reports side by side. */
#include "reports/text/text.h"

const char *report_name(const struct report *report)
{
	return report->label != NULL ? report->label : or_empty(report->asked.model);
}

static void add_measured(const struct report *report, struct grid *grid)
{
	const struct measurement *measured = report->explained.measured;
	char ratio[32];

	if (measured == NULL) {
		grid_add(grid, "-");
		grid_add(grid, "-");
		return;
	}
	grid_add_seconds(grid, measured->values.step_time);
	grid_add(grid, "%s",
		format_ratio(ratio, report->explained.prediction->step_time,
			measured->values.step_time));
}

static void add_report(const struct report *report, bool measured, struct grid *grid)
{
	const struct schedule *schedule = report->explained.schedule;
	const struct prediction *prediction = report->explained.prediction;
	double devices = (double)plan_ranks(&schedule->plan);
	struct text name = {0};
	char tokens[32];

	candidate_name(&schedule->plan, NULL, &name);
	grid_row(grid, prediction->fits == FITS_NO ? GRID_BAD : GRID_PLAIN);
	grid_add(grid, "%s", report_name(report));
	grid_add(grid, "%s", text_string(&name));
	grid_add_count(grid, plan_ranks(&schedule->plan));
	grid_add_seconds(grid, prediction->step_time);
	grid_add_value(grid, prediction->tokens_per_s_per_gpu, "%s",
		format_tokens(tokens, prediction->tokens_per_s_per_gpu));
	grid_add_value(grid, prediction->tokens_per_s_per_gpu * devices, "%s",
		format_tokens(tokens, prediction->tokens_per_s_per_gpu * devices));
	grid_add_percent(grid, prediction->mfu);
	grid_add_bytes(grid, (double)prediction->peak_memory_bytes);
	grid_add_seconds(grid, prediction->time.exposed_communication);
	grid_add(grid, "%s", fits_names[prediction->fits]);
	if (measured)
		add_measured(report, grid);
	text_finish(&name);
}

void reports_grid(const struct report *reports, int n, struct grid *grid)
{
	static const struct grid_column columns[] = {{"report", GRID_LEFT}, {"strategy", GRID_LEFT},
		{"devices", GRID_RIGHT}, {"step time", GRID_RIGHT}, {"tokens/s/GPU", GRID_RIGHT},
		{"tokens/s", GRID_RIGHT}, {"MFU", GRID_RIGHT}, {"peak memory", GRID_RIGHT},
		{"exposed", GRID_RIGHT}, {"fits", GRID_LEFT}, {"measured step", GRID_RIGHT},
		{"measured / predicted", GRID_RIGHT}};
	bool measured = false;

	for (int i = 0; i < n; i++)
		measured = measured || reports[i].explained.measured != NULL;
	grid_init(grid, columns, measured ? COUNT_OF(columns) : COUNT_OF(columns) - 2);
	for (int i = 0; i < n; i++)
		add_report(&reports[i], measured, grid);
}
