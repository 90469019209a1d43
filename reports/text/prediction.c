/* The text of one prediction. */
#include <math.h>

#include "reports/text/screen.h"

/* The name of a category with blanks for underscores. */
void category_label(enum category category, struct text *text)
{
	for (const char *c = category_names[category]; *c != '\0'; c++)
		text_add_char(text, *c == '_' ? ' ' : *c);
}

static void memory_row(struct grid *grid, const char *name, double bytes, double total)
{
	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "%s", name);
	grid_add_bytes(grid, bytes);
	grid_add_percent(grid, total > 0 ? bytes / total : 0);
}

/* Adds rows of the runtime's overhead, which is not part of any tensor. */
static void overhead_rows(const struct prediction *prediction, struct grid *grid)
{
	double total = (double)prediction->peak_memory_bytes;
	double outside = (double)(prediction->peak_memory_bytes - prediction->peak_reserved_bytes);
	double cached =
		(double)(prediction->peak_reserved_bytes - prediction->peak_allocated_bytes);
	double workspace =
		(double)prediction->memory_at_peak[CATEGORY_RUNTIME_OVERHEAD] - outside - cached;
	double nccl = (double)prediction->communicator_bytes;
	const char *unused = prediction->places_bytes > 0 ? "  of it holes between places"
							  : "  of it reserved, unused";
	const struct {
		const char *name;
		double bytes;
	} rows[] = {
		{nccl > 0 ? "  of it CUDA context, libraries" : "  of it context, libraries, NCCL",
			outside - nccl},
		{"  of it buffers of NCCL", nccl}, {unused, cached},
		{"  of it workspace of kernels", workspace}};

	if (cached <= 0 && workspace <= 0 && nccl <= 0)
		return;
	for (int i = 0; i < COUNT_OF(rows); i++)
		if (rows[i].bytes > 0)
			memory_row(grid, rows[i].name, rows[i].bytes, total);
}

void memory_grid(const struct prediction *prediction, struct grid *grid)
{
	static const struct grid_column columns[] = {{"memory", GRID_LEFT},
		{"at the peak", GRID_RIGHT}, {"share", GRID_RIGHT}, {"own peak", GRID_RIGHT}};
	double total = (double)prediction->peak_memory_bytes;
	struct text label = {0};

	grid_init(grid, columns, COUNT_OF(columns));
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		text_clear(&label);
		category_label((enum category)c, &label);
		memory_row(grid, text_string(&label), (double)prediction->memory_at_peak[c], total);
		grid_add_bytes(grid, (double)prediction->memory_category_peak[c]);
	}
	text_finish(&label);
	overhead_rows(prediction, grid);
	memory_row(grid, "total", total, total);
}

bool stages_grid(const struct prediction *prediction, struct grid *grid)
{
	static const struct grid_column columns[] = {{"pipeline", GRID_LEFT},
		{"memory peak", GRID_RIGHT}, {"bubble", GRID_RIGHT}, {"of the step", GRID_RIGHT}};
	double step = prediction->step_time;

	if (prediction->n_classes < 2 || prediction->classes == NULL)
		return false;
	grid_init(grid, columns, COUNT_OF(columns));
	for (int c = 0; c < prediction->n_classes; c++) {
		const struct class_figures *stage = &prediction->classes[c];

		grid_row(grid, c == prediction->rank_class ? GRID_WARNING : GRID_PLAIN);
		grid_add(grid, "%s%s", stage->name,
			c == prediction->rank_class ? ", told above" : "");
		grid_add_bytes(grid, (double)stage->peak_memory_bytes);
		grid_add_seconds(grid, stage->bubble);
		grid_add_percent(grid, step > 0 ? stage->bubble / step : 0);
	}
	return true;
}

/* The table of times: first parts of the step, which do not overlap; then durations, which do and
 * therefore have no share. */
