/* The view of a unit's layout, which shows who owns which elements: the FlatParameter cut in
 * chunks, as a bar with one letter for each parameter; or FSDP2's parameters, each cut along its
 * rows. */
#include <string.h>

#include "reports/views/each.h"
#include "reports/views/slices.h"

enum { BAR_WIDTH = 72, MOST_RANKS = 64 };

static char letter_of(int slice)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

	return slice < 0 ? '#' : letters[slice % (int)(sizeof(letters) - 1)];
}

static char digit_of(int64_t rank)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";

	return digits[rank % (int)(sizeof(digits) - 1)];
}

static int bar_width(const struct style *style)
{
	int width = style->width > 0 ? style->width - 16 : BAR_WIDTH;

	return width < 24 ? 24 : width > 160 ? 160 : width;
}

/* Draws in each column the parameter that fills most of it. */
static void draw_runs(const struct run *runs, int n, int64_t total, char *bar, int width)
{
	int run = 0;

	for (int x = 0; x < width; x++) {
		int64_t middle = (int64_t)(((double)x + 0.5) / width * (double)total);
		while (run < n - 1 && middle >= runs[run].start + runs[run].elements)
			run++;
		bar[x] = letter_of(runs[run].slice);
	}
	bar[width] = '\0';
}

static void draw_ranks(int64_t ranks, char *bar, int width)
{
	for (int x = 0; x < width; x++)
		bar[x] = digit_of((int64_t)(((double)x + 0.5) / width * (double)ranks));
	bar[width] = '\0';
}

/* Lists the contents of a rank's chunk. Example: "q_proj.weight 0..4095, ## 8". */
static void add_holdings(const struct schedule *schedule, const struct unit *unit,
	const struct run *runs, int n, int64_t rank, struct grid *grid)
{
	int64_t start = rank * unit->chunk, end = start + unit->chunk;
	struct text text = {0};

	for (int i = 0; i < n; i++) {
		const struct run *run = &runs[i];
		int64_t from = run->start > start ? run->start : start;
		int64_t to = run->start + run->elements < end ? run->start + run->elements : end;
		if (to <= from)
			continue;
		text_add(&text, text.length > 0 ? ", " : "");
		if (run->slice < 0)
			text_printf(&text, "padding %lld", (long long)(to - from));
		else
			text_printf(&text, "%s[%lld..%lld]", short_name(schedule, unit, run->slice),
				(long long)(from - run->start), (long long)(to - run->start - 1));
	}
	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "%lld", (long long)rank);
	grid_add(grid, "%lld..%lld", (long long)start, (long long)(end - 1));
	grid_add(grid, "%s", text_string(&text));
	text_finish(&text);
}

static void add_flat(const struct schedule *schedule, const struct unit *unit,
	const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {
		{"rank", GRID_RIGHT}, {"elements", GRID_LEFT}, {"holds", GRID_WRAP}};
	int64_t ranks = unit->chunk > 0 ? unit->gathered / unit->chunk : 1;
	struct arena arena = {0};
	struct run *runs;
	struct grid grid;
	char bar[200];
	int n = runs_of(unit, &arena, &runs), width = bar_width(style);

	text_printf(text, "%lld elements = %lld ranks x %lld; padding (#) %lld\n\n",
		(long long)unit->gathered, (long long)ranks, (long long)unit->chunk,
		(long long)(unit->gathered - unit->parameters));
	draw_runs(runs, n, unit->gathered, bar, width);
	text_printf(text, " parameters  %s\n", bar);
	draw_ranks(ranks, bar, width);
	text_printf(text, " rank        %s\n\n", bar);
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int64_t r = 0; r < ranks && r < MOST_RANKS; r++)
		add_holdings(schedule, unit, runs, n, r, &grid);
	put_text(&grid, style, text);
	if (ranks > MOST_RANKS)
		text_printf(text, "%lld more ranks\n\n", (long long)(ranks - MOST_RANKS));
	arena_finish(&arena);
}

static void add_cut(const struct schedule *schedule, const struct unit *unit, int s, int64_t ranks,
	struct grid *grid)
{
	const struct parameter *parameter =
		&schedule->programs->model->parameters[unit->slices[s].parameter];
	struct cut cut = cut_of(parameter, ranks);

	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "%s", short_name(schedule, unit, s));
	if (parameter->n_dims > 1)
		grid_add(grid, "%lld x %lld", (long long)parameter->shape[0],
			(long long)parameter->shape[1]);
	else
		grid_add(grid, "%lld", (long long)parameter->shape[0]);
	grid_add_count(grid, cut.rows);
	if (cut.whole == ranks)
		grid_add(grid, "all");
	else if (cut.rest > 0)
		grid_add(grid, "%lld, then %lld rows", (long long)cut.whole, (long long)cut.rest);
	else
		grid_add(grid, "%lld", (long long)cut.whole);
	grid_add_count(grid, cut.padding);
}

