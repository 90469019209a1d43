/* `predict --cases`: writes a row of CSV for each row read. A bad row does not stop the others. */
#include <string.h>

#include "cli/commands/cases.h"
#include "cli/commands/rows.h"
#include "cli/cores/cores.h"
#include "cli/terminal/terminal.h"

/* An input that is repeated behind the figures. */
struct input {
	const char *name;
	int column; /* as in rows.h */
	int cell;   /* of COLUMN_UNKNOWN: its index in a row */
};

struct cases {
	const struct arguments *base; /* options of the command line, which hold for every row */
	struct question_rows rows;
	int n_inputs;
	struct input *inputs;
	const char **input_names; /* NULL-terminated */
	int n_bad;
	int workers;
	struct arena *arenas; /* one for each worker */
	int first;            /* the first of the rows that are predicted together */
	struct result *results;
};

/* The result of one row. */
struct result {
	struct text line, notes;
	bool bad;
};

/* --- inputs that are repeated in the output --------------------------------------------------- */

/* Knobs that are always repeated, with their resolved values, because an empty cell means a
 * default. */
static const char *const always[] = {
	"gpus", "strategy", "seq-len", "micro-batch", "grad-accum", "global-batch", "runtime"};

static bool is_always(const struct option *option)
{
	for (int i = 0; i < COUNT_OF(always); i++)
		if (strcmp(always[i], option->name) == 0)
			return true;
	return false;
}

/* Chooses the columns behind the figures: model, topology, those that are always repeated, then the
 * others of the file. */
static void choose_inputs(struct cases *cases, struct arena *arena)
{
	const struct csv_row *header = &cases->rows.table.header;
	int most = COUNT_OF(always) + header->n_cells + 3, n = 0;

	cases->inputs = ARENA_ARRAY(arena, struct input, most);
	cases->input_names = ARENA_ARRAY(arena, const char *, most);
	cases->inputs[n++] = (struct input){"model", COLUMN_MODEL, -1};
	cases->inputs[n++] = (struct input){"topology", COLUMN_TOPOLOGY, -1};
	for (int i = 0; i < COUNT_OF(always); i++)
		cases->inputs[n++] = (struct input){swap_dashes(always[i], '-', '_', arena),
			(int)(option_find(always[i]) - all_options), -1};
	for (int i = 0; i < header->n_cells; i++) {
		int column = cases->rows.columns[i];
		const char *heading = header->cells[i];
		if (column == COLUMN_UNKNOWN && report_has_case_column(heading))
			heading = arena_printf(arena, "input_%s", heading);
		else if (column >= 0 && !is_always(&all_options[column]))
			heading = swap_dashes(all_options[column].name, '-', '_', arena);
		else if (column != COLUMN_UNKNOWN)
			continue;
		cases->inputs[n++] = (struct input){heading, column, i};
	}
	for (int i = 0; i < n; i++)
		cases->input_names[i] = cases->inputs[i].name;
	cases->n_inputs = n;
}

/* The value of an input. If the row was refused (`plan` is NULL) it is the text of the cell. */
static const char *input_value(const struct input *input, const struct csv_row *row,
	const struct arguments *arguments, const struct plan *plan, struct arena *arena)
{
	if (input->column == COLUMN_UNKNOWN)
		return input->cell < row->n_cells ? row->cells[input->cell] : "";
	const struct option *option = &all_options[input->column];
	if (plan != NULL && option->knob != NULL)
		return knob_typed((enum knob_id)(option->knob - knob_table), plan, arena);
	if (plan != NULL && strcmp(option->name, "gpus") == 0)
		return arena_printf(arena, "%lld", (long long)plan_ranks(plan));
	const char *value = arguments->values[input->column];
	return value != NULL ? value : "";
}

static const char **row_inputs(const struct cases *cases, const struct csv_row *row,
	const char *const words[3], const struct arguments *arguments, const struct plan *plan,
	struct arena *arena)
{
	const char **values = ARENA_ARRAY(arena, const char *, cases->n_inputs + 1);

	for (int i = 0; i < cases->n_inputs; i++) {
		const struct input *input = &cases->inputs[i];
		bool is_word = input->column == COLUMN_MODEL || input->column == COLUMN_TOPOLOGY;
		const char *word = is_word ? words[-1 - input->column] : NULL;
		values[i] = is_word ? (word != NULL ? word : "")
				    : input_value(input, row, arguments, plan, arena);
	}
	return values;
}

