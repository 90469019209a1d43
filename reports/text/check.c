/* Compares prediction and measurement line by line. Bytes and counts are judged exactly: both
 * interpreters follow the same schedule, so a difference of one byte is a bug. */
#include <math.h>
#include <string.h>

#include "reports/text/text.h"
#include "schedule/memory/memory.h"

enum { MAX_LINES = 48 };

struct judge {
	const struct prediction *predicted;
	const struct measurement *measured;
	const struct tolerance *tolerance;
	struct arena *arena;
	struct check *check;
};

static struct check_line *add_line(
	struct judge *judge, const char *what, const char *unit, double predicted, double measured)
{
	struct check_line *line = &judge->check->lines[judge->check->n_lines++];

	*line = (struct check_line){.what = what,
		.unit = unit,
		.predicted = predicted,
		.measured = measured,
		.ok = true};
	return line;
}

static void judge_line(struct judge *judge, struct check_line *line, bool ok)
{
	line->judged = true;
	line->ok = ok;
	judge->check->ok = judge->check->ok && ok;
}

/* Adds an exact line. Both sides are sums of whole bytes, or for wire bytes of fractions, so half a
 * byte is rounding. */
static void add_exact(
	struct judge *judge, const char *what, const char *unit, double predicted, double measured)
{
	struct check_line *line = add_line(judge, what, unit, predicted, measured);

	line->exact = true;
	judge_line(judge, line, fabs(predicted - measured) < 0.5);
}

static void add_bytes(struct judge *judge, const char *what, int64_t predicted, int64_t measured)
{
	add_exact(judge, what, "bytes", (double)predicted, (double)measured);
}

static bool within(double predicted, double measured, double tolerance)
{
	return fabs(measured - predicted) <= tolerance * predicted;
}

static void check_ledger(struct judge *judge)
{
	const struct prediction *predicted = judge->predicted;
	const struct prediction *measured = &judge->measured->values;

	add_bytes(judge, "ledger peak", predicted->ledger_peak_bytes, measured->ledger_peak_bytes);
	if (predicted->ledger_host_peak_bytes + measured->ledger_host_peak_bytes > 0)
		add_bytes(judge, "ledger peak, host memory", predicted->ledger_host_peak_bytes,
			measured->ledger_host_peak_bytes);
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		struct text label = {0};
		int64_t expected = predicted->ledger_category_peak[c];
		int64_t got = measured->ledger_category_peak[c];
		/* The schedule has no buffers of this category; a stray byte still shows. */
		if (c == CATEGORY_RUNTIME_OVERHEAD && expected == 0 && got == 0)
			continue;
		text_add(&label, "ledger peak of ");
		category_label((enum category)c, &label);
		add_bytes(judge, arena_strdup(judge->arena, text_string(&label)), expected, got);
		text_finish(&label);
	}
}

/* Compares the ledger while each operation ran with the schedule's own. */
static void check_operations(struct judge *judge, const struct schedule *schedule)
{
	const struct timeline *timeline = &judge->measured->timeline;
	struct ledger ledger;
	int n_ops, differing = 0;

	if (schedule == NULL || timeline->n_ops == 0)
		return;
	n_ops = schedule->programs[0].n_ops;
	add_exact(judge, "operations", "", n_ops, timeline->n_ops);
	if (timeline->live == NULL || timeline->n_ops != n_ops)
		return;
	schedule_ledger(schedule, 0, judge->arena, &ledger);
	for (int i = 0; i < n_ops; i++)
		differing += memcmp(ledger.live[i], timeline->live[i], sizeof(*ledger.live)) != 0;
	add_exact(judge, "operations with another ledger", "", 0, differing);
}

static void check_states(struct judge *judge)
{
	const struct prediction *predicted = judge->predicted;
	const struct prediction *measured = &judge->measured->values;

	add_bytes(judge, "model states: parameters", predicted->model_states_parameters,
		measured->model_states_parameters);
	add_bytes(judge, "model states: gradients", predicted->model_states_gradients,
		measured->model_states_gradients);
	add_bytes(judge, "model states: optimizer", predicted->model_states_optimizer_state,
		measured->model_states_optimizer_state);
}

/* Checks for allocations outside the schedule. Those of a host are counted one by one. A GPU's
 * driver also takes pages for itself while steps run (for graphs, for its own tables), so its
 * account may grow by a few. */
static void check_undeclared(struct judge *judge)
{
	static const char what[] = "allocated outside of the schedule";
	double bytes = (double)judge->measured->undeclared_bytes;
	struct check_line *line;

	if (judge->measured->device_ranks == 0) {
		add_bytes(judge, what, 0, judge->measured->undeclared_bytes);
		return;
	}
	line = add_line(judge, what, "bytes", 0, bytes);
	judge_line(judge, line, bytes <= judge->tolerance->device_growth);
}