void time_grid(const struct prediction *prediction, struct grid *grid)
{
	static const struct grid_column columns[] = {{"time of a step", GRID_LEFT},
		{"seconds", GRID_RIGHT}, {"of the step", GRID_RIGHT}};
	const struct time_split *time = &prediction->time;
	double computing = prediction->step_time - time->exposed_communication - time->data_wait -
			   time->allocator - time->bubble;
	const struct {
		const char *name;
		double seconds;
		bool shares; /* a part of the step; else a duration */
	} rows[] = {{"computing, gaps included", computing, true},
		{"exposed communication", time->exposed_communication, true},
		{"bubble: other stages are awaited", time->bubble, true},
		{"waiting for data", time->data_wait, true},
		{"retries of the allocator", time->allocator, true},
		{"all kernels", time->compute, false}, {"all-gather", time->all_gather, false},
		{"reduce-scatter", time->reduce_scatter, false},
		{"all-reduce", time->all_reduce, false}, {"all-to-all", time->all_to_all, false},
		{"messages", time->messages, false}, {"copies", time->copy, false},
		{"optimizer", time->optimizer, false}, {"data loading", time->data_loading, false}};

	grid_init(grid, columns, COUNT_OF(columns));
	for (int i = 0; i < COUNT_OF(rows); i++) {
		if (rows[i].seconds <= 0)
			continue;
		grid_row(grid, GRID_PLAIN);
		grid_add(grid, "%s", rows[i].name);
		grid_add_seconds(grid, rows[i].seconds);
		if (rows[i].shares && prediction->step_time > 0)
			grid_add_percent(grid, rows[i].seconds / prediction->step_time);
	}
}

static void add_fits(const struct prediction *prediction, struct text *text)
{
	static const char *const words[] = {
		"fits", "tight: the allocator must free its cache", "does not fit"};
	char peak[32], limit[32], wanted[32];

	format_bytes(peak, (double)prediction->peak_memory_bytes);
	text_printf(text, "memory peak  %s", peak);
	if (prediction->memory_limit_bytes > 0)
		text_printf(text, " of %s",
			format_bytes(limit, (double)prediction->memory_limit_bytes));
	text_printf(text, " (%s",
		words[prediction_overflows_host(prediction) &&
					prediction->peak_memory_bytes <=
						prediction->memory_limit_bytes
				? FITS_YES
				: prediction->fits]);
	if (prediction->peak_wanted_bytes > 0)
		text_printf(text, "; with room it would hold %s",
			format_bytes(wanted, (double)prediction->peak_wanted_bytes));
	text_add_char(text, ')');
	if (prediction->peak_at != NULL) {
		text_add(text, ", at ");
		add_terminal(text, prediction->peak_at);
	}
	text_add_char(text, '\n');
}

/* Adds the best and the longest step beside the usual one. */
static void add_other_steps(const struct prediction *prediction, struct text *text)
{
	char best[32], longest[32];
	double p95 = prediction->step_time_p95;

	if (prediction->step_time_best <= 0 && p95 <= 0)
		return;
	text_add(text, "             ");
	if (p95 > 0)
		text_printf(text, "95 of 100 steps within %s", format_seconds(longest, p95));
	if (prediction->step_time_best > 0)
		text_printf(text, "%s%s at best, on a machine left alone", p95 > 0 ? "; " : "",
			format_seconds(best, prediction->step_time_best));
	text_add_char(text, '\n');
}

static void add_step_time(const struct prediction *prediction, struct text *text)
{
	char buffer[32], low[32], high[32];

	text_printf(text, "step time    %s", format_seconds(buffer, prediction->step_time));
	if (prediction->step_time_high > 0) {
		text_printf(text, ", 80 %% sure: %s to %s",
			format_seconds(low, prediction->step_time_low),
			format_beside(high, prediction->step_time_high, prediction->step_time_low));
		if (or_empty(prediction->uncertainty_source)[0] != '\0') {
			text_add(text, " (");
			add_terminal(text, prediction->uncertainty_source);
			text_add(text, ")");
		}
	}
	text_add_char(text, '\n');
	add_other_steps(prediction, text);
}

static void add_bounds(const struct prediction *prediction, struct text *text)
{
	char buffer[32];

	if (prediction->lower_bound > 0)
		text_printf(text, "lower bound  %s for any plan of this question",
			format_seconds(buffer, prediction->lower_bound));
	if (prediction->plan_lower_bound > 0)
		text_printf(text, ", %s for this plan",
			format_seconds(buffer, prediction->plan_lower_bound));
	if (prediction->lower_bound > 0)
		text_add(text, " (attention's causal half)\n");
}

