/* Independent pieces of work on several cores. */
#ifndef CLI_CORES_H
#define CLI_CORES_H

/* That this process may run on. */
int cores_available(void);

/* piece(data, i, worker) once for every i of 0 .. n-1; returns when all are done. `worker` is one
 * of 0 .. workers-1; pieces of one worker never overlap. The caller is worker 0. Threads that do
 * not start are done without. */
void cores_each(int workers, int n, void (*piece)(void *data, int index, int worker), void *data);

#endif
