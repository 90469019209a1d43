/* What a rank process does, by kind of job. */
#ifndef EXECUTOR_RANK_H
#define EXECUTOR_RANK_H

#include "executor/ranks/shared_segment.h"

/* Each runs to the end of the job; false after a fault (recorded in the segment, or in `error` for
 * the caller to record). */
bool rank_train(struct segment *segment, struct error *error);
bool rank_time_collectives(struct segment *segment, struct error *error);

/* 16 MiB of address space for a kernel context that touches little of it; NULL when there is
 * none. */
void *rank_reserve_workspace(void);
void rank_release_workspace(void *workspace);

/* Leaves a document for the launcher. False when it is longer than the room in the segment. */
bool rank_report(struct segment *segment, const struct text *text, struct error *error);

#endif
