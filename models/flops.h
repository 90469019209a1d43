/* FLOPs and memory traffic of leaves, and the whole-model figures that MFU is defined by. */
#ifndef MODELS_FLOPS_H
#define MODELS_FLOPS_H

#include "models/model.h"

/* FLASH is the flash kernel that frameworks run for the model and device by default; the numbered
 * ones name its generation (3: FlashAttention-3 and cuDNN's). */
enum attention_kind {
	ATTENTION_FLASH,
	ATTENTION_EAGER,
	ATTENTION_FLASH1,
	ATTENTION_FLASH2,
	ATTENTION_FLASH3
};
extern const char *const attention_kind_names[]; /* "flash", "eager", "flash1", ... */

static inline bool attention_is_flash(enum attention_kind kind)
{
	return kind != ATTENTION_EAGER;
}

/* Backward, or one of its two parts, which add up to it: the weight part makes the gradients of the
 * weights and biases of linear leaves (dW, from their inputs and dY), the input part all else. */
enum pass { PASS_FORWARD, PASS_BACKWARD, PASS_BACKWARD_INPUT, PASS_BACKWARD_WEIGHT };

/* A matrix product C[m,n] = A[m,k] B[k,n], `count` times: 2*m*n*k*count FLOPs. Shape only: kernels/
 * has a struct gemm with pointers. */
struct gemm_shape {
	int64_t m, n, k, count;
};

enum { MODULE_GEMMS_MAX = 6 };

/* The work of one leaf in one pass over T = sequences * seq_len tokens. */
struct module_work {
	int n_gemms; /* linear leaves: forward 1; backward 2 (input and weight gradient), 1 with a
			frozen weight; an adapter: 2 and 4 more. EXPERTS leaves: `count` = experts
			that have tokens, each its even share of them */
	int n_of_adapter; /* the last of these */
	struct gemm_shape gemms[MODULE_GEMMS_MAX];
	double attention_flops; /* ATTENTION_CORE: flash forward 4*T*s*a*d/2 (causal; all of it
				   where module_sees_all; less with windows, as the mean over
				   blocks), backward x2.5; eager the full square, backward x2
				   (docs/models.md) */
	/* Traffic of the element-wise parts and launches (products included): by fused kernels, and
	 * by eager PyTorch's (docs/models.md). */
	double memory_bytes, eager_bytes;
	double activations; /* elements through the function between the MLP's products */
	int kernels, eager_kernels;
};

/* The kernel of attention; `windows`: it leaves out what windows hide. */
struct attending {
	enum attention_kind kind;
	bool windows;
	/* Tokens of a document, in the mean over tokens (the sum of squares over the sum of
	 * lengths): flash leaves out what is between documents. 0: a sequence is one. */
	int64_t document;
};

/* The mean over blocks of the tokens that a token of a causal sequence sees: seq_len / 2 without
 * windows. */
double architecture_seen(const struct architecture *architecture, int64_t seq_len);

void model_module_work(const struct model *model, int module, enum pass pass, int64_t sequences,
	int64_t seq_len, int element_bytes, struct attending attending, struct module_work *work);

/* Elements of a leaf's own and tied parameters whose gradients its backward makes. */
int64_t model_trained_elements(const struct model *model, int module);

/* FLOPs per token, forward + backward, no recomputation, N = active parameters: 6N; 6N + 12*L*a*d*s
 * (the MFU of PaLM and torchtitan); 6N + 6*L*a*d*s (causal attention counted as executed). With
 * windows s is twice what a token sees (architecture_seen). Of what
 * is frozen no gradient is made: 4N, and 2 N of what backward does not reach. */
double model_flops_6n(const struct model *model);
double model_flops_per_token(const struct model *model, int64_t seq_len);
double model_flops_causal(const struct model *model, int64_t seq_len);

#endif
