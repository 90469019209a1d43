/* Shared by the targets: their rows, and helpers for writers and readers. */
#ifndef FRAMEWORKS_COMMON_COMMON_H
#define FRAMEWORKS_COMMON_COMMON_H

#include "frameworks/common/reading.h"
#include "frameworks/common/target.h"
#include "frameworks/common/writing.h"

#endif
