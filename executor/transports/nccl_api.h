/* NCCL as a table of functions that is filled when the program runs, as kernels/cuda/api.h does
 * with the driver. Members have NCCL's names and arguments (2.18 and newer); ncclComm_t and
 * cudaStream_t are void pointers, enums are int, 0 is success. */
#ifndef EXECUTOR_TRANSPORTS_NCCL_API_H
#define EXECUTOR_TRANSPORTS_NCCL_API_H

#include <stddef.h>

#include "base/base.h"

/* As in nccl.h. */
enum {
	NCCL_INVALID_USAGE = 5,
	NCCL_IN_PROGRESS = 7,
	NCCL_UINT8 = 1,
	NCCL_INT64 = 4,
	NCCL_FLOAT32 = 7,
	NCCL_BFLOAT16 = 9,
	NCCL_SUM = 0,
	NCCL_WIN_COLL_SYMMETRIC = 1,
	NCCL_CONFIG_MAGIC = (int)0xcafebeef,
	NCCL_ORDERS = 22600, /* the first version with NCCL_LAUNCH_ORDER_IMPLICIT */
};
#define NCCL_UNDEFINED (-2147483647 - 1)

struct nccl_id {
	char internal[128];
};

/* ncclConfig_t of 2.28, of which older versions take the beginning that they know. */
struct nccl_config {
	size_t size;
	unsigned magic, version;
	int blocking, cga_cluster_size, min_ctas, max_ctas;
	const char *net_name;
	int split_share, traffic_class;
	const char *name;
	int collnet_enable, cta_policy, shrink_share, nvls_ctas;
	int channels_per_net_peer, nvlink_centric_sched;
};

/* X(name, arguments) */
#define NCCL_FUNCTIONS(X)                                                                          \
	X(ncclGetVersion, (int *version))                                                          \
	X(ncclGetUniqueId, (struct nccl_id * id))                                                  \
	X(ncclCommInitRankConfig,                                                                  \
		(void **comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config)) \
	X(ncclCommSplit,                                                                           \
		(void *comm, int color, int key, void **split, struct nccl_config *config))        \
	X(ncclCommFinalize, (void *comm))                                                          \
	X(ncclCommDestroy, (void *comm))                                                           \
	X(ncclCommAbort, (void *comm))                                                             \
	X(ncclCommGetAsyncError, (void *comm, int *result))                                        \
	X(ncclAllGather, (const void *send, void *receive, size_t count, int type, void *comm,     \
				 void *stream))                                                    \
	X(ncclReduceScatter, (const void *send, void *receive, size_t count, int type, int op,     \
				     void *comm, void *stream))                                    \
	X(ncclAllReduce, (const void *send, void *receive, size_t count, int type, int op,         \
				 void *comm, void *stream))

/* Functions of newer versions: 2.19, windows 2.27. NULL in others. */
#define NCCL_NEWER_FUNCTIONS(X)                                                                    \
	X(ncclMemAlloc, (void **memory, size_t bytes))                                             \
	X(ncclMemFree, (void *memory))                                                             \
	X(ncclCommRegister, (void *comm, void *memory, size_t bytes, void **handle))               \
	X(ncclCommDeregister, (void *comm, void *handle))                                          \
	X(ncclCommWindowRegister,                                                                  \
		(void *comm, void *memory, size_t bytes, void **window, int flags))                \
	X(ncclCommWindowDeregister, (void *comm, void *window))

struct nccl_api {
#define X(name, arguments) int(*name) arguments;
	NCCL_FUNCTIONS(X)
	NCCL_NEWER_FUNCTIONS(X)
#undef X
	const char *(*ncclGetErrorString)(int result);
	const char *(*ncclGetLastError)(void *comm);
};

/* Loads libnccl.so.2, once; NULL with EXIT_CODE_ENVIRONMENT and one line without it. */
const struct nccl_api *nccl_api(struct error *error);
/* For tests, before any thread starts. */
void nccl_api_use(const struct nccl_api *api);

#endif
