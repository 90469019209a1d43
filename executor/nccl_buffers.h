/* The memory of collectives made known to NCCL, so that it needs no copies of its own: one range of
 * the device's arena that holds all buffers of collectives, registered with every communicator for
 * the whole run. The arena then is memory of ncclMemAlloc's, and laid out alike on all ranks.
 *
 * Symmetric windows from NCCL 2.27 on, where the GPUs can reach each other's memory; else
 * ncclCommRegister, from 2.19 on; else nothing. All ranks do the same, or none does anything. */
#ifndef EXECUTOR_NCCL_BUFFERS_H
#define EXECUTOR_NCCL_BUFFERS_H

#include "executor/comm.h"
#include "executor/device_cuda.h"
#include "executor/nccl_api.h"

struct nccl_registration {
	void *comm, *window, *handle; /* one of the two */
};

struct nccl_buffers {
	const struct nccl_api *api;
	struct nccl_registration *all; /* [n] */
	int n;
	char *start; /* of the range */
	int64_t bytes;
	const char *how; /* "symmetric windows", "registered", or "not registered: " and why */
};

/* Before the device is opened: where its arena comes from. */
void nccl_buffers_prepare(struct device_cuda *device, const struct nccl_api *api);

/* What is registered, for at most `room` communicators; whether all ranks can. `host` carries their
 * answers, of which each rank's lies in a block of `heap`. */
bool nccl_buffers_open(struct nccl_buffers *buffers, const struct nccl_api *api,
	const struct device_cuda *device, int room, struct comm *host, struct heap *heap,
	struct arena *arena, struct error *error);
bool nccl_buffers_wanted(const struct nccl_buffers *buffers);

/* Collective over `comm`. `settle` waits for a call of a communicator that does not block. */
typedef bool nccl_settle(void *data, void *comm, int result, const char *what, struct error *error);
bool nccl_buffers_register(struct nccl_buffers *buffers, void *comm, nccl_settle *settle,
	void *data, struct error *error);
/* Before the communicators go, when nothing uses them any more. */
void nccl_buffers_close(struct nccl_buffers *buffers);

#endif
