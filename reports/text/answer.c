/* The full answer in text: comparison, reasons, sensitivities and doubts. */
#include <math.h>
#include <string.h>

#include "reports/text/text.h"

/* clang-format off */
#define FIGURE_COLUMNS \
	{"checkpointing", GRID_LEFT}, \
	{"batch", GRID_LEFT}, \
	{"step time", GRID_RIGHT}, \
	{"tokens/s/GPU", GRID_RIGHT}, \
	{"MFU", GRID_RIGHT}, \
	{"peak memory", GRID_RIGHT}, \
	{"of limit", GRID_RIGHT}, \
	{"exposed", GRID_RIGHT}, \
	{"sent/rank", GRID_RIGHT}, \
	{"fits", GRID_LEFT}
/* clang-format on */

/* The reason is an early column, because the right end of a table is out of sight on a narrow
 * page. */
static const struct grid_column comparison_columns[] = {
	{"strategy", GRID_LEFT}, {"why not", GRID_WRAP}, FIGURE_COLUMNS};
static const struct grid_column figure_columns[] = {{"strategy", GRID_LEFT}, FIGURE_COLUMNS};

/* What cannot be has no knobs that differ. */
static void add_strategy(
	const struct candidate *candidate, const struct plan *chosen, struct grid *grid)
{
	bool exists = candidate->outcome != OUTCOME_IMPOSSIBLE;
	struct text text = {0};

	candidate_name(&candidate->plan, exists ? chosen : NULL, &text);
	grid_add(grid, "%s", text_string(&text));
	text_finish(&text);
}

static void add_figures(const struct prediction *prediction, struct grid *grid)
{
	char tokens[32], time[32];
	double peak = (double)prediction->peak_memory_bytes;
	double limit = (double)prediction->memory_limit_bytes;

	/* Steps with different batches are sorted by their time per token. */
	grid_add_value(grid,
		prediction->tokens_per_s_per_gpu > 0 ? 1 / prediction->tokens_per_s_per_gpu
						     : prediction->step_time,
		"%s", format_seconds(time, prediction->step_time));
	grid_add_value(grid, prediction->tokens_per_s_per_gpu, "%s",
		format_tokens(tokens, prediction->tokens_per_s_per_gpu));
	grid_add_percent(grid, prediction->mfu);
	grid_add_bytes(grid, peak);
	grid_add_percent(grid, limit > 0 ? peak / limit : 0);
	grid_add_seconds(grid, prediction->time.exposed_communication);
	grid_add_bytes(grid, prediction->wire_bytes_per_rank);
	grid_add(grid, "%s", fits_names[prediction->fits]);
}

static const enum grid_mark marks[] = {[OUTCOME_CHOSEN] = GRID_GOOD,
	[OUTCOME_DOES_NOT_FIT] = GRID_BAD,
	[OUTCOME_IMPOSSIBLE] = GRID_BAD,
	[OUTCOME_SLOWER] = GRID_PLAIN};

static void add_candidate(const struct candidate *candidate, const struct plan *chosen,
	bool reasons, struct grid *grid)
{
	const struct plan *plan = &candidate->plan;
	char batch[48];

	grid_row(grid, marks[candidate->outcome]);
	add_strategy(candidate, chosen, grid);
	if (reasons)
		grid_add(grid, "%s",
			candidate->outcome == OUTCOME_CHOSEN ? "chosen"
							     : or_empty(candidate->why_not));
	if (candidate->outcome == OUTCOME_IMPOSSIBLE) {
		for (int i = 0; i < 10; i++)
			grid_add_value(grid, i >= 2 && i < 5 ? INFINITY : 0, "-");
		return;
	}
	grid_add(grid, "%s", plan->activation_checkpointing.text);
	grid_add_value(grid, (double)plan->micro_batch, "%s",
		format_micro_batch(batch, plan->micro_batch, plan->grad_accum));
	add_figures(&candidate->prediction, grid);
}

static bool are_of_one_strategy(const struct candidate *a, const struct candidate *b)
{
	return a->plan.strategy == b->plan.strategy && a->plan.runtime == b->plan.runtime;
}

