#include "cli/commands/fit_topology.h"

#include <math.h>
#include <string.h>

#include "cli/commands/measured_file.h"
#include "cli/commands/rows.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "schedule/resolve/resolve.h"

enum { COLUMN_STEP_TIME = COLUMN_OWN, COLUMN_TOKENS = COLUMN_OWN - 1 };
static const char *const own_columns[] = {"step_time_s", "tokens_per_s_per_gpu", NULL};

/* Two values of one step time may differ by this much, for rounding. */
#define SAME_STEP 0.02

struct runs {
	const char *topology; /* as typed */
	struct arena *arena;
	int n;
	struct fit_run of[FIT_MOST_RUNS];
};

static struct fit_run *add_run(struct runs *runs, const char *where, struct error *error)
{
	if (runs->n < FIT_MOST_RUNS)
		return &runs->of[runs->n++];
	error_set(error, EXIT_CODE_INPUT, "%s: expected at most %d runs", where, FIT_MOST_RUNS);
	return NULL;
}

/* --- rows of a table -------------------------------------------------------------------------- */

/* Reads a cell; 0 if it is empty. */
static bool read_cell(const struct question_rows *rows, const struct csv_row *row, int column,
	const char *expected, double *value, struct error *error)
{
	int position;
	const char *cell = row_cell(rows, row, column, &position);

	*value = 0;
	if (cell[0] == '\0')
		return true;
	bool ok = parse_number(cell, value) ||
		  (column == COLUMN_STEP_TIME && unit_parse(UNIT_TIME, cell, value));
	return (ok && *value > 0 && isfinite(*value)) ||
	       error_at(error, EXIT_CODE_INPUT, rows->name, row->line, position,
		       "%s: expected %s, got \"%.40s\"", own_columns[COLUMN_OWN - column], expected,
		       cell);
}

/* Reads the step time, or computes it from the throughput. If a row has both, the step time
 * counts. */
static bool read_step(const struct question_rows *rows, const struct csv_row *row,
	const struct plan *plan, double *seconds, struct error *error)
{
	double tokens = plan_tokens_per_rank(plan), rate, by_rate;

	if (!read_cell(
		    rows, row, COLUMN_STEP_TIME, "a time such as 2.9 or 850ms", seconds, error) ||
		!read_cell(rows, row, COLUMN_TOKENS, "tokens a second of one GPU such as 3800",
			&rate, error))
		return false;
	by_rate = rate > 0 ? tokens / rate : *seconds;
	if (*seconds == 0)
		*seconds = by_rate;
	if (*seconds == 0)
		return error_at(error, EXIT_CODE_INPUT, rows->name, row->line, 1,
			"expected what was measured in step_time_s or tokens_per_s_per_gpu, "
			"got neither");
	return fabs(by_rate / *seconds - 1) < SAME_STEP ||
	       error_at(error, EXIT_CODE_INPUT, rows->name, row->line, 1,
		       "step_time_s %.4g and tokens_per_s_per_gpu %.4g differ: "
		       "at that rate a step of %.0f tokens a GPU takes %.4g s; leave one empty",
		       *seconds, rate, tokens, by_rate);
}

/* Adds the place of the row to a message, which names at most a column. */
static bool at_row(const struct question_rows *rows, const struct csv_row *row,
	const struct error *why, struct error *error)
{
	return error_at(error, EXIT_CODE_INPUT, rows->name, row->line, 1, "%s", why->message);
}

static bool check_topology(const struct runs *runs, const struct question_rows *rows,
	const struct csv_row *row, struct error *error)
{
	int position;
	const char *cell = row_cell(rows, row, COLUMN_TOPOLOGY, &position);

	return cell[0] == '\0' || strcmp(cell, runs->topology) == 0 ||
	       error_at(error, EXIT_CODE_INPUT, rows->name, row->line, position,
		       "topology: expected %.100s, which is fitted, or nothing, got \"%.60s\"; "
		       "a part of it is said by gpus",
		       runs->topology, cell);
}

