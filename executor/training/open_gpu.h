/* A rank whose arithmetic is a GPU's: the device, and a copy of its resident buffers in the rank's
 * window, through which weights are made, checkpointed and hashed as they are on a CPU. */
#ifndef EXECUTOR_TRAINING_OPEN_GPU_H
#define EXECUTOR_TRAINING_OPEN_GPU_H

#include "executor/launch/launch.h"
#include "executor/transports/transports.h"

/* Can that many ranks train here, and how? `name` is "nccl", "device", or NULL: NCCL if every rank
 * has a GPU. `launched`: each rank is a process that a launcher has started, and may see only its
 * own GPU. EXIT_CODE_ENVIRONMENT or EXIT_CODE_USAGE says what is missing. */
bool gpu_choose(const char *name, int ranks, bool launched, const struct gpu_transport **transport,
	int *gpus, struct error *error);

/* The GPU of a rank that has one to itself: the n-th of a node has the n-th, or the only one that
 * it sees. */
int gpu_of_rank(const struct segment *segment, const struct cluster *cluster, int gpus);
/* kernel_context.beside of a GPU whose collectives are kernels of their own: as many blocks as
 * --nccl lets them have. */
int gpu_blocks_beside(const struct gpu *gpu, const struct job *job);
/* Must be called on the rank's thread. The mirror lies in the rank's window. */
bool gpu_open(struct gpu *gpu, struct segment *segment, const struct schedule *schedule,
	const struct cluster *cluster, struct error *error);
void gpu_close(struct gpu *gpu);

/* Replaces `comm`, which serves host memory, by one that serves the GPU and host memory. */
bool gpu_open_comm(struct gpu *gpu, struct segment *segment, const struct schedule *schedule,
	struct comm *comm, struct error *error);

/* Do steps become launches of a CUDA graph, by the job's wish and by what the schedule allows?
 * EXIT_CODE_USAGE if the wish cannot be granted. */
bool gpu_choose_graphs(struct gpu *gpu, const struct segment *segment, const struct fault *fault,
	struct error *error);

/* These copy resident buffers from the mirror to the device, and back. They may be called between
 * steps only. */
bool gpu_upload(struct gpu *gpu, const struct buffers *buffers, struct error *error);
bool gpu_download(struct gpu *gpu, const struct buffers *buffers, struct error *error);

#endif
