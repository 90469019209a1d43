/* NVIDIA's driver and cuBLASLt as a table of functions that is filled when the program runs:
 * nothing of CUDA is linked, no header of it is needed, and one binary starts with and without a
 * GPU.
 *
 * Members have the names and arguments of the CUDA driver API (12.0 and newer) and of cuBLASLt;
 * handles (CUcontext, CUstream, CUevent, CUlibrary, CUkernel, cublasLt...) are void pointers, enums
 * are int, CUdeviceptr is uint64_t. Every function gives 0 for success. Tests fill the same table
 * with a machine of their own (cuda_api_use). tests/kernels compares the prototypes with NVIDIA's
 * headers where those are installed. */
#ifndef KERNELS_CUDA_API_H
#define KERNELS_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

/* As in cublasLt.h. */
struct cublaslt_algo {
	uint64_t data[8];
};
struct cublaslt_heuristic {
	struct cublaslt_algo algo;
	size_t workspace_bytes;
	int state;
	float waves;
	int reserved[4];
};

/* As in cuda.h: what launches may carry beyond their arguments. */
enum {
	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_EVENT_DEFAULT = 0,
	CUDA_EVENT_DISABLE_TIMING = 2,
	CUDA_EVENT_RECORD_EXTERNAL = 1, /* in a capture: a node that records whenever it runs */
	CUDA_CAPTURE_THREAD_LOCAL = 1,
	CUDA_HOST_ALLOC_PORTABLE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
	CUDA_ATTRIBUTE_CACHE_BYTES = 38,
	CUDA_ATTRIBUTE_COMPUTE_MAJOR = 75,
	CUDA_ATTRIBUTE_COMPUTE_MINOR = 76,
	CUDA_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN = 97,
	CUDA_FUNCTION_MAX_DYNAMIC_SHARED = 8,
};

/* X(name, suffix of the symbol, arguments) */
#define CUDA_DRIVER_FUNCTIONS(X)                                                                   \
	X(cuInit, "", (unsigned flags))                                                            \
	X(cuDriverGetVersion, "", (int *version))                                                  \
	X(cuGetErrorString, "", (int result, const char **text))                                   \
	X(cuDeviceGetCount, "", (int *count))                                                      \
	X(cuDeviceGet, "", (int *device, int ordinal))                                             \
	X(cuDeviceGetName, "", (char *name, int length, int device))                               \
	X(cuDeviceGetAttribute, "", (int *value, int attribute, int device))                       \
	X(cuDeviceGetUuid, "_v2", (unsigned char *uuid, int device))                               \
	X(cuDeviceGetPCIBusId, "", (char *id, int length, int device))                             \
	X(cuDeviceTotalMem, "_v2", (size_t * bytes, int device))                                   \
	X(cuDevicePrimaryCtxRetain, "", (void **context, int device))                              \
	X(cuDevicePrimaryCtxRelease, "_v2", (int device))                                          \
	X(cuCtxGetDevice, "", (int *device))                                                       \
	X(cuCtxSetCurrent, "", (void *context))                                                    \
	X(cuCtxSynchronize, "", (void))                                                            \
	X(cuMemGetInfo, "_v2", (size_t * free_bytes, size_t * total_bytes))                        \
	X(cuMemAlloc, "_v2", (uint64_t * address, size_t bytes))                                   \
	X(cuMemGetAddressRange, "_v2", (uint64_t * start, size_t * bytes, uint64_t address))       \
	X(cuMemFree, "_v2", (uint64_t address))                                                    \
	X(cuMemHostAlloc, "", (void **address, size_t bytes, unsigned flags))                      \
	X(cuMemFreeHost, "", (void *address))                                                      \
	X(cuMemcpyAsync, "", (uint64_t to, uint64_t from, size_t bytes, void *stream))             \
	X(cuMemsetD8Async, "", (uint64_t to, unsigned char value, size_t bytes, void *stream))     \
	X(cuStreamCreateWithPriority, "", (void **stream, unsigned flags, int priority))           \
	X(cuStreamDestroy, "_v2", (void *stream))                                                  \
	X(cuStreamSynchronize, "", (void *stream))                                                 \
	X(cuStreamWaitEvent, "", (void *stream, void *event, unsigned flags))                      \
	X(cuEventCreate, "", (void **event, unsigned flags))                                       \
	X(cuEventDestroy, "_v2", (void *event))                                                    \
	X(cuEventRecord, "", (void *event, void *stream))                                          \
	X(cuEventRecordWithFlags, "", (void *event, void *stream, unsigned flags))                 \
	X(cuStreamBeginCapture, "_v2", (void *stream, int mode))                                   \
	X(cuStreamEndCapture, "", (void *stream, void **graph))                                    \
	X(cuGraphGetNodes, "", (void *graph, void **nodes, size_t *count))                         \
	X(cuGraphInstantiateWithFlags, "",                                                         \
		(void **executable, void *graph, unsigned long long flags))                        \
	X(cuGraphUpload, "", (void *executable, void *stream))                                     \
	X(cuGraphLaunch, "", (void *executable, void *stream))                                     \
	X(cuGraphExecDestroy, "", (void *executable))                                              \
	X(cuGraphDestroy, "", (void *graph))                                                       \
	X(cuEventQuery, "", (void *event))                                                         \
	X(cuEventSynchronize, "", (void *event))                                                   \
	X(cuEventElapsedTime, "", (float *milliseconds, void *start, void *end))                   \
	X(cuLibraryLoadData, "",                                                                   \
		(void **library, const void *image, int *jit_options, void **jit_values,           \
			unsigned n_jit, int *options, void **values, unsigned n_options))          \
	X(cuLibraryUnload, "", (void *library))                                                    \
	X(cuLibraryGetKernel, "", (void **kernel, void *library, const char *name))                \
	X(cuKernelSetAttribute, "", (int attribute, int value, void *kernel, int device))          \
	X(cuLaunchKernel, "",                                                                      \
		(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,                  \
			unsigned block_x, unsigned block_y, unsigned block_z,                      \
			unsigned shared_bytes, void *stream, void **arguments, void **extra))

