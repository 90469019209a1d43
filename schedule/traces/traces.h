/* The activity of a device in a step, from our own trace, PyTorch's profiler or a log. */
#ifndef SCHEDULE_TRACES_H
#define SCHEDULE_TRACES_H

#include "schedule/traces/activity.h"
#include "schedule/traces/kineto.h"
#include "schedule/traces/log.h"

#endif