bool is_best_of_its_strategy(const struct answer *answer, int i)
{
	const struct candidate *candidate = &answer->alternatives[i];

	if (answer->chosen != NULL && are_of_one_strategy(answer->chosen, candidate))
		return false;
	for (int k = 0; k < i; k++) {
		if (are_of_one_strategy(&answer->alternatives[k], candidate))
			return false;
	}
	return true;
}

void comparison_grid(const struct answer *answer, bool reasons, struct grid *grid)
{
	const struct plan *chosen = answer->chosen != NULL ? &answer->chosen->plan : NULL;

	if (reasons)
		grid_init(grid, comparison_columns, COUNT_OF(comparison_columns));
	else
		grid_init(grid, figure_columns, COUNT_OF(figure_columns));
	if (answer->chosen != NULL)
		add_candidate(answer->chosen, chosen, reasons, grid);
	for (int i = 0; i < answer->n_alternatives; i++) {
		if (is_best_of_its_strategy(answer, i))
			add_candidate(&answer->alternatives[i], chosen, reasons, grid);
	}
}

/* Makes the comparison for a terminal, which is narrower: reasons are listed below, by number. */
static void figures_grid(const struct answer *answer, int limit, struct grid *grid)
{
	static const struct grid_column columns[] = {{"#", GRID_RIGHT}, {"strategy", GRID_WRAP},
		{"checkpointing", GRID_LEFT}, {"batch", GRID_LEFT}, {"step time", GRID_RIGHT},
		{"tokens/s/GPU", GRID_RIGHT}, {"peak memory", GRID_RIGHT}, {"fits", GRID_LEFT}};
	const struct plan *chosen = answer->chosen != NULL ? &answer->chosen->plan : NULL;
	int from = answer->chosen != NULL ? -1 : 0;

	grid_init(grid, columns, COUNT_OF(columns));
	for (int i = from; i < answer->n_alternatives && i < limit; i++) {
		const struct candidate *candidate =
			i < 0 ? answer->chosen : &answer->alternatives[i];
		const struct prediction *p = &candidate->prediction;
		char tokens[32], batch[48];
		grid_row(grid, marks[candidate->outcome]);
		grid_add(grid, "%d", i - from + 1);
		add_strategy(candidate, chosen, grid);
		if (candidate->outcome == OUTCOME_IMPOSSIBLE)
			continue;
		grid_add(grid, "%s", candidate->plan.activation_checkpointing.text);
		grid_add(grid, "%s",
			format_micro_batch(
				batch, candidate->plan.micro_batch, candidate->plan.grad_accum));
		grid_add_seconds(grid, p->step_time);
		grid_add(grid, "%s", format_tokens(tokens, p->tokens_per_s_per_gpu));
		grid_add_bytes(grid, (double)p->peak_memory_bytes);
		grid_add(grid, "%s", fits_names[p->fits]);
	}
}

static void front_grid(const struct answer *answer, struct grid *grid)
{
	static const struct grid_column columns[] = {{"plan", GRID_WRAP}, {"step time", GRID_RIGHT},
		{"tokens/s/GPU", GRID_RIGHT}, {"peak memory", GRID_RIGHT},
		{"sent/rank", GRID_RIGHT}, {"host memory", GRID_RIGHT}};
	bool offloads = false;

	for (int i = 0; i < answer->n_front; i++)
		offloads = offloads || answer->front[i].prediction.host_memory_bytes > 0;
	grid_init(grid, columns, COUNT_OF(columns) - !offloads);
	for (int i = 0; i < answer->n_front; i++) {
		const struct candidate *candidate = &answer->front[i];
		const struct prediction *p = &candidate->prediction;
		struct text summary = {0};
		char tokens[32];
		grid_row(grid, candidate->outcome == OUTCOME_CHOSEN ? GRID_GOOD : GRID_PLAIN);
		plan_summary(&candidate->plan, &summary);
		grid_add(grid, "%s", text_string(&summary));
		text_finish(&summary);
		grid_add_seconds(grid, p->step_time);
		grid_add_value(grid, p->tokens_per_s_per_gpu, "%s",
			format_tokens(tokens, p->tokens_per_s_per_gpu));
		grid_add_bytes(grid, (double)p->peak_memory_bytes);
		grid_add_bytes(grid, p->wire_bytes_per_rank);
		if (offloads)
			grid_add_bytes(grid, (double)p->host_memory_bytes);
	}
}

