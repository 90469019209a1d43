/* What the two files of the fake's NCCL share; all with the lock. */
#ifndef TESTS_EXECUTOR_FAKE_NCCL_H
#define TESTS_EXECUTOR_FAKE_NCCL_H

#include "fake_cuda_private.h"

struct nccl_api;

void fake_nccl_memory_install(struct nccl_api *api, int version);
void fake_nccl_check_destroy(const void *comm);
/* Where in the communicator's window that lies; -1 without one. */
int64_t fake_nccl_place(const void *comm, const void *address, int64_t bytes);

#endif
