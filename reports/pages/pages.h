/* The face of pages/: whole reports. */
#ifndef REPORTS_PAGES_PAGES_H
#define REPORTS_PAGES_PAGES_H

#include "reports/text/text.h"

/* One self-contained page without other scripts or requests, for light and dark, phone and paper.
 * Several reports come side by side first, then one after the other. n >= 1. */
void report_html(const struct report *reports, int n, struct text *text);
void report_markdown(const struct report *reports, int n, struct text *text);

#endif