static void add_reasons(
	const struct answer *answer, int limit, const struct style *style, struct text *text)
{
	int first = answer->chosen != NULL ? 2 : 1;
	struct text label = {0}, reason = {0};

	for (int i = 0; i < answer->n_alternatives && i < limit; i++) {
		const struct candidate *candidate = &answer->alternatives[i];
		text_printf(&label, " %2d ", i + first);
		plan_add_name(&candidate->plan, &reason);
		text_add(&reason, ": ");
		add_terminal(&reason, or_empty(candidate->why_not));
		put_line(text_string(&label), 4, text_string(&reason), style->width, text);
		text_clear(&label);
		text_clear(&reason);
	}
	text_finish(&label);
	text_finish(&reason);
	text_add_char(text, '\n');
}

/* Bars end at 100 %, so that one bad value does not flatten the others. */
static double largest_change(const struct answer *answer, double now)
{
	double most = 0;

	for (int i = 0; i < answer->n_sensitivities; i++) {
		double time = answer->sensitivities[i].step_time;
		if (time > 0 && now > 0 && fabs(time / now - 1) > most)
			most = fabs(time / now - 1);
	}
	return most < 1 ? most : 1;
}

/* The note beside "-" in place of a step time. */
static const char *short_note(const struct sensitivity *row)
{
	static const char known[] = "does not fit: ";
	const char *note = or_empty(row->note);

	return strncmp(note, known, strlen(known)) == 0 ? note + strlen(known) : note;
}

void sensitivity_grid(const struct answer *answer, bool narrow, struct grid *grid)
{
	static const struct grid_column columns[] = {{"if", GRID_LEFT}, {"were", GRID_LEFT},
		{"step time", GRID_RIGHT}, {"change", GRID_RIGHT}, {"peak memory", GRID_RIGHT},
		{"note", GRID_WRAP}};
	static const struct grid_column fewer[] = {{"if", GRID_LEFT}, {"step time", GRID_RIGHT},
		{"change", GRID_RIGHT}, {"peak memory", GRID_RIGHT}, {"note", GRID_WRAP}};
	double now = answer->chosen != NULL ? answer->chosen->prediction.step_time : 0;

	double most = largest_change(answer, now);
	grid_init(grid, narrow ? fewer : columns, COUNT_OF(columns) - narrow);
	for (int i = 0; i < answer->n_sensitivities; i++) {
		const struct sensitivity *row = &answer->sensitivities[i];
		grid_row(grid, GRID_PLAIN);
		if (narrow) {
			grid_add(grid, "%s %s", or_empty(row->knob), or_empty(row->value));
		} else {
			grid_add(grid, "%s", or_empty(row->knob));
			grid_add(grid, "%s", or_empty(row->value));
		}
		if (row->step_time > 0)
			grid_add_seconds(grid, row->step_time);
		else
			grid_add_value(grid, INFINITY, "-");
		if (row->step_time > 0 && now > 0)
			grid_add_change(grid, row->step_time / now - 1, most);
		else
			grid_add(grid, "-");
		if (row->peak_memory_bytes > 0)
			grid_add_bytes(grid, (double)row->peak_memory_bytes);
		else
			grid_add(grid, "-");
		grid_add(grid, "%s", narrow ? short_note(row) : or_empty(row->note));
	}
}

void add_answer_figures(const struct prediction *prediction, struct text *text)
{
	char buffer[32], limit[32];

	text_printf(text, "%s per step", format_seconds(buffer, prediction->step_time));
	text_printf(
		text, ", %s tokens/s/GPU", format_tokens(buffer, prediction->tokens_per_s_per_gpu));
	if (prediction->mfu > 0)
		text_printf(text, ", MFU %s", format_percent(buffer, prediction->mfu));
	text_printf(text, ", peak %s", format_bytes(buffer, (double)prediction->peak_memory_bytes));
	if (prediction->memory_limit_bytes > 0)
		text_printf(text, " of %s",
			format_bytes(limit, (double)prediction->memory_limit_bytes));
	/* The allocator's free blocks are part of what is reserved, and serve later requests. */
	double cached =
		(double)(prediction->peak_memory_bytes - prediction_needed_bytes(prediction));
	if (cached > 0.02 * (double)prediction->memory_limit_bytes)
		text_printf(text, " (%s of it cached)", format_bytes(buffer, cached));
	text_printf(text, ", %s of communication exposed",
		format_seconds(buffer, prediction->time.exposed_communication));
}

