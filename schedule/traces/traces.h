/* What a device did in a step, as our own trace, PyTorch's profiler or a log tells it. */
#ifndef SCHEDULE_TRACES_H
#define SCHEDULE_TRACES_H

#include "schedule/traces/activity.h"
#include "schedule/traces/kineto.h"
#include "schedule/traces/log.h"

#endif
