/* A rank's GPU, with what the rank keeps of it in host memory; ranks that are threads of one
 * process and share one; and what NVIDIA's driver says without a GPU being opened (nvml.c). */
#ifndef EXECUTOR_DEVICES_GPU_H
#define EXECUTOR_DEVICES_GPU_H

#include "executor/devices/cuda.h"
#include "executor/devices/kernel_choices.h"
#include "executor/memory/memory.h"
#include "kernels/kernels.h"

struct gpu_transport;

struct gpu {
	struct device_cuda device;
	const struct gpu_transport *transport;
	int per_node;                     /* ranks on each node */
	struct buffers mirror;            /* of resident buffers, in host memory */
	struct kernel_context background; /* of kernels off the compute stream */
	const char *graphs;               /* "on", or "off: " and why */
	struct gpu_choices choices;       /* of products and attention */
	const char *nccl;                 /* version and settings (nccl_config.h); NULL without */
	const char *nccl_buffers;         /* what NCCL knows of (nccl_buffers.h); NULL without */
	/* Bytes of the GPU in use: before this rank opened it (-1 = unknown), when all was set
	 * up. */
	int64_t before, used;
};

/* Ranks that are threads of one process, and what they show each other. */
enum { SHARED_SLOTS = 2 };
struct shared_slot {
	const void *address; /* that others read */
	void *ready, *read;  /* events: it may be read; this rank has read the others' */
};
struct rank_threads {
	int ranks;
	struct shared_slot (*slots)[SHARED_SLOTS]; /* [ranks] */
	struct stream_pool streams;
};

/* The state of the first GPU by its driver; 0 and "" if that does not say. */
struct gpu_facts {
	char driver[80];
	int clock_mhz, most_mhz, watts, most_watts;
};
void gpu_facts_read(struct gpu_facts *facts);

/* Bytes in use on the GPU of that name ("GPU-..."), by any process, as NVML counts; it asks without
 * opening the GPU. -1 where it does not say. */
int64_t gpu_memory_in_use(const char *name);

/* The GPUs of this machine as two texts for topology_import_add: variables (SHARDPLAN_GPU=...), and
 * a matrix as `nvidia-smi topo -m` prints it. EXIT_CODE_ENVIRONMENT without driver or GPU. */
bool nvml_describe(
	struct arena *arena, const char **facts, const char **matrix, struct error *error);

#endif