static void add_throughput(const char *noun, const struct prediction *prediction, struct text *text)
{
	char tokens[32], mfu[32], hfu[32];

	text_printf(text, "throughput   %s tokens/s/%s",
		format_tokens(tokens, prediction->tokens_per_s_per_gpu), noun);
	if (prediction->mfu > 0) {
		text_printf(text, ", MFU %s, HFU %s of ", format_percent(mfu, prediction->mfu),
			format_percent(hfu, prediction->hfu));
		add_terminal(text, or_empty(prediction->peak_name));
		if (prediction->mfu_causal > 0)
			text_printf(text, " (all of attention; its causal half: MFU %s)",
				format_percent(mfu, prediction->mfu_causal));
	}
	text_add_char(text, '\n');
}

static void add_network(const struct prediction *prediction, struct text *text)
{
	char buffer[32];

	text_printf(text, "network      %s sent by each rank",
		format_bytes(buffer, prediction->wire_bytes_per_rank));
	if (prediction->wire_bytes_node_egress > 0)
		text_printf(text, ", %s leave each node",
			format_bytes(buffer, prediction->wire_bytes_node_egress));
	text_printf(text, "; %lld all-gather, %lld reduce-scatter, %lld all-reduce",
		(long long)prediction->collectives[COLLECTIVE_ALL_GATHER],
		(long long)prediction->collectives[COLLECTIVE_REDUCE_SCATTER],
		(long long)prediction->collectives[COLLECTIVE_ALL_REDUCE]);
	if (prediction->collectives[COLLECTIVE_ALL_TO_ALL] > 0)
		text_printf(text, ", %lld all-to-all",
			(long long)prediction->collectives[COLLECTIVE_ALL_TO_ALL]);
	if (prediction->collectives[COLLECTIVE_SEND_RECV] > 0)
		text_printf(text, ", %lld send-receive",
			(long long)prediction->collectives[COLLECTIVE_SEND_RECV]);
	text_add_char(text, '\n');
}

/* Adds the rate that the data loader must deliver: the tokens of a step in the time of a step
 * without it. */
static void add_data_loader(
	const char *noun, const struct prediction *prediction, struct text *text)
{
	char wait[32], tokens[32];
	double rest = prediction->step_time - prediction->time.data_wait;

	if (prediction->time.data_wait <= 0 || rest <= 0)
		return;
	text_printf(text,
		"data loader  the step is %s longer for waiting; %s tokens/s/%s would do\n",
		format_seconds(wait, prediction->time.data_wait),
		format_tokens(
			tokens, prediction->tokens_per_s_per_gpu * prediction->step_time / rest),
		noun);
}

/* Example: "3 retries in 2 steps". If steps alternate, their mean is not a whole number of
 * retries. */
static void add_count_of_retries(double a_step, struct text *text)
{
	enum { MOST_STEPS = 8 }; /* over more steps the mean says as much */
	int steps = 1;

	while (steps < MOST_STEPS && fabs(steps * a_step - round(steps * a_step)) > 1e-6)
		steps++;
	double n = round(steps * a_step);
	text_printf(text, "%.0f %s ", n, n == 1 ? "retry" : "retries");
	if (steps == 1)
		text_add(text, "a step");
	else
		text_printf(text, "in %d steps", steps);
}

/* Adds retries. Their number is that of the class shown; the time is that of all classes. */
static void add_retries(const struct prediction *prediction, struct text *text)
{
	char longer[32];

	if (prediction->time.allocator <= 0)
		return;
	text_add(text, "allocator    ");
	add_count_of_retries(prediction->allocator_retries, text);
	if (prediction->n_classes > 1 && prediction->classes != NULL) {
		text_add(text, " on ");
		add_terminal(text, prediction->classes[prediction->rank_class].name);
		text_add(text, "; with those of other stages");
	} else {
		text_add(text, ":");
	}
	text_printf(text, " %s of a step on average\n",
		format_seconds(longer, prediction->time.allocator));
}

static void add_host_memory(const struct prediction *prediction, struct text *text)
{
	char bytes[32], limit[32];

	if (prediction->host_memory_bytes <= 0)
		return;
	text_printf(text, "host memory  %s",
		format_bytes(bytes, (double)prediction->host_memory_bytes));
	if (prediction->host_memory_limit_bytes > 0)
		text_printf(text, " of %s a node (%s)",
			format_bytes(limit, (double)prediction->host_memory_limit_bytes),
			prediction_overflows_host(prediction) ? "does not fit" : "fits");
	text_add_char(text, '\n');
}

