/* A rank whose arithmetic is a GPU's: the device, and a copy of its resident buffers in the rank's
 * window, through which weights are made, checkpointed and hashed as they are on a CPU. */
#ifndef EXECUTOR_GPU_H
#define EXECUTOR_GPU_H

#include "executor/devices/cuda.h"
#include "executor/devices/kernel_choices.h"
#include "executor/launch/join.h"
#include "executor/ranks/shared_segment.h"
#include "executor/transports/comm.h"
#include "kernels/kernels.h"

/* How ranks exchange data between GPUs. */
enum gpu_transport {
	GPU_TRANSPORT_DEVICE, /* several ranks share one GPU: copies, and sums in the declared tree
			       */
	GPU_TRANSPORT_NCCL,   /* a GPU each */
};

struct gpu {
	struct device_cuda device;
	enum gpu_transport transport;
	int per_node;                     /* ranks on each node */
	struct buffers mirror;            /* of resident buffers, in host memory */
	struct kernel_context background; /* of kernels off the compute stream */
	const char *graphs;               /* "on", or "off: " and why */
	struct gpu_choices choices;       /* of products and attention */
	const char *nccl_buffers;         /* what NCCL knows of (nccl_buffers.h); NULL without */
	/* Bytes of the GPU in use: before this rank opened it (-1 = nobody says), when all was set
	 * up. */
	int64_t before, used;
};

/* Whether that many ranks can train here, and how; `name` is "nccl", "device", or NULL: NCCL where
 * every rank has a GPU. `launched`: each rank is a process that somebody else has started, and may
 * see no other GPU than its own. EXIT_CODE_ENVIRONMENT or EXIT_CODE_USAGE says what is missing. */
bool gpu_choose(const char *name, int ranks, bool launched, enum gpu_transport *transport,
	int *gpus, struct error *error);

/* The GPU of a rank that has one to itself: the n-th of a node has the n-th, or the only one that
 * it sees. */
int gpu_of_rank(const struct segment *segment, const struct cluster *cluster, int gpus);
/* That no two ranks of a node have the same one. Each tells the others over `host`, from a block of
 * `heap`. */
bool gpu_check_apart(const struct cuda_api *api, int ordinal, struct comm *host, struct heap *heap,
	int per_node, struct arena *arena, struct error *error);

/* Bytes in use on the GPU of that name ("GPU-..."), by whomever, as NVML counts; it asks without
 * opening the GPU. -1 where it does not say. In nvml.c. */
int64_t gpu_memory_in_use(const char *name);

/* On the rank's thread. The mirror lies in the rank's window. */
bool gpu_open(struct gpu *gpu, struct segment *segment, const struct schedule *schedule,
	const struct cluster *cluster, struct error *error);
void gpu_close(struct gpu *gpu);

/* In place of `comm`, which is open for what lies in host memory: that goes on to be served. */
bool gpu_open_comm(struct gpu *gpu, struct segment *segment, const struct schedule *schedule,
	struct comm *comm, struct error *error);

/* Whether steps become launches of a CUDA graph, by the wish of the job and by what the schedule
 * allows. EXIT_CODE_USAGE where the wish cannot be granted. */
bool gpu_choose_graphs(struct gpu *gpu, const struct segment *segment, const struct fault *fault,
	struct error *error);

/* Resident buffers from the mirror to the device, and back; between steps. */
bool gpu_upload(struct gpu *gpu, const struct buffers *buffers, struct error *error);
bool gpu_download(struct gpu *gpu, const struct buffers *buffers, struct error *error);

/* Ranks that are threads of one process, and what they show each other. */
enum { GANG_SLOTS = 2 };
struct gang_slot {
	const void *address; /* that others read */
	void *ready, *read;  /* events: it may be read; this rank has read the others' */
};
struct gang {
	int ranks;
	struct gang_slot (*slots)[GANG_SLOTS]; /* [ranks] */
	struct stream_pool streams;
};

/* Ranks of one process that share a GPU; what is on no stream is in host memory, and goes as it
 * does under shm. `context` is of the device's kernels, for streams of collectives. */
bool comm_open_device(struct comm *comm, struct segment *segment, struct device_cuda *device,
	const struct kernels *kernels, struct kernel_context *context, struct error *error);

/* A GPU each. Keeps `comm` for what is on no stream. */
bool comm_open_nccl(struct comm *comm, struct segment *segment, struct gpu *gpu,
	const struct schedule *schedule, struct error *error);

#endif
