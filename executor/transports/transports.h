/* Transports: how ranks exchange data inside a machine and between GPUs. */
#ifndef EXECUTOR_TRANSPORTS_H
#define EXECUTOR_TRANSPORTS_H

#include "executor/devices/devices.h"
#include "executor/transports/comm.h"
#include "executor/transports/nccl_api.h"
#include "executor/transports/nccl_buffers.h"
#include "executor/transports/nccl_world.h"
#include "executor/transports/node.h"

/* Ranks of one process that share a GPU; what is on no stream is in host memory, and goes as it
 * does under shm. `context` is of the device's kernels, for streams of collectives. */
bool comm_open_device(struct comm *comm, struct segment *segment, struct device_cuda *device,
	const struct kernels *kernels, struct kernel_context *context, struct error *error);

/* A GPU each. Keeps `comm` for what is on no stream. */
bool comm_open_nccl(struct comm *comm, struct segment *segment, struct gpu *gpu,
	const struct schedule *schedule, struct error *error);

/* --- apart.c --- */

/* As NVIDIA's tools print it: "GPU-...". */
struct gpu_uuid {
	unsigned char bytes[16];
};
void gpu_uuid_print(const struct gpu_uuid *uuid, char *text, size_t size);
/* That no two ranks of a node have the same one. Each tells the others over `host`, from a block of
 * `heap`. */
bool gpu_check_apart(const struct cuda_api *api, int ordinal, struct comm *host, struct heap *heap,
	int per_node, struct arena *arena, struct error *error);

#endif