static bool add_row(struct runs *runs, const struct question_rows *rows, const struct csv_row *row,
	const struct arguments *base, struct error *error)
{
	struct arguments arguments;
	const char *words[3];
	struct asked *asked = ARENA_NEW(runs->arena, struct asked);
	struct fit_run *run = add_run(runs, rows->name, error);
	struct error why = {0};

	if (run == NULL || !check_topology(runs, rows, row, error))
		return false;
	if (!row_arguments(rows, row, base, &arguments, words, runs->arena, &why) ||
		!ask_plan(runs->arena, words[1], words[2], &arguments, asked, &run->plan, &why))
		return at_row(rows, row, &why, error);
	run->name = words[0] != NULL
			    ? words[0]
			    : arena_printf(runs->arena, "%d", (int)(row - rows->table.rows) + 1);
	run->model = asked->model;
	run->topology = asked->topology;
	return read_step(rows, row, &run->plan, &run->step_time, error);
}

static bool add_table(
	struct runs *runs, const char *path, const struct arguments *arguments, struct error *error)
{
	struct question_rows rows;
	struct arguments base = *arguments;

	base.operands[0] = NULL;
	base.operands[1] = runs->topology;
	if (!question_rows_read(runs->arena, path, own_columns, "it is left out", &rows, error))
		return false;
	for (int i = 0; i < rows.table.n_rows; i++)
		if (!add_row(runs, &rows, &rows.table.rows[i], &base, error))
			return false;
	return true;
}

/* --- plans with measurements ------------------------------------------------------------------ */

static bool read_trace(struct runs *runs, const char *path, double *seconds, struct error *error)
{
	struct kineto kineto;
	struct activity_summary summary;

	kineto_init(&kineto, path);
	bool ok = measured_feed(path, &kineto, runs->arena, error) && kineto_end(&kineto, error);
	if (ok) {
		activities_summarise(&kineto.activities, &summary);
		*seconds = summary.step_time;
	}
	kineto_finish(&kineto);
	return ok;
}

static bool read_log(
	const char *path, const struct plan *plan, double *seconds, struct error *error)
{
	struct log_figures log;
	struct error why = {0};

	if (!measured_log(path, &log, &why))
		return error_at(error, EXIT_CODE_INPUT, path, 1, 1,
			"expected a measurement of `train`, a trace, "
			"or a log with step times or tokens/s of the plan before it, got none");
	*seconds = log.step_time > 0 ? log.step_time
		   : log.tokens_per_s_per_gpu > 0
			   ? plan_tokens_per_rank(plan) / log.tokens_per_s_per_gpu
			   : 0;
	return *seconds > 0 || error_at(error, EXIT_CODE_INPUT, path, 1, 1,
				       "expected step times or tokens/s, got neither");
}

static bool read_measured(struct runs *runs, const char *path, const struct plan_file *file,
	double *seconds, struct error *error)
{
	enum measured_kind kind;
	struct measurement measurement;

	if (!measured_kind(path, &kind, error))
		return false;
	if (kind == MEASURED_TRACE)
		return read_trace(runs, path, seconds, error);
	if (kind == MEASURED_LOG)
		return read_log(path, &file->plan, seconds, error);
	if (!input_measurement(runs->arena, path, file, &measurement, error))
		return false;
	*seconds = measurement_step(&measurement);
	return true;
}

/* Adds a plan's run. Its knobs are used with the fitted topology, not with the links of its own
 * file. */
