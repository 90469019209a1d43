/* The layout of units as a picture: parameters above, ranks below. */
#include <string.h>

#include "reports/views/each.h"
#include "reports/views/slices.h"
#include "reports/views/svg.h"

enum { LEFT = 16, WIDTH = 960, BAR = 34, HEAD = 54, NAMES = 250, ROW = 24, UNIT_GAP = 34 };

static int64_t ranks_of(const struct unit *unit)
{
	return unit->chunk > 0 ? unit->gathered / unit->chunk : 1;
}

static bool is_drawn(const struct schedule *schedule, int u)
{
	return layout_like(schedule, u) == u && schedule->programs->units[u].n_slices > 0;
}

static int unit_height(const struct schedule *schedule, const struct unit *unit)
{
	if (layout_is_per_parameter(schedule))
		return HEAD + unit->n_slices * ROW + UNIT_GAP;
	return HEAD + 2 * BAR + UNIT_GAP;
}

static const char *color(int64_t index)
{
	return picture_colors[index % PICTURE_COLORS];
}

static void add_heading(const struct schedule *schedule, int u, double y, struct text *text)
{
	const struct unit *unit = &schedule->programs->units[u];
	struct text line = {0};
	int alike = 0;

	for (int i = u + 1; i < schedule->programs->n_units; i++)
		alike += layout_like(schedule, i) == u;
	text_add(&line, or_empty(unit->name));
	if (alike > 0)
		text_printf(&line, ", and %d more units that lie alike", alike);
	picture_label(LEFT, y + 16, "start", 15, text_string(&line), text);
	text_clear(&line);
	if (layout_is_whole(schedule))
		text_printf(&line, "%lld elements, all of them on every rank",
			(long long)unit->gathered);
	else
		text_printf(&line, "%lld elements = %lld ranks x %lld, of them %lld padding",
			(long long)unit->gathered, (long long)ranks_of(unit),
			(long long)unit->chunk, (long long)(unit->gathered - unit->parameters));
	picture_label(LEFT, y + 38, "start", 12, text_string(&line), text);
	text_finish(&line);
}

static void describe_run(const struct schedule *schedule, const struct unit *unit,
	const struct run *run, struct text *words)
{
	text_clear(words);
	if (run->slice < 0)
		text_add(words, "padding");
	else
		text_add(words, short_name(schedule, unit, run->slice));
	text_printf(words, ": elements %lld to %lld", (long long)run->start,
		(long long)(run->start + run->elements - 1));
	if (unit->chunk > 0 && !layout_is_whole(schedule))
		text_printf(words, ", ranks %lld to %lld", (long long)(run->start / unit->chunk),
			(long long)((run->start + run->elements - 1) / unit->chunk));
}

/* The name as "self_attn.q_proj" for "self_attn.q_proj.weight", or only its end if it is too
 * wide. */
static void add_name(const char *full, double width, struct text *name)
{
	static const char suffix[] = ".weight";
	size_t length = strlen(full), ending = strlen(suffix);

	if (length > ending && strcmp(full + length - ending, suffix) == 0)
		length -= ending;
	text_clear(name);
	text_add_bytes(name, full, length);
	const char *dot = strrchr(text_string(name), '.');
	if (!picture_fits(width, 11, text_string(name)) && dot != NULL) {
		size_t start = (size_t)(dot + 1 - name->data);
		text_clear(name);
		text_add_bytes(name, full + start, length - start);
	}
}

static void add_runs(
	const struct schedule *schedule, const struct unit *unit, double y, struct text *text)
{
	struct arena arena = {0};
	struct run *runs;
	struct text words = {0}, name = {0};
	double scale = (double)WIDTH / (double)unit->gathered;
	int n = runs_of(unit, &arena, &runs);

	for (int i = 0; i < n; i++) {
		double x = LEFT + (double)runs[i].start * scale;
		double width = (double)runs[i].elements * scale;
		describe_run(schedule, unit, &runs[i], &words);
		if (runs[i].slice < 0) {
			picture_padding(x, y, width, BAR, text_string(&words), text);
			continue;
		}
		const struct picture_box box = {x, y, width, BAR};
		add_name(short_name(schedule, unit, runs[i].slice), width, &name);
		picture_named_box(
			&box, color(runs[i].slice), text_string(&name), text_string(&words), text);
	}
	text_finish(&words);
	text_finish(&name);
	arena_finish(&arena);
}

/* More ranks than this are drawn as this many groups of neighbours. */
enum { MOST_CELLS = 64 };

/* The ranks [first, end) of one cell. */
struct cell {
	int64_t first, end;
};

static int64_t cells_of(int64_t ranks)
{
	return ranks < MOST_CELLS ? ranks : MOST_CELLS;
}

static struct cell cell_of(int64_t ranks, int64_t cell)
{
	int64_t cells = cells_of(ranks);

	return (struct cell){cell * ranks / cells, (cell + 1) * ranks / cells};
}

