/* The kernels of devices beyond those of struct kernels. */
#ifndef KERNELS_COMMON_DEVICE_H
#define KERNELS_COMMON_DEVICE_H

#include "kernels/common/algorithms.h"
#include "kernels/common/arguments.h"
#include "kernels/common/exact_sum.h"
#include "kernels/plain/plain.h"

struct kernel_context;

/* How a GEMM multiplies in fp8 (kernels/plain/fp8.h): formats of its operands, a scale of each row
 * along k or of all, and memory for the copies (fp8_product_bytes, aligned to 256 bytes). m, n and
 * k are multiples of 16, operands are bf16, and c is aligned to 16 bytes. */
struct gemm_fp8 {
	enum fp8_format a, b;
	bool by_rows;
	void *copies;
};

/* The kernels that every device has besides, in the same form. */
#define DEVICE_KERNELS(X)                                                                          \
	/* Tensors to (or from) one flat array of that type; what is between the segments is left  \
	 * as it is. `segments` is read before the call returns. */                                \
	X(pack, (struct kernel_context * context, enum dtype dtype, void *flat,                    \
			const struct pack_segment *segments, int n_segments, bool unpack))         \
	/* As adamw and sgd, with `factors` (NULL: of the arguments) and the gradient's `scale`    \
	 * (NULL: gradient_scale) read on the device; and the new weights as bf16 to `copy`        \
	 * (NULL: nowhere). */                                                                     \
	X(adamw, (struct kernel_context * context, const struct adamw *adamw, void *copy,          \
			 const struct adamw_factors *factors, const float *scale))                 \
	X(sgd, (struct kernel_context * context, const struct sgd *sgd,                            \
		       const struct sgd_factors *factors, const float *scale))                     \
	/* The norm of squares, and what clipping it to `most` multiplies with: 1 or less. */      \
	X(clip_scale, (struct kernel_context * context, const struct exact_sum *squares,           \
			      double most, double *norm, float *scale))

/* Only for devices. Results stay on the device, and values that change from step to step are read
 * there when the kernel runs, so that a launch can be repeated unchanged. */
struct device_kernels {
	/* C = epilogue(op(A) op(B)), or only what that needs is made ready. False, and nothing
	 * done, where the library has no algorithm with that epilogue: always the same answer for a
	 * shape. */
	bool (*gemm_epilogue)(
		struct kernel_context *, const struct gemm *, const struct gemm_epilogue *);
	bool (*prepare_gemm_epilogue)(
		struct kernel_context *, const struct gemm *, const struct gemm_epilogue *);
	/* C (+)= op(A) op(B) of copies in fp8; or only what that needs is made ready. */
	void (*gemm_fp8)(struct kernel_context *, const struct gemm *, const struct gemm_fp8 *);
	void (*prepare_gemm_fp8)(
		struct kernel_context *, const struct gemm *, const struct gemm_fp8 *);
	/* Algorithms for a GEMM of that shape (pointers unused) that give the same bits every time,
	 * in the order of the library's heuristic. How many; 0 also where it has none. */
	int (*gemm_algorithms)(struct kernel_context *, const struct gemm *,
		struct gemm_algorithm *algorithms, int most);
	/* From now on GEMMs of these shapes use these algorithms, where operands and rows start at
	 * multiples of 16 bytes and the library has the algorithm; all others its first heuristic
	 * result. What was prepared is forgotten. `choices` remain the caller's, and must outlive
	 * the context. */
	void (*choose_gemms)(struct kernel_context *, struct gemm_choice *choices, int n);
	int64_t (*gemm_version)(struct kernel_context *); /* of the library; 0: there is none */
	/* The same for a pass of attention in bf16: within its rounding, but not our bits. Of the
	 * forward only shape->forward is read. `workspace_bytes` is what each needs at once. */
	int (*attention_algorithms)(struct kernel_context *, enum attention_pass,
		const struct attention_backward *shape, struct attention_algorithm *,
		int64_t *workspace_bytes, int most);
	void (*choose_attention)(struct kernel_context *, struct attention_choice *, int n);
	int64_t (*attention_version)(struct kernel_context *);
#define X(name, parameters) void(*name) parameters;
	DEVICE_KERNELS(X)
#undef X

	/* The word of the context, on the device, that holds the largest token or target outside of
	 * the vocabulary that its kernels have met; -1 while there was none. */
	const int32_t *(*fault)(struct kernel_context *);
};

#endif
