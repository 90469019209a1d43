/* Private to bounds/: what a schedule's operations take and keep. */
#ifndef PLANNER_BOUNDS_PARTS_H
#define PLANNER_BOUNDS_PARTS_H

#include "planner/space/space.h"
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

/* stages.c. What a micro-batch takes and leaves of a whole model. */
struct stage_load {
	double blocks, head;    /* s */
	double embedding, loss; /* s: what else the ends take */
	double saved;           /* bytes, in blocks */
};
double bound_stages_time(const struct topology *topology, const struct plan *plan,
	const struct model *model, const struct stage_load *load);
/* `part`: what a rank has of the model but for the pipeline. */
int64_t bound_stages_memory(
	const struct plan *plan, const struct model *part, const struct stage_load *load);
/* A trained parameter, its gradient and the optimizer's state of it: bytes of a rank, which are
 * there when it is updated, at least so many. */
double bound_states(const struct plan *plan);
/* Of one of its blocks: bytes of a rank. */
double bound_block_states(const struct plan *plan, const struct model *part);

/* work.c */
void work_add(struct work *sum, const struct work *work, double times);
/* By operation, s that the issuing thread spends on it at least, without what a micro-batch takes
 * once; in `arena`. */
double *bound_issue(const struct schedule *schedule, const struct cost *costs, struct arena *arena);
/* Of these, what belongs to a load. */
double bound_issue_of_load(const struct schedule *schedule, const struct op *op, double issue);
/* What they take once a micro-batch, s per step. */
double bound_issue_once(const struct plan *plan, const struct topology *topology);
/* Adds what one operation, carried out so often, copies on a stream of its own. */
void bound_add_copy(const struct op *op, const struct cost *cost, double times, struct work *work);
/* Ways of copies beside which the host never updates: 1 to the host, else 0 to the device too. */
int bound_first_way_alone(const struct plan *plan);
/* Of the link, while the collective runs. */
double bound_link_load(
	const struct schedule *schedule, const struct cost *cost, enum bound_link link);
/* The end of a step: gradient norm, clipping, the update. */
bool bound_is_update(enum op_kind kind);

/* gaps.c. An exchange with those that divide the model, between two operations of the load: it
 * waits for the first, the second for it. */
bool bound_holds_up(const struct program *program, int index);
/* s for which the compute stream stands still, in a micro-batch in the middle, and in all
 * of the rest of a step. */
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
/* Adds the seconds of an operation that exceed what would make it so arithmetic, by share. */
void bound_add_cover(const struct cost *cost, double times, double cover[SHARES]);

/* Compute beside the collectives of one stream, both in the order of the list; by share. */
struct beside {
	double most;           /* of bound_loss of its collectives */
	double work[SHARES];   /* s of compute so far, but for what covers */
	double lost[SHARES];   /* s that its collectives so far take of it */
	double begins[SHARES]; /* the latest s, less both, from which on those that follow run */
};
void bound_beside_compute(struct beside *beside, const struct cost *cost);
/* Adds a collective that waits for the operation of compute that was added last and ends at `end`,
 * s. */
void bound_beside_collective(struct beside *beside, double loss, double seconds, double end);
/* When all collectives so far have ended, s less the work of compute; and from when on compute runs
 * an operation that waits for that, s. */
void bound_beside_ends(const struct beside *beside, double ends[SHARES]);
double bound_beside_start(const struct beside *beside, const double ends[SHARES]);

/* memory.c. When which buffers of a schedule are there; in `arena`. */
struct stands {
	const struct program *program;
	const int *repeated;    /* by operation: how often blocks repeat it */
	const struct stand *of; /* by buffer */
};
struct stands bound_stands(const struct program *program, struct arena *arena);
/* The most bytes that are surely there while an operation of the compute stream outside
 * of repeated blocks runs, of one kind of operation (OP_KIND_COUNT: any); `filter` may be NULL. */
int64_t bound_standing(const struct stands *stands, bool (*filter)(const struct buffer *buffer),
	enum op_kind kind, struct arena *arena);
/* What is saved for backward; what is there at the loss whatever is prefetched. */
bool bound_is_load(const struct buffer *buffer);
bool bound_is_kept(const struct buffer *buffer);
/* Process, or context and one communicator per group. */
int64_t bound_fixed_bytes(const struct schedule *schedule);

#endif
