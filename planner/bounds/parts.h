/* What bounds of whole plans (bounds.c) and of mixed ones (planner/mixed) share.
 */
#ifndef PLANNER_BOUNDS_PARTS_H
#define PLANNER_BOUNDS_PARTS_H

#include "planner/space/space.h"
#include "simulator/simulator.h"

enum { COMMUNICATORS_MAX = 4, SHARES = 14 };

/* What collectives of several communicators share. */
enum bound_link { LINK_NETWORK, LINK_FABRIC, LINKS };

/* Collectives beside which one half of a micro-batch's computation cannot run: forward with its
 * loss (those between this loss and the next forward), or backward (those between backward and the
 * next loss). */
enum bound_half { BESIDE_FORWARD_NOT, BESIDE_BACKWARD_NOT, HALVES };

struct work {
	double compute;                          /* s on the compute stream, without the load */
	double cover;                            /* of these, s beside which a collective may run */
	double stalls;                           /* s for which the compute stream waits */
	double communicators[COMMUNICATORS_MAX]; /* s of collectives */
	double links[LINKS];                     /* s for which collectives fill a link */
	double late[COMMUNICATORS_MAX];          /* s of reductions that wait for the last loss */
	double late_network;                     /* s for which these fill the network */
	double halves[COMMUNICATORS_MAX][HALVES]; /* s of collectives */
	double alone;                             /* s of updates beside which no collective runs */
	double issue;                             /* s of the issuing thread, without the load */
	double copies[2];                         /* s of copies to the device, and to the host */
	double wire; /* bytes that leave the network's end (struct bound) */
};

/* work.c */
void work_add(struct work *sum, const struct work *work, double times);
/* What says least, part by part. */
struct work work_least(const struct work *a, const struct work *b);
/* By operation, s that the issuing thread spends on it at least, without what a micro-batch takes
 * once; in `arena`. */
double *bound_issue(const struct schedule *schedule, const struct cost *costs, struct arena *arena);
/* Of these, what belongs to a load. */
double bound_issue_of_load(const struct schedule *schedule, const struct op *op, double issue);
/* What they take once a micro-batch, s per step. */
double bound_issue_once(const struct plan *plan);
/* Adds what one operation copies on a stream of its own. */
void bound_add_copy(const struct op *op, const struct cost *cost, struct work *work);
/* Ways of copies beside which the host never updates: 1 to the host, else 0 to the device too. */
int bound_first_way_alone(const struct plan *plan);

/* Micro-batches of a sample: the first, one in the middle, the last. */
int64_t bound_micro_batches(const struct plan *plan);

/* A plan's schedule with another batch, and what its operations cost. */
struct sample {
	struct schedule *schedule; /* NULL: it cannot be built and bounds nothing */
	struct cost *costs;
};
/* In `arena`, which is emptied. */
bool bound_sample(const struct question *question, struct arena *arena, const struct plan *plan,
	int64_t micro_batch, int64_t grad_accum, struct sample *sample, struct error *error);

/* The plan whose shape speaks for all ways to prefetch: nothing in it waits longer than in others.
 */
struct plan bound_usual(const struct plan *plan);

/* Knobs that do not matter for a load, and for a shape: sets of knobs. */
struct bound_ignored {
	uint64_t load, shape;
};
struct bound_ignored bound_ignored(void);
/* Whether two plans have one load; one shape, up to the number of micro-batches in the middle. */
bool bound_same_load(
	const struct bound_ignored *ignored, const struct plan *a, const struct plan *b);
bool bound_same_shape(
	const struct bound_ignored *ignored, const struct plan *a, const struct plan *b);

/* Operations of the compute stream that touch a buffer; first > last: none. */
struct touches {
	int first, last;
};
struct touches *bound_touches(const struct program *program, struct arena *arena);

/* Bytes that are surely there while each operation of the compute stream runs; `filter` may be
 * NULL. */
int64_t *bound_surely_live(const struct program *program,
	bool (*filter)(const struct buffer *buffer), struct arena *arena);