static bool add_plan(struct runs *runs, const char *path, const char *measured, struct error *error)
{
	struct plan_file *file = ARENA_NEW(runs->arena, struct plan_file);
	struct fit_run *run = add_run(runs, path, error);
	struct topology *topology;
	struct error why = {0};

	if (run == NULL || !input_plan_file(runs->arena, path, file, NULL, error))
		return false;
	if (measured == NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"topologies fit: expected what was measured behind %.100s: a measurement, "
			"a trace or a log",
			path);
	if (!input_topology(
		    runs->arena, runs->topology, plan_ranks(&file->plan), &topology, &why) ||
		!plan_check(&file->plan, file->model, topology, &why))
		return error_set(error, EXIT_CODE_INPUT, "%s: not a run of %.60s: %s", path,
			runs->topology, why.message);
	*run = (struct fit_run){
		.name = path, .model = file->model, .topology = topology, .plan = file->plan};
	return read_measured(runs, measured, file, &run->step_time, error);
}

static bool is_plan(struct arena *arena, const char *path)
{
	static const char start[] = "shardplan: plan/";
	struct contents contents;
	struct error ignored = {0};

	return strcmp(path, "-") != 0 &&
	       file_read_part(arena, path, 0, sizeof(start) - 1, &contents, &ignored) &&
	       strncmp(contents.text, start, sizeof(start) - 1) == 0;
}

static bool add_runs(struct runs *runs, const struct arguments *arguments, struct error *error)
{
	int n = arguments->n_operands;

	for (int i = 2; i < n; i++) {
		const char *path = arguments->operands[i];
		const char *next = i + 1 < n ? arguments->operands[i + 1] : NULL;
		bool plan = is_plan(runs->arena, path);

		if (!(plan ? add_plan(runs, path, next, error)
			   : add_table(runs, path, arguments, error)))
			return false;
		i += plan;
	}
	return runs->n >= FIT_LEAST_RUNS ||
	       error_at(error, EXIT_CODE_INPUT, arguments->operands[2], 1, 1,
		       "expected %d runs or more, got %d; "
		       "fewer cannot tell the clock from the links",
		       FIT_LEAST_RUNS, runs->n);
}

/* --- the result ------------------------------------------------------------------------------- */

static bool print(const struct invocation *invocation, const struct fitting *fitting,
	struct text *text, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *path = argument(arguments, "output");
	bool json = argument_given(arguments, "json");
	bool aside = !json && (path == NULL || strcmp(path, "-") == 0);
	struct text file = {0}, tables = {0};
	struct style style;
	bool ok = output_style(arguments, &style, error);

	if (ok && json)
		report_fitting_json(fitting, text);
	else if (ok)
		report_fitting_text(fitting, &style, aside ? &tables : text);
	topology_print(fitting->topology, WRITER_YAML, json || path != NULL ? &file : text);
	ok = ok && (path == NULL || file_write(invocation->arena, path, &file, error));
	if (ok && path != NULL && strcmp(path, "-") != 0)
		output_note(fitting_tells(fitting) ? "the fitted topology is in %s"
						   : "the topology is in %s, as it was",
			path);
	if (ok && aside)
		output_aside(&tables);
	text_finish(&file);
	text_finish(&tables);
	return ok;
}

bool topologies_fit(struct invocation *invocation, struct text *text, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct arena *arena = invocation->arena;
	struct runs *runs = ARENA_NEW(arena, struct runs);
	struct topology *topology;
	struct fitting fitting;
	int threads;

	if (arguments->n_operands < 3)
		return error_set(error, EXIT_CODE_USAGE,
			"topologies fit: expected TOPOLOGY RUNS.csv, "
			"or TOPOLOGY and plans with what was measured of each");
	runs->topology = arguments->operands[1];
	runs->arena = arena;
	if (!ask_threads(arguments, &threads, error) ||
		!input_topology(arena, runs->topology, 0, &topology, error) ||
		!add_runs(runs, arguments, error) ||
		!fit_runs(topology, runs->of, runs->n, threads, arena, &fitting, error))
		return false;
	if (!fitting_tells(&fitting))
		invocation->verdict = EXIT_CODE_NO;
	return print(invocation, &fitting, text, error);
}