static void add_per_parameter(const struct schedule *schedule, const struct unit *unit,
	const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"parameter", GRID_WRAP}, {"shape", GRID_LEFT},
		{"rows/rank", GRID_RIGHT}, {"full ranks", GRID_LEFT}, {"padding", GRID_RIGHT}};
	int64_t ranks = unit->chunk > 0 ? unit->gathered / unit->chunk : 1;
	struct grid grid;

	text_printf(text,
		"parameters cut by rows over %lld ranks; %lld elements a rank, "
		"padding %lld\n\n",
		(long long)ranks, (long long)unit->chunk,
		(long long)(unit->gathered - unit->parameters));
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int s = 0; s < unit->n_slices; s++)
		add_cut(schedule, unit, s, ranks, &grid);
	put_text(&grid, style, text);
}

static void add_whole(const struct schedule *schedule, const struct unit *unit,
	const struct style *style, struct text *text)
{
	struct arena arena = {0};
	struct run *runs;
	char bar[200];
	int n = runs_of(unit, &arena, &runs), width = bar_width(style);

	text_printf(text, "%lld elements, all of them on every rank; padding (#) %lld\n\n",
		(long long)unit->gathered, (long long)(unit->gathered - unit->parameters));
	draw_runs(runs, n, unit->gathered, bar, width);
	text_printf(text, " parameters  %s\n\n", bar);
	(void)schedule;
	arena_finish(&arena);
}

static void add_names(const struct schedule *schedule, const struct unit *unit,
	const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"", GRID_LEFT}, {"parameter", GRID_WRAP},
		{"offset", GRID_RIGHT}, {"elements", GRID_RIGHT}};
	struct grid grid;

	grid_init(&grid, columns, COUNT_OF(columns));
	for (int s = 0; s < unit->n_slices; s++) {
		grid_row(&grid, GRID_PLAIN);
		grid_add(&grid, "%c", letter_of(s));
		grid_add(&grid, "%s", short_name(schedule, unit, s));
		grid_add_count(&grid, unit->slices[s].offset);
		grid_add_count(&grid, unit->slices[s].elements);
	}
	put_text(&grid, style, text);
}

static void add_unit(
	const struct schedule *schedule, int u, const struct style *style, struct text *text)
{
	const struct unit *unit = &schedule->programs->units[u];
	int alike = 0;

	for (int i = u + 1; i < schedule->programs->n_units; i++)
		alike += layout_like(schedule, i) == u;
	add_terminal(text, unit->name);
	if (alike > 0)
		text_printf(text, " (and %d more units that lie alike)", alike);
	text_add_char(text, '\n');
	if (layout_is_per_parameter(schedule)) {
		add_per_parameter(schedule, unit, style, text);
		return;
	}
	if (layout_is_whole(schedule))
		add_whole(schedule, unit, style, text);
	else
		add_flat(schedule, unit, style, text);
	add_names(schedule, unit, style, text);
}

static void add_legend(const struct schedule *schedule, struct text *text)
{
	if (layout_is_per_parameter(schedule))
		text_add(text, "full ranks: that hold all their rows; `all`: equal parts, rank by "
			       "rank.\n\n");
	else if (layout_is_whole(schedule))
		text_add(text, "Letters are the parameters named below, #: padding.\n\n");
	else
		text_add(text,
			"In `parameters` letters are the parameters named below, #: padding.\n"
			"In `rank` 0 to 9, then a to z: rank 0 to 35, then from 0 again.\n\n");
}

void view_layout(const struct explained *explained, const struct style *style, struct text *text)
{
	const struct schedule *schedule = explained->schedule;

	text_printf(text, "How the units of %s under %s lie in memory, in elements\n\n",
		runtime_names[schedule->plan.runtime], strategy_names[schedule->plan.strategy]);
	if (schedule->programs->model == NULL)
		return;
	add_legend(schedule, text);
	for (int u = 0; u < schedule->programs->n_units; u++) {
		if (layout_like(schedule, u) == u && schedule->programs->units[u].n_slices > 0)
			add_unit(schedule, u, style, text);
	}
}
