/* Transports: how ranks exchange data inside a machine and between GPUs. */
#ifndef EXECUTOR_TRANSPORTS_H
#define EXECUTOR_TRANSPORTS_H

#include "executor/devices/devices.h"
#include "executor/transports/comm.h"
#include "executor/transports/nccl_api.h"
#include "executor/transports/nccl_buffers.h"
#include "executor/transports/nccl_world.h"
#include "executor/transports/node.h"

/* How ranks exchange data between GPUs, as --transport names it: a file each, listed in
 * meson.build. The first one that suits is used where none was asked for. */
struct gpu_transport {
	const char *name;
	bool apart;   /* every rank has a GPU; else they are threads of one process and share one */
	bool ordered; /* sums are made in the declared tree: bits do not depend on the transport */
	bool paced;   /* collectives can be held to predicted times */
	/* Called before the device is opened; may be NULL. */
	bool (*prepare)(struct device_cuda *device, struct error *error);
	/* Replaces `comm`, which serves host memory, by one that serves the GPU and host memory. */
	bool (*open)(struct comm *comm, struct segment *segment, struct gpu *gpu,
		const struct schedule *schedule, struct error *error);
};
extern const struct gpu_transport *const gpu_transports[]; /* NULL behind the last */
/* NULL for an unknown name. */
const struct gpu_transport *gpu_transport_find(const char *name);

/* --- apart.c --- */

/* As NVIDIA's tools print it: "GPU-...". */
struct gpu_uuid {
	unsigned char bytes[16];
};
void gpu_uuid_print(const struct gpu_uuid *uuid, char *text, size_t size);
/* Checks that no two ranks of a node have the same GPU. They exchange the ids over `host`, through
 * a block of `heap`. EXIT_CODE_USAGE names the ranks. */
bool gpu_check_apart(const struct cuda_api *api, int ordinal, struct comm *host, struct heap *heap,
	int per_node, struct arena *arena, struct error *error);

#endif
