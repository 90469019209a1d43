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
	GROUP_EXPERT_SHARD,  /* that hold the same experts: their states are sharded over these */
	GROUP_EXPERT_TENSOR, /* that cut an expert, and gather its rows */
	GROUP_EXPERT_ALL,    /* that have all experts together */
	GROUP_PIPELINE,      /* one rank of each class */
	GROUP_EMBEDDING,     /* of the first class and of the last, which both hold a tied table */
	GROUP_KIND_COUNT
};
extern const char *const group_kind_names[];

/* Ranks {first, first + stride, ...}; rank r is in the group of its axis. */
struct group {
	enum group_kind kind;
	int64_t size, stride;
	int engine; /* collectives of one engine (communicator) run one at a time, in issue order;
		     * messages as their streams have it */
};

/* Operations [first, first + n) happen `times` times in a row, each time one layer further (a loop
 * that is inside another) or one micro-batch further. */
struct loop {
	int first, n, times;
	int outer;  /* the loop around this one; -1 */
	int layers; /* that an iteration goes on by, below 0 downwards; 0: the next micro-batch */
};

/* A position in the list as it is carried out: first + i * inner + j * outer in iteration i of the
 * inner loop and j of the outer one round the operation that asks. Negative: of the step before, as
 * in struct op. */
struct position {
	int first, inner, outer;
};

/* first + i * by in iteration i of the inner loop; first < 0: none. */
struct going {
	int first, by;
};

/* Of an operation or a buffer: its unit, layer and first module. */
struct listed_names {
	struct going unit, layer, module;
};

/* An operation: its names, and runs of the numbers of the buffers that it takes, gives and uses. */
struct listed {
	struct listed_names names;
	struct going cause;
	struct slice takes, gives, uses;
};

/* What the list that is carried out would have for numbers: the text form of a folded program. */
struct unfolding {
	int n_units;
	struct unit *units;
	struct listed *ops;           /* per operation */
	struct listed_names *buffers; /* per buffer; in the loops round the one that takes it */
	struct position *numbers;
};

/* What all ranks of one class do in one step. */
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
	/* Folded programs only (fold/fold.h): loops in the order of `first`, an outer one before
	 * those inside it; beside every index of a wait or a give, its place; operations that
	 * are carried out. */
	int n_loops;
	struct loop *loops;
	struct position *places;
	int n_carried_out;
	struct unfolding *unfolding; /* NULL: it is not for printing */
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

/* How many alike buffers it stands for. */
static inline int buffer_times(const struct buffer *buffer)
{
	return buffer->times > 1 ? buffer->times : 1;
}

static inline const int *slice_of(const struct program *program, struct slice slice)
{
	return program->indices + slice.first;
}

/* How often operation `index` is carried out in a step. */
int program_times(const struct program *program, int index);
/* The outermost loop inside `outer` (-1: of the list) that begins with operation `index`; -1. */
int program_loop(const struct program *program, int index, int outer);

/* How many alike buffers an operation takes or gives where it names `buffer`: one that belongs to
 * no block does so for all blocks at once. */
int buffers_at_once(const struct program *program, const struct op *op, int buffer);

/* Of a program with an unfolding: operation `index` with the unit, cause, layer, modules and
 * micro-batch that it has in iteration i of the inner loop round it, j of the outer one. Its slices
 * are those of the folded list. */
struct op program_unfolded(const struct program *program, int index, int i, int j);

/* Its ranks are of several classes. */
static inline bool group_joins_classes(const struct group *group)
{
	return group->kind == GROUP_PIPELINE || group->kind == GROUP_EMBEDDING;
}
/* Of one that does: whether a rank of that class is in it. */
static inline bool group_has_class(
	const struct schedule *schedule, const struct group *group, int class)
{
	return group->kind == GROUP_PIPELINE || class == 0 || class == schedule->n_classes - 1;
}

/* The first buffer of that role among what `op` uses; -1 when there is none. */
int op_buffer(const struct program *program, const struct op *op, enum buffer_role role);

/* Bytes one rank sends in a collective of payload `bytes` over `ranks`: (r-1)/r * bytes for
 * all-gather and reduce-scatter, twice that for all-reduce (ring, and our ordered exchange alike).
 * A message: all of them, or none where it is received; to the next rank of a group: all of them.
 */
double collective_wire_bytes(enum op_kind kind, int64_t ranks, int64_t bytes);

/* The text form: one line per plan, group, unit, buffer and operation. Of a folded schedule that
 * has an unfolding, that of the whole list. */
void schedule_print(const struct schedule *schedule, struct text *text);
/* Of the text form, which is never held as a whole. */
struct digest schedule_digest(const struct schedule *schedule);

#endif
