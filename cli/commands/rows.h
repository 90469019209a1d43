/* Tables of questions: a CSV row is a case, its columns are options, as the command line has them.
 */
#ifndef CLI_ROWS_H
#define CLI_ROWS_H

#include "cli/commands/commands.h"
#include "cli/question/question.h"

/* The columns that are no option. Columns of a command's own follow: COLUMN_OWN, COLUMN_OWN - 1,
 * ...
 */
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
	int *columns; /* by position: the index of an option of predict, or one of the above */
};

/* `own`: the command's columns, NULL-terminated; NULL: it has none. `unknown`: what becomes of
 * those that are no option, for a note on each. EXIT_CODE_INPUT for what is nearly a column. */
bool question_rows_read(struct arena *arena, const char *path, const char *const *own,
	const char *unknown, struct question_rows *rows, struct error *error);

/* `base` under the row's cells; an empty cell says nothing. `words`: case (or NULL), model and
 * topology; what the row does not say of these are the first two operands. */
bool row_arguments(const struct question_rows *rows, const struct csv_row *row,
	const struct arguments *base, struct arguments *arguments, const char *words[3],
	struct arena *arena, struct error *error);

/* Its cell in a column, "" where it has none, and which cell that is, from 1 on. */
const char *row_cell(
	const struct question_rows *rows, const struct csv_row *row, int column, int *position);

#endif
