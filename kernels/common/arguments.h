/* Arguments of the kernels that take many. Row-major. `rows` or `tokens` is the number of tokens in
 * the micro-batch.
 *
 * What is declared as void has the element type `dtype`, fp32 (which is 0) or bf16; gradients of
 * parameters have `gradient_dtype`. What is declared as float is fp32 always. Arithmetic is in fp32
 * whatever the operands are; a result is rounded once, to nearest even, when it is stored. */
#ifndef KERNELS_ARGUMENTS_H
#define KERNELS_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "kernels/common/tokens.h"
#include "kernels/plain/plain.h"

/* C[m,n] (= | +=) op(A)[m,k] op(B)[k,n]. A is stored [m,k], or [k,m] when transposed; B is stored
 * [k,n], or [n,k] when transposed. So with weights stored [out,in] as PyTorch does:
 *   y = x W^T  m=T n=out k=in transpose_b,  dx = dy W  m=T n=in k=out,
 *   dW = dy^T x  m=out n=in k=T transpose_a
 * bf16: per element, terms 2i + 1 and then 2i are added to an fp32 sum, for i = 0, 1, ..., each
 * with one rounding and denormals as zero: what VDPBF16PS does, on every CPU. */
struct gemm {
	int64_t m, n, k;
	const void *a, *b;
	void *c;
	int64_t lda, ldb, ldc; /* elements from one stored row to the next */
	bool transpose_a, transpose_b, accumulate;
	enum dtype dtype, c_dtype; /* of a and b; of c. With fp32 operands c is fp32 */
};

/* The epilogue of a GEMM, in one pass over C. NULLs are left out. */
struct gemm_epilogue {
	const void *addend; /* [m,n] like C, instead of accumulate: C = addend + product */
	const void *bias;   /* [n] of C's type, added to every row */
	void *before_gelu;  /* [m,n] like C: gets the sum so far, and C = gelu_tanh of that */
	const void
		*gelu_input; /* [m,n] like C: C = product * gelu_tanh' of that; not with others */
	void *dbias;         /* [m] of C's type = the sums of op(A) over k; not with the others */
};

/* y = (x - mean) * rstd * weight + bias over rows of `width`; rmsnorm: y = x * rstd * weight with
 * rstd = 1/sqrt(mean(x^2) + epsilon), no mean and no bias (Ba 2016; Zhang and Sennrich 2019). */
struct norm {
	int64_t rows, width;
	float epsilon;
	const void *x, *weight, *bias; /* bias: layernorm; may be NULL */
	void *y;                       /* may be x when x is not needed for the backward */
	float *mean, *rstd;            /* [rows], saved for the backward; mean: layernorm only */
	enum dtype dtype;
};

struct norm_backward {
	int64_t rows, width;
	const void *dy, *x, *weight;
	const float *mean, *rstd;
	void *dx;              /* [rows, width]; may be dy unless accumulate_dx */
	void *dweight, *dbias; /* [width], sums over the rows in order; dbias may be NULL */
	bool accumulate_dx, accumulate_parameters;
	enum dtype dtype, gradient_dtype;
};

/* Rotary position embedding (Su 2021), llama's half-split convention: elements i and i + head_dim/2
 * rotate by position * frequency[i], frequency[i] = theta^(-2i/head_dim). In place. `inverse`
 * rotates back, which is the backward. */
struct rope {
	void *x;        /* [tokens, heads, head_dim], `stride` elements from token to token */
	int64_t length; /* tokens of one sequence: token t has position first + t % length */
	int64_t first;  /* the position of token 0 */
	int64_t tokens, heads, head_dim, stride;
	double theta;
	/* Llama 3's stretching of low frequencies; factor 0 means none. */
	double scaling_factor, low_frequency_factor, high_frequency_factor, original_length;
	bool inverse;
	enum dtype dtype;
};

/* Causal softmax(scale q k^T) v per sequence and head; kv head = head / (heads / kv_heads). Tiled
 * with the running maximum (Dao 2022): no [length, length] matrix is ever stored. Token t of
 * sequence i is row i * length + t. q and out rows hold heads * head_dim elements, k and v rows
 * kv_heads * head_dim; strides count elements between rows, so q, k, v may be slices of one matrix.
 */
struct attention {
	int64_t sequences, length, heads, kv_heads, head_dim;
	/* Only on CPUs, for context ranks; one sequence. Queries begin at position `first`, keys at
	 * 0. With `chunks` > 0 the keys of a sequence are cut into that many chunks of `length`,
	 * and are in blocks of `block` rows: block i has chunk i and chunk chunks - 1 - i. */
	int64_t first, chunks, block;
	/* Only on CPUs, for a ring of context ranks, where keys come in rounds: this call has
	 * `keys` of them. lse and `running` (like `out`, in fp32) hold the result of the rounds so
	 * far; the round that `begins` starts them, the one that `ends` writes `out`. */
	bool in_rounds, begins, ends;
	int64_t keys;
	float *running;
	float scale; /* usually 1/sqrt(head_dim) */
	const void *q, *k, *v;
	void *out;
	int64_t q_stride, k_stride, v_stride, out_stride;
	float *lse; /* [sequences * length, heads]: log of the sum of exp(scale q k); saved */
	enum dtype dtype;
};

/* Fills dq, dk, dv (all =). `forward` has the inputs, out and lse as the forward left them. */
struct attention_backward {
	struct attention forward;
	const void *dout; /* these have the dtype of `forward` */
	void *dq, *dk, *dv;
	int64_t dout_stride, dq_stride, dk_stride, dv_stride;
	/* dk and dv +=, and in rounds also dq. With chunks dk and dv lie as k and v do. */
	bool adds;
};

/* tanh: GPT-2's gelu_new, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: x Phi(x). */
enum gelu { GELU_TANH, GELU_ERF };

/* The backward of y = silu(gate) * up, silu(g) = g / (1 + exp(-g)), which is computed again. All
 * arrays are [rows, width], and those that are written (=) have `stride` elements from row to row,
 * so that they may be side by side. With stride == width they may be any of dy, gate, up (not each
 * other). */
struct swiglu_backward {
	int64_t rows, width, stride;
	const void *dy, *gate, *up;
	void *dgate, *dup;
	enum dtype dtype;
};

/* AdamW (Loshchilov and Hutter 2019) in PyTorch's order: w -= lr * weight_decay * w;
 * m += (1-beta1)(g-m); v = beta2 v + (1-beta2) g^2; w -= lr/c1 * m / (sqrt(v)/sqrt(c2) + epsilon)
 * with c = 1 - beta^step and g scaled by gradient_scale (clipping) first. Element-wise, in fp32;
 * w, m and v in bf16 are rounded as `rounding` says, each with 16 bits of its own: w the lower and
 * m the upper half of the first word, v the lower half of the second. */
struct adamw {
	int64_t n;
	void *w, *m, *v;
	const float *g;
	double lr, beta1, beta2, epsilon, weight_decay;
	double bias_correction1, bias_correction2; /* c1, c2 */
	float gradient_scale;
	enum dtype dtype; /* of w, m, v */
	struct rounding rounding;
};

/* w -= lr * (g * gradient_scale + weight_decay * w), as torch.optim.SGD without momentum; w in bf16
 * is rounded as AdamW's. */
struct sgd {
	int64_t n;
	void *w;
	const float *g;
	float lr, weight_decay, gradient_scale;
	enum dtype dtype; /* of w */
	struct rounding rounding;
};

/* Every table computes with these. */
struct adamw_factors adamw_factors(const struct adamw *adamw);

#endif