/* By stream, bytes: the most that its pool holds in the order of issue, and the largest buffer. An
 * allocator that gives nothing back to the device keeps as many for each pool, and the pools do not
 * serve one another: what it reserves is at least the sum of the peaks. */
struct bound_pools {
	int64_t peaks[STREAM_COUNT], largest[STREAM_COUNT];
};
struct bound_pools bound_pools(const struct program *program);
/* On the device. */
int64_t bound_pools_total(const struct bound_pools *pools);
/* Is memory handed out from pools? On a CPU there is one heap, and on a GPU our own runtime lays
 * buffers out before the first step. */
bool bound_has_pools(const struct topology *topology, const struct plan *plan);

/* What is saved for backward; what is there at the loss whatever is prefetched. */
bool bound_is_load(const struct buffer *buffer);
bool bound_is_kept(const struct buffer *buffer);

/* Process, or context and one communicator per group. */
int64_t bound_fixed_bytes(const struct schedule *schedule);

/* time.c. The share of an overlapping collective that arithmetic loses: min(c / n, 1/2). */
double bound_loss(const struct topology *topology, double multiprocessors);
/* The same beside work of which only a share is arithmetic. */
double bound_loss_beside(double loss, double share);
extern const double bound_shares[SHARES];
/* (3) of bound.c: what the collectives of one communicator, or of all, take from compute, whichever
 * is more. */
double bound_contention(const double losses[COMMUNICATORS_MAX],
	const double communicators[COMMUNICATORS_MAX], double pauses, const double cover[SHARES]);
/* Adds the seconds of an operation that exceed what would make it so arithmetic, by share. */
void bound_add_cover(const struct cost *cost, double cover[SHARES]);

/* What collectives do to a step whatever is computed. */
struct bound_communication {
	double idle[COMMUNICATORS_MAX]; /* s per step: of a communicator, from one step's last
				     collective to the next one's first */
	/* s per step: compute stands still from the step before to the first block, and from the
	 * last to the optimizer; what is computed outside of blocks meanwhile comes off. */
	double front, back;
	double links[LINKS]; /* s per step: the same as `idle`, of all collectives on a link */
	/* s per step: from the last loss to a communicator's first late reduction, and from its
	 * last one to the next step's first computation; -INFINITY: there is none. Of the
	 * network's late reductions. */
	double late[COMMUNICATORS_MAX], late_network;
	double multiprocessors[COMMUNICATORS_MAX]; /* that each collective takes at least; INFINITY:
						there is none */
};
/* The less of each. */
struct bound_communication bound_less_communication(
	const struct bound_communication *a, const struct bound_communication *b);

/* What stands still in a step whatever is prefetched. */
struct bound_pauses {
	double *stalls; /* s by operation: of the compute stream, before it; in the caller's arena
			 */
	double *host;   /* s by operation of the host: its own, when nothing else runs; there too */
	struct bound_communication communication; /* front and back: beyond `stalls`;
						     multiprocessors: INFINITY */
	bool updates_alone;          /* no collective runs beside the device's optimizer */
	int late[COMMUNICATORS_MAX]; /* the first late reduction; n_ops: there is none */
	bool *halves[HALVES];        /* by operation; in the caller's arena */
};
struct bound_pauses bound_pauses(
	const struct schedule *schedule, const struct cost *costs, struct arena *arena);
/* Of a load: s computed before the first block, and after the last one's backward. */
struct bound_edges {
	double lead, trail;
};
struct bound_edges bound_edges(const struct program *program, const struct cost *costs);
double bound_edge_stalls(
	const struct bound_edges *edges, const struct bound_communication *communication);
/* The end of a step: gradient norm, clipping, the update. */
bool bound_is_update(enum op_kind kind);
/* What a collective takes of its communicator, of links, and after the last loss. Nothing of
 * communicators beyond the first few. */
void bound_add_collective(const struct schedule *schedule, int index, const struct cost *cost,
	const struct bound_pauses *pauses, struct work *work);
/* The last OP_LOSS; -1: there is none. */
int bound_last_loss(const struct program *program);
/* May a collective run beside this operation of the compute stream? */
bool bound_hides(const struct bound_pauses *pauses, const struct op *op);

#endif
