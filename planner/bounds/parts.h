/* Private to bounds/: what a schedule's operations take and keep. */
#ifndef PLANNER_BOUNDS_PARTS_H
#define PLANNER_BOUNDS_PARTS_H

#include "planner/space/space.h"
#include "schedule/pipeline/pipeline.h"
#include "simulator/simulator.h"

enum { COMMUNICATORS_MAX = 4, SHARES = 14 };

/* What collectives of several communicators share. */
enum bound_link { LINK_NETWORK, LINK_FABRIC, LINKS };

struct work {
	double compute;                          /* s on the compute stream, without the load */
	double gaps;                             /* s for which it stands still */
	double cover;                            /* of these, s beside which a collective may run */
	double communicators[COMMUNICATORS_MAX]; /* s of collectives */
	double links[LINKS];                     /* s for which collectives fill a link */
	double alone;                            /* s of updates that the host carries out */
	double issue;                            /* s of the issuing thread, without the load */
	double copies[2];                        /* s of copies to the device, and to the host */
	double wire; /* bytes that leave the network's end (struct bound) */
};

/* stages.c. The time of a micro-batch in a whole model, and what it saves for backward. */
struct stage_load {
	double blocks, head;    /* s */
	double embedding, loss; /* s: what else the ends take */
	double issue;           /* s of the issuing thread, for blocks */
	double saved;           /* bytes, in blocks */
};
double bound_stages_time(const struct topology *topology, const struct plan *plan,
	const struct model *model, const struct stage_load *load);
/* `part`: the model that a rank would have if there were no pipeline. */
int64_t bound_stages_memory(
	const struct plan *plan, const struct model *part, const struct stage_load *load);
/* held.c. Elements of parameters. */
struct elements {
	double dense, experts;
};
struct elements elements_of(const struct model *part);
/* For each block, and behind the last: the sums over all blocks before it. */
const struct elements *elements_before(const struct model *part, struct arena *arena);
/* Bytes that a rank of a pipeline surely holds at once of the states of so many, which are its own.
 */
double elements_held(const struct plan *plan, const struct pipeline *pipeline, int rank,
	const struct elements *elements, struct arena *arena);
/* The bytes that a rank surely holds at the update of all trained parameters: the parameters, their
 * gradients and optimizer states. */
double bound_states(const struct plan *plan, const struct model *part);
/* Of all parameters of one block, in the mean. */
double bound_block_states(const struct plan *plan, const struct model *part);

/* work.c */
void work_add(struct work *sum, const struct work *work, double times);
/* For each operation the seconds that the issuing thread spends on it at least, in `arena`. What a
 * micro-batch takes once is not in them. */
double *bound_issue(
	const struct schedule *schedule, int rank, const struct cost *costs, struct arena *arena);
/* The part of one operation's `issue` that belongs to a load. */
double bound_issue_of_load(const struct schedule *schedule, const struct op *op, double issue);
/* What micro-batches take once each, in seconds per step. */
double bound_issue_once(const struct plan *plan, const struct topology *topology);
/* Adds an operation that runs `times` times, if it copies on a stream of its own. */
void bound_add_copy(const struct op *op, const struct cost *cost, double times, struct work *work);
/* The first way of copies (0: to the device, 1: to the host) from which on the host never updates
 * beside them. */
int bound_first_way_alone(const struct plan *plan);
/* The share of the link that the collective fills while it runs; 0 on CPUs. */
double bound_link_load(
	const struct schedule *schedule, const struct cost *cost, enum bound_link link);
/* Bytes that an operation of a class sends, each time: those that leave a node, or on one node
 * those of a rank. */
double bound_wire(const struct schedule *schedule, int class, const struct op *op);
/* Is the operation one of a step's end: gradient norm, clipping, the update? */
bool bound_is_update(enum op_kind kind);

/* gaps.c. Is the operation an exchange between ranks that divide the model, which waits for one
 * operation of the load and which another waits for? */
bool bound_holds_up(const struct program *program, int index);
/* Seconds for which the compute stream stands still: in a micro-batch in the middle of a step, and
 * in the rest of the step. */
struct gaps {
	double middle, rest;
};
struct gaps bound_gaps(
	const struct schedule *schedule, const struct cost *costs, struct arena *arena);

/* contention.c. The share of an overlapping collective that arithmetic loses: min(c / n, 1/2). */
double bound_loss(const struct topology *topology, double multiprocessors);
/* (3) of bounds.c: what the collectives of one communicator, or of all, take from compute,
 * whichever is more. */
double bound_contention(const double losses[COMMUNICATORS_MAX],
	const double communicators[COMMUNICATORS_MAX], const double cover[SHARES]);
/* Adds, for each share g of (3), the operation's w (1 - f / g) where it is above 0. */
void bound_add_cover(const struct cost *cost, double times, double cover[SHARES]);

/* Compute beside the collectives of one stream, both added in the order of the list. Figures are
 * for each share g of (3). */
struct beside {
	double most;           /* of bound_loss of its collectives */
	double work[SHARES];   /* s of compute so far, but for what covers */
	double lost[SHARES];   /* s that its collectives so far take of it */
	double begins[SHARES]; /* the latest begin of a collective, less work and lost */
};
void bound_beside_compute(struct beside *beside, const struct cost *cost);
/* Adds a collective that waits for the operation of compute that was added last and ends at `end`,
 * s. */
void bound_beside_collective(struct beside *beside, double loss, double seconds, double end);
/* The ends of all collectives so far, less the work of compute; and when compute may start an
 * operation that waits for collectives with these ends. */
void bound_beside_ends(const struct beside *beside, double ends[SHARES]);
double bound_beside_start(const struct beside *beside, const double ends[SHARES]);

/* memory.c. When each buffer of a schedule is there. */
struct stands {
	const struct program *program;
	const int *repeated;    /* by operation: how often blocks repeat it */
	const struct stand *of; /* by buffer */
};
struct stands bound_stands(const struct program *program, struct arena *arena);
/* The most bytes that are surely there during one operation of the compute stream that is of this
 * kind (OP_KIND_COUNT: any) and outside of repeated blocks. `filter`: counts these buffers only;
 * NULL: all. */
int64_t bound_standing(const struct stands *stands, bool (*filter)(const struct buffer *buffer),
	enum op_kind kind, struct arena *arena);
/* Is the buffer saved for backward? Is it there at the loss, whatever is prefetched? */
bool bound_is_load(const struct buffer *buffer);
bool bound_is_kept(const struct buffer *buffer);
/* Bytes of the process; on GPUs of the context and of one communicator for each group. */
int64_t bound_fixed_bytes(const struct schedule *schedule);

#endif
