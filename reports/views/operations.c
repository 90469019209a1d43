/* The view of the operations of a step, in the order in which the host issues them. */
#include "reports/views/each.h"

static bool is_measured(const struct explained *explained)
{
	return explained->measured != NULL && explained->measured->timeline.n_ops > 0;
}

static void add_wait(const struct program *program, const char *who, int op, struct text *waits)
{
	text_add(waits, waits->length > 0 ? " " : "");
	if (op < 0)
		text_printf(waits, "%s%d of the step before", who, program->n_ops + op);
	else
		text_printf(waits, "%s%d", who, op);
}

static void add_waits(const struct program *program, const struct op *op, struct grid *grid)
{
	struct text waits = {0};

	for (int i = 0; i < op->waits.count; i++)
		add_wait(program, "", slice_of(program, op->waits)[i], &waits);
	for (int i = 0; i < op->host_waits.count; i++)
		add_wait(program, "host:", slice_of(program, op->host_waits)[i], &waits);
	grid_add(grid, "%s", text_string(&waits));
	text_finish(&waits);
}

/* Adds start and duration; "never executed" for an operation that did not run. */
static double add_span(const struct timeline *timeline, int op, struct grid *grid)
{
	if (timeline == NULL || op >= timeline->n_ops) {
		grid_add(grid, "-");
		grid_add(grid, "never executed");
		return 0;
	}
	const struct span *span = &timeline->spans[op];
	grid_add_seconds(grid, span->start);
	grid_add_seconds(grid, span->end - span->start);
	return span->end - span->start;
}

static void add_operation(const struct explained *explained, int i, struct grid *grid)
{
	const struct schedule *schedule = explained->schedule;
	const struct op *op = &schedule->programs[0].ops[i];
	struct text label = {0};
	char ratio[32];

	operation_label(schedule, op, &label);
	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "%d", i);
	grid_add(grid, "%s", stream_name(op->stream));
	grid_add(grid, "%s", text_string(&label));
	text_finish(&label);
	if (op->bytes > 0)
		grid_add_bytes(grid, (double)op->bytes);
	else
		grid_add(grid, "-");
	add_waits(&schedule->programs[0], op, grid);
	double predicted = add_span(explained->predicted, i, grid);
	if (!is_measured(explained))
		return;
	double measured = add_span(&explained->measured->timeline, i, grid);
	grid_add(grid, "%s", format_ratio(ratio, predicted, measured));
}

/* --- folding ------------------------------------------------------------------------------------
 */

/* A repeated stretch of operations: a block or a micro-batch. */
struct lap {
	int length, times; /* operations in one, number of repetitions; 0: none */
};

enum { LAPS_SHOWN = 2, LAPS_FOLDED = 2, LAP_MOST = 4096 };

static bool are_alike(const struct op *a, const struct op *b)
{
	return a->kind == b->kind && a->stream == b->stream && a->bytes == b->bytes;
}

/* The number of operations from `first` on that equal the one `length` before them. */
static int alike_from(const struct op *ops, int first, int end, int length)
{
	int i = first;

	while (i < end && are_alike(&ops[i], &ops[i - length]))
		i++;
	return i - first;
}

/* The lap that covers most from `first` on and is shorter than all of [first, end). */
static struct lap lap_at(const struct op *ops, int first, int end)
{
	struct lap best = {0};

	for (int length = 1;
		length <= LAP_MOST && length * (LAPS_SHOWN + LAPS_FOLDED) <= end - first;
		length++) {
		int times = 1 + alike_from(ops, first + length, end, length) / length;
		if (times >= LAPS_SHOWN + LAPS_FOLDED && length * times > best.length * best.times)
			best = (struct lap){length, times};
	}
	return best;
}

/* Adds one row that stands for repetitions of the rows above it. */
static void add_folded(
	const struct explained *explained, int first, const struct lap *lap, struct grid *grid)
{
	int times = lap->times - LAPS_SHOWN, end = first + times * lap->length;
	const struct timeline *timeline = explained->predicted;

	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "...");
	grid_add(grid, "...");
	grid_add(grid, "%d times more what the %d above do: %d to %d", times, lap->length, first,
		end - 1);
	if (timeline == NULL || end > timeline->n_ops)
		return;
	grid_add(grid, "-");
	grid_add(grid, " ");
	grid_add_seconds(grid, timeline->spans[first].start);
	grid_add(grid, "-");
}

/* Adds the operations of a range. The first laps are shown, each folded itself; of the others a row
 * gives their number. */
static void add_range(const struct explained *explained, int first, int end, struct grid *grid)
{
	const struct op *ops = explained->schedule->programs[0].ops;

	while (first < end) {
		struct lap lap = lap_at(ops, first, end);
		if (lap.times == 0) {
			add_operation(explained, first++, grid);
			continue;
		}
		for (int i = 0; i < LAPS_SHOWN; i++, first += lap.length)
			add_range(explained, first, first + lap.length, grid);
		add_folded(explained, first, &lap, grid);
		first += (lap.times - LAPS_SHOWN) * lap.length;
	}
}

void view_operations(
	const struct explained *explained, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"op", GRID_RIGHT}, {"stream", GRID_LEFT},
		{"operation", GRID_WRAP}, {"bytes", GRID_RIGHT}, {"waits for", GRID_WRAP},
		{"starts", GRID_RIGHT}, {"takes", GRID_RIGHT}, {"measured start", GRID_RIGHT},
		{"measured", GRID_RIGHT}, {"measured / predicted", GRID_RIGHT}};
	const struct program *program = &explained->schedule->programs[0];
	bool measured = is_measured(explained);
	struct grid grid;

	grid_init(&grid, columns, measured ? COUNT_OF(columns) : COUNT_OF(columns) - 3);
	add_range(explained, 0, program->n_ops, &grid);
	int n_rows = grid.n_rows;
	put_text(&grid, style, text);
	if (n_rows < program->n_ops)
		text_add(text, "Blocks and micro-batches that repeat are folded; "
			       "--json has every operation.\n");
}