void add_no_answer(const struct answer *answer, struct text *text)
{
	const struct prediction *least = NULL;
	char need[32], limit[32];

	if (answer->chosen != NULL)
		return;
	for (int i = 0; i < answer->n_alternatives; i++) {
		const struct candidate *candidate = &answer->alternatives[i];
		if (candidate->outcome == OUTCOME_IMPOSSIBLE)
			continue;
		if (least == NULL || prediction_missing_bytes(&candidate->prediction) <
					     prediction_missing_bytes(least))
			least = &candidate->prediction;
	}
	text_add(text, "No plan fits");
	if (least != NULL)
		text_printf(text, ": the closest that was found needs %s of %s per device",
			format_bytes(need, (double)prediction_missing_bytes(least)),
			format_bytes(limit, (double)least->memory_limit_bytes));
}

/* The gain of the fastest plan that fits and was not chosen. */
static double passed_over(const struct answer *answer)
{
	double now = answer->chosen->prediction.tokens_per_s_per_gpu, gain = 0;

	for (int i = 0; i < answer->n_options; i++)
		gain = fmax(gain, answer->options[i].gain);
	for (int i = 0; i < answer->n_alternatives; i++) {
		const struct candidate *candidate = &answer->alternatives[i];
		if (candidate->outcome == OUTCOME_SLOWER &&
			candidate->prediction.tokens_per_s_per_gpu > now)
			gain = fmax(gain, 1 - now / candidate->prediction.tokens_per_s_per_gpu);
	}
	return gain;
}

void add_proof(const struct answer *answer, struct text *text)
{
	char buffer[32];

	text_printf(text, "%s%lld plans simulated, %lld ruled out by a bound",
		answer->interrupted ? "Interrupted, this is the best so far: " : "",
		(long long)answer->evaluated, (long long)answer->pruned);
	if (answer->chosen == NULL)
		return;
	if (answer->gap <= 0 && answer->bound >= answer->chosen->prediction.step_time)
		text_printf(text, "; no plan %s is better under this cost model",
			answer->shares_stages ? "with its framework's stages"
					      : "of this search space");
	else if (answer->gap <= 0)
		text_printf(text, "; no plan of this search space is faster than %s",
			format_seconds(buffer, answer->bound));
	else
		text_printf(text, "; what was not simulated cannot be faster than %s (gap %.1f %%)",
			format_seconds(buffer, answer->bound), answer->gap * 100);
	double gain = passed_over(answer);
	if (gain > 0)
		text_printf(text,
			", except those listed as faster (by up to %.2g %%), "
			"which were passed over",
			gain * 100);
}

/* The rows that a screen shows. --json and the report have all. */
enum { SHOWN_CANDIDATES = 16 };

static void add_comparison(
	const struct answer *answer, const struct style *style, struct text *text)
{
	int more = answer->n_alternatives - SHOWN_CANDIDATES;
	struct grid grid;

	text_add(text, "\nStrategies, the best plan of each first\n");
	figures_grid(answer, SHOWN_CANDIDATES, &grid);
	put_text(&grid, style, text);
	if (more > 0)
		text_printf(text, "%d more: --json lists them\n\n", more);
	if (answer->n_alternatives == 0)
		return;
	text_add(text, "Why not the others\n");
	add_reasons(answer, SHOWN_CANDIDATES, style, text);
}

void report_front_text(const struct answer *answer, const struct style *style, struct text *text)
{
	struct grid grid;

	if (answer->n_front == 0)
		return;
	text_add(text, "No plan beats these in step time, "
		       "memory, host memory and network at once (by more than 3 %)\n");
	front_grid(answer, &grid);
	put_text(&grid, style, text);
}

/* Adds an item of a list, and takes its text. */
static void put_item(struct text *item, const struct style *style, struct text *text)
{
	put_line(" - ", 3, text_string(item), style->width, text);
	text_finish(item);
}