/* Checks a GPU's own account. Each rank has all its buffers at once in list order too, ranks of one
 * GPU share a context, and they need no NCCL. A GPU that emulates others has another context and
 * other communicators, so it is not judged. */
static void check_device(struct judge *judge, const struct schedule *schedule)
{
	const struct prediction *predicted = judge->predicted;
	const struct measurement *measured = judge->measured;
	int64_t reserved = predicted->peak_reserved_bytes;
	int64_t rank = max_i64(reserved, predicted->ledger_peak_bytes);
	double expected = (double)(measured->device_ranks * rank) +
			  (double)(predicted->peak_memory_bytes - reserved);
	struct check_line *line;

	if (measured->device_ranks == 0)
		return;
	if (measured->device_ranks > 1 && schedule != NULL)
		expected -= (double)schedule_fixed_memory(schedule).communicators;
	line = add_line(
		judge, "in use on the GPU", "bytes", expected, (double)measured->device_used_bytes);
	if (measured->slow_motion <= 0)
		judge_line(judge, line, within(expected, line->measured, judge->tolerance->device));
}

/* Are the nodes of the topology real machines? Ranks of one machine that emulate a cluster send
 * nothing over a network. */
static bool nodes_are_real(const struct judge *judge, const struct schedule *schedule)
{
	return schedule == NULL || judge->measured->nodes == 0 ||
	       judge->measured->nodes == schedule->topology->nodes;
}

/* Checks the bytes that leave a node. Not for pipelines, whose stages may share a node. Rows for
 * experts of other ranks depend on the router, so with them the bytes are not judged exactly. */
static void check_egress(struct judge *judge, const struct schedule *schedule, bool sends_rows)
{
	double predicted = judge->predicted->wire_bytes_node_egress;
	double measured = judge->measured->values.wire_bytes_node_egress;

	if (!nodes_are_real(judge, schedule) || judge->predicted->n_classes > 1 ||
		predicted + measured <= 0)
		return;
	if (sends_rows)
		add_line(judge, "leaving a node, with rows", "bytes", predicted, measured);
	else
		add_exact(judge, "leaving a node", "bytes", predicted, measured);
}

static void check_network(struct judge *judge, const struct schedule *schedule)
{
	static const char *const names[] = {[COLLECTIVE_ALL_GATHER] = "all-gathers per step",
		[COLLECTIVE_REDUCE_SCATTER] = "reduce-scatters per step",
		[COLLECTIVE_ALL_REDUCE] = "all-reduces per step",
		[COLLECTIVE_ALL_TO_ALL] = "all-to-alls per step",
		[COLLECTIVE_SEND_RECV] = "ring messages per step"};
	const struct prediction *predicted = judge->predicted;
	const struct prediction *measured = &judge->measured->values;

	bool sends_rows = predicted->wire_bytes_rows > 0 || measured->wire_bytes_rows > 0;
	add_exact(judge, sends_rows ? "sent by a rank, but rows" : "sent by a rank", "bytes",
		predicted->wire_bytes_per_rank - predicted->wire_bytes_rows,
		measured->wire_bytes_per_rank - measured->wire_bytes_rows);
	if (sends_rows)
		add_line(judge, "rows to and from experts", "bytes", predicted->wire_bytes_rows,
			measured->wire_bytes_rows);
	check_egress(judge, schedule, sends_rows);
	for (int i = 0; i < COUNT_OF(names); i++)
		if (i <= COLLECTIVE_ALL_REDUCE || predicted->collectives[i] != 0 ||
			measured->collectives[i] != 0)
			add_exact(judge, names[i], "", (double)predicted->collectives[i],
				(double)measured->collectives[i]);
}

const struct tolerance report_default_tolerance = {
	.time = -1, .memory = 0.10, .memory_from = 200e6, .device = 0.03, .device_growth = 8 << 20};

/* Checks how much the ranks grew for the operating system. Nothing is judged without a measurement
 * (0). Processes that emulate devices are not judged either: the buffers that exist at the same
 * time depend on how late this machine is. */
static void check_pss(struct judge *judge, const struct schedule *schedule)
{
	const struct measurement *measured = judge->measured;
	double predicted = (double)judge->predicted->ledger_peak_bytes +
			   (double)judge->predicted->ledger_host_peak_bytes;
	double largest = (double)measured->pss_growth_bytes;
	struct check_line *line;

	if (schedule != NULL && schedule->topology->emulated)
		return;
	line = add_line(judge, "PSS growth, largest rank", "bytes", predicted, largest);
	if (largest != 0 && predicted >= judge->tolerance->memory_from)
		judge_line(judge, line, within(predicted, largest, judge->tolerance->memory));
	if (measured->pss_growth_mean_bytes != 0)
		add_line(judge, "PSS growth, mean of ranks", "bytes", predicted,
			(double)measured->pss_growth_mean_bytes);
}

