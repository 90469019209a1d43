/* The documents of schedule/: when each operation ran, what is predicted, and plan.yaml. */
#ifndef SCHEDULE_DOCUMENTS_H
#define SCHEDULE_DOCUMENTS_H

#include "schedule/documents/plan_file.h"
#include "schedule/documents/prediction.h"
#include "schedule/documents/timeline.h"

#endif