#define CUBLASLT_FUNCTIONS(X)                                                                      \
	X(cublasLtCreate, "", (void **handle))                                                     \
	X(cublasLtDestroy, "", (void *handle))                                                     \
	X(cublasLtMatmulDescCreate, "", (void **description, int compute_type, int scale_type))    \
	X(cublasLtMatmulDescDestroy, "", (void *description))                                      \
	X(cublasLtMatmulDescSetAttribute, "",                                                      \
		(void *description, int attribute, const void *value, size_t bytes))               \
	X(cublasLtMatrixLayoutCreate, "",                                                          \
		(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading))       \
	X(cublasLtMatrixLayoutDestroy, "", (void *layout))                                         \
	X(cublasLtMatrixLayoutSetAttribute, "",                                                    \
		(void *layout, int attribute, const void *value, size_t bytes))                    \
	X(cublasLtMatmulPreferenceCreate, "", (void **preference))                                 \
	X(cublasLtMatmulPreferenceDestroy, "", (void *preference))                                 \
	X(cublasLtMatmulPreferenceSetAttribute, "",                                                \
		(void *preference, int attribute, const void *value, size_t bytes))                \
	X(cublasLtMatmulAlgoGetHeuristic, "",                                                      \
		(void *handle, void *description, void *a, void *b, void *c, void *d,              \
			void *preference, int wanted, struct cublaslt_heuristic *found,            \
			int *n_found))                                                             \
	X(cublasLtMatmulAlgoInit, "",                                                              \
		(void *handle, int compute_type, int scale_type, int a_type, int b_type,           \
			int c_type, int d_type, int id, struct cublaslt_algo *algo))               \
	X(cublasLtMatmulAlgoConfigSetAttribute, "",                                                \
		(struct cublaslt_algo * algo, int attribute, const void *value, size_t bytes))     \
	X(cublasLtMatmulAlgoConfigGetAttribute, "",                                                \
		(const struct cublaslt_algo *algo, int attribute, void *value, size_t bytes,       \
			size_t *written))                                                          \
	X(cublasLtMatmulAlgoCheck, "",                                                             \
		(void *handle, void *description, void *a, void *b, void *c, void *d,              \
			const struct cublaslt_algo *algo, struct cublaslt_heuristic *found))       \
	X(cublasLtMatmul, "",                                                                      \
		(void *handle, void *description, const void *alpha, const void *a,                \
			void *layout_a, const void *b, void *layout_b, const void *beta,           \
			const void *c, void *layout_c, void *d, void *layout_d,                    \
			const struct cublaslt_algo *algo, void *workspace, size_t workspace_bytes, \
			void *stream))

struct kernels;
struct cudnn_api;

struct cuda_api {
#define X(name, suffix, arguments) int(*name) arguments;
	CUDA_DRIVER_FUNCTIONS(X)
	CUBLASLT_FUNCTIONS(X)
#undef X
	size_t (*cublasLtGetVersion)(void); /* NULL where cuBLASLt was not found */
	const void *image;                  /* what to load: cuda_image, or what a test has */
	int64_t image_bytes;
	const struct kernels *kernels; /* that run here; NULL: those of kernels/cuda */
	/* Looks for cuDNN when it is first asked for (cudnn.h); NULL: there is none */
	const struct cudnn_api *(*cudnn)(void);
};

/* Loads the driver, once per process; NULL with EXIT_CODE_ENVIRONMENT and one line, "cuda: no
 * driver ...". cuBLASLt may be missing: cuda_api_has_cublaslt says so. Safe from any thread. */
const struct cuda_api *cuda_api(struct error *error);
bool cuda_api_has_cublaslt(const struct cuda_api *api);
/* Uses another machine in place of the driver; NULL: the driver again. Must be called before any
 * thread starts. */
void cuda_api_use(const struct cuda_api *api);

/* True for 0; else the error says what failed, and why by the driver's own words. */
bool cuda_check(const struct cuda_api *api, int result, const char *what, struct error *error);

/* The kernels of kernels/cuda as nvcc's fatbin, for cuLibraryLoadData; 0 bytes in a build without
 * nvcc. */
extern const unsigned char cuda_image[];
extern const int64_t cuda_image_bytes;
extern const char *const cuda_image_compiler; /* "nvcc 13.0"; "" without */

#endif