static void predict_row(const struct cases *cases, const struct csv_row *row, struct arena *arena,
	struct result *result)
{
	struct arguments arguments;
	struct asked asked;
	struct plan plan;
	struct evaluation evaluation;
	struct error error = {0};
	const char *words[3] = {NULL};

	bool ok =
		row_arguments(&cases->rows, row, cases->base, &arguments, words, arena, &error) &&
		ask_plan(arena, words[1], words[2], &arguments, &asked, &plan, &error) &&
		plan_evaluate(&asked.question, &plan, EVALUATION_BRIEF, arena, &evaluation, &error);
	const char *name = words[0] != NULL ? words[0]
					    : arena_printf(arena, "%d",
						      (int)(row - cases->rows.table.rows) + 1);
	report_case_row(name, ok ? &evaluation.simulation.prediction : NULL,
		ok ? "" : error.message,
		row_inputs(cases, row, words, &arguments, ok ? &plan : NULL, arena), &result->line);
	result->bad = !ok;
}

/* Predicts one row, on any core. */
static void predict_piece(void *data, int index, int worker)
{
	const struct cases *cases = data;
	struct result *result = &cases->results[index];
	struct arena *arena = &cases->arenas[worker];

	output_keep_notes(&result->notes);
	predict_row(cases, &cases->rows.table.rows[cases->first + index], arena, result);
	output_keep_notes(NULL);
	arena_reset(arena);
}

static bool print_result(struct cases *cases, struct result *result, struct error *error)
{
	output_kept_notes(&result->notes);
	cases->n_bad += result->bad;
	bool ok = output_text(&result->line, error);
	text_clear(&result->line);
	text_clear(&result->notes);
	return ok;
}

/* Rows are predicted in batches of this size, so that output begins before all are done. */
enum { ROWS_PER_WORKER = 64 };

static bool predict_rows(struct cases *cases, struct error *error)
{
	struct arena arena = {0};
	struct text header = {0};
	int most = cases->workers > 1 ? ROWS_PER_WORKER * cases->workers : 1;

	cases->arenas = ARENA_ARRAY(&arena, struct arena, cases->workers);
	cases->results = ARENA_ARRAY(&arena, struct result, most);
	report_case_header(cases->input_names, &header);
	bool ok = output_text(&header, error);
	for (cases->first = 0; ok && cases->first < cases->rows.table.n_rows;
		cases->first += most) {
		int n = cases->rows.table.n_rows - cases->first;
		n = n < most ? n : most;
		cores_each(cases->workers, n, predict_piece, cases);
		for (int i = 0; ok && i < n; i++)
			ok = print_result(cases, &cases->results[i], error);
	}
	for (int i = 0; i < most; i++) {
		text_finish(&cases->results[i].line);
		text_finish(&cases->results[i].notes);
	}
	for (int i = 0; i < cases->workers; i++)
		arena_finish(&cases->arenas[i]);
	text_finish(&header);
	arena_finish(&arena);
	return ok;
}

/* Does the command read standard input? The first row that names it reads it. */
static bool reads_input(const struct cases *cases)
{
	bool reads = false;

	for (int i = 0; i < 2; i++)
		reads = reads || (cases->base->operands[i] != NULL &&
					 strcmp(cases->base->operands[i], "-") == 0);
	for (int i = 0; i < cases->rows.table.n_rows; i++)
		for (int j = 0; j < cases->rows.table.rows[i].n_cells; j++)
			reads = reads || strcmp(cases->rows.table.rows[i].cells[j], "-") == 0;
	return reads;
}

bool predict_cases(
	struct invocation *invocation, const char *path, int threads, struct error *error)
{
	struct cases cases = {.base = &invocation->arguments, .workers = threads};

	if (!question_rows_read(invocation->arena, path, NULL, "it is repeated in the output",
		    &cases.rows, error))
		return false;
	choose_inputs(&cases, invocation->arena);
	if (reads_input(&cases))
		cases.workers = 1;
	if (!predict_rows(&cases, error))
		return false;
	if (cases.n_bad > 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: %d of %d rows %s bad, see the column `error`", cases.rows.name,
			cases.n_bad, cases.rows.table.n_rows, cases.n_bad == 1 ? "is" : "are");
	return true;
}
