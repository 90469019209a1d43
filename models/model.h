/* struct model: modules and parameters of an architecture. */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H

#include "models/architecture.h"

/* X(suffix, name, is_leaf). Leaves compute, in preorder. The residual additions belong to
 * ATTENTION_OUTPUT and DOWN; the loss is not a module (it belongs to the schedule). */
#define MODULE_KINDS(X)                                                                            \
	X(MODEL, "model", false)   /* the top, and HF's inner "model" / "transformer" */           \
	X(LAYERS, "layers", false) /* a ModuleList: never wrapped by itself */                     \
	X(BLOCK, "block", false)                                                                   \
	X(ATTENTION, "attention", false)                                                           \
	X(MLP, "mlp", false)                                                                       \
	X(EMBEDDING, "embedding", true)                                                            \
	X(POSITION_EMBEDDING, "position_embedding", true)                                          \
	X(NORM, "norm", true) /* the first and second norm of a block, and the final one */        \
	X(QKV, "qkv", true)   /* fused projection */                                               \
	X(QUERY, "query", true)                                                                    \
	X(KEY, "key", true)                                                                        \
	X(VALUE, "value", true)                                                                    \
	X(QUERY_NORM, "query_norm", true) /* qk_norm */                                            \
	X(KEY_NORM, "key_norm", true)                                                              \
	X(ATTENTION_CORE, "attention_core", true) /* RoPE/ALiBi + softmax(QK)V; no parameters */   \
	X(ATTENTION_OUTPUT, "attention_output", true)                                              \
	X(GATE, "gate", true)             /* SwiGLU only */                                        \
	X(UP, "up", true)                 /* SwiGLU's up, GPT's fc1 */                             \
	X(ACTIVATION, "activation", true) /* GELU, or SiLU(gate) * up; no parameters */            \
	X(DOWN, "down", true)                                                                      \
	X(HEAD, "head", true)

enum module_kind {
#define X(suffix, name, leaf) MODULE_##suffix,
	MODULE_KINDS(X)
#undef X
		MODULE_KIND_COUNT
};

const char *module_kind_name(enum module_kind kind);
bool module_kind_is_leaf(enum module_kind kind);

/* How a parameter starts (N(0, 0.02); residual projections 0.02 / sqrt(2L)). */
enum parameter_init { INIT_NORMAL, INIT_RESIDUAL, INIT_ONE, INIT_ZERO };

struct parameter {
	const char *name; /* fully qualified, Hugging Face's:
			     "model.layers.0.self_attn.q_proj.weight" */
	int module;       /* index of the owner */
	int n_dims;       /* 1 or 2 */
	int64_t shape[2]; /* linear weights are [out, in] */
	int64_t elements;
	bool trainable;
	bool decay; /* weight decay applies: matrices only */
	enum parameter_init init;
};

struct module {
	const char *name; /* fully qualified; "" for the top */
	enum module_kind kind;
	int parent; /* -1 for the top */
	int end;    /* one past its last descendant: its subtree is [index, end) */
	int layer;  /* block number; -1 outside of blocks */
	int first_parameter;
	int n_parameters;   /* its own, without descendants' */
	int tied_parameter; /* HEAD with a tied weight: index of the embedding's; else -1 */
};

struct model {
	struct arena *arena; /* owner of everything below; not owned by the model */
	struct architecture architecture;
	int n_modules;
	struct module *modules; /* preorder = registration order; [0] is the top */
	int n_parameters;
	struct parameter *parameters; /* in module order */
	int64_t parameter_count;      /* tied ones once */
	int64_t active_parameter_count;
};

/* Builds the tree. The architecture must have passed architecture_check; overflow is an error. */
bool model_build(struct arena *arena, const struct architecture *architecture, struct model **model,
	struct error *error);

/* [out, in] of a linear leaf's weight, also of a tied HEAD; false for every other kind. */
bool module_linear_shape(
	const struct architecture *architecture, enum module_kind kind, int64_t *out, int64_t *in);

/* All parameters of the subtree [module, end), tied ones only at their owner. */
int64_t model_subtree_parameters(const struct model *model, int module);

#endif
