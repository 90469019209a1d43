/* What the targets share: their rows, and helpers for writers and readers. */
#ifndef REPORTS_COMMON_H
#define REPORTS_COMMON_H

#include "reports/export_write.h"
#include "reports/import_read.h"
#include "reports/target.h"

#endif
