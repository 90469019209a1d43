/* A run's folder of checkpoints: whose it is, and what lies about in it.
 *
 *     FOLDER/run.json   the id that the manifests of its checkpoints repeat
 *     FOLDER/.lock      locked while a job writes here; says which */
#ifndef EXECUTOR_CHECKPOINTS_RUN_FOLDER_H
#define EXECUTOR_CHECKPOINTS_RUN_FOLDER_H

#include "executor/checkpoints/folders.h"

enum { RUN_ID_SIZE = sizeof(((struct digest *)NULL)->hex) };

/* Makes the folder and takes it, until all processes that have the descriptor are gone: the ranks
 * inherit it. EXIT_CODE_ENVIRONMENT when another job has it, which is named. A file system without
 * locks is no error: fd is -1 then. */
bool run_folder_lock(const char *folder, int *fd, struct error *error);
void run_folder_unlock(int fd);

/* False where there is no run.json, or it is damaged. */
bool run_folder_read(struct arena *arena, const char *folder, char run[RUN_ID_SIZE]);
bool run_folder_write(const char *folder, const char *run, struct error *error);
void run_folder_new_id(char run[RUN_ID_SIZE]);

/* Is the folder missing, or without anything that is, or was, a checkpoint? False also where it
 * cannot be read. `unfinished`: the name of a half-written one, which a killed run left; or NULL.
 */
bool run_folder_may_begin(struct arena *arena, const char *folder, const char **unfinished);

/* Removes what a killed run left half-written. Checkpoints of steps after `step` must be damaged,
 * and become step-N.damaged. */
bool run_folder_tidy(struct store *store, struct arena *arena, const char *folder, int64_t step,
	struct error *error);

#endif
