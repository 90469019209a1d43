/* NCCL's communicators of a run: one over all ranks, and split from it one for each group of a
 * list. Operations of one communicator run one after the other: groups of one engine share one.
 *
 * Nothing blocks: what NCCL reports later is looked for while the host waits, and a fault of any
 * rank aborts all communicators, which ends what waits on the GPUs. */
#ifndef EXECUTOR_TRANSPORTS_NCCL_WORLD_H
#define EXECUTOR_TRANSPORTS_NCCL_WORLD_H

#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"
#include "executor/transports/comm.h"
#include "executor/transports/nccl_config.h"

struct nccl_world {
	const struct nccl_api *api;
	struct segment *segment;         /* a fault in it ends every wait */
	const struct patience *patience; /* until a call that does not end is an error */
	int rank, n_groups;
	const struct group *groups;
	struct nccl_config config;
	void *all, **comms; /* [n_groups]; NULL for a group of one rank, or like one before it */
	bool aborted;
};

/* Opens the world on the thread that has the GPU. Ranks meet over `host`, which reads the contents
 * of `heap`; `groups` and `patience` must stay. nccl_world_close is due even after an error. */
bool nccl_world_open(struct nccl_world *world, struct segment *segment, struct comm *host,
	struct heap *heap, const struct group *groups, int n_groups,
	const struct patience *patience, struct arena *arena, struct error *error);
/* Leaves with all others, or aborts after a fault. */
void nccl_world_close(struct nccl_world *world);

/* Enqueues the collective on collective->stream, by the communicator of its group. */
bool nccl_world_run(
	const struct nccl_world *world, const struct collective *collective, struct error *error);

/* Calls of a communicator may go on behind our back; the next one must wait. False without an error
 * when another rank's fault ended it. */
bool nccl_world_settle(const struct nccl_world *world, void *comm, int result, const char *what,
	struct error *error);
/* Reports an error that came after everything was done: a line for people, since the results are
 * valid. Does nothing when it is "". */
void nccl_world_regret(const struct nccl_world *world, const struct error *error);
/* Asks all communicators for asynchronous errors; one such error aborts all. */
bool nccl_world_healthy(struct nccl_world *world, struct error *error);

#endif