/* Computes how much slower the machine ran than when it was calibrated. */
static void read_yardstick(struct judge *judge, const struct schedule *schedule)
{
	const struct measurement *measured = judge->measured;
	double then = schedule != NULL ? schedule->topology->calibration.yardstick : 0;
	struct check *check = judge->check;

	if (then <= 0 || measured->yardstick_before <= 0 || measured->yardstick_after <= 0)
		return;
	check->slower_before = measured->yardstick_before / then;
	check->slower_after = measured->yardstick_after / then;
	check->slower = (check->slower_before + check->slower_after) / 2;
}

/* Checks the step time. The prediction is of the machine at its calibrated speed; if the speed
 * during the run is known, the step is judged against the prediction at that speed. */
static void check_step(struct judge *judge)
{
	const struct measurement *measured = judge->measured;
	double median = measurement_step(measured);
	double predicted = judge->predicted->step_time, slower = judge->check->slower;
	struct check_line *line = add_line(judge, "step time", "s", predicted, median);

	if (slower > 0) {
		predicted *= slower;
		line = add_line(judge, "step time at the run's speed", "s", predicted, median);
		judge->check->at_speed = line;
		judge->check->at_speed_low = judge->predicted->step_time_low * slower;
		judge->check->at_speed_high = judge->predicted->step_time_high * slower;
	}
	if (judge->tolerance->time >= 0)
		judge_line(judge, line, within(predicted, median, judge->tolerance->time));
}

static void check_times(struct judge *judge)
{
	const struct prediction *predicted = judge->predicted;
	const struct prediction *measured = &judge->measured->values;
	const struct time_split *p = &predicted->time, *m = &measured->time;

	check_step(judge);
	add_line(judge, "compute", "s", p->compute, m->compute);
	add_line(judge, "all-gather", "s", p->all_gather, m->all_gather);
	add_line(judge, "reduce-scatter", "s", p->reduce_scatter, m->reduce_scatter);
	add_line(judge, "all-reduce", "s", p->all_reduce, m->all_reduce);
	if (p->all_to_all > 0 || m->all_to_all > 0)
		add_line(judge, "all-to-all", "s", p->all_to_all, m->all_to_all);
	if (p->messages > 0 || m->messages > 0)
		add_line(judge, "messages", "s", p->messages, m->messages);
	add_line(judge, "optimizer", "s", p->optimizer, m->optimizer);
	add_line(judge, "exposed communication", "s", p->exposed_communication,
		m->exposed_communication);
}

/* GPUs of the catalogue have published measurements; CPUs have what their kind is thought to reach.
 */
static bool is_prior(const struct schedule *schedule)
{
	return schedule != NULL && schedule->topology->device.kind == DEVICE_CPU &&
	       !schedule->topology->calibration.measured;
}

void report_check(const struct schedule *schedule, const struct prediction *prediction,
	const struct measurement *measured, const struct tolerance *tolerance, struct arena *arena,
	struct check *check)
{
	struct judge judge = {prediction, measured, tolerance, arena, check};

	*check = (struct check){.ok = true,
		.prior = is_prior(schedule),
		.stages = prediction->n_classes,
		.sends_rows = prediction->wire_bytes_rows > 0};
	check->lines = ARENA_ARRAY(arena, struct check_line, MAX_LINES);
	check_ledger(&judge);
	check_operations(&judge, schedule);
	check_states(&judge);
	check_undeclared(&judge);
	check_network(&judge, schedule);
	check_pss(&judge, schedule);
	check_device(&judge, schedule);
	read_yardstick(&judge, schedule);
	check_times(&judge);
}

/* Exact lines show all digits, other lines three. */
static void add_figure(const struct check_line *line, double value, struct grid *grid)
{
	if (line->exact)
		grid_add_value(grid, value, "%.0f%s%s", value, line->unit[0] != '\0' ? " " : "",
			line->unit);
	else if (strcmp(line->unit, "s") == 0)
		grid_add_seconds(grid, value);
	else
		grid_add_bytes(grid, value);
}

static const char *verdict(const struct check_line *line)
{
	if (!line->judged)
		return "not judged";
	if (!line->ok)
		return line->exact ? "DIFFERS" : "OUTSIDE";
	return line->exact ? "equal" : "within";
}

