/* The face of reports/: views and writers, which all write into a struct text. */
#ifndef REPORTS_REPORTS_H
#define REPORTS_REPORTS_H

#include "reports/documents/documents.h"
#include "reports/pages/pages.h"
#include "reports/text/text.h"
#include "reports/views/views.h"

#endif
