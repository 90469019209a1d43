/* The face of charts/: the charts of the page, pure functions of their arguments. */
#ifndef REPORTS_CHARTS_CHARTS_H
#define REPORTS_CHARTS_CHARTS_H

#include "reports/text/text.h"

/* Bytes by category over `end` seconds, stacked. The limit is drawn if it is near enough. */
void chart_memory(const char *name, const struct memory_curve *curve, double end, int64_t limit,
	struct text *text);
/* One track for each stream, and one for exposed communication. */
void chart_streams(const char *name, const struct schedule *schedule,
	const struct timeline *timeline, struct text *text);
/* Loss by step. Draws nothing if there are fewer than two steps. */
void chart_loss(const struct measurement *measured, struct text *text);
/* Bars of time and peak memory of every candidate, with the reason why it lost. */
void chart_strategies(const struct answer *answer, struct text *text);
/* The same for several reports, with one row for each. */
void chart_reports(const struct report *reports, int n, struct text *text);
/* Throughput over a study's quantity, with one line for each plan. */
void chart_study(const char *name, const struct study *study, struct text *text);
/* Throughput against peak memory of every candidate. The line joins plans that no other beats in
 * both. */
void chart_pareto(const struct answer *answer, struct text *text);
/* Measured / predicted of every line that has both, on one scale. */
void chart_check(const struct report *report, struct text *text);

#endif
