/* What a device did in a step, as our own trace or PyTorch's profiler tells it. */
#ifndef SCHEDULE_TRACES_H
#define SCHEDULE_TRACES_H

#include "schedule/traces/activity.h"
#include "schedule/traces/kineto.h"

#endif
