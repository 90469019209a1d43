/* Tensors that leaves produce and backward needs: the activation memory.
 *
 * Accounting is by producer: a tensor that several consumers read is counted once, at the leaf that
 * writes it (docs/models.md; the sums are checked against PyTorch's). The residual stream between
 * blocks (the input of a block, of the final norm) is not listed here: it is a buffer of its own,
 * of model_residual_bytes, because checkpointing keeps exactly it.
 *
 * T = sequences * seq_len. Sizes past 2^53 bytes (9 PB, beyond any machine) saturate there, so that
 * callers can add a thousand of them without overflow. */
#ifndef MODELS_ACTIVATIONS_H
#define MODELS_ACTIVATIONS_H

#include "base/base.h"
#include "models/flops.h"
#include "models/model.h"

/* X(suffix, name). Saved by forward for backward. */
#define TENSOR_ROLES(X)                                                                            \
	X(NORM_OUT, "norm_out") /* T*h */                                                          \
	X(NORM_STATISTICS,                                                                         \
		"norm_stats")         /* fp32: rstd (RMS) T, or mean then rstd (LayerNorm) 2T */   \
	X(NORM_UPCAST, "norm_upcast") /* unfused: fp32, 4 bytes per input element */               \
	X(QKV, "qkv")                 /* fused: T*(a+2kv)*d; after RoPE when there is RoPE */      \
	X(QUERY, "query")             /* T*a*d */                                                  \
	X(KEY, "key")                 /* T*kv*d */                                                 \
	X(VALUE, "value")             /* T*kv*d */                                                 \
	X(QK_NORM_STATISTICS, "qk_norm_stats") /* fp32: rstd per token and head */                 \
	X(QK_NORM_OUT, "qk_norm_out")          /* T*a*d or T*kv*d */                               \
	X(ATTENTION_OUT, "attention_out")      /* T*a*d */                                         \
	X(ATTENTION_COPY, "attention_copy")    /* T*a*d: in the order that the projection reads */ \
	X(LOG_SUM_EXP, "log_sum_exp")          /* flash; fp32: a*T */                              \
	X(PROBABILITIES, "probabilities")      /* eager: a*s*T in softmax's dtypes */              \
	X(DROPOUT_MASK, "dropout_mask")        /* T*h bytes */                                     \
	X(RESIDUAL_MIDDLE, "residual_middle")  /* T*h: after attention's residual addition */      \
	X(GATE, "gate")                        /* T*f */                                           \
	X(UP, "up")                            /* T*f */                                           \
	X(ACTIVATED_GATE, "activated_gate") /* T*f: silu(gate), where the implementation keeps it, \
					       or what is weighed */                               \
	X(PRODUCT, "product")               /* T*f: input of DOWN */                               \
	X(LATENT, "latent")             /* latent attention: T*query_rank, T*(kv_rank+rope_dim) */ \
	X(ROUTER_INPUT, "router_input") /* fp32: T*h */                                            \
	X(ROUTER_PROBABILITIES, "router_probabilities") /* fp32: T*E */                            \
	X(ROW_ORDER, "row_order")   /* int64: T*E: all tokens of all experts, sorted */            \
	X(DISPATCHED, "dispatched") /* T*k*h: input of the experts */                              \
	X(EXPERT_OUT, "expert_out") /* T*k*h: before the weighted sum over experts */              \
	/* Gradients on their way through backward (model_backward_tensors). */                    \
	X(D_RESIDUAL, "d_residual")           /* T*h: gradient of the residual stream */           \
	X(D_NORM, "d_norm")                   /* T*h: gradient of a norm's output */               \
	X(D_ATTENTION_OUT, "d_attention_out") /* T*a*d */                                          \
	X(D_QKV, "d_qkv")                     /* T*(a+2kv)*d, q then k then v columns per token */ \
	X(D_PRODUCT, "d_product")             /* T*f */                                            \
	X(D_GATE, "d_gate")                   /* T*f (SwiGLU); d_up right behind, or beside it */  \
	X(D_UP, "d_up")                       /* T*f */                                            \
	X(D_DISPATCHED, "d_dispatched")       /* T*k*h */                                          \
	X(D_EXPERT_OUT, "d_expert_out")       /* T*k*h */                                          \
	/* LoRA: x A^T, T*r, and its gradient. */                                                  \
	X(ADAPTER, "adapter")                                                                      \
	X(D_ADAPTER, "d_adapter")

