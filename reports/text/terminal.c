/* Writes grids to a terminal with libsmartcols. */
#include <assert.h>
#include <libsmartcols.h>
#include <stdlib.h>
#include <string.h>

#include "reports/text/text.h"

/* Wide enough for any table; libsmartcols would otherwise ask the terminal. */
enum { UNLIMITED = 4000, MOST_COLUMNS = 32 };

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

/* The longest part of a text that is broken before these marks. A blank at a break is left out. */
static int longest_part(const char *text, const char *marks)
{
	size_t longest = 0;

	while (*text != '\0') {
		size_t length = 1 + strcspn(text + 1, marks);
		longest = length > longest ? length : longest;
		text += length + (text[length] == ' ');
	}
	return (int)longest;
}

/* The same of all cells of a column. */
static int longest_in_cells(const struct grid *grid, int column, const char *marks)
{
	int longest = 0;
	struct text cell = {0};

	for (int r = 0; r < grid->n_rows; r++) {
		text_clear(&cell);
		add_ascii(&cell, grid->rows[r].cells[column].text);
		int part = longest_part(text_string(&cell), marks);
		longest = part > longest ? part : longest;
	}
	text_finish(&cell);
	return longest;
}

/* The width at which a sentence is readable. */
enum { READABLE = 12 };

/* The marks before which cells are broken: those between words, and those inside names. */
static const char between_words[] = " ", in_names[] = " ._";

/* How a table is laid out in the width of the terminal. */
struct layout {
	int gap;           /* blanks between columns */
	const char *marks; /* at which cells are broken */
	bool wraps[MOST_COLUMNS];
	int widths[MOST_COLUMNS], least[MOST_COLUMNS];
};

/* The columns that there are for cells and the gaps before them. */
static int room_of(const struct style *style, const struct layout *layout)
{
	return (style->width > 0 ? style->width : UNLIMITED) + layout->gap - 1;
}

static bool is_too_wide(
	const struct grid *grid, const struct style *style, const struct layout *layout)
{
	int needed = 0;
	for (int c = 0; c < grid->n_columns; c++)
		needed += layout->gap + (layout->wraps[c] ? layout->least[c] : layout->widths[c]);
	return needed > room_of(style, layout);
}

static int clamp(int value, int least, int most)
{
	return value < least ? least : value < most ? value : most;
}

/* Shares the width that other columns leave among those that are broken: all are as wide as one
 * limit, but a column that needs less gets what it needs, and none has less than its least. */
static void share_width(const struct grid *grid, const struct style *style, struct layout *layout)
{
	int room = room_of(style, layout), limit = 0, widest = 0, *widths = layout->widths;

	for (int c = 0; c < grid->n_columns; c++) {
		room -= layout->gap + (layout->wraps[c] ? 0 : widths[c]);
		widest = layout->wraps[c] && widths[c] > widest ? widths[c] : widest;
	}
	for (int taken = 0; limit < widest && taken <= room; limit += taken <= room) {
		taken = 0;
		for (int c = 0; c < grid->n_columns; c++)
			if (layout->wraps[c])
				taken += clamp(limit + 1, layout->least[c], widths[c]);
	}
	for (int c = 0; c < grid->n_columns; c++)
		if (layout->wraps[c])
			widths[c] = clamp(limit, layout->least[c], widths[c]);
}

/* How wide each column is, and how narrow it can be when cells are broken before these marks and
 * headings before those. */
static void break_at(const char *in_cells, const char *in_headings, const struct grid *grid,
	struct layout *layout)
{
	layout->marks = in_cells;
	for (int c = 0; c < grid->n_columns; c++) {
		bool sentence = grid->columns[c].align == GRID_WRAP;
		int heading = longest_part(grid->columns[c].name, in_headings);
		int width = longest_in_cells(grid, c, "");
		int least = longest_in_cells(grid, c, in_cells);
		least = sentence && least < READABLE ? READABLE : least;
		layout->widths[c] = width = width > heading ? width : heading;
		least = least > heading ? least : heading;
		layout->least[c] = least < width ? least : width;
	}
}

/* Where a table is too wide, columns move together; if that is not enough, every text is broken
 * between its words, then headings are; only if that is not enough either, names are broken. */
static struct layout lay_out(const struct grid *grid, const struct style *style)
{
	struct layout layout = {.gap = 2};
	break_at(between_words, "", grid, &layout);
	for (int c = 0; c < grid->n_columns; c++)
		layout.wraps[c] = grid->columns[c].align == GRID_WRAP;
	if (is_too_wide(grid, style, &layout))
		layout.gap = 1;
	if (is_too_wide(grid, style, &layout))
		for (int c = 0; c < grid->n_columns; c++)
			layout.wraps[c] = grid->columns[c].align != GRID_RIGHT;
	if (is_too_wide(grid, style, &layout))
		break_at(between_words, between_words, grid, &layout);
	if (is_too_wide(grid, style, &layout))
		break_at(in_names, between_words, grid, &layout);
	share_width(grid, style, &layout);
	return layout;
}

