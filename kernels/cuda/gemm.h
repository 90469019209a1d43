/* Private to the GEMMs of the CUDA table: gemm.c prepares and runs them, gemm_algorithms.c reads
 * and rebuilds cuBLASLt's algorithms as numbers that a file can hold. */
#ifndef KERNELS_CUDA_GEMM_H
#define KERNELS_CUDA_GEMM_H

#include "kernels/cuda/backend.h"

/* As in library_types.h and cublas_api.h. */
enum {
	CUDA_R_32F = 0,
	CUDA_R_16BF = 14,
	CUDA_R_8F_E4M3 = 28,
	CUDA_R_8F_E5M2 = 29,
	CUBLAS_COMPUTE_32F = 68,
};

enum { MOST_CANDIDATES = 16 };

/* The properties on which the algorithm of a GEMM depends. Compared as bytes: no padding, unused
 * bits 0. */
struct key {
	int64_t m, n, k, lda, ldb, ldc;
	int32_t epilogue;
	int8_t transpose_a, transpose_b, accumulate;
	int8_t dtype, c_dtype, alignment;
	int8_t a_format, b_format, by_rows, unused; /* of operands in fp8 */
	int16_t beside;                             /* multiprocessors that are not there for it */
};

struct cuda_product {
	struct key key;
	bool refused;                  /* cuBLASLt has no algorithm with this epilogue */
	void *description, *a, *b, *c; /* layouts in cuBLASLt's order: a is our B */
	struct cublaslt_algo algo;
};

/* Copies of a product's operands in fp8, rows along k, and what undoes their scales. */
struct fp8_operands {
	struct gemm_fp8 how;
	const float *undo_a, *undo_b;
};

/* gemm.c. C (+)= A B^T of such copies; without `run` it is only made ready. */
void cuda_multiply_fp8(struct kernel_context *, const struct gemm *copies,
	const struct fp8_operands *operands, bool run);
/* The descriptors of a GEMM of that key, which cuda_forget_product frees, and cuBLASLt's
 * heuristic results for it, with its status. */
bool cuda_describe_product(struct kernel_context *, struct cuda_product *p);
bool cuda_propose(struct kernel_context *, struct cuda_product *p, int wanted,
	struct cublaslt_heuristic *found, int *n, int *status);
void cuda_forget_product(const struct cuda_api *api, struct cuda_product *p);
void cuda_forget_products(struct cuda_backend *b);
bool cuda_open_cublaslt(struct kernel_context *);
/* The GEMM of that shape with rows as they are and operands aligned to 16 bytes. False where it is
 * carried out in parts. */
bool cuda_key_of_shape(const struct kernel_context *, const struct gemm *, struct key *key);
int cuda_type(enum dtype dtype);

/* gemm_algorithms.c. Takes the algorithm that was chosen for its shape, where there is one and
 * cuBLASLt has it for this GEMM; else false. */
bool cuda_take_choice(struct kernel_context *, struct cuda_product *p);

#endif
