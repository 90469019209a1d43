/* The product of schedule/: for every class of ranks one flat list of operations, the buffers they
 * take and give, and the groups they talk in. Both interpreters read it. */
#ifndef SCHEDULE_PROGRAM_H
#define SCHEDULE_PROGRAM_H

#include "schedule/plan/plan.h"
#include "schedule/program/buffer.h"
#include "schedule/program/op.h"
#include "schedule/units/units.h"

enum group_kind {
	GROUP_SHARD,
	GROUP_REPLICATE,
	GROUP_WORLD, /* all data-parallel ranks of a class */
	GROUP_RESHARD,
	GROUP_TENSOR,
	GROUP_CONTEXT,
	GROUP_EXPERT,
	GROUP_EXPERT_SHARD,  /* ranks that hold the same experts, and shard their states */
	GROUP_EXPERT_TENSOR, /* ranks that cut an expert, and gather its rows */
	GROUP_EXPERT_ALL,    /* ranks that hold all experts together */
	GROUP_PIPELINE,      /* one rank of each class */
	GROUP_EMBEDDING,     /* first and last class of a pipeline: both hold a tied table */
	GROUP_KIND_COUNT
};
extern const char *const group_kind_names[];

/* Ranks {first, first + stride, ...}. All groups of a kind have this size and stride; each rank is
 * in one of them. */
struct group {
	enum group_kind kind;
	int64_t size, stride;
	int engine; /* collectives of one engine (communicator) run one at a time, in issue order;
		     * messages go in the order of their streams */
};

/* --- folded programs: equal layers and micro-batches are written once (fold/fold.h) --- */

/* Operations [first, first + n) happen `times` times in a row. Each iteration of an inner loop is
 * one layer further, each of an outer loop one micro-batch further. */
struct loop {
	int first, n, times;
	int outer;  /* index of the loop around this one; -1: none */
	int layers; /* added to the layer in each iteration, < 0 in backward; 0: a micro-batch */
};

/* A position in the unfolded list, seen from an operation in iteration i of its inner loop and j of
 * its outer one: first + i * inner + j * outer. Negative: in the step before, as in struct op. */
struct position {
	int first, inner, outer;
};

/* Operations [first, first + n) of a pipeline are carried out once, and stand for `times` rounds
 * one after another, of so many micro-batches each. n 0: there are none. */
struct rounds {
	int first, n, times;
	int64_t micro_batches;
};

/* A number that changes by `by` in each iteration of the inner loop; first < 0: none. */
struct going {
	int first, by;
};

/* The unit, layer and first module of an operation or a buffer. */
struct listed_names {
	struct going unit, layer, module;
};

/* An operation in the unfolded list: its names, and slices of unfolding->numbers with the numbers
 * of its buffers. */
struct listed {
	struct listed_names names;
	struct going cause;
	struct slice takes, gives, uses;
};

/* The numbers of the unfolded list, from which a folded program is printed as if unfolded. */
struct unfolding {
	int n_units;
	struct unit *units;
	struct listed *ops;           /* per operation */
	struct listed_names *buffers; /* per buffer; in the loops of the operation that takes it */
	struct position *numbers;
};

/* The operations of all ranks of one class in one step. */
struct program {
	/* The part of the model that one of them holds, whose modules and parameters the
	 * operations, buffers and units number. NULL when read from text. */
	const struct model *model;
	int n_units;
	struct unit *units;
	int n_ops;
	struct op *ops;
	int n_buffers;
	struct buffer *buffers;
	int n_indices;
	int *indices; /* waits, host_waits, takes, gives, uses of all operations */
	/* Only in folded programs. Loops are sorted by `first`, an outer one before its inner ones.
	 * `places` has for every entry of `indices` that is a wait or a give its position in the
	 * unfolded list, which has n_carried_out operations. */
	int n_loops;
	struct loop *loops;
	struct position *places;
	int n_carried_out;
	struct unfolding *unfolding; /* NULL: this program cannot be printed */
	struct rounds rounds;        /* only from schedule_fold_rounds */
};

struct schedule {
	struct arena *arena; /* owner of everything below; not owned */
	struct plan plan;
	const struct model *model;       /* the whole one; NULL when read from text */
	const struct topology *topology; /* NULL when read from text */
	int n_groups;
	struct group *groups;
	int n_engines;
	int n_classes; /* of ranks: the stages of a pipeline; class c runs programs[c] */
	struct program *programs;
};

/* How many equal buffers of the unfolded list this one stands for. */
static inline int buffer_times(const struct buffer *buffer)
{
	return buffer->times > 1 ? buffer->times : 1;
}

static inline const int *slice_of(const struct program *program, struct slice slice)
{
	return program->indices + slice.first;
}

/* Does operation `index` belong to the round that stands for others? */
static inline bool program_is_in_round(const struct program *program, int index)
{
	return index >= program->rounds.first && index < program->rounds.first + program->rounds.n;
}
/* How often operation `index` is carried out in a step. */
int program_times(const struct program *program, int index);
/* The outermost loop inside `outer` (-1: of the list) that begins with operation `index`; -1. */
int program_loop(const struct program *program, int index, int outer);

/* How many of the equal buffers that `buffer` stands for an operation takes or gives at once: one,
 * or all where the operation belongs to no block. */
int buffers_at_once(const struct program *program, const struct op *op, int buffer);

/* Operation `index` as the unfolded list has it in iteration i of its inner loop and j of its outer
 * one: with that unit, cause, layer, modules and micro-batch. Its slices are still those of the
 * folded list. The program must have an unfolding. */
struct op program_unfolded(const struct program *program, int index, int i, int j);

/* Does a group have ranks of several classes? */
static inline bool group_joins_classes(const struct group *group)
{
	return group->kind == GROUP_PIPELINE || group->kind == GROUP_EMBEDDING;
}
/* Does a group that joins classes have a rank of this one? */
static inline bool group_has_class(
	const struct schedule *schedule, const struct group *group, int class)
{
	return group->kind == GROUP_PIPELINE || class == 0 || class == schedule->n_classes - 1;
}

/* The first buffer of that role among what `op` uses; -1 when there is none. */
int op_buffer(const struct program *program, const struct op *op, enum buffer_role role);

/* Bytes that one rank sends in a collective of payload `bytes` over r ranks: (r-1)/r * bytes for
 * all-gather, reduce-scatter and all-to-all, twice that for all-reduce (NCCL's ring and our ordered
 * exchange alike). SEND and SEND_RECV: all of them; RECV: none. */
double collective_wire_bytes(enum op_kind kind, int64_t ranks, int64_t bytes);

/* The text form: one line per plan, group, unit, buffer and operation. A folded schedule prints as
 * the unfolded one, for which its programs need their unfolding. */
void schedule_print(const struct schedule *schedule, struct text *text);
/* The digest of the text form, which is hashed in pieces. */
struct digest schedule_digest(const struct schedule *schedule);

#endif
