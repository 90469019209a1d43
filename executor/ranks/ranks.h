/* Shared by the ranks of a machine: a segment of memory, events, the prediction that holds them,
 * and the machine itself. */
#ifndef EXECUTOR_RANKS_H
#define EXECUTOR_RANKS_H

#include "executor/ranks/board.h"
#include "executor/ranks/cores.h"
#include "executor/ranks/event.h"
#include "executor/ranks/expectation.h"
#include "executor/ranks/machine.h"
#include "executor/ranks/near.h"
#include "executor/ranks/shared_segment.h"

#endif
