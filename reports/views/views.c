/* Views of a plan's schedule. Each answers one question, with measured values on the line of the
 * predicted ones. */
#include "reports/views/views.h"
#include "reports/views/each.h"

#include <string.h>

const struct view report_views[] = {
	{"summary", "what does a step cost, in time, memory and network?", view_summary, NULL},
	{"operations", "what happens in a step, in the order that the host issues it?",
		view_operations, NULL},
	{"streams", "what overlaps, and what communication is exposed?", view_streams, NULL},
	{"memory", "what holds the memory, at the peak and over the step?", view_memory, NULL},
	{"critical", "why is the step as long as it is?", view_critical, NULL},
	{"pipeline", "which micro-batch does each stage compute, and when?", view_pipeline,
		picture_pipeline},
	{"mesh", "which ranks form which group, over which link, at what cost?", view_mesh,
		picture_mesh},
	{"units", "which parameters are sharded together, and who owns what?", view_units, NULL},
	{"communication", "which collective, over which group, behind what, unit by unit?",
		view_communication, picture_communication},
	{"layout", "who owns which elements of a unit, and where is padding?", view_layout,
		picture_layout},
};
const int n_report_views = COUNT_OF(report_views);

const struct view *report_view(const char *name)
{
	for (int i = 0; i < n_report_views; i++) {
		if (strcmp(report_views[i].name, name) == 0)
			return &report_views[i];
	}
	return NULL;
}

static bool is_measured(const struct explained *explained)
{
	return explained->measured != NULL && explained->measured->timeline.n_ops > 0;
}

void kinds_grid(const struct explained *explained, struct grid *grid)
{
	static const struct grid_column columns[] = {{"operation", GRID_LEFT},
		{"count", GRID_RIGHT}, {"bytes", GRID_RIGHT}, {"predicted", GRID_RIGHT},
		{"measured", GRID_RIGHT}, {"measured / predicted", GRID_RIGHT}};
	bool measured = is_measured(explained);
	struct kind_sum sums[OP_KIND_COUNT];
	char ratio[32];

	sum_kinds(explained, sums);
	grid_init(grid, columns, measured ? COUNT_OF(columns) : COUNT_OF(columns) - 2);
	for (int k = 0; k < OP_KIND_COUNT; k++) {
		if (sums[k].count == 0)
			continue;
		grid_row(grid, GRID_PLAIN);
		grid_add(grid, "%s", op_kind_name((enum op_kind)k));
		grid_add_count(grid, sums[k].count);
		grid_add_bytes(grid, (double)sums[k].bytes);
		grid_add_seconds(grid, sums[k].predicted);
		if (!measured)
			continue;
		grid_add_seconds(grid, sums[k].measured);
		grid_add(grid, "%s", format_ratio(ratio, sums[k].predicted, sums[k].measured));
	}
}

void view_summary(const struct explained *explained, const struct style *style, struct text *text)
{
	const struct schedule *schedule = explained->schedule;
	struct grid grid;
	struct text lines = {0};

	add_subject_line(schedule->model, schedule->topology, &lines);
	text_add_char(&lines, '\n');
	plan_summary(&schedule->plan, &lines);
	text_printf(&lines, "\n%d operations a step, %d units\n", schedule->programs[0].n_ops,
		schedule->programs->n_units);
	put_lines(text_string(&lines), 0, style, text);
	text_finish(&lines);
	text_add_char(text, '\n');
	put_prediction(schedule->topology, explained->prediction, style, text);
	put_said_by(explained->n_said_by, explained->said_by, text);
	text_add_char(text, '\n');
	kinds_grid(explained, &grid);
	put_text(&grid, style, text);
	text_add(text, "Memory by category: --view memory\n\n");
	if (explained->measured == NULL)
		return;
	text_add(text, "Measured\n");
	measurement_grid(explained->measured, &grid);
	put_text(&grid, style, text);
}

/* On narrower screens there is no room for bars. */
enum { BAR_WIDTH = 12, FULL_WIDTH = 92 };

