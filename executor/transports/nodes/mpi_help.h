/* Private to the executor: what MPI itself has to say in a rank. */
#ifndef EXECUTOR_TRANSPORTS_NODES_MPI_HELP_H
#define EXECUTOR_TRANSPORTS_NODES_MPI_HELP_H

/* After MPI_Init: Open MPI's messages go to this process's stderr, and not through mpirun. Other
 * MPIs are left as they are. */
void mpi_help_stay_here(void);

#endif
