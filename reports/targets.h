/* The table of targets. frameworks/meson.build lists them and makes it. */
#ifndef REPORTS_TARGETS_H
#define REPORTS_TARGETS_H

#include "reports/target.h"

extern const struct export_target *const export_targets[]; /* FSDP2 first */
extern const int n_export_targets;

#endif
