/* struct model: modules and parameters of an architecture. */
#ifndef MODELS_MODEL_H
#define MODELS_MODEL_H

#include "models/architecture.h"
#include "models/division.h"
#include "models/modules.h"

/* How a parameter starts (N(0, 0.02); residual projections 0.02 / sqrt(2L)). */
enum parameter_init {
	INIT_NORMAL,
	INIT_RESIDUAL,
	INIT_ONE,
	INIT_ZERO,
	INIT_ADAPTER, /* N(0, 1 / (3 in)): the variance of peft's kaiming_uniform_(a = sqrt(5)) */
};

struct parameter {
	const char *name; /* fully qualified, Hugging Face's:
			     "model.layers.0.self_attn.q_proj.weight" */
	int module;       /* index of the owner */
	int n_dims;       /* 1 or 2 */
	int64_t shape[2]; /* linear weights are [out, in], experts' [experts * out, in] */
	int64_t elements;
	int number; /* of its random numbers: adapters come behind what the model has without them
		     */
	bool trainable;
	bool decay; /* weight decay applies: matrices only */
	enum parameter_init init;
};

struct module {
	const char *name; /* fully qualified; "" for the top */
	enum module_kind kind;
	int parent; /* -1 for the top */
	int end;    /* one past its last descendant: its subtree is [index, end) */
	/* Block number; -1 outside of blocks. What runs between an encoder's last block and a
	 * decoder's first one has the number of the neighbour that it belongs to. */
	int layer;
	int first_parameter;
	int n_parameters;   /* its own, without descendants', with an adapter's */
	int tied_parameter; /* HEAD with a tied weight: index of the embedding's; else -1 */
	/* LoRA: y = x W^T + alpha/r (x A^T) B^T. The index of A's parameter [r, in], the one of B
	 * [out, r] follows; -1: no adapter. */
	int adapter;
	/* A leaf: of its own and its tied parameters, without an adapter's, nothing is trained; not
	 * its weight. */
	bool frozen, weight_frozen;
	bool unread; /* a leaf: no gradient of a parameter needs its result */
};

struct model {
	struct arena *arena; /* owner of everything below; not owned by the model */
	struct architecture architecture;
	int n_modules;
	struct module *modules; /* preorder = registration order; [0] is the top */
	int n_parameters;
	struct parameter *parameters;   /* in module order */
	int64_t parameter_count;        /* tied ones once */
	int64_t active_parameter_count; /* with experts_per_token experts instead of all */
	int64_t trained_count;          /* of parameter_count */
	int first_trained; /* the first leaf with a trained parameter: backward ends with it */
	const char *part;  /* what of the file this is, when not all; NULL */
	/* What one rank has of a model: every size is that of its part. {0}: the whole one. */
	struct division division;
	const struct model *whole; /* that it is a part of; NULL: itself */
	const int *layers; /* of a pipeline's stage: of each block, its number in the whole model;
			      NULL: the same */
};

/* Builds the tree. The architecture must have passed architecture_check; overflow is an error, and
 * so is what cannot be trained as its `trainable` says. */
bool model_build(struct arena *arena, const struct architecture *architecture, struct model **model,
	struct error *error);

/* The same model, of which something else is trained. EXIT_CODE_USAGE: there is no such parameter,
 * or no such projection. */
bool model_train(struct arena *arena, const struct model *model, const struct trainable *trainable,
	struct model **trained, struct error *error);

/* The model of all ranks together. */
static inline const struct model *model_whole(const struct model *model)
{
	return model->whole != NULL ? model->whole : model;
}

/* The number that a block has in the whole model. */
/* The number there of one of its parameters: of stages all of it is trained, without adapters. */
static inline int model_whole_parameter(const struct model *model, int parameter)
{
	return model->whole != NULL ? model->parameters[parameter].number : parameter;
}

static inline int64_t model_layer(const struct model *model, int64_t layer)
{
	return model->layers != NULL ? model->layers[layer] : layer;
}

/* The same model with more words than its tokenizer has: rows of the embedding and of the head that
 * no token names. EXIT_CODE_USAGE: fewer words. */
bool model_pad(struct arena *arena, const struct model *model, int64_t vocab, struct model **padded,
	struct error *error);
/* The next multiple of 64, as training scripts pad to (nanoGPT, commit 77e7e04: 50257 to 50304):
 * rows of logits are then whole cache lines of 128 bytes in 2-byte dtypes. */
int64_t vocab_padded(int64_t vocab);

/* One of the two matrices of an adapter? */
bool parameter_is_adapter(const struct model *model, int parameter);

/* Does backward need the input of a linear leaf, for the gradient of its weight or of its adapter?
 */
static inline bool module_reads_input(const struct module *module)
{
	return !module->weight_frozen || module->adapter >= 0;
}

/* Do two modules own alike parameters, trained alike, and keep and compute alike? Of their shapes
 * nothing is said. */
bool model_leaves_are_alike(const struct model *model, int one, int two);

/* Does the backward pass come to this leaf? Has it a bias (beside weight and adapter)? A trained
 * one? */
bool model_goes_back(const struct model *model, int module);
bool module_has_bias(const struct module *module);
bool module_trains_bias(const struct model *model, const struct module *module);

/* Projections of one input, whose gradients of it may be one product [dy dy ...] W, W being their
 * weights one behind the other: query, key and value; gate and up. No biases, adapters or norms
 * stand between. n = 0: the leaf stands alone. */
struct joined {
	int first, n;  /* leaves [first, first + n) */
	int64_t width; /* of all dy */
};
struct joined model_joined(const struct model *model, int module);

/* Whether leaves of this kind are linear: those that module_linear_shape has a shape for. */
bool module_is_linear(enum module_kind kind);

/* [out, in] of a linear leaf's weight, also of a tied HEAD, of one expert for EXPERTS leaves; false
 * for every other kind. */
bool module_linear_shape(
	const struct architecture *architecture, enum module_kind kind, int64_t *out, int64_t *in);

/* Is a leaf one of all experts' weights? */
bool module_kind_is_of_experts(enum module_kind kind);

/* Attention that sees every position: an encoder's, and a decoder's to its encoder. */
bool module_sees_all(const struct model *model, int module);

/* All parameters of the subtree [module, end), tied ones only at their owner. */
int64_t model_subtree_parameters(const struct model *model, int module);

#endif
