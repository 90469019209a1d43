/* `predict --cases`: a CSV row in, a CSV row out. A bad row does not stop the rest. */
#include <string.h>

#include "cli/commands/cases.h"
#include "cli/cores/cores.h"
#include "cli/terminal/terminal.h"

/* The columns that are no option. */
enum { COLUMN_CASE = -1, COLUMN_MODEL = -2, COLUMN_TOPOLOGY = -3, COLUMN_UNKNOWN = -4 };

struct cases {
	const struct arguments *base; /* of the command line, for every row */
	struct csv_table table;
	int *columns; /* by position: the index of an option, or one of the above */
	int n_bad;
	int workers;
	struct arena *arenas; /* by worker */
	int first;            /* of the rows that are predicted together */
	struct result *results;
};

/* What one row gives. */
struct result {
	struct text line, notes;
	bool bad;
};

static int column_of(const char *name, struct arena *arena)
{
	static const char *const named[] = {"case", "model", "topology"};
	const struct option *option = option_find(swap_dashes(name, '_', '-', arena));

	for (int i = 0; i < COUNT_OF(named); i++) {
		if (strcmp(name, named[i]) == 0)
			return -1 - i;
	}
	if (option == NULL || strchr(name, '-') != NULL || !(option->flags & OPTION_QUESTION) ||
		!(option->commands >> COMMAND_PREDICT & 1))
		return COLUMN_UNKNOWN;
	return (int)(option - all_options);
}

static const char *nearest_column(const char *name, struct arena *arena)
{
	const char *const *names = option_names(COMMAND_PREDICT, true, arena);
	const char **all = ARENA_ARRAY(arena, const char *, n_options + 4);
	int n = 0;

	all[n++] = "case";
	all[n++] = "model";
	all[n++] = "topology";
	while (*names != NULL)
		all[n++] = *names++;
	return nearest_name(name, all);
}

static bool read_header(
	struct cases *cases, const char *name, struct arena *arena, struct error *error)
{
	const struct csv_row *header = &cases->table.header;

	cases->columns = ARENA_ARRAY(arena, int, header->n_cells);
	for (int i = 0; i < header->n_cells; i++) {
		const char *cell = header->cells[i];
		cases->columns[i] = column_of(cell, arena);
		if (cases->columns[i] == COLUMN_UNKNOWN) {
			const char *near = nearest_column(cell, arena);
			return error_at(error, EXIT_CODE_INPUT, name, header->line, i + 1,
				"unknown column \"%.60s\"%s%s%s; expected case, model, topology or "
				"an option of predict with _ for -",
				cell, near != NULL ? ", did you mean " : "",
				near != NULL ? near : "", near != NULL ? "?" : "");
		}
		for (int j = 0; j < i; j++) {
			if (cases->columns[j] == cases->columns[i])
				return error_at(error, EXIT_CODE_INPUT, name, header->line, i + 1,
					"column \"%s\" stands twice", cell);
		}
	}
	return true;
}

/* The command line's arguments under the row's cells; an empty cell says nothing. */
static bool read_row(const struct cases *cases, const struct csv_row *row,
	struct arguments *arguments, const char *words[3], struct error *error)
{
	*arguments = *cases->base;
	arguments->cells = true;
	words[0] = NULL;
	words[1] = cases->base->operands[0];
	words[2] = cases->base->operands[1];
	if (row->n_cells > cases->table.header.n_cells)
		return error_set(error, EXIT_CODE_INPUT, "expected %d cells, got %d",
			cases->table.header.n_cells, row->n_cells);
	for (int i = 0; i < row->n_cells; i++) {
		int column = cases->columns[i];
		if (row->cells[i][0] == '\0')
			continue;
		if (column >= 0) {
			arguments->values[column] = row->cells[i];
			arguments->origins[column] = NULL;
		} else
			words[-1 - column] = row->cells[i];
	}
	for (int i = 1; i < 3; i++) {
		if (words[i] == NULL)
			return error_set(error, EXIT_CODE_INPUT, "expected a %s, got none",
				i == 1 ? "model" : "topology");
	}
	return true;
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
		read_row(cases, row, &arguments, words, &error) &&
		ask_plan(arena, words[1], words[2], &arguments, &asked, &plan, &error) &&
		plan_evaluate(&asked.question, &plan, EVALUATION_BRIEF, arena, &evaluation, &error);
	const char *name = words[0] != NULL
				   ? words[0]
				   : arena_printf(arena, "%d", (int)(row - cases->table.rows) + 1);
	report_case_row(name, ok ? &evaluation.simulation.prediction : NULL,
		ok ? "" : error.message, &result->line);
	result->bad = !ok;
}

/* On any core. */
static void predict_piece(void *data, int index, int worker)
{
	const struct cases *cases = data;
	struct result *result = &cases->results[index];
	struct arena *arena = &cases->arenas[worker];

	output_keep_notes(&result->notes);
	predict_row(cases, &cases->table.rows[cases->first + index], arena, result);
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

/* So many at a time that lines still come while the rest is predicted. */
enum { ROWS_PER_WORKER = 64 };

static bool predict_rows(struct cases *cases, struct error *error)
{
	struct arena arena = {0};
	struct text header = {0};
	int most = cases->workers > 1 ? ROWS_PER_WORKER * cases->workers : 1;

	cases->arenas = ARENA_ARRAY(&arena, struct arena, cases->workers);
	cases->results = ARENA_ARRAY(&arena, struct result, most);
	report_case_header(&header);
	bool ok = output_text(&header, error);
	for (cases->first = 0; ok && cases->first < cases->table.n_rows; cases->first += most) {
		int n = cases->table.n_rows - cases->first;
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

/* Standard input is read by the first row that asks for it. */
static bool reads_input(const struct cases *cases)
{
	bool reads = false;

	for (int i = 0; i < 2; i++)
		reads = reads || (cases->base->operands[i] != NULL &&
					 strcmp(cases->base->operands[i], "-") == 0);
	for (int i = 0; i < cases->table.n_rows; i++)
		for (int j = 0; j < cases->table.rows[i].n_cells; j++)
			reads = reads || strcmp(cases->table.rows[i].cells[j], "-") == 0;
	return reads;
}

bool predict_cases(
	struct invocation *invocation, const char *path, int threads, struct error *error)
{
	struct cases cases = {.base = &invocation->arguments, .workers = threads};
	struct contents contents;

	if (!file_read(invocation->arena, path, &contents, error) ||
		!csv_read(invocation->arena, contents.name, contents.text, contents.length,
			&cases.table, error) ||
		!read_header(&cases, contents.name, invocation->arena, error))
		return false;
	if (reads_input(&cases))
		cases.workers = 1;
	if (!predict_rows(&cases, error))
		return false;
	if (cases.n_bad > 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: %d of %d rows are bad, see the column "
			"`error`",
			contents.name, cases.n_bad, cases.table.n_rows);
	return true;
}
