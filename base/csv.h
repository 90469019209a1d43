/* CSV in and out through libcsv, with line numbers. */
#ifndef BASE_CSV_H
#define BASE_CSV_H

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"

struct csv_row {
	int line; /* where the row starts in the text, from 1 */
	int n_cells;
	char **cells;
};

struct csv_table {
	struct csv_row header;
	int n_rows;
	struct csv_row *rows; /* without the header */
	char delimiter;       /* a comma; where the header has none, a semicolon or a tab */
};

/* The first row is the header. Rows may be shorter or longer than it; the caller judges. Blank
 * lines and lines that start with '#' are skipped. Everything lives in `arena`. */
bool csv_read(struct arena *arena, const char *name, const char *text, size_t length,
	struct csv_table *table, struct error *error);

/* Appends one cell, quoted where needed. A text cell that a spreadsheet would run (starts with
 * = + - @) gets a leading apostrophe; numbers are written by the caller with text_number. */
void csv_add_cell(struct text *text, const char *cell, bool first);

#endif
