/* One rank's GPU: a stream for each stream of the schedule, events for its waits, one arena for the
 * device's tier and one of pinned memory for the host's, both laid out before the first step.
 *
 * While a step runs nothing is allocated, freed or synchronised: the walk enqueues, the streams
 * wait for each other by events, and the host waits only where the schedule says so (host_waits,
 * the host's own operations) and at the end of the step. Every operation has an event before and
 * behind it, which are read when the step has ended. From the second step on a step may be one
 * launch (cuda_graph.h). */
#ifndef EXECUTOR_DEVICES_CUDA_H
#define EXECUTOR_DEVICES_CUDA_H

#include <pthread.h>

#include "executor/devices/cuda_graph.h"
#include "executor/devices/interface.h"
#include "executor/memory/memory.h"
#include "executor/ranks/ranks.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernels.h"

/* Scalars that the host sends to a step, and those that it leaves for the host, on the device and
 * in pinned memory. */
struct device_scalars {
	/* From the host before the step: [0] for parameters without weight decay, [1] with. */
	struct adamw_factors adamw[2];
	struct sgd_factors sgd[2];
	/* Results of the step. */
	struct exact_sum loss,
		squares; /* sums of this rank's losses; of squares of all gradients */
	double norm;     /* of the gradients, where they are clipped */
	float clip;      /* the factor that clipping multiplies them with */
	int32_t fault;   /* the largest token outside of the vocabulary; -1 = none */
};

/* Streams that ranks of one process share (cuda_streams.c), and where those meet. */
struct stream_pool {
	pthread_mutex_t lock;
	int ranks, users;
	void **streams[STREAM_COUNT]; /* [ranks]; the host's: copies between steps */
	_Atomic uint32_t come;
	struct event met;
};

struct device_cuda {
	/* Set by the caller. */
	const struct program *program;
	int ordinal;              /* of the GPU */
	int64_t bias_width;       /* of the widest leaf */
	struct stream_pool *pool; /* NULL: no stream is another rank's */
	int rank;                 /* of the pool's */
	struct patience patience; /* of the host's waits: abort flag, and s until it is a hang */
	/* Called while the host waits, some thousand times a second: false ends the wait, with an
	 * error or without. May be NULL. */
	bool (*healthy)(void *data, struct error *error);
	void *health_data;
	/* Collectives of all streams run one after the other, in program order: communicators that
	 * have no order of their own. */
	bool one_at_a_time;
	bool careless; /* a seeded fault: streams do not wait for each other */
	/* Allocate and free the device's tier, as ncclMemAlloc and ncclMemFree do. NULL, or when
	 * they have no memory: the driver allocates. */
	int (*take_arena)(void **memory, size_t bytes);
	int (*give_arena)(void *memory);
	const int32_t *fault; /* what kernels leave as scalars.fault; NULL = nothing */
	/* There after device_cuda_open. */
	const struct cuda_api *api;
	const struct kernels *kernels;
	struct addresses addresses;
	char *memory, *pinned; /* the tiers */
	struct device_scalars *scalars, *scalars_on_host;
	float *bias_sums;    /* of one micro-batch and leaf, [bias_width] */
	void *workspace;     /* of kernels off the compute stream, KERNELS_WORKSPACE_BYTES */
	char *staging;       /* pinned: what the host writes for the device */
	int64_t allocated;   /* bytes of device memory, all told */
	bool arena_is_given; /* `memory` came from take_arena */
	/* [n_ops] where pacing notes starts, and then how late; NULL: nothing is paced. */
	uint64_t *clocks, *clocks_on_host;
	struct device_graph graph;
	/* private */
	struct arena arena;
	void *context, *library;
	void *streams[STREAM_COUNT], *background; /* the host's stream has none; between steps */
	bool borrows, in_lockstep;                /* some of the pool's; with others */
	uint32_t meetings;
	void **starts, **ends, *origin, *origin_end; /* events: of operations, of the step */
	double *host_starts, *host_ends;      /* [n_ops] s of the step: the host's operations */
	int seen[STREAM_COUNT][STREAM_COUNT]; /* the last operation that a stream waited for */
	int last_collective;                  /* of the step, on a stream; -1 = none yet */
	double start;
};

/* Are there a driver, a GPU of that number, and kernels for it? Also the number of GPUs.
 * EXIT_CODE_ENVIRONMENT says in one line what is missing. */
bool device_cuda_available(int *gpus, struct error *error);

/* Opens a GPU on the calling thread, which must be the one that uses it. `staging_bytes` of pinned
 * memory are for the caller. EXIT_CODE_ENVIRONMENT if the memory does not suffice. */
bool device_cuda_open(struct device_cuda *device, int64_t staging_bytes, struct error *error);
void device_cuda_close(struct device_cuda *device);

/* The functions by which struct backend uses a GPU. */
extern const struct device_ops device_cuda_ops;

static inline bool device_check(
	const struct device_cuda *device, int result, const char *what, struct error *error)
{
	return cuda_check(device->api, result, what, error);
}

static inline void *device_stream(const struct device_cuda *device, enum stream stream)
{
	return device->streams[stream];
}

/* Enqueues a copy between any two places in device memory and pinned memory. */
bool device_copy(const struct device_cuda *device, void *to, const void *from, int64_t bytes,
	enum stream stream, struct error *error);
bool device_zero(const struct device_cuda *device, void *to, int64_t bytes, enum stream stream,
	struct error *error);
/* Copies, and returns when that is done; `to` or `from` may be any memory of the host. Only the
 * host's own operations may use it within a step. */
bool device_copy_now(
	struct device_cuda *device, void *to, const void *from, int64_t bytes, struct error *error);

/* Must be called before the first step and after the last. EXIT_CODE_ENVIRONMENT if there is no
 * room for `what`. */
bool device_allocate(struct device_cuda *device, int64_t bytes, const char *what, char **memory,
	struct error *error);
void device_free(struct device_cuda *device, void *memory);

/* Sets *bytes to the bytes of the GPU's memory in use, by any process. */
bool device_memory_used(const struct device_cuda *device, int64_t *bytes, struct error *error);

/* --- cuda_streams.c --- */

void stream_pool_open(struct stream_pool *pool, int ranks, struct arena *arena);
void stream_pool_close(struct stream_pool *pool);
bool device_streams_open(struct device_cuda *device, struct error *error);
void device_streams_close(struct device_cuda *device);
/* For an operation on a stream that other ranks share: waits until all have come this far. False
 * without an error: another rank gave up. */
bool device_meet(struct device_cuda *device, int op, struct error *error);

/* --- cuda_pacing.c: streams are held until modelled times have passed --- */

/* Must be called before the first step of a paced run. */
bool device_pace_open(struct device_cuda *device, struct error *error);
/* Notes the device's time at `clock`, in the order of the stream. */
bool device_stamp(const struct device_cuda *device, void *clock, void *stream, struct error *error);
bool device_pace_start(void *device, int op, struct error *error);
void *device_pace_clock(void *device, int op);
bool device_pace_hold(void *device, int op, double seconds, struct error *error);
/* Copies the times to pinned memory at the end of a step; does nothing where nothing is paced. */
bool device_pace_fetch(struct device_cuda *device, struct error *error);
double device_pace_late(void *device, int op);

/* Launches a kernel of the image with one block of `threads`, for transports. */
bool device_launch(const struct device_cuda *device, const char *name, int blocks, int threads,
	void **arguments, void *stream, struct error *error);

#endif
