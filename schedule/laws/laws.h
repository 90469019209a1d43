/* The laws of a schedule, proved in three parts. order.c: waits, order, lifetimes; meaning.c and
 * tiers.c: what each kind of operation must do; messages.c and deadlock.c: what classes must agree
 * on. */
#ifndef SCHEDULE_LAWS_H
#define SCHEDULE_LAWS_H

#include "schedule/program/program.h"

/* Checks all laws. The first broken one is EXIT_CODE_INTERNAL and names the operations. */
bool schedule_validate(const struct schedule *schedule, struct error *error);

/* --- inside of the room ---------
 */
/* Always false: "schedule: ..." as EXIT_CODE_INTERNAL. */
bool law_broken(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sizes and names that everything else relies on: groups fit the mesh, units and buffers are
 * sound, no sum of bytes overflows. */
bool schedule_check_tables(
	const struct schedule *schedule, const struct program *program, struct error *error);

/* Requires check_tables and that all indices are in range. */
bool schedule_check_meaning(
	const struct schedule *schedule, const struct program *program, struct error *error);

/* Does this reduce-scatter reduce gradients that were collected from several units? */
static inline bool schedule_is_bucket(const struct op *op)
{
	return op->kind == OP_REDUCE_SCATTER && op->unit < 0 && !op_exchanges(op);
}
/* collectives.c. Requires check_tables. */
bool schedule_check_collective(const struct schedule *schedule, const struct program *program,
	int op, struct error *error);

/* --- messages.c, deadlock.c: the classes together ------------------------------------------------
 */
bool schedule_check_message(const struct schedule *schedule, const struct program *program, int op,
	struct error *error);
/* Every send has its receive, and collectives over classes come in one order. Requires that all
 * programs are sound by themselves. */
bool schedule_check_messages(const struct schedule *schedule, struct error *error);
/* No cycle in the joint graph. Requires check_messages. */
bool schedule_check_deadlock(const struct schedule *schedule, struct error *error);

/* --- tiers.c: device and host memory -------------------------------------------------------------
 */
/* A resident buffer lies where its unit's offload says. */
bool schedule_check_home(const struct schedule *schedule, const struct program *program, int buffer,
	struct error *error);
/* Host memory is touched by copies and by the host's own operations only, those touch nothing else,
 * and a copy fills its buffers exactly. */
bool schedule_check_tier(const struct program *program, int op, struct error *error);

#endif
