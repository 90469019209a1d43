/* The views of `explain`, one function each; the table is in views.c. */
#ifndef REPORTS_VIEWS_EACH_H
#define REPORTS_VIEWS_EACH_H

#include "reports/text/text.h"

void view_summary(const struct explained *explained, const struct style *style, struct text *text);
void view_operations(
	const struct explained *explained, const struct style *style, struct text *text);
void view_pipeline(const struct explained *explained, const struct style *style, struct text *text);
void view_mesh(const struct explained *explained, const struct style *style, struct text *text);
void view_streams(const struct explained *explained, const struct style *style, struct text *text);
void view_memory(const struct explained *explained, const struct style *style, struct text *text);
void view_critical(const struct explained *explained, const struct style *style, struct text *text);
void view_units(const struct explained *explained, const struct style *style, struct text *text);
void view_communication(
	const struct explained *explained, const struct style *style, struct text *text);
void view_layout(const struct explained *explained, const struct style *style, struct text *text);
/* The same views as pictures: SVG documents of their own. */
void picture_pipeline(const struct explained *explained, struct text *text);
void picture_mesh(const struct explained *explained, struct text *text);
void picture_communication(const struct explained *explained, struct text *text);
void picture_layout(const struct explained *explained, struct text *text);

#endif
