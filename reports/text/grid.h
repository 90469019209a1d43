/* A table, built once and written as text, Markdown or HTML, so that all three agree. */
#ifndef REPORTS_TEXT_GRID_H
#define REPORTS_TEXT_GRID_H

#include "reports/text/types.h"

enum grid_align {
	GRID_LEFT,
	GRID_RIGHT, /* numbers */
	GRID_WRAP   /* sentences: left-aligned, and broken where the page is narrow */
};

struct grid_column {
	const char *name;
	enum grid_align align;
};

/* The meaning of a row. Colour is never the only sign of it. */
enum grid_mark { GRID_PLAIN, GRID_GOOD, GRID_WARNING, GRID_BAD };

struct grid_cell {
	const char *text; /* not escaped: the writers do that */
	bool sortable;    /* by `value`, else by text */
	double value;
	double bar; /* a bar beside the text of a page: -1..1, a share of half its width; 0: none */
};

struct grid_row {
	enum grid_mark mark;
	int n_cells;
	struct grid_cell *cells;
};

struct grid {
	struct arena arena;
	const struct grid_column *columns; /* not owned */
	int n_columns;
	int n_rows, capacity;
	struct grid_row *rows;
};

/* `columns` must outlive the grid. */
void grid_init(struct grid *grid, const struct grid_column *columns, int n_columns);
void grid_finish(struct grid *grid);

/* Begins a row, which is filled cell by cell from left to right. Cells that are left out are
 * empty. */
void grid_row(struct grid *grid, enum grid_mark mark);
void grid_add(struct grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `value` is the key by which the cell is sorted. */
void grid_add_value(struct grid *grid, double value, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Cells of a quantity, formatted for people (base/units.h). */
void grid_add_bytes(struct grid *grid, double bytes);
void grid_add_seconds(struct grid *grid, double seconds);
void grid_add_count(struct grid *grid, int64_t count);
/* Example: "+1.4 %". On a page it has a bar that is full at `most`. */
void grid_add_change(struct grid *grid, double ratio, double most);
void grid_add_percent(struct grid *grid, double ratio); /* "-" if the ratio is 0: unknown */

/* Writes the table. Columns of GRID_WRAP are broken, never cut, to fit style->width. Every line
 * starts with one blank and ends without. */
void grid_text(const struct grid *grid, const struct style *style, struct text *text);
void grid_markdown(const struct grid *grid, struct text *text);
/* Writes a <table> with a caption. `sortable` makes the column names buttons. */
void grid_html(const struct grid *grid, const char *caption, bool sortable, struct text *text);

#endif
