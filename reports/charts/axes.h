/* Charts of the page: inline SVG that stretches with the page, and HTML around it for every letter,
 * so that text keeps its size on a phone. Colours come from classes (html_style.c): c0..c6 by
 * memory category, k-NAME by kind of operation. Pure functions of their arguments. */
#ifndef REPORTS_CHARTS_AXES_H
#define REPORTS_CHARTS_AXES_H

#include "reports/text/text.h"

/* Round numbers along [low, high]: the ticks are first, first + step, ... (n of them). */
struct axis {
	double low, high;
	double first, step;
	int n;
	double unit; /* the labels show value / unit ... */
	const char *unit_name;
	int decimals;
	const char *const *names; /* of the ticks; NULL: the ticks are labelled with numbers */
};

enum axis_kind { AXIS_SECONDS, AXIS_BYTES, AXIS_NUMBER };

/* About `wanted` ticks. low < high, else high is moved. */
struct axis axis_make(enum axis_kind kind, double low, double high, int wanted);
/* `n` names at equal distances: name i is at i. */
struct axis axis_of_names(const char *const *names, int n);
/* The labels of a horizontal axis. */
void axis_add_labels(const struct axis *axis, struct text *text);

/* Width and height of the drawing area in its own, stretched, coordinates. */
enum { CHART_WIDTH = 4000, CHART_HEIGHT = 1000 };

/* The frame of a chart. Between begin and end, the caller draws SVG. `name` becomes the caption and
 * the accessible name; `description` is what the picture shows, in words. */
struct chart {
	struct axis x, y;
	const char *name, *description;
	const char *x_name; /* NULL: none */
};
void chart_begin(const struct chart *chart, struct text *text);
/* Ends the stretched part (lines and areas); marks that follow keep their shape. */
void chart_marks(struct text *text);
void chart_end(const struct chart *chart, struct text *text);
/* A place in drawing coordinates, clamped to the area. */
int chart_x(const struct chart *chart, double value);
int chart_y(const struct chart *chart, double value);

/* Series differ in shape and colour of their marks. */
enum { SERIES_STYLES = 8 };

#endif
