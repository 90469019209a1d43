/* Private to passes: the structure that all passes read, and each writes its part of. */
#ifndef SCHEDULE_STEP_H
#define SCHEDULE_STEP_H

#include "schedule/passes/action.h"
#include "schedule/passes/method.h"
#include "schedule/passes/passes.h"
#include "schedule/pipeline/pipeline.h"

/* A run of leaves of one unit and one slot. */
struct range {
	int unit;
	int first_module, end_module;
	int layer; /* -1 outside of the blocks */
	int slot;  /* -1 embeddings, l block l, L final norm and head */
	bool first_of_slot, last_of_slot;
	int chunk; /* which of the rank's stages it belongs to */
	bool first_of_chunk, last_of_chunk;
	int visit;
	int64_t saved_bytes; /* of the tensors that it saves, or that are computed again */
	/* With tensor ranks: it begins with a column-parallel layer, which reads the residual
	 * stream; it ends with a row-parallel one, which adds to the stream. */
	bool leaves_stream, joins_stream;
	bool gathers_keys;  /* it has attention over tokens of other context ranks */
	bool receives_rows; /* its experts compute tokens of other ranks */
};

/* The visits of a forward pass; backward makes them in reverse. */
enum visit_kind { VISIT_ENTER, VISIT_RANGE, VISIT_EXIT };
struct visit {
	enum visit_kind kind;
	int unit, range;
};

struct chunks {
	int first, last;
};

/* Buffers that live between steps; -1: there is none. */
struct resident {
	int parameter_shard, optimizer_state;
	int low_precision;           /* ZeRO-3: the shard in the compute dtype */
	int kept;                    /* the whole unit, where it stays gathered */
	int whole;                   /* a bucket in the compute dtype (Megatron-LM) */
	int gradient;                /* gradients are accumulated in it (nanotron) */
	int gradient_shard;          /* gradients are reduced to it (ZeRO-3) */
	int reduce_input;            /* a bucket of gradients */
	int master_shard, host_copy; /* offload: the shard that the host updates, and its cast */
	int host_gradient;           /* offload: the gradient that the host reads */
};

struct numbers {
	int *items;
	int n, capacity;
};

struct step {
	struct arena *arena;
	struct schedule *schedule;
	const struct plan *plan;
	const struct model *model;
	const struct topology *topology;
	struct method method;
	struct activation_rules rules;
	enum checkpointing *checkpointing; /* per block */
	int class;                         /* of ranks: the place in the pipeline */
	struct pipeline pipeline;
	const int *chunks; /* per block: which of the rank's stages it belongs to */
	const int *times;  /* per block: how many alike ones it stands for; NULL: itself */

	/* units, ranges */
	int n_units, n_ranges, n_visits;
	struct unit *units;
	struct range *ranges;
	struct visit *visits;
	struct chunks *unit_chunks;  /* per unit: the rank's stages that it has a part in */
	int *last_ranges;            /* per stage of the rank */
	int *pre_order, *post_order; /* units in the order of their forward hooks, */
	int *pre_place, *post_place; /* and where each stands there */
	int n_order;
	int *owners;      /* buckets: the range whose backward completes a parameter, */
	int *holders;     /* and the one whose gradients hold its own */
	int *bucket_done; /* the range whose backward completes a bucket; -1: it is frozen */
	int first_back;   /* the least range that backward comes to: the beginning of a slot */

	/* groups; -1: none */
	int group_gather, group_reduce, group_replicate, group_tensor, group_context;
	int group_forward, group_backward, group_table; /* of messages; of a tied table */
	int group_expert, group_expert_shard, group_expert_tensor, group_expert_all;
	int *group_reshard; /* per unit */

	/* resident */
	struct resident *resident;
	int whole;     /* all parameters in the compute dtype; -1 */
	int collector; /* ZeRO-3: the buffer that gradients are collected in; -1 */
	int kernel_workspace, gather_buffers[2]; /* of gradients, of inputs; one: alike; -1 */

	/* order, actions */
	struct action *order; /* passes of micro-batches; LAST: of its micro-batch */
	int n_passes, n_flights;
	struct action_list actions;
	struct numbers lists;

	/* operations; of_action[a] is the operation of action a, -1 for a mark */
	struct op *ops;
	int n_ops;
	struct buffer *buffers;
	int n_buffers, buffer_capacity;
	struct numbers indices;
	int *of_action;

	/* limit: per operation, frees that the host has not waited for */
	int *frees_pending;
};

/* --- questions that several passes have ------------------------------------------------------- */

bool unit_has_parameters(const struct step *step, int unit);
/* Is any parameter of the unit trained? */
bool unit_is_trained(const struct step *step, int unit);
/* The unit with the frozen parameters of the same modules; -1: there is none. */
int unit_twin(const struct step *step, int unit);
/* Does backward reach a range, or any range of a unit? */
bool range_goes_back(const struct step *step, int range);
bool unit_goes_back(const struct step *step, int unit);
bool unit_is_offloaded(const struct step *step, int unit);
bool unit_parameters_are_offloaded(const struct step *step, int unit);
/* Is a copy of the shard made in the compute dtype, before it is gathered? */
bool unit_is_cast(const struct step *step, int unit);
/* The group of the ranks that shard the unit, or hold it unsharded; -1: no other rank does. */
int unit_group(const struct step *step, int unit);
/* Who updates a unit: the device's compute stream, or the host. */
enum stream unit_updater(const struct step *step, int unit);
enum checkpointing range_checkpointing(const struct step *step, int range);
/* The first range of a range's slot. */
int slot_begin(const struct step *step, int range);
bool range_has_head(const struct step *step, int range);
/* The last range of a backward pass? */
bool range_ends_backward(const struct step *step, int range);
/* Is that stage of the rank the last one of all? */
bool chunk_has_loss(const struct step *step, int chunk);
/* Does a pass through that stage of the rank meet the unit? */
bool unit_is_in_chunk(const struct step *step, int unit, int chunk);

/* --- actions ---------------------------------------------------------------------------------- */

/* Replaces step->actions by an empty list and returns the old one: a pass reads the old list and
 * writes the new one. */
struct action_list actions_begin(struct step *step);
void actions_end(struct action_list *old);
struct action *action_add(struct step *step, struct action action);
/* An action of the same micro-batch and flight as `at`, on the usual stream of its kind. */
struct action action_at(const struct action *at, enum action_kind kind, int unit);
/* An action at the end of the step, which belongs to no micro-batch. */
struct action action_of_step(enum action_kind kind, int unit);
/* Adds an action that runs beside `at`, for the same range. */
void action_add_beside(
	struct step *step, const struct action *at, enum action_kind kind, unsigned flags);
/* [CAST_SHARD] [LIMIT] GATHER. */
void action_add_gather(struct step *step, struct action gather, bool is_limited);
/* PACK_LEAVES GATHER_LEAVES. */
void action_add_gather_of_leaves(
	struct step *step, const struct action *at, struct slice units, int cause);

/* A part that is computed again: does it read what its range reads, and end where it ends? */
bool action_reads_input(const struct step *step, const struct action *action);
bool action_ends_range(const struct step *step, const struct action *action);
void number_add(struct numbers *list, int item);

/* --- buffers ---------------------------------------------------------------------------------- */

/* The pool is the stream that the taking operation runs on. */
int buffer_new(struct step *step, enum buffer_role role, enum stream pool, int unit, int64_t bytes,
	enum dtype dtype);
int buffer_new_resident(
	struct step *step, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype);
int buffer_new_on_host(
	struct step *step, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype);

#endif
