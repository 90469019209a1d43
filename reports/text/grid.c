#include "reports/text/text.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

void grid_init(struct grid *grid, const struct grid_column *columns, int n_columns)
{
	*grid = (struct grid){.columns = columns, .n_columns = n_columns};
}

void grid_finish(struct grid *grid)
{
	arena_finish(&grid->arena);
	free(grid->rows);
	*grid = (struct grid){0};
}

void grid_row(struct grid *grid, enum grid_mark mark)
{
	grid->rows =
		array_grow(grid->rows, &grid->capacity, grid->n_rows + 1, sizeof(struct grid_row));
	struct grid_row *row = &grid->rows[grid->n_rows++];
	*row = (struct grid_row){.mark = mark};
	row->cells = ARENA_ARRAY(&grid->arena, struct grid_cell, grid->n_columns);
	for (int i = 0; i < grid->n_columns; i++)
		row->cells[i].text = "";
}

static struct grid_cell *next_cell(struct grid *grid, const char *format, va_list args)
{
	struct grid_row *row = &grid->rows[grid->n_rows - 1];
	struct text text = {0};

	assert(grid->n_rows > 0 && row->n_cells < grid->n_columns);
	text_vprintf(&text, format, args);
	struct grid_cell *cell = &row->cells[row->n_cells++];
	cell->text = arena_strdup(&grid->arena, text_string(&text));
	text_finish(&text);
	return cell;
}

void grid_add(struct grid *grid, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	next_cell(grid, format, args);
	va_end(args);
}

void grid_add_value(struct grid *grid, double value, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	struct grid_cell *cell = next_cell(grid, format, args);
	va_end(args);
	cell->sortable = true;
	cell->value = value;
}

void grid_add_bytes(struct grid *grid, double bytes)
{
	char buffer[32];

	grid_add_value(grid, bytes, "%s", format_bytes(buffer, bytes));
}

void grid_add_seconds(struct grid *grid, double seconds)
{
	char buffer[32];

	grid_add_value(grid, seconds, "%s", format_seconds(buffer, seconds));
}

void grid_add_count(struct grid *grid, int64_t count)
{
	grid_add_value(grid, (double)count, "%lld", (long long)count);
}

void grid_add_percent(struct grid *grid, double ratio)
{
	if (ratio == 0)
		grid_add_value(grid, 0, "-");
	else
		grid_add_value(grid, ratio, "%.1f %%", ratio * 100);
}

/* Adds a change; rounding errors count as none. */
void grid_add_change(struct grid *grid, double ratio, double most)
{
	ratio = fabs(ratio) < 1e-9 ? 0 : ratio;
	grid_add_value(grid, ratio, "%+.1f %%", ratio * 100);
	struct grid_row *row = &grid->rows[grid->n_rows - 1];
	double bar = most > 0 ? ratio / most : 0;
	row->cells[row->n_cells - 1].bar = bar > 1 ? 1 : bar < -1 ? -1 : bar;
}

void grid_markdown(const struct grid *grid, struct text *text)
{
	for (int c = 0; c < grid->n_columns; c++) {
		text_add(text, c == 0 ? "| " : " | ");
		add_markdown(text, grid->columns[c].name);
	}
	text_add(text, " |\n");
	for (int c = 0; c < grid->n_columns; c++)
		text_add(text, grid->columns[c].align == GRID_RIGHT ? "|---:" : "|:---");
	text_add(text, "|\n");
	for (int r = 0; r < grid->n_rows; r++) {
		for (int c = 0; c < grid->n_columns; c++) {
			text_add(text, c == 0 ? "| " : " | ");
			add_markdown(text, grid->rows[r].cells[c].text);
		}
		text_add(text, " |\n");
	}
}

static void html_heading(const struct grid_column *column, bool sortable, struct text *text)
{
	text_printf(text, "<th scope=\"col\"%s>",
		column->align == GRID_RIGHT ? " class=\"number\"" : "");
	if (sortable)
		text_add(text, "<button type=\"button\">");
	add_html(text, column->name);
	text_add(text, sortable ? "</button></th>" : "</th>");
}

static void html_bar(double bar, struct text *text)
{
	int end = 50 + (int)(bar * 50 + (bar > 0 ? 0.5 : -0.5));

	text_printf(text,
		"<svg aria-hidden=\"true\" viewBox=\"0 0 100 10\" "
		"preserveAspectRatio=\"none\"><path "
		"class=\"%s\" d=\"M50 1H%dV9H50z\"/><path class=\"b-axis\" d=\"M50 0V10\"/></svg>",
		bar > 0 ? "b-more" : "b-less", end);
}

/* Adds a cell; the first cell of a row is its heading. */
static void html_cell(const struct grid_column *column, const struct grid_cell *cell, bool first,
	struct text *text)
{
	text_add(text, first ? "<th scope=\"row\"" : "<td");
	if (cell->bar != 0)
		text_add(text, " class=\"number change\"");
	else if (column->align != GRID_LEFT)
		text_add(text,
			column->align == GRID_RIGHT ? " class=\"number\"" : " class=\"words\"");
	if (cell->sortable) {
		text_add(text, " data-sort=\"");
		text_number(text, cell->value);
		text_add(text, "\"");
	}
	text_add(text, ">");
	if (cell->bar != 0)
		html_bar(cell->bar, text);
	add_html(text, cell->text);
	text_add(text, first ? "</th>" : "</td>");
}

void grid_html(const struct grid *grid, const char *caption, bool sortable, struct text *text)
{
	static const char *const marks[] = {
		"", " class=\"good\"", " class=\"warning\"", " class=\"bad\""};

	text_printf(text, "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"");
	add_html(text, caption);
	text_printf(text, "\"><table%s><caption>",
		sortable               ? " class=\"sortable\""
		: grid->n_columns == 2 ? " class=\"facts\""
				       : "");
	text_add(text, "<span>");
	add_html(text, caption);
	text_add(text, "</span></caption>\n<thead><tr>");
	for (int c = 0; c < grid->n_columns; c++)
		html_heading(&grid->columns[c], sortable, text);
	text_add(text, "</tr></thead>\n<tbody>\n");
	for (int r = 0; r < grid->n_rows; r++) {
		const struct grid_row *row = &grid->rows[r];
		text_printf(text, "<tr%s>", marks[row->mark]);
		for (int c = 0; c < grid->n_columns; c++)
			html_cell(&grid->columns[c], &row->cells[c], c == 0, text);
		text_add(text, "</tr>\n");
	}
	text_add(text, "</tbody></table></div>\n");
}
