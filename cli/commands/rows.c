#include "cli/commands/rows.h"

#include <string.h>

#include "cli/terminal/terminal.h"

/* The state while a header is read. */
struct reading {
	const char *name; /* of the file */
	const char *const *own;
	const char *unknown;
	struct arena *arena;
};

static const char *const nothing[] = {NULL};

static bool is_column(const struct option *option)
{
	return option->flags & OPTION_QUESTION && option->commands >> COMMAND_PREDICT & 1;
}

/* Finds a column. Headings may use capitals, and blanks or dashes for underscores. */
static int column_of(const struct reading *reading, const char *heading)
{
	static const char *const named[] = {"case", "model", "topology"};
	const char *name = swap_dashes(heading, ' ', '-', reading->arena), *prefix = "";

	for (int i = 0; i < COUNT_OF(named); i++)
		if (same_name(name, named[i]))
			return COLUMN_CASE - i;
	for (int i = 0; reading->own[i] != NULL; i++)
		if (same_name(name, reading->own[i]))
			return COLUMN_OWN - i;
	const struct option *option = option_spelled(name, COMMAND_PREDICT, &prefix, NULL);
	return option != NULL && is_column(option) && prefix[0] == '\0'
		       ? (int)(option - all_options)
		       : COLUMN_UNKNOWN;
}

static const char *nearest_column(const struct reading *reading, const char *name)
{
	const char *const *names = option_names(COMMAND_PREDICT, true, reading->arena);
	const char **all = ARENA_ARRAY(reading->arena, const char *, n_options + 8);
	int n = 0;

	all[n++] = "case";
	all[n++] = "model";
	all[n++] = "topology";
	for (int i = 0; reading->own[i] != NULL; i++)
		all[n++] = reading->own[i];
	while (*names != NULL)
		all[n++] = *names++;
	return nearest_name(name, all);
}

/* Short words ("name", "cost") are similar to too many names to be mistakes. */
enum { SHORTEST_MISTAKE = 5 };

/* Refuses an unknown column whose name is similar to a known one; others are ignored. Figures of
 * `predict --cases` are similar to options but no mistake: who fits a model has predicted and
 * measured figures in one table. */
static bool check_unknown(const struct reading *reading, const char *heading, int line,
	int position, struct error *error)
{
	const char *near =
		strlen(heading) < SHORTEST_MISTAKE ? NULL : nearest_column(reading, heading);
	const char *words = swap_dashes(heading, ' ', '-', reading->arena), *prefix;
	struct error refused = {0};

	if (reading->own != nothing && report_has_case_column(heading))
		return true;
	if (near != NULL)
		return error_at(error, EXIT_CODE_INPUT, reading->name, line, position,
			"unknown column \"%.60s\", did you mean %s?", heading, near);
	if (option_spelled(words, COMMAND_PREDICT, &prefix, &refused) == NULL &&
		refused.code != EXIT_CODE_OK)
		return error_at(error, EXIT_CODE_INPUT, reading->name, line, position, "%s",
			refused.message + strlen("--"));
	output_note("%s: column \"%.60s\" is no option of predict; %s", reading->name, heading,
		reading->unknown);
	return true;
}

static bool read_header(
	const struct reading *reading, struct question_rows *rows, struct error *error)
{
	const struct csv_row *header = &rows->table.header;

	if (rows->table.delimiter != ',')
		output_note("%s: cells are separated by %s", rows->name,
			rows->table.delimiter == ';' ? "semicolons" : "tabs");
	rows->columns = ARENA_ARRAY(reading->arena, int, header->n_cells);
	for (int i = 0; i < header->n_cells; i++) {
		const char *cell = header->cells[i];
		int column = rows->columns[i] = column_of(reading, cell);
		if (column == COLUMN_UNKNOWN &&
			!check_unknown(reading, cell, header->line, i + 1, error))
			return false;
		for (int j = 0; j < i && column != COLUMN_UNKNOWN; j++) {
			if (rows->columns[j] == column)
				return error_at(error, EXIT_CODE_INPUT, rows->name, header->line,
					i + 1, "column \"%s\" stands twice", cell);
		}
	}
	return true;
}

bool question_rows_read(struct arena *arena, const char *path, const char *const *own,
	const char *unknown, struct question_rows *rows, struct error *error)
{
	struct contents contents;

	if (!file_read(arena, path, &contents, error) ||
		!csv_read(
			arena, contents.name, contents.text, contents.length, &rows->table, error))
		return false;
	rows->name = contents.name;
	const struct reading reading = {contents.name, own != NULL ? own : nothing, unknown, arena};
	return read_header(&reading, rows, error);
}

bool row_arguments(const struct question_rows *rows, const struct csv_row *row,
	const struct arguments *base, struct arguments *arguments, const char *words[3],
	struct arena *arena, struct error *error)
{
	*arguments = *base;
	arguments->cells = true;
	words[0] = NULL;
	words[1] = base->operands[0];
	words[2] = base->operands[1];
	if (row->n_cells > rows->table.header.n_cells)
		return error_set(error, EXIT_CODE_INPUT, "expected %d cells, got %d",
			rows->table.header.n_cells, row->n_cells);
	for (int i = 0; i < row->n_cells; i++) {
		int column = rows->columns[i];
		if (row->cells[i][0] == '\0')
			continue;
		if (column >= 0) {
			arguments->values[column] =
				option_value_spelled(&all_options[column], row->cells[i], arena);
			arguments->origins[column] = NULL;
		} else if (column > COLUMN_UNKNOWN) {
			words[COLUMN_CASE - column] = row->cells[i];
		}
	}
	for (int i = 1; i < 3; i++) {
		if (words[i] == NULL)
			return error_set(error, EXIT_CODE_INPUT, "expected a %s, got none",
				i == 1 ? "model" : "topology");
	}
	return true;
}

const char *row_cell(
	const struct question_rows *rows, const struct csv_row *row, int column, int *position)
{
	for (int i = 0; i < row->n_cells; i++) {
		if (rows->columns[i] == column) {
			*position = i + 1;
			return row->cells[i];
		}
	}
	*position = 1;
	return "";
}