static void name_cell(struct cell cell, struct text *name)
{
	text_clear(name);
	text_printf(name, "%lld", (long long)cell.first);
	if (cell.end - cell.first > 1)
		text_printf(name, "..%lld", (long long)(cell.end - 1));
}

static void add_ranks(const struct unit *unit, double y, struct text *text)
{
	int64_t ranks = ranks_of(unit);
	double width = (double)WIDTH / (double)ranks;
	struct text label = {0};

	for (int64_t c = 0; c < cells_of(ranks); c++) {
		struct cell cell = cell_of(ranks, c);
		double x = LEFT + (double)cell.first * width;
		double wide = (double)(cell.end - cell.first) * width;
		const struct picture_box box = {x, y + 4, wide - (wide > 6 ? 1 : 0), BAR - 12};
		name_cell(cell, &label);
		picture_named_box(
			&box, c % 2 == 0 ? "#9aa7b4" : "#c3ccd5", text_string(&label), NULL, text);
		if (c > 0)
			picture_line(x, y - BAR, x, y + 4, true, text);
	}
	text_finish(&label);
	picture_label(LEFT, y + BAR + 8, "start", 11, "rank", text);
}

/* Example: "q_proj.weight, rank 3: 256 of 4096 rows of 4096 elements". */
static void describe_cell(const struct parameter *parameter, const char *name,
	const struct cut *cut, struct cell cell, struct text *words)
{
	int64_t first = cell.first * cut->rows, end = cell.end * cut->rows;

	end = end < parameter->shape[0] ? end : parameter->shape[0];
	text_clear(words);
	text_printf(words, "%s, rank %lld", name, (long long)cell.first);
	if (cell.end - cell.first > 1)
		text_printf(words, " to %lld", (long long)(cell.end - 1));
	text_printf(words, ": %lld of %lld rows of %lld elements",
		(long long)(end > first ? end - first : 0), (long long)parameter->shape[0],
		(long long)cut->row_elements);
}

static void add_cut(const struct schedule *schedule, const struct unit *unit, int s, double y,
	struct text *text)
{
	const struct parameter *parameter =
		&schedule->programs->model->parameters[unit->slices[s].parameter];
	const char *name = short_name(schedule, unit, s);
	int64_t ranks = ranks_of(unit);
	struct cut cut = cut_of(parameter, ranks);
	double left = LEFT + NAMES, width = (double)(WIDTH - NAMES) / (double)ranks;
	double real = (double)parameter->shape[0] / (double)cut.rows * width;
	struct text words = {0}, label = {0};

	picture_label(LEFT, y + 15, "start", 12, name, text);
	for (int64_t c = 0; c < cells_of(ranks); c++) {
		struct cell cell = cell_of(ranks, c);
		double x = (double)cell.first * width, end = (double)cell.end * width;
		end = end < real ? end : real;
		const struct picture_box box = {
			left + x, y + 2, end - x - (end - x > 4 ? 1 : 0), ROW - 6};
		describe_cell(parameter, name, &cut, cell, &words);
		name_cell(cell, &label);
		if (end > x)
			picture_named_box(
				&box, color(c), text_string(&label), text_string(&words), text);
	}
	if (cut.padding > 0)
		picture_padding(left + real, y + 2, (double)(WIDTH - NAMES) - real, ROW - 6,
			"padding", text);
	text_finish(&words);
	text_finish(&label);
}

void picture_layout(const struct explained *explained, struct text *text)
{
	const struct schedule *schedule = explained->schedule;
	struct text title = {0};
	int height = 16;
	double y = 8;

	for (int u = 0; u < schedule->programs->n_units; u++)
		height += is_drawn(schedule, u)
				  ? unit_height(schedule, &schedule->programs->units[u])
				  : 0;
	text_printf(&title, "How units lie in memory under %s, %s",
		strategy_names[schedule->plan.strategy], runtime_names[schedule->plan.runtime]);
	picture_begin(WIDTH + 2 * LEFT, height, text_string(&title),
		layout_is_per_parameter(schedule)
			? "One row a parameter, cut along its rows; one colour a rank; hatched: "
			  "padding"
			: "Parameters in one line above, the ranks that own them below; hatched: "
			  "padding",
		true, text);
	for (int u = 0; u < schedule->programs->n_units && schedule->programs->model != NULL; u++) {
		const struct unit *unit = &schedule->programs->units[u];
		if (!is_drawn(schedule, u))
			continue;
		add_heading(schedule, u, y, text);
		for (int s = 0; layout_is_per_parameter(schedule) && s < unit->n_slices; s++)
			add_cut(schedule, unit, s, y + HEAD + s * ROW, text);
		if (!layout_is_per_parameter(schedule))
			add_runs(schedule, unit, y + HEAD, text);
		if (!layout_is_per_parameter(schedule) && !layout_is_whole(schedule))
			add_ranks(unit, y + HEAD + BAR, text);
		y += unit_height(schedule, unit);
	}
	picture_end(text);
	text_finish(&title);
}
