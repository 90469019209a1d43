/* The table of targets. frameworks/meson.build lists them and makes it. */
#ifndef FRAMEWORKS_TARGETS_TARGETS_H
#define FRAMEWORKS_TARGETS_TARGETS_H

#include "frameworks/common/common.h"

extern const struct export_target *const export_targets[]; /* FSDP2 first */
extern const int n_export_targets;

#endif
