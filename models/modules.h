/* Kinds of modules. */
#ifndef MODELS_MODULES_H
#define MODELS_MODULES_H

#include "base/base.h"

/* X(suffix, name, is_leaf). Leaves compute, in preorder. The residual additions belong to
 * ATTENTION_OUTPUT and DOWN (EXPERTS_DOWN); the loss is not a module (it belongs to the schedule).
 * A block of multi-token prediction looks its tokens up itself, in the model's table, and puts them
 * and what the block before it returns together. An EXPERTS leaf holds the matrices of all experts,
 * below one another in one parameter; ROUTER also sorts the tokens to their experts. */
#define MODULE_KINDS(X)                                                                            \
	X(MODEL, "model", false)   /* the top, and HF's inner "model" / "transformer" */           \
	X(LAYERS, "layers", false) /* a ModuleList: never wrapped by itself */                     \
	X(BLOCK, "block", false)                                                                   \
	X(ATTENTION, "attention", false)                                                           \
	X(CROSS_ATTENTION, "cross_attention", false) /* of a decoder to its encoder (T5) */        \
	X(MLP, "mlp", false)                         /* also what holds router and experts */      \
	X(EXPERTS, "experts", false)                                                               \
	X(SHARED_EXPERT, "shared_expert", false)                                                   \
	X(EMBEDDING, "embedding", true)                                                            \
	X(POSITION_EMBEDDING, "position_embedding", true)                                          \
	X(EMBEDDING_PROJECTION, "embedding_projection", true) /* embedding_width -> h */           \
	X(EMBEDDING_NORM, "embedding_norm", true)                                                  \
	X(NORM, "norm", true) /* those of a block, and the final one */                            \
	X(RELATIVE_BIAS, "relative_bias", true)                                                    \
	X(QKV, "qkv", true)               /* fused projection */                                   \
	X(QUERY_DOWN, "query_down", true) /* latent attention: h -> query_rank */                  \
	X(QUERY_DOWN_NORM, "query_down_norm", true)                                                \
	X(QUERY, "query", true)                                                                    \
	X(KEY, "key", true)                                                                        \
	X(VALUE, "value", true)                                                                    \
	X(KV_DOWN, "kv_down", true) /* latent attention: h -> kv_rank + rope_dim */                \
	X(KV_DOWN_NORM, "kv_down_norm", true)                                                      \
	X(KV_UP, "kv_up", true)           /* kv_rank -> k without positions, and v */              \
	X(QUERY_NORM, "query_norm", true) /* qk_norm */                                            \
	X(KEY_NORM, "key_norm", true)                                                              \
	X(ATTENTION_CORE, "attention_core", true) /* positions + softmax(QK)V */                   \
	X(ATTENTION_OUTPUT, "attention_output", true)                                              \
	X(GATE, "gate", true)             /* gated MLPs only */                                    \
	X(UP, "up", true)                 /* SwiGLU's up, GPT's fc1 */                             \
	X(GATE_UP, "gate_up", true)       /* both in one parameter */                              \
	X(ACTIVATION, "activation", true) /* GELU, or SiLU(gate) * up; no parameters */            \
	X(DOWN, "down", true)                                                                      \
	X(ROUTER, "router", true)                                                                  \
	X(EXPERTS_GATE, "experts_gate", true)                                                      \
	X(EXPERTS_UP, "experts_up", true)                                                          \
	X(EXPERTS_ACTIVATION, "experts_activation", true)                                          \
	X(EXPERTS_DOWN, "experts_down", true) /* and the weighted sum over a token's experts */    \
	X(SHARED_GATE, "shared_gate", true)                                                        \
	X(SHARED_UP, "shared_up", true)                                                            \
	X(SHARED_ACTIVATION, "shared_activation", true)                                            \
	X(SHARED_DOWN, "shared_down", true)                                                        \
	X(SHARED_WEIGHT, "shared_weight", true)     /* Qwen2-MoE: h -> 1, weighs the shared one */ \
	X(NEXT_PROJECTION, "next_projection", true) /* 2h -> h: a block that predicts one more */  \
	X(HEAD_PROJECTION, "head_projection", true) /* h -> embedding_width */                     \
	X(HEAD, "head", true)

enum module_kind {
#define X(suffix, name, leaf) MODULE_##suffix,
	MODULE_KINDS(X)
#undef X
		MODULE_KIND_COUNT
};

const char *module_kind_name(enum module_kind kind);
bool module_kind_is_leaf(enum module_kind kind);

#endif