void check_grid(const struct check *check, struct grid *grid)
{
	static const struct grid_column columns[] = {{"what", GRID_LEFT}, {"predicted", GRID_RIGHT},
		{"measured", GRID_RIGHT}, {"of predicted", GRID_RIGHT}, {"verdict", GRID_LEFT}};
	char ratio[32];

	grid_init(grid, columns, COUNT_OF(columns));
	for (int i = 0; i < check->n_lines; i++) {
		const struct check_line *line = &check->lines[i];
		grid_row(grid, !line->judged ? GRID_PLAIN : line->ok ? GRID_GOOD : GRID_BAD);
		grid_add(grid, "%s", line->what);
		add_figure(line, line->predicted, grid);
		add_figure(line, line->measured, grid);
		grid_add_value(grid, line->predicted > 0 ? line->measured / line->predicted : 0,
			"%s", format_ratio(ratio, line->predicted, line->measured));
		grid_add(grid, "%s", verdict(line));
	}
}

/* A larger change of speed between the beginning and the end of a run is mentioned. */
static const double changed = 0.1;

/* Says if the model is right: by the tolerance that was asked for, else by the predicted range. */
static void add_verdict(const struct check *check, struct text *text)
{
	const struct check_line *line = check->at_speed;
	double low = check->at_speed_low, high = check->at_speed_high;
	bool has_range = high > low;
	char time[32], from[32], to[32];

	text_printf(text, "At that speed the prediction is %s a step",
		format_seconds(time, line->predicted));
	if (has_range)
		text_printf(text, " (80 %% sure: %s to %s)", format_seconds(from, low),
			format_beside(to, high, low));
	text_printf(text, "; %s was measured", format_seconds(time, line->measured));
	if (!line->judged && !has_range)
		text_add(text, ".\n");
	else if (line->judged ? line->ok : line->measured >= low && line->measured <= high)
		text_add(text, ": the model is right.\n");
	else if (line->measured > line->predicted)
		text_add(text, ", which is longer: "
			       "either the model is wrong, or other work slowed the steps.\n");
	else
		text_add(text, ", which is shorter: either the model is wrong, or "
			       "the machine was faster during the steps than before and after.\n");
}

static void add_speed(const struct check *check, struct text *text)
{
	double percent = 100 / check->slower;

	if (fabs(percent - 100) < 1)
		text_add(text, "The machine ran at the speed it was calibrated at");
	else
		text_printf(text, "The machine ran at %.0f %% of the speed it was calibrated at",
			percent);
	text_printf(text,
		": before the run a fixed matrix "
		"product took %.2f times as long as in the calibration, after it %.2f times.\n",
		check->slower_before, check->slower_after);
	if (fabs(check->slower_after / check->slower_before - 1) > changed)
		text_add(text, "The speed changed during the run: measure again.\n");
	else
		add_verdict(check, text);
}

static void put_notes(const struct check *check, const struct style *style, struct text *text)
{
	struct text lines = {0};

	text_add(&lines,
		" Ledger: bytes of the schedule's buffers, operation by operation. PSS: memory "
		"of a process, shared pages by their parts.\n Kinds of time overlap and do not "
		"add up.\n Step time: the median of the measured steps.\n");
	if (check->sends_rows)
		text_add(&lines,
			" Rows: the router decides. "
			"Predicted is as if all experts got alike, or what --expert-load says.\n");
	if (check->stages > 1)
		text_printf(&lines,
			" Measured: a rank of stage 0 of %d. "
			"What a rank sends is the mean of all stages.\n",
			check->stages);
	put_lines(text_string(&lines), 1, style, text);
	text_add_char(text, '\n');
	text_finish(&lines);
}

void report_check_text(const struct check *check, const struct style *style, struct text *text)
{
	struct grid grid;
	struct text machine = {0};
	int judged = 0, bad = 0;

	check_grid(check, &grid);
	put_text(&grid, style, text);
	put_notes(check, style, text);
	if (check->slower > 0)
		add_speed(check, &machine);
	else if (check->prior)
		text_add(&machine,
			"Predicted times are rough, as this machine was not calibrated when "
			"the plan was made: `shardplan calibrate local`, then plan again.\n");
	put_lines(text_string(&machine), 0, style, text);
	text_finish(&machine);
	for (int i = 0; i < check->n_lines; i++) {
		judged += check->lines[i].judged;
		bad += check->lines[i].judged && !check->lines[i].ok;
	}
	if (bad == 0)
		text_printf(text, "All %d judged lines agree.\n", judged);
	else
		text_printf(text, "%d of %d judged lines %s not agree.\n", bad, judged,
			bad == 1 ? "does" : "do");
}
