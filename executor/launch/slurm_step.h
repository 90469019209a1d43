/* Private to the executor: the exit code of a step whose ranks `srun --mpi=pmix` has started.
 *
 * Slurm's PMIx plugin kills the whole step, with SIGKILL, when the connection of a rank to it
 * breaks before MPI_Finalize; `srun` then leaves with 137 whatever the others had to say. So the
 * launcher keeps a duplicate of its rank's connection: when the rank dies, it stays open. The
 * launcher says what is to be said, and ends the step itself by PMIx_Abort, whose code `srun`
 * leaves with. */
#ifndef EXECUTOR_LAUNCH_SLURM_STEP_H
#define EXECUTOR_LAUNCH_SLURM_STEP_H

#include "executor/ranks/ranks.h"

/* The descriptor, in a rank process, through which the launcher gets the connection. */
enum { SLURM_STEP_RANK_FD = 101 };

/* Do the job's ranks use MPI that Slurm has started? */
bool slurm_step_has_pmix(const struct segment *segment);

/* Launcher: makes the pair of descriptors; `*rank_end` is for SLURM_STEP_RANK_FD. -1: none. */
void slurm_step_hold(int *rank_end);
/* A rank calls this after MPI_Init, to give its connection to the launcher. */
void slurm_step_share_connection(void);
/* When the launcher's process exits, after its messages, the step ends with `code`. */
void slurm_step_end(int code);

#endif
