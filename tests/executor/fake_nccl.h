/* What the two files of the fake's NCCL share; all with the lock. */
#ifndef TESTS_EXECUTOR_FAKE_NCCL_H
#define TESTS_EXECUTOR_FAKE_NCCL_H

#include "fake_cuda_private.h"

struct nccl_api;

void fake_nccl_memory_install(struct nccl_api *api, int version);
void fake_nccl_check_destroy(const void *comm);
/* As if the communicator knew no memory: it was aborted. */
void fake_nccl_forget(const void *comm);
/* fake_nccl_faults.c: whether FAKE_NCCL_FAULT is of that kind and for that rank; and one more
 * collective: 0 for the one that fails. */
bool fake_nccl_fails(const char *kind, int rank);
int fake_nccl_count(int rank);
/* Where in the communicator's window that lies; -1 without one. */
int64_t fake_nccl_place(const void *comm, const void *address, int64_t bytes);

#endif
