/* The face of fold/: a schedule that says once what a step repeats. */
#ifndef SCHEDULE_FOLD_H
#define SCHEDULE_FOLD_H

#include "schedule/program/program.h"

/* As schedule_emit, for whoever only simulates: runs of alike blocks and of alike micro-batches are
 * loops of the program (program.h), and a unit stands for `times` alike ones. The operations that
 * are carried out are those of schedule_emit. It is not for printing, hashing, checking or
 * training. Where nothing repeats, or not exactly, it is what schedule_emit returns (no loops).
 *
 * Layers and modules are those of the model, of what is repeated those of the first layer; units
 * and buffers are numbered by themselves. The unit of an operation or of a buffer is one that is
 * alike: a gather may be of the block behind. Gives have places too:
 * where the buffer was taken; for an operation of no block the first of all. */
struct schedule *schedule_fold(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology);

/* The same with an unfolding, for who shows figures of it: schedule_print and schedule_digest are
 * those of the whole list, and the simulator says where its memory peaks. It is not for checking or
 * training. */
struct schedule *schedule_fold_printable(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology);

/* Parts of a pipeline's list, in micro-batches. The round after `filling` of them stands for all
 * that are not listed. A round is one micro-batch, or where ranks have several stages one for each
 * rank: a rank goes through a round of forwards before it turns to the next stage. */
struct short_list {
	int64_t listed, filling, round;
};

/* A pipeline's schedule with the micro-batches of a shorter one (struct rounds of program.h). It is
 * not for printing, hashing, checking or training. NULL: its list has no such round. */
struct schedule *schedule_fold_rounds(struct arena *arena, const struct plan *plan,
	const struct short_list *list, const struct model *model, const struct topology *topology);

#endif
