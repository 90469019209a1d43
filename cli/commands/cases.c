/* `predict --cases`: a CSV row in, a CSV row out. A bad row does not stop the rest. */
#include <string.h>

#include "cli/commands/cases.h"
#include "cli/terminal/terminal.h"

/* The columns that are no option. */
enum { COLUMN_CASE = -1, COLUMN_MODEL = -2, COLUMN_TOPOLOGY = -3, COLUMN_UNKNOWN = -4 };

struct cases {
	const struct arguments *base; /* of the command line, for every row */
	struct csv_table table;
	int *columns; /* by position: the index of an option, or one of the above */
	int n_bad;
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

static void predict_row(
	struct cases *cases, const struct csv_row *row, struct arena *arena, struct text *text)
{
	struct arguments arguments;
	struct asked asked;
	struct plan plan;
	struct evaluation evaluation;
	struct error error = {0};
	const char *words[3] = {NULL};

	bool ok = read_row(cases, row, &arguments, words, &error) &&
		  ask_plan(arena, words[1], words[2], &arguments, &asked, &plan, &error) &&
		  plan_evaluate_briefly(arena, &plan, asked.model, asked.topology,
			  asked.question.memory_limit_bytes, &evaluation, &error);
	const char *name = words[0] != NULL
				   ? words[0]
				   : arena_printf(arena, "%d", (int)(row - cases->table.rows) + 1);
	report_case_row(
		name, ok ? &evaluation.simulation.prediction : NULL, ok ? "" : error.message, text);
	cases->n_bad += !ok;
}

static bool predict_rows(struct cases *cases, struct error *error)
{
	struct arena arena = {0};
	struct text text = {0};
	bool ok = true;

	report_case_header(&text);
	for (int i = 0; ok && i < cases->table.n_rows; i++) {
		predict_row(cases, &cases->table.rows[i], &arena, &text);
		ok = output_text(&text, error);
		text_clear(&text);
		arena_reset(&arena);
	}
	if (cases->table.n_rows == 0)
		ok = output_text(&text, error);
	text_finish(&text);
	arena_finish(&arena);
	return ok;
}

bool predict_cases(struct invocation *invocation, const char *path, struct error *error)
{
	struct cases cases = {.base = &invocation->arguments};
	struct contents contents;

	if (!file_read(invocation->arena, path, &contents, error) ||
		!csv_read(invocation->arena, contents.name, contents.text, contents.length,
			&cases.table, error) ||
		!read_header(&cases, contents.name, invocation->arena, error) ||
		!predict_rows(&cases, error))
		return false;
	if (cases.n_bad > 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: %d of %d rows are bad, see the column "
			"`error`",
			contents.name, cases.n_bad, cases.table.n_rows);
	return true;
}
