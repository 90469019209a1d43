/* Private to schedule/: what the defaults of a plan (resolve.c) and its checks (refuse.c) share. */
#ifndef SCHEDULE_RESOLVE_H
#define SCHEDULE_RESOLVE_H

#include "schedule/plan.h"

/* What parameters are computed in where nobody says: the best that the device has units for. */
enum dtype plan_default_dtype(const struct topology *topology);

/* May the shard group be smaller than all ranks? InternEvo's groups, DeepSpeed's MiCS: ZeRO over
 * fewer ranks than there are. */
bool plan_has_zero_groups(const struct plan *plan);

#endif
