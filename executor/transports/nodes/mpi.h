/* Private to the executor: MPI, for being started and for messages. Nothing else includes mpi.h.
 *
 * A build without MPI has these functions too; starting then fails and says what is missing. */
#ifndef EXECUTOR_MPI_WORLD_H
#define EXECUTOR_MPI_WORLD_H

#include "executor/transports/nodes/two_levels.h"

/* Starts MPI and finds out where the ranks are. `expected` is how many there should be. Ranks that
 * are not numbered machine by machine, equally many on each, are EXIT_CODE_USAGE. An error that all
 * ranks find is told by the first one; it is "" for the others. */
bool mpi_start(struct layout *layout, int expected, struct error *error);
/* All ranks. */
void mpi_stop(void);
/* All ranks of this machine: the descriptor that the first of them has, -1 = it has none. Gives
 * each of the others one of its own. */
bool mpi_share_descriptor(int *fd, struct error *error);
bool wire_open_mpi(struct wire *wire, int ranks, struct error *error);
/* "Open MPI v4.1.4", "" without. In static memory. */
const char *mpi_library(void);

#endif
