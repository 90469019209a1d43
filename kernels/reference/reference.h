/* The reference kernels: loops that follow the formulas, sums in double, no tiling. The judge of
 * every other table. */
#ifndef KERNELS_REFERENCE_REFERENCE_H
#define KERNELS_REFERENCE_REFERENCE_H

#include "kernels/kernels.h"

void reference_gemm(struct kernel_context *, const struct gemm *);
void reference_bias_add(
	struct kernel_context *, enum dtype, void *, const void *, int64_t, int64_t);
void reference_bias_backward(struct kernel_context *, enum dtype, void *, enum dtype, const void *,
	int64_t, int64_t, bool);
void reference_layernorm(struct kernel_context *, const struct norm *);
void reference_layernorm_backward(struct kernel_context *, const struct norm_backward *);
void reference_rmsnorm(struct kernel_context *, const struct norm *);
void reference_rmsnorm_backward(struct kernel_context *, const struct norm_backward *);
void reference_rope(struct kernel_context *, const struct rope *);
void reference_attention(struct kernel_context *, const struct attention *);
void reference_attention_backward(struct kernel_context *, const struct attention_backward *);
void reference_gelu(struct kernel_context *, enum dtype, enum gelu, void *, const void *, int64_t);
void reference_gelu_backward(struct kernel_context *, enum dtype, enum gelu, void *, const void *,
	const void *, int64_t);
void reference_swiglu(
	struct kernel_context *, enum dtype, void *, const void *, const void *, int64_t);
void reference_swiglu_backward(struct kernel_context *, enum dtype, void *, void *, const void *,
	const void *, const void *, int64_t);
void reference_embedding(struct kernel_context *, const struct embedding *);
void reference_embedding_backward(struct kernel_context *, const struct embedding_backward *);
void reference_cross_entropy(struct kernel_context *, const struct cross_entropy *);
void reference_adamw(struct kernel_context *, const struct adamw *);
/* With factors of another step than the struct's. */
void reference_adamw_with(const struct adamw *, struct adamw_factors);
void reference_sgd(struct kernel_context *, const struct sgd *);
void reference_add(
	struct kernel_context *, enum dtype, void *, const void *, const void *, int64_t);
void reference_accumulate(
	struct kernel_context *, enum dtype, void *, enum dtype, const void *, int64_t);
void reference_convert(
	struct kernel_context *, enum dtype, void *, enum dtype, const void *, int64_t);
void reference_scale(struct kernel_context *, float *, float, int64_t);
void reference_zero(struct kernel_context *, enum dtype, void *, int64_t);
void reference_copy(struct kernel_context *, enum dtype, void *, const void *, int64_t);
void reference_tree_reduce(
	struct kernel_context *, enum dtype, void *, const void *const *, int, int64_t);
void reference_sum_squares(struct kernel_context *, struct exact_sum *, const float *, int64_t);
void reference_sum(struct kernel_context *, struct exact_sum *, const float *, int64_t);
void reference_clip(
	struct kernel_context *, float *, int64_t, const struct exact_sum *, double most);

#endif
