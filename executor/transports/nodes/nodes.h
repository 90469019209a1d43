/* Collectives over machines, whatever carries the messages.
 *
 * Ranks of one machine read in each other's windows; machines exchange messages. Sums are made
 * inside a machine first, so that only its partial sums cross the network. That keeps the declared
 * tree: the members on a machine are a run of positions, the tree over the group contains whole
 * subtrees of that run, and each subtree's sum is what crosses (one, where a machine holds a power
 * of two of them). */
#ifndef EXECUTOR_TRANSPORTS_NODES_H
#define EXECUTOR_TRANSPORTS_NODES_H

#include "executor/transports/nodes/wire.h"
#include "executor/transports/transports.h"

/* The places of the ranks of a run: each machine has `per_node` consecutive ones. */
struct layout {
	int rank, ranks;
	int per_node;
};

/* Bytes at the end of each window of the shared segment through which ranks gather into private
 * memory. */
#define NODES_BOUNCE_BYTES (INT64_C(1) << 20)

/* `shared` is the segment of this machine's ranks; nothing else uses the NODES_BOUNCE_BYTES at the
 * end of its windows. Faults are recorded in `control`. The comm owns the wire from now on, and
 * borrows the rest. */
bool comm_open_nodes(struct comm *comm, const struct layout *layout, struct segment *shared,
	struct segment *control, const struct wire *wire, const struct kernels *kernels,
	struct kernel_context *context, struct error *error);

/* --- mpi.c: MPI, for being started and for messages. A build without has these functions too;
 * starting then fails and says what is missing. --- */

/* Starts MPI and finds out where the ranks are. `expected` is how many there should be. Ranks that
 * are not numbered machine by machine, equally many on each, are EXIT_CODE_USAGE. An error that all
 * ranks find is told by the first one; it is "" for the others. */
bool mpi_start(struct layout *layout, int expected, struct error *error);
/* All ranks call this. */
void mpi_stop(void);
/* All ranks call this: `all` gets `bytes` of each, in the order of ranks. */
void mpi_exchange(const void *own, void *all, int64_t bytes);
/* All ranks of this machine take part: the first passes its descriptor (-1: it has none), each
 * other one gets a descriptor of its own for the same file, which it closes. */
bool mpi_share_descriptor(int *fd, struct error *error);
bool wire_open_mpi(struct wire *wire, int ranks, struct error *error);
/* Returns a name like "Open MPI v4.1.4", in static memory; "" in a build without MPI. */
const char *mpi_library(void);

#endif
