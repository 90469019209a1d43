/* Independent pieces of work on several cores. */
#ifndef CLI_CORES_H
#define CLI_CORES_H

/* The number of cores on which this process may run. */
int cores_available(void);

/* Calls piece(data, i, worker) once for every i of 0 .. n-1, and returns when all are done.
 * `worker` is one of 0 .. workers-1; pieces of one worker never overlap. The caller is worker 0. If
 * a thread cannot be started, the others do its pieces. */
void cores_each(int workers, int n, void (*piece)(void *data, int index, int worker), void *data);

#endif
