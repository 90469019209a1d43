/* The memory of collectives made known to NCCL, so that it needs no copies of its own: one range of
 * the device's arena that holds all buffers of collectives, registered with every communicator for
 * the whole run. The arena then is memory of ncclMemAlloc's, and laid out alike on all ranks.
 *
 * Symmetric windows from NCCL 2.27 on, where the GPUs can reach each other's memory; else
 * ncclCommRegister, from 2.19 on; else nothing. All ranks do the same, or none does anything. */
#ifndef EXECUTOR_TRANSPORTS_NCCL_BUFFERS_H
#define EXECUTOR_TRANSPORTS_NCCL_BUFFERS_H

#include "executor/devices/devices.h"
#include "executor/transports/nccl_world.h"

/* The memory of the operands of collectives, in whole pages; bytes 0: there is none. */
struct nccl_memory {
	char *start;
	int64_t bytes;
	bool of_nccl; /* it came from ncclMemAlloc */
};

struct nccl_registration {
	void *comm, *window, *handle; /* one of the two */
};

struct nccl_buffers {
	const struct nccl_api *api;
	struct nccl_registration *all; /* [n] */
	int n;
	struct nccl_memory memory;
	const char *how; /* "symmetric windows", "registered", or "not registered: " and why */
};

/* Sets where the device's arena comes from, so it must be called before the device is opened. */
void nccl_buffers_prepare(struct device_cuda *device, const struct nccl_api *api);
/* The part of the device's arena that the collectives of its program use. */
struct nccl_memory nccl_buffers_of(const struct device_cuda *device);

/* Registers the memory with all communicators of the world that were split from the first, if all
 * ranks can. `host` carries their answers, of which each rank's lies in a block of `heap`. */
bool nccl_buffers_open(struct nccl_buffers *buffers, const struct nccl_world *world,
	struct nccl_memory memory, struct comm *host, struct heap *heap, struct arena *arena,
	struct error *error);
/* Must be called before the communicators are destroyed, when nothing uses them any more. */
void nccl_buffers_close(struct nccl_buffers *buffers, const struct nccl_world *world);

#endif
