/* Schedules changed in place, for tests of the validator. */
#ifndef TESTS_SCHEDULE_DAMAGE_H
#define TESTS_SCHEDULE_DAMAGE_H

#include "schedule/schedule.h"

/* schedule_validate's verdict; fails the test when a refusal does not read as one. */
bool is_accepted(const struct schedule *schedule);

/* Its program may be changed, and its lists of indices grow by 1000. */
struct schedule *schedule_copy(struct arena *arena, const struct schedule *schedule);

/* These move the slice to the end of the list, so that others stay as they are. */
void slice_add(struct program *p, struct slice *slice, int item);
void slice_drop(struct program *p, struct slice *slice, int index);
void slice_set(struct program *p, struct slice *slice, int index, int item);

enum member { WAITS, HOST_WAITS, TAKES, GIVES, USES };
struct slice *op_member(struct op *op, enum member member);

/* A random operation whose member is not empty; -1 after many draws. */
int draw_op(const struct program *p, enum member member, uint64_t *seed);
/* A random item of a slice, and its place there. */
int draw_item(const struct program *p, struct slice slice, uint64_t *seed, int *index);

#endif
