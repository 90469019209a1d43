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
	/* Keys the random numbers that it starts from. Adapters are numbered last, so that the
	 * other parameters start alike with and without them. */
	int number;
	int whole; /* index in the whole model; a stage of a pipeline has its own order */
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
	int n_parameters; /* its own and its adapter's, not those of descendants */
	/* HEAD with a tied weight, EMBEDDING of a block: index of the embedding's; else -1. */
	int tied_parameter;
	/* LoRA: y = x W^T + alpha/r (x A^T) B^T. The index of parameter A [r, in]; B [out, r] has
	 * the next one. -1: no adapter. */
	int adapter;
	/* For a leaf. `frozen`: neither its own nor its tied parameters are trained (its adapter
	 * may be); `weight_frozen`: its weight is not trained (its bias may be). */
	bool frozen, weight_frozen;
	bool unread; /* of a leaf: no gradient of a parameter needs its result */
};

struct model {
	struct arena *arena; /* owner of everything below; not owned by the model */
	struct architecture architecture;
	int n_modules;
	struct module *modules; /* preorder = registration order; [0] is the top */
	int n_parameters;
	struct parameter *parameters;   /* in module order */
	int64_t parameter_count;        /* elements; tied parameters count once */
	int64_t active_parameter_count; /* with experts_per_token experts instead of all */
	int64_t trained_count;          /* those of parameter_count that are trained */
	int first_trained; /* the first leaf with a trained parameter: backward ends with it */
	const char *part;  /* which part of the file this is ("the text part"); NULL: all of it */
	/* How ranks divide the model. When it divides, all sizes here are those of one rank's part;
	 * {0}: this is the whole model. */
	struct division division;
	const struct model *whole; /* the model that this is a part of; NULL: itself */
	/* For a stage of a pipeline: [its blocks] the number of each in the whole model. NULL: the
	 * numbers are the same. */
	const int *layers;
};

/* Builds the tree. The architecture must have passed architecture_check; overflow is an error, and
 * so is what cannot be trained as its `trainable` says. */
bool model_build(struct arena *arena, const struct architecture *architecture, struct model **model,
	struct error *error);

/* A copy of the model in which `trainable` says what is trained. EXIT_CODE_USAGE when it names a
 * parameter or a projection that the model does not have. */
bool model_train(struct arena *arena, const struct model *model, const struct trainable *trainable,
	struct model **trained, struct error *error);

/* The model of all ranks together. */
static inline const struct model *model_whole(const struct model *model)
{
	return model->whole != NULL ? model->whole : model;
}

/* The index in the whole model of a parameter of `model`. */
static inline int model_whole_parameter(const struct model *model, int parameter)
{
	return model->whole != NULL ? model->parameters[parameter].whole : parameter;
}

/* The number in the whole model of a block of `model`. */
static inline int64_t model_layer(const struct model *model, int64_t layer)
{
	return model->layers != NULL ? model->layers[layer] : layer;
}

/* A copy of the model with so many modules of multi-token prediction behind its blocks. */
bool model_predict_next(struct arena *arena, const struct model *model, int64_t modules,
	struct model **predicting, struct error *error);

/* A copy of the model with a vocabulary of `vocab` words: the rows that this adds to the embedding
 * and to the head belong to no token. EXIT_CODE_USAGE when `vocab` is less than the model has. */
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

/* Do two modules have the same kinds of parameters, of which the same are trained, and do they
 * compute and save the same tensors? Shapes are not compared. */
bool model_leaves_are_alike(const struct model *model, int one, int two);

/* Does the backward pass reach this leaf? */
bool model_goes_back(const struct model *model, int module);
/* Does it have a bias, and is that trained? */
bool module_has_bias(const struct module *module);
bool module_trains_bias(const struct model *model, const struct module *module);

/* Projections that read the same input (query, key and value; gate and up). Their weights lie one
 * behind the other, without biases, adapters or norms between, so that one product gives the
 * gradient of the input: [dy dy ...] W. n = 0: the leaf stands alone. */
struct joined {
	int first, n;  /* leaves [first, first + n) */
	int64_t width; /* columns of [dy dy ...] */
};
struct joined model_joined(const struct model *model, int module);

/* Whether leaves of this kind are linear: those that module_linear_shape has a shape for. */
bool module_is_linear(enum module_kind kind);

/* [out, in] of a linear leaf's weight, also of a tied HEAD, of one expert for EXPERTS leaves; false
 * for every other kind. */
bool module_linear_shape(
	const struct architecture *architecture, enum module_kind kind, int64_t *out, int64_t *in);

/* Does a leaf of this kind hold the weights of all experts? */
bool module_kind_is_of_experts(enum module_kind kind);

/* Attention that sees every position: an encoder's, and a decoder's to its encoder. */
bool module_sees_all(const struct model *model, int module);

/* All parameters of the subtree [module, end), tied ones only at their owner. */
int64_t model_subtree_parameters(const struct model *model, int module);

#endif
