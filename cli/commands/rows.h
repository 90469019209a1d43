/* Tables of questions: a row of CSV is a case, and its columns are options of the command line. */
#ifndef CLI_ROWS_H
#define CLI_ROWS_H

#include "cli/commands/commands.h"
#include "cli/question/question.h"

/* Columns that are not options. Columns of a command's own follow: COLUMN_OWN, COLUMN_OWN - 1,
 * ... */
enum {
	COLUMN_CASE = -1,
	COLUMN_MODEL = -2,
	COLUMN_TOPOLOGY = -3,
	COLUMN_UNKNOWN = -4,
	COLUMN_OWN = -5
};

struct question_rows {
	const char *name; /* of the file */
	struct csv_table table;
	int *columns; /* for each column: the index of an option of predict, or one of the above */
};

/* `own`: the command's columns, NULL-terminated; NULL: none. `unknown`: says in a note what happens
 * to columns that are not options. EXIT_CODE_INPUT for a column whose name is similar to an option.
 */
bool question_rows_read(struct arena *arena, const char *path, const char *const *own,
	const char *unknown, struct question_rows *rows, struct error *error);

/* Adds the row's cells to the options in `base`; an empty cell means that there is no value.
 * `words`: case (or NULL), model and topology. If the row has no model or topology it is that of
 * the operands. */
bool row_arguments(const struct question_rows *rows, const struct csv_row *row,
	const struct arguments *base, struct arguments *arguments, const char *words[3],
	struct arena *arena, struct error *error);

/* The row's cell in a column, or "" if it has none, and the index of the cell from 1 on. */
const char *row_cell(
	const struct question_rows *rows, const struct csv_row *row, int column, int *position);

#endif
