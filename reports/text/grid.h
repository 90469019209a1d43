/* A table, built once and written as text, Markdown or HTML: so that all three agree. */
#ifndef REPORTS_TEXT_GRID_H
#define REPORTS_TEXT_GRID_H

#include "reports/text/types.h"

enum grid_align {
	GRID_LEFT,
	GRID_RIGHT, /* numbers */
	GRID_WRAP   /* sentences: on the left, broken where the page is narrow */
};

struct grid_column {
	const char *name;
	enum grid_align align;
};

/* What a row is to the reader; colour never is the only sign of it. */
enum grid_mark { GRID_PLAIN, GRID_GOOD, GRID_WARNING, GRID_BAD };

struct grid_cell {
	const char *text; /* raw: the writers escape it */
	bool sortable;    /* by `value`, else by text */
	double value;
	double bar; /* in a page beside the text: -1..1, a share of half the bar's width; 0: none */
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

/* Rows are filled cell by cell, left to right; what is left out stays empty. */
void grid_row(struct grid *grid, enum grid_mark mark);
void grid_add(struct grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `value` is what the cell is sorted by. */
void grid_add_value(struct grid *grid, double value, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Typed cells, printed for people (base/units.h). */
void grid_add_bytes(struct grid *grid, double bytes);
void grid_add_seconds(struct grid *grid, double seconds);
void grid_add_count(struct grid *grid, int64_t count);
/* "+1.4 %", in a page with a bar that is full at `most`. */
void grid_add_change(struct grid *grid, double ratio, double most);
void grid_add_percent(struct grid *grid, double ratio); /* "-" when the ratio is 0: unknown */

/* Columns beyond style->width are broken (GRID_WRAP), never cut. Every line starts with one blank
 * and has no blank at its end. */
void grid_text(const struct grid *grid, const struct style *style, struct text *text);
void grid_markdown(const struct grid *grid, struct text *text);
/* A <table> with a caption; `sortable` makes buttons of the column names. */
void grid_html(const struct grid *grid, const char *caption, bool sortable, struct text *text);

#endif