/* Adds rows of memory. Overhead hardly changes over a step, so only the total contains it. */
static void memory_rows(
	const struct memory_curve *curve, double end, int bar_width, struct grid *grid)
{
	struct memory_curve sampled;
	struct arena arena = {0};
	int64_t most = 1;

	memory_sample(curve, end, 40, &arena, &sampled);
	for (int i = 0; i < sampled.n; i++)
		most = max_i64(most, sum_categories(sampled.bytes[i]));
	for (int i = 0; i < sampled.n; i++) {
		int64_t total = sum_categories(sampled.bytes[i]);
		struct text bar = {0};
		grid_row(grid, total == most ? GRID_WARNING : GRID_PLAIN);
		grid_add_seconds(grid, sampled.times[i]);
		for (int c = 0; c < CATEGORY_RUNTIME_OVERHEAD; c++)
			grid_add_bytes(grid, (double)sampled.bytes[i][c]);
		grid_add_bytes(grid, (double)total);
		text_repeat(&bar, '#', (int)(total * bar_width / most));
		grid_add(grid, "%s", text_string(&bar));
		text_finish(&bar);
	}
	arena_finish(&arena);
}

static void add_memory_curve(
	const struct explained *explained, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"from", GRID_RIGHT}, {"params", GRID_RIGHT},
		{"grads", GRID_RIGHT}, {"optim.", GRID_RIGHT}, {"activ.", GRID_RIGHT},
		{"temp.", GRID_RIGHT}, {"comm.", GRID_RIGHT}, {"total", GRID_RIGHT},
		{"", GRID_LEFT}};
	int bar_width = style->width > 0 && style->width < FULL_WIDTH ? 0 : BAR_WIDTH;
	struct arena arena = {0};
	struct memory_curve curve;
	struct grid grid;

	if (explained->memory == NULL || explained->predicted == NULL || explained->memory->n == 0)
		return;
	memory_with_overhead(explained->memory, explained->prediction, &arena, &curve);
	put_lines("Over the step, predicted (the fullest moment of each stretch; the total has "
		  "the overhead in it)\n",
		0, style, text);
	grid_init(&grid, columns, COUNT_OF(columns));
	memory_rows(&curve, timeline_end(explained->predicted), bar_width, &grid);
	put_text(&grid, style, text);
	arena_finish(&arena);
}

static void ledger_rows(
	const struct prediction *predicted, const struct prediction *measured, struct grid *grid)
{
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		int64_t expected = predicted->ledger_category_peak[c];
		int64_t got = measured->ledger_category_peak[c];
		grid_row(grid, expected == got ? GRID_PLAIN : GRID_BAD);
		grid_add(grid, "%s", category_names[c]);
		grid_add_count(grid, expected);
		grid_add_count(grid, got);
		grid_add(grid, "%+lld", (long long)(got - expected));
	}
	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "peak of the sum");
	grid_add_count(grid, predicted->ledger_peak_bytes);
	grid_add_count(grid, measured->ledger_peak_bytes);
	grid_add(grid, "%+lld",
		(long long)(measured->ledger_peak_bytes - predicted->ledger_peak_bytes));
}

void view_memory(const struct explained *explained, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"ledger, bytes", GRID_LEFT},
		{"predicted", GRID_RIGHT}, {"measured", GRID_RIGHT}, {"difference", GRID_RIGHT}};
	struct grid grid;

	memory_grid(explained->prediction, &grid);
	put_text(&grid, style, text);
	if (stages_grid(explained->prediction, &grid))
		put_text(&grid, style, text);
	if (explained->prediction->peak_at != NULL) {
		text_add(text, "The peak is at ");
		add_terminal(text, explained->prediction->peak_at);
		text_add(text, ".\n\n");
	}
	add_memory_curve(explained, style, text);
	if (explained->measured == NULL)
		return;
	grid_init(&grid, columns, COUNT_OF(columns));
	ledger_rows(explained->prediction, &explained->measured->values, &grid);
	put_text(&grid, style, text);
}
