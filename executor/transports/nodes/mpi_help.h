/* Private to the executor: what MPI itself has to say in a rank. */
#ifndef EXECUTOR_TRANSPORTS_NODES_MPI_HELP_H
#define EXECUTOR_TRANSPORTS_NODES_MPI_HELP_H

/* Must be called after MPI_Init: Open MPI's messages then go to this process's stderr, and not
 * through mpirun. Other MPIs are not changed. */
void mpi_help_stay_here(void);

#endif
