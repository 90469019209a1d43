/* A rank's place in its run: alone with the others on this machine, or on one of several. */
#ifndef EXECUTOR_LAUNCH_JOIN_H
#define EXECUTOR_LAUNCH_JOIN_H

#include "executor/launch/rendezvous.h"

struct cluster {
	struct layout layout;
	struct segment *control; /* of the launcher and its ranks */
	struct segment own;      /* over machines: of this machine's ranks */
	char *window;            /* this rank's memory that others can read */
	int64_t window_bytes;
	const struct world_kind *world; /* joined over machines; NULL: this launcher's ranks only */
	struct meeting meeting;         /* of ranks that found each other over TCP */
};

/* `window_bytes`: size of the window that the rank needs when it joins over machines; alone on a
 * machine the launcher has reserved the window. */
bool cluster_join(struct cluster *cluster, struct segment *control, int64_t window_bytes,
	struct error *error);
/* Checks that the ranks are where the plan wants them: else EXIT_CODE_USAGE, which the first rank
 * tells. */
bool cluster_check(
	const struct cluster *cluster, int64_t nodes, int64_t per_node, struct error *error);
bool cluster_open_comm(struct cluster *cluster, struct comm *comm, const struct kernels *kernels,
	struct kernel_context *context, struct error *error);
/* `sound`: nothing failed, so the other ranks leave as well and can be waited for. */
void cluster_leave(struct cluster *cluster, bool sound);

#endif