static void add_columns(
	struct libscols_table *table, const struct grid *grid, const struct layout *layout)
{
	for (int c = 0; c < grid->n_columns; c++) {
		int flags = layout->wraps[c]                       ? SCOLS_FL_WRAP
			    : grid->columns[c].align == GRID_RIGHT ? SCOLS_FL_RIGHT
								   : 0;
		struct libscols_column *column =
			not_null(scols_table_new_column(table, NULL, 0, flags));
		if (!layout->wraps[c])
			continue;
		/* Without this libsmartcols breaks inside words. */
		check(scols_column_set_safechars(column, "\n"));
		check(scols_column_set_wrapfunc(
			column, scols_wrapnl_chunksize, scols_wrapnl_nextchunk, NULL));
	}
}

/* The length of the first line of a cell: up to the last mark that fits, of the first kind that has
 * one; if none fits, up to the first one. */
static size_t first_line(const char *cell, size_t width, const char *marks)
{
	if (strlen(cell) <= width)
		return strlen(cell);
	for (const char *mark = marks; *mark != '\0'; mark++)
		for (size_t end = width; end > 0; end--)
			if (cell[end] == *mark)
				return end;
	return 1 + strcspn(cell + 1, marks);
}

static void add_broken(struct text *text, const char *cell, int width, const char *marks)
{
	while (*cell != '\0') {
		size_t length = first_line(cell, (size_t)width, marks);

		text_add_bytes(text, cell, length);
		cell += length + (cell[length] == ' ');
		if (*cell != '\0')
			text_add_char(text, '\n');
	}
}

static void add_row(struct libscols_table *table, const struct grid *grid,
	const struct grid_row *row, const struct layout *layout, bool color)
{
	static const char *const colors[] = {NULL, "green", "yellow", "red"};
	struct libscols_line *line = not_null(scols_table_new_line(table, NULL));
	struct text cell = {0}, broken = {0};

	if (color && colors[row->mark] != NULL)
		check(scols_line_set_color(line, colors[row->mark]));
	for (int c = 0; c < grid->n_columns; c++) {
		text_clear(&cell);
		add_ascii(&cell, row->cells[c].text);
		text_clear(&broken);
		if (layout->wraps[c])
			add_broken(&broken, text_string(&cell), layout->widths[c], layout->marks);
		check(scols_line_set_data(
			line, (size_t)c, text_string(layout->wraps[c] ? &broken : &cell)));
	}
	text_finish(&broken);
	text_finish(&cell);
}

static int count_lines(const char *lines)
{
	int n = 1;
	for (; *lines != '\0'; lines++)
		n += *lines == '\n';
	return n;
}

/* The n-th line, from 0; "" above the first. */
static const char *nth_line(const char *lines, int n, struct text *line)
{
	text_clear(line);
	if (n < 0)
		return "";
	for (; n > 0; n--)
		lines += strcspn(lines, "\n") + 1;
	text_add_bytes(line, lines, strcspn(lines, "\n"));
	return text_string(line);
}

/* Puts the headings above the rows, each broken where its column is narrower; they end on one line.
 * Headings of libsmartcols cannot be broken. */
static void add_headings(
	struct libscols_table *table, const struct grid *grid, const struct layout *layout)
{
	struct text headings[MOST_COLUMNS] = {0}, line = {0};
	int most = 0;

	for (int c = 0; c < grid->n_columns; c++) {
		add_broken(&headings[c], grid->columns[c].name, layout->widths[c], between_words);
		int lines = count_lines(text_string(&headings[c]));
		most = lines > most ? lines : most;
	}
	for (int l = 0; l < most; l++) {
		struct libscols_line *row = not_null(scols_table_new_line(table, NULL));
		for (int c = 0; c < grid->n_columns; c++) {
			const char *heading = text_string(&headings[c]);
			int above = most - count_lines(heading);
			check(scols_line_set_data(
				row, (size_t)c, nth_line(heading, l - above, &line)));
		}
	}
	for (int c = 0; c < grid->n_columns; c++)
		text_finish(&headings[c]);
	text_finish(&line);
}

/* Adds lines without the blanks with which libsmartcols pads the last column. */
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

	assert(grid->n_columns <= MOST_COLUMNS);
	struct layout layout = lay_out(grid, style);

	check(scols_table_set_termforce(table, SCOLS_TERMFORCE_ALWAYS));
	check(scols_table_set_termwidth(table, UNLIMITED));
	check(scols_table_set_column_separator(table, layout.gap == 2 ? "  " : " "));
	check(scols_table_enable_ascii(table, 1));
	check(scols_table_enable_colors(table, style->color));
	check(scols_table_enable_noheadings(table, 1));
	add_columns(table, grid, &layout);
	add_headings(table, grid, &layout);
	for (int r = 0; r < grid->n_rows; r++)
		add_row(table, grid, &grid->rows[r], &layout, style->color);
	check(scols_print_table_to_string(table, &lines));
	if (lines != NULL)
		add_trimmed(text, lines);
	if (lines != NULL && grid->n_rows > 0)
		text_add_char(text, '\n');
	free(lines);
	scols_unref_table(table);
}
