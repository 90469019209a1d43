/* Grids on a terminal, through libsmartcols. */
#include <libsmartcols.h>
#include <stdlib.h>
#include <string.h>

#include "reports/text/text.h"

/* Wide enough for any table; libsmartcols would otherwise ask the terminal. */
enum { UNLIMITED = 4000 };

static void check(int result)
{
	if (result < 0)
		base_out_of_memory(0);
}

static void *not_null(void *pointer)
{
	if (pointer == NULL)
		base_out_of_memory(0);
	return pointer;
}

static void add_columns(struct libscols_table *table, const struct grid *grid)
{
	static const int flags[] = {0, SCOLS_FL_RIGHT, SCOLS_FL_WRAP};

	for (int c = 0; c < grid->n_columns; c++) {
		struct libscols_column *column = not_null(scols_table_new_column(
			table, grid->columns[c].name, 0, flags[grid->columns[c].align]));
		if (grid->columns[c].align != GRID_WRAP)
			continue;
		/* By itself libsmartcols breaks inside words. */
		check(scols_column_set_safechars(column, "\n"));
		check(scols_column_set_wrapfunc(
			column, scols_wrapnl_chunksize, scols_wrapnl_nextchunk, NULL));
	}
}

static int column_width(const struct grid *grid, int column)
{
	size_t width = strlen(grid->columns[column].name);
	struct text cell = {0};

	for (int r = 0; r < grid->n_rows; r++) {
		text_clear(&cell);
		add_ascii(&cell, grid->rows[r].cells[column].text);
		width = cell.length > width ? cell.length : width;
	}
	text_finish(&cell);
	return (int)width;
}

/* What the other columns leave to the GRID_WRAP column; at least a readable line. */
static int wrap_width(const struct grid *grid, const struct style *style)
{
	int width = style->width > 0 ? style->width - 1 : UNLIMITED;

	for (int c = 0; c < grid->n_columns; c++) {
		if (grid->columns[c].align != GRID_WRAP)
			width -= column_width(grid, c) + 2;
	}
	return width > 24 ? width : 24;
}

/* Turns the last blank before each `width` into a line end. */
static void break_lines(char *cell, int width)
{
	int start = 0, blank = -1;

	for (int i = 0; cell[i] != '\0'; i++) {
		if (i - start >= width && blank >= 0) {
			cell[blank] = '\n';
			start = blank + 1;
			blank = -1;
		}
		if (cell[i] == ' ')
			blank = i;
	}
}

static void add_row(struct libscols_table *table, const struct grid *grid,
	const struct grid_row *row, int width, bool color)
{
	static const char *const colors[] = {NULL, "green", "yellow", "red"};
	struct libscols_line *line = not_null(scols_table_new_line(table, NULL));
	struct text cell = {0};

	if (color && colors[row->mark] != NULL)
		check(scols_line_set_color(line, colors[row->mark]));
	for (int c = 0; c < grid->n_columns; c++) {
		text_clear(&cell);
		add_ascii(&cell, row->cells[c].text);
		if (grid->columns[c].align == GRID_WRAP && cell.length > 0)
			break_lines(cell.data, width);
		check(scols_line_set_data(line, (size_t)c, text_string(&cell)));
	}
	text_finish(&cell);
}

/* libsmartcols pads the last column to the width of the terminal. */
static void add_trimmed(struct text *text, const char *lines)
{
	while (*lines != '\0') {
		size_t length = strcspn(lines, "\n"), shown = length;
		while (shown > 0 && lines[shown - 1] == ' ')
			shown--;
		if (shown > 0)
			text_add_char(text, ' ');
		text_add_bytes(text, lines, shown);
		text_add_char(text, '\n');
		lines += length + (lines[length] == '\n');
	}
}

void grid_text(const struct grid *grid, const struct style *style, struct text *text)
{
	struct libscols_table *table = not_null(scols_new_table());
	char *lines = NULL;

	check(scols_table_set_termforce(table, SCOLS_TERMFORCE_ALWAYS));
	check(scols_table_set_termwidth(table, UNLIMITED));
	check(scols_table_set_column_separator(table, "  "));
	check(scols_table_enable_ascii(table, 1));
	check(scols_table_enable_colors(table, style->color));
	add_columns(table, grid);
	int width = wrap_width(grid, style);
	for (int r = 0; r < grid->n_rows; r++)
		add_row(table, grid, &grid->rows[r], width, style->color);
	check(scols_print_table_to_string(table, &lines));
	if (lines != NULL)
		add_trimmed(text, lines);
	if (lines != NULL && grid->n_rows > 0)
		text_add_char(text, '\n');
	free(lines);
	scols_unref_table(table);
}
