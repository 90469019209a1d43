/* The face of views/: the views of `explain`, as text and as pictures. */
#ifndef REPORTS_VIEWS_VIEWS_H
#define REPORTS_VIEWS_VIEWS_H

#include "reports/text/text.h"

/* A view answers one question. The table lists all for `explain --view`. */
struct view {
	const char *name, *question;
	void (*write)(
		const struct explained *explained, const struct style *style, struct text *text);
	void (*draw)(const struct explained *explained, struct text *text); /* SVG; NULL: none */
};
/* summary, operations, streams, memory, critical, pipeline, mesh, units, communication, layout */
extern const struct view report_views[];
extern const int n_report_views;
const struct view *report_view(const char *name); /* NULL when unknown */

#endif