/* Lists options: plans that are faster and harder to write down. */
static void add_options(const struct answer *answer, const struct style *style, struct text *text)
{
	char time[32], peak[32];

	if (answer->n_options == 0)
		return;
	text_add(text, "Faster, further from the defaults\n");
	for (int i = 0; i < answer->n_options; i++) {
		const struct plan_option *option = &answer->options[i];
		struct text item = {0};
		text_printf(&item,
			"%.1f %% less time a token (%s a step, peak %s): ", 100 * option->gain,
			format_seconds(time, option->prediction.step_time),
			format_bytes(peak, (double)option->prediction.peak_memory_bytes));
		add_terminal(&item, option->typed);
		put_item(&item, style, text);
	}
	text_add_char(text, '\n');
}

static void add_thresholds(
	const struct answer *answer, const struct style *style, struct text *text)
{
	if (answer->n_thresholds == 0)
		return;
	text_add(text, "What would change the decision (planned again on both sides)\n");
	for (int i = 0; i < answer->n_thresholds; i++) {
		struct text item = {0};
		add_terminal(&item, answer->thresholds[i].sentence);
		put_item(&item, style, text);
	}
	text_add_char(text, '\n');
}

/* Lists the unknowns that make up the doubt of the memory. */
static void add_doubts(const struct answer *answer, const struct style *style, struct text *text)
{
	struct text item = {0};
	char bytes[32];

	if (answer->n_doubts == 0)
		return;
	text_printf(text,
		"What may be needed beside the peak (80 %% sure: %s, by the sum of squares)\n",
		format_bytes(bytes, (double)answer->headroom_bytes));
	for (int i = 0; i < answer->n_doubts; i++) {
		const struct doubt *doubt = &answer->doubts[i];
		text_printf(&item, "%s: %s (%s).", doubt->what,
			format_bytes(bytes, (double)doubt->bytes), doubt->source);
		put_item(&item, style, text);
	}
	text_add_char(text, '\n');
}

static void add_defence(const struct answer *answer, const struct style *style, struct text *text)
{
	struct text proof = {0};
	struct grid grid;

	if (answer->n_reasons > 0)
		text_add(text, answer->chosen != NULL ? "Why this one\n" : "Why none\n");
	for (int i = 0; i < answer->n_reasons; i++) {
		struct text item = {0};
		add_terminal(&item, answer->reasons[i]);
		put_item(&item, style, text);
	}
	text_add(text, answer->n_reasons > 0 ? "\n" : "");
	add_doubts(answer, style, text);
	add_thresholds(answer, style, text);
	if (answer->n_sensitivities > 0) {
		text_add(text, "What if\n");
		sensitivity_grid(answer, true, &grid);
		put_text(&grid, style, text);
	}
	add_proof(answer, &proof);
	text_add_char(&proof, '.');
	put_line("", 0, text_string(&proof), style->width, text);
	text_finish(&proof);
}

/* Says which plan to use, or that none fits. */
static void add_verdict(const struct answer *answer, const struct style *style, struct text *text)
{
	struct text line = {0};

	text_add(text, style->color ? "\n\033[1m" : "\n");
	if (answer->chosen != NULL) {
		text_add(&line, answer->tight ? "Tight, for no plan leaves enough memory free: use "
					      : "Use ");
		struct text summary = {0};
		plan_summary(&answer->chosen->plan, &summary);
		add_terminal(&line, text_string(&summary));
		text_finish(&summary);
	} else {
		add_no_answer(answer, &line);
	}
	put_line("", 0, text_string(&line), style->width, text);
	text_add(text, style->color ? "\033[0m" : "");
	text_clear(&line);
	if (answer->chosen != NULL) {
		add_answer_figures(&answer->chosen->prediction, &line);
		put_line("", 0, text_string(&line), style->width, text);
	}
	text_finish(&line);
}

void report_answer_text(const struct question *question, const struct answer *answer,
	const struct style *style, struct text *text)
{
	struct text subject = {0};

	add_subject_line(question->model, question->topology, &subject);
	put_line("", 0, text_string(&subject), style->width, text);
	text_finish(&subject);
	add_verdict(answer, style, text);
	if (answer->chosen != NULL) {
		put_warnings(answer, text);
		put_said_by(answer->n_said_by, answer->said_by, text);
	}
	add_comparison(answer, style, text);
	report_front_text(answer, style, text);
	add_options(answer, style, text);
	report_levers_text(answer, style, text);
	report_way_out_text(answer, style, text);
	add_defence(answer, style, text);
}
