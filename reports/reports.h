/* The face of reports/: views and writers. Everything is text in a struct text. */
#ifndef REPORTS_REPORTS_H
#define REPORTS_REPORTS_H

#include "reports/documents/documents.h"
#include "reports/pages/pages.h"
#include "reports/text/text.h"
#include "reports/views/views.h"

#endif