enum tensor_role {
#define X(suffix, name) TENSOR_##suffix,
	TENSOR_ROLES(X)
#undef X
		TENSOR_ROLE_COUNT
};

const char *tensor_role_name(enum tensor_role role);

/* How a runtime saves activations: data of the table of runtimes. */
struct activation_rules {
	enum dtype dtype; /* of the activations: the compute dtype */
	enum attention_kind attention;
	bool norm_unfused; /* fp32 upcast copies kept: + 4*T*h per norm (HF-style RMSNorm) */
	bool keeps_activated_gate; /* unfused SwiGLU keeps silu(gate) */
	bool softmax_fp32;   /* eager: 6 bytes instead of 2 per probability with bf16 compute */
	bool drop_attention; /* selective checkpointing: probabilities are recomputed */
	/* The projection behind attention keeps its input; flash attention's kernels but cuDNN's
	 * keep their result apart, in their own order of tokens and heads (Transformer Engine). */
	bool projection_keeps_input;
	/* Gate and up are one tensor. q, k and v are put in the order of heads in one, and q stays
	 * a part of it, while k and v are copied once more: where all heads have keys of their own.
	 */
	bool keeps_products_whole;
	/* A row is weighed where experts multiply gate and up, so their results are not kept; and
	 * the order of rows is a sort over all tokens and experts (Megatron-LM). */
	bool weighs_activations, keeps_row_order;
	/* The router multiplies in fp32, and results of experts are weighed in fp32: what is
	 * multiplied by is kept in it (torchtitan). */
	bool routes_in_fp32;
	/* What experts compute is picked out of gathered tokens, then put in the order of experts;
	 * the inputs of both copies are kept. */
	bool keeps_picked_rows;
	/* inputs of linear layers of blocks, and attention's result, are kept in fp8 */
	bool fp8_inputs;
	int64_t fp8_per_byte; /* elements of them in a byte */
	int64_t fp8_scaled;   /* elements of them for each byte of scales; 0: few scales */
	bool dropout; /* of attention, residual stream and embedding: masks of a byte an element;
			 eager attention keeps the probabilities before and after it */
	bool drops_unread; /* what only the gradient of a frozen weight would need is not kept */
	/* Sequence parallel: the input of a column-parallel layer is kept as it was gathered, not
	 * gathered again in backward. */
	bool keeps_gathered_input;
	int alignment; /* every tensor starts at a multiple of it; 1 = packed */
};

struct tensor {
	enum tensor_role role;
	int64_t offset; /* bytes from the start of the buffer it lives in */
	int64_t bytes;
};

enum { MODULE_TENSORS_MAX = 4, BACKWARD_TENSORS_MAX = 13 };

/* What one leaf saves, packed from offset 0 in the order they are produced; returns the number of
 * tensors, `*bytes` their total (a multiple of the alignment). Leaves that only write the residual
 * stream (EMBEDDING, DOWN) and HEAD (logits belong to the loss) save nothing. */
int model_saved_tensors(const struct model *model, int module, const struct activation_rules *rules,
	int64_t sequences, int64_t seq_len, struct tensor tensors[MODULE_TENSORS_MAX],
	int64_t *bytes);

/* Total of the leaves in [first, end) of the preorder list. */
int64_t model_saved_bytes(const struct model *model, int first, int end,
	const struct activation_rules *rules, int64_t sequences, int64_t seq_len);

/* Bytes of the gradients that leaves in [first, end) keep from the input part of backward for the
 * weight part: dY of linear leaves and of norms. That of the head is where the logits were
 * (torch.distributed.pipelining._backward: the gradients that its hooks keep). */
int64_t model_output_gradient_bytes(const struct model *model, int first, int end,
	const struct activation_rules *rules, int64_t sequences, int64_t seq_len);

/* One residual-stream tensor: T * h elements (model_stream_tokens). */
int64_t model_residual_bytes(const struct model *model, const struct activation_rules *rules,
	int64_t sequences, int64_t seq_len);

/* The gradient tensors that are alive while backward walks through a block. D_RESIDUAL and D_NORM
 * first; the parts (attention, MLP, sum of experts' results) never live together and share bytes.
 */
int model_backward_tensors(const struct model *model, const struct activation_rules *rules,
	int64_t sequences, int64_t seq_len, struct tensor tensors[BACKWARD_TENSORS_MAX],
	int64_t *bytes);

#endif
