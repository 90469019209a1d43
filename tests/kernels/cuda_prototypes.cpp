/* The tables of kernels/cuda/api.h and cudnn.h against NVIDIA's own headers, while compiling: as
 * many arguments, each passed the same way. Types differ by design (handles are void pointers
 * there), so classes and sizes are compared. */
#include <cublasLt.h>
#include <cuda.h>
#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#define HAVE_CUDNN 1
#else
#define HAVE_CUDNN 0
#endif

#include <cstddef>
#include <type_traits>

/* Apart: some constants have the names of cuda.h. */
#include "base/error.h"
namespace table
{
#include "kernels/cuda/api.h"
#include "kernels/cuda/cudnn.h"
} // namespace table

template <class T> constexpr bool is_plain = std::is_integral_v<T> || std::is_enum_v<T>;

template <class A, class B> constexpr bool passed_alike()
{
	if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
		using a = std::remove_cv_t<std::remove_pointer_t<A>>;
		using b = std::remove_cv_t<std::remove_pointer_t<B>>;
		if constexpr (is_plain<a> && is_plain<b>)
			return sizeof(a) == sizeof(b);
		return std::is_same_v<a, float> == std::is_same_v<b, float>;
	} else {
		return is_plain<A> && is_plain<B> && sizeof(A) == sizeof(B);
	}
}

template <class A, class B> struct alike : std::false_type {
};
template <class R, class... A, class S, class... B> struct alike<R(A...), S(B...)> {
	static constexpr bool every()
	{
		if constexpr (sizeof...(A) == sizeof...(B))
			return sizeof(R) == sizeof(S) && (passed_alike<A, B>() && ...);
		return false;
	}
	static constexpr bool value = every();
};

/* A check that cannot fail proves nothing. */
static_assert(!alike<int(int, void *), CUresult(size_t, void *)>::value);
static_assert(!alike<int(void *), CUresult(void *, void *)>::value);
static_assert(!alike<int(int *), CUresult(size_t *)>::value);
static_assert(!alike<int(double *), CUresult(float *)>::value);

/* A macro of cuda.h gives `name` its version. */
#define X(name, suffix, arguments)                                                                 \
	static_assert(                                                                             \
		alike<int arguments, std::remove_reference_t<decltype(::name)>>::value, #name);
using table::cublaslt_algo;
using table::cublaslt_heuristic;
CUDA_DRIVER_FUNCTIONS(X)
CUBLASLT_FUNCTIONS(X)
#undef X

static_assert(sizeof(table::cublaslt_algo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(table::cublaslt_heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(table::cublaslt_heuristic, workspace_bytes) ==
	      offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(table::cublaslt_heuristic, state) ==
	      offsetof(cublasLtMatmulHeuristicResult_t, state));

static_assert((int)table::CUDA_STREAM_NON_BLOCKING == (int)CU_STREAM_NON_BLOCKING);
static_assert((int)table::CUDA_EVENT_DEFAULT == (int)CU_EVENT_DEFAULT);
static_assert((int)table::CUDA_EVENT_DISABLE_TIMING == (int)CU_EVENT_DISABLE_TIMING);
static_assert((int)table::CUDA_HOST_ALLOC_PORTABLE == CU_MEMHOSTALLOC_PORTABLE);
static_assert((int)table::CUDA_ERROR_OUT_OF_MEMORY == (int)CUDA_ERROR_OUT_OF_MEMORY);
static_assert((int)table::CUDA_ERROR_NOT_READY == (int)CUDA_ERROR_NOT_READY);
static_assert((int)table::CUDA_ATTRIBUTE_CACHE_BYTES == (int)CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert((int)table::CUDA_ATTRIBUTE_MULTIPROCESSORS ==
	      (int)CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert((int)table::CUDA_ATTRIBUTE_COMPUTE_MAJOR ==
	      (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert((int)table::CUDA_ATTRIBUTE_COMPUTE_MINOR ==
	      (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert((int)table::CUDA_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN ==
	      (int)CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert((int)table::CUDA_FUNCTION_MAX_DYNAMIC_SHARED ==
	      (int)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);

#if HAVE_CUDNN
#define X(name, arguments)                                                                         \
	static_assert(                                                                             \
		alike<int arguments, std::remove_reference_t<decltype(::name)>>::value, #name);
CUDNN_FUNCTIONS(X)
#undef X
static_assert(std::is_same_v<decltype(::cudnnGetVersion), size_t()>);

/* One of them is deprecated in favour of what needs cuDNN 9.8. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define X(name, number) static_assert((int)::name == (number), #name);
CUDNN_NUMBERS(X)
#undef X
#endif
