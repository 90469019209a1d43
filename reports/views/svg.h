/* Parts of SVG documents that work alone and inside a page. Colours are attributes; letters take
 * the colour of the surrounding text. Coordinates are pixels. */
#ifndef REPORTS_VIEWS_SVG_H
#define REPORTS_VIEWS_SVG_H

#include "reports/text/text.h"

enum { PICTURE_COLORS = 8 };
extern const char *const picture_colors[PICTURE_COLORS];
/* The fill of a kind of operation, the same as in the page. */
const char *picture_color(enum op_kind kind);

/* `hatched`: the picture contains padding. */
void picture_begin(int width, int height, const char *title, const char *description, bool hatched,
	struct text *text);
void picture_end(struct text *text);

/* `words`: the tooltip; NULL: none. */
void picture_box(double x, double y, double width, double height, const char *fill,
	const char *words, struct text *text);
/* Draws hatched padding. */
void picture_padding(
	double x, double y, double width, double height, const char *words, struct text *text);
/* A box with its name inside, if the name fits. */
struct picture_box {
	double x, y, width, height;
};
void picture_named_box(const struct picture_box *box, const char *fill, const char *name,
	const char *words, struct text *text);
bool picture_fits(double width, int size, const char *words);
/* `anchor`: "start", "middle" or "end". */
void picture_label(
	double x, double y, const char *anchor, int size, const char *words, struct text *text);
void picture_line(double x1, double y1, double x2, double y2, bool dashed, struct text *text);

#endif