static void add_states(const struct prediction *prediction, struct text *text)
{
	char parameters[32], gradients[32], optimizer[32];

	text_printf(text,
		"model states %s parameters, %s gradients, %s optimizer (between steps)\n",
		format_bytes(parameters, (double)prediction->model_states_parameters),
		format_bytes(gradients, (double)prediction->model_states_gradients),
		format_bytes(optimizer, (double)prediction->model_states_optimizer_state));
	add_host_memory(prediction, text);
}

void put_prediction(const struct topology *topology, const struct prediction *prediction,
	const struct style *style, struct text *text)
{
	struct text lines = {0};

	add_step_time(prediction, &lines);
	add_throughput(device_noun(topology), prediction, &lines);
	add_data_loader(device_noun(topology), prediction, &lines);
	add_fits(prediction, &lines);
	add_retries(prediction, &lines);
	add_states(prediction, &lines);
	add_network(prediction, &lines);
	add_bounds(prediction, &lines);
	put_lines(text_string(&lines), FACT_INDENT, style, text);
	text_finish(&lines);
}

void add_subject_line(const struct model *model, const struct topology *topology, struct text *text)
{
	char count[32], memory[32];

	if (model != NULL) {
		add_terminal(text, or_empty(model->architecture.name));
		text_printf(text, " (%s parameters",
			format_count(count, (double)model->parameter_count));
		if (model->architecture.mtp_layers > 0)
			text_printf(text, ", %lld of %lld blocks for multi-token prediction",
				(long long)model->architecture.mtp_layers,
				(long long)model->architecture.layers);
		if (!trainable_is_all(&model->architecture.trainable))
			text_printf(text, ", %s trained",
				format_count(count, (double)model->trained_count));
		text_add_char(text, ')');
	}
	if (model != NULL && topology != NULL)
		text_add(text, " on ");
	if (topology == NULL)
		return;
	add_terminal(text, or_empty(topology->name));
	text_printf(text, ": %lld x ", (long long)topology_devices(topology));
	add_terminal(text, or_empty(topology->device.name));
	text_printf(text, ", %s each", format_bytes(memory, (double)topology->device.memory_bytes));
}

/* Adds what rows of logits of an odd length cost, and how to avoid it. */
static void add_vocabulary(
	const struct model *model, const struct prediction *prediction, struct text *text)
{
	long long vocab = (long long)model->architecture.vocab;
	char buffer[32];

	if (prediction->time.unaligned_head <= 0)
		return;
	text_printf(text,
		"\na vocabulary of %lld words is no multiple of 8: "
		"products of the head take %s a step longer; --vocab %lld pads it, or --compile on",
		vocab, format_seconds(buffer, prediction->time.unaligned_head),
		(long long)vocab_padded(vocab));
}

void report_prediction_text(const struct plan *plan, const struct model *model,
	const struct topology *topology, const struct prediction *prediction,
	const struct style *style, struct text *text)
{
	struct grid grid;
	struct text lines = {0};

	add_subject_line(model, topology, &lines);
	text_add_char(&lines, '\n');
	plan_summary(plan, &lines);
	if (topology_devices(topology) == 1 && runtime_of(plan->runtime)->one_rank_is_unsharded &&
		plan->strategy == STRATEGY_NO_SHARD)
		text_printf(&lines,
			"\n%s turns every strategy into NO_SHARD on one rank, with a warning; "
			"so does this prediction",
			runtime_names[plan->runtime]);
	add_vocabulary(model, prediction, &lines);
	put_lines(text_string(&lines), 0, style, text);
	text_finish(&lines);
	text_add_char(text, '\n');
	put_prediction(topology, prediction, style, text);
	text_add_char(text, '\n');
	memory_grid(prediction, &grid);
	grid_text(&grid, style, text);
	grid_finish(&grid);
	if (stages_grid(prediction, &grid)) {
		grid_text(&grid, style, text);
		grid_finish(&grid);
	}
	if (mesh_grid(topology, prediction, 2, &grid))
		put_text(&grid, style, text);
	time_grid(prediction, &grid);
	grid_text(&grid, style, text);
	grid_finish(&grid);
	put_lines(" Shares are of moments and add up; durations of kernels and collectives "
		  "overlap, on several streams.\n",
		1, style, text);
}
