/* Knobs that differ from block to block or from unit to unit: who has which value. One value for
 * all, or runs in forward order (base/runs.h, docs/schedule.md):
 *
 *     activation_checkpointing   blocks of the model           8xfull+24xnone
 *     reshard_after_forward      units but the root            20xtrue+12xfalse, 16x8+16xtrue
 *     cpu_offload                units, the root first         1xnone+32xparameters
 *
 * Units count where they hold parameters, in the order of the schedule's unit table (preorder). The
 * root has no place in the runs of reshard_after_forward: it stays gathered from its forward to the
 * end of its backward, unless the text is "all". DDP's buckets are no units. */
#ifndef SCHEDULE_ROWS_H
#define SCHEDULE_ROWS_H

#include "models/models.h"
#include "schedule/plan/values.h"
#include "topologies/topologies.h"

struct plan;

/* Values of reshard_after_forward beside group sizes; the last one is of all units alike. */
enum { RESHARD_NOT = 0, RESHARD_WHOLE = -1, RESHARD_WHOLE_AND_ROOT = -2 };

/* How these knobs are decoded: rows of a field's names, resharding, the wrap policy, counts. */
extern const struct field_decoded rows_decoded, reshard_decoded, wrap_decoded, counts_decoded;

/* The value at a place; 0 outside of the rows. */
int32_t rows_at(const struct rows *rows, int64_t place);
/* Rows with one value for all blocks or units. */
struct rows rows_of_name(const char *const *names, int value);
struct rows rows_of_checkpointing(enum checkpointing kind);
struct rows rows_of_offload(enum offload kind);
struct rows rows_of_reshard(bool reshards);
struct wrap_policy wrap_of_kind(enum wrap_kind kind); /* without argument */
bool wrap_equal(const struct wrap_policy *a, const struct wrap_policy *b);

/* How block `block` (from 0) is checkpointed; CHECKPOINTING_NONE outside of the model. */
enum checkpointing plan_block_checkpointing(const struct plan *plan, int64_t block);
/* How many of `blocks` blocks are checkpointed that way. */
int64_t plan_count_checkpointing(const struct plan *plan, enum checkpointing kind, int64_t blocks);

/* The value of the place-th unit that the knob counts. Group: 0 = not resharded, -1 = over the
 * whole shard group, k = over groups of k. Offload is never OFFLOAD_ALL, which means the same as
 * OFFLOAD_PARAMETERS: parameters that are kept on the host are updated there. */
int64_t plan_reshard_group_at(const struct plan *plan, int64_t place);
/* Is the root resharded after forward like every other unit? */
bool plan_reshards_root(const struct plan *plan);
enum offload plan_offload_at(const struct plan *plan, int64_t place);

/* Does any block or unit have it? */
bool plan_checkpoints(const struct plan *plan, enum checkpointing kind);
bool plan_offloads(const struct plan *plan, enum offload kind);
bool plan_offloads_any(const struct plan *plan);

/* Rows from `n` values: for blocks; for units but the root; for units with parameters; for stages.
 */
struct rows rows_make_checkpointing(struct arena *arena, const enum checkpointing *row, int64_t n);
struct rows rows_make_reshard(struct arena *arena, const int64_t *groups, int64_t n);
struct rows rows_make_offload(struct arena *arena, const enum offload *row, int64_t n);
struct rows rows_make_counts(struct arena *arena, const int *counts, int64_t n);

/* The one value of `first` for n blocks or units, then that of `second` for m. */
struct rows rows_split(struct arena *arena, const struct rows *first, int64_t n,
	const struct rows *second, int64_t m);

/* In words for people: "full in the first 8 blocks, none in the last 24"; "reshard after forward in
 * all units but the last". */
void rows_say(const struct rows *rows, const char *thing, struct text *text);
void plan_say_reshard(const struct plan *plan, struct text *text);

/* Rewrites the three texts in normal form, so that equal plans have equal texts: "32xfull" of 32
 * blocks is "full", "all" is "parameters". The plan must have passed plan_check. */
void plan_normalise(struct plan *plan, struct arena *arena);

#endif
