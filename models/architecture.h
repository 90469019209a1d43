/* What a model file says: the numbers and choices that define a decoder-only transformer. */
#ifndef MODELS_ARCHITECTURE_H
#define MODELS_ARCHITECTURE_H

#include "base/base.h"

enum model_family {
	FAMILY_GPT2,
	FAMILY_MPT,
	FAMILY_LLAMA,
	FAMILY_MISTRAL,
	FAMILY_QWEN2,
	FAMILY_QWEN3
};
enum positions { POSITIONS_LEARNED, POSITIONS_ROPE, POSITIONS_ALIBI };
enum norm_kind { NORM_LAYERNORM, NORM_RMSNORM };
enum mlp_kind { MLP_GELU, MLP_SWIGLU };

extern const char *const model_family_names[]; /* "gpt2", "mpt", "llama", ... NULL-terminated */
extern const char *const positions_names[];
extern const char *const norm_kind_names[];
extern const char *const mlp_kind_names[];

struct architecture {
	const char *name;
	enum model_family family;
	int64_t layers;
	int64_t hidden;   /* h */
	int64_t heads;    /* a */
	int64_t kv_heads; /* kv <= a, divides a */
	int64_t head_dim; /* d; a*d need not be h */
	int64_t ffn;      /* f */
	int64_t vocab;    /* V */
	int64_t context;  /* longest sequence */
	enum positions positions;
	enum norm_kind norm;
	bool norm_bias; /* LayerNorm has a bias (GPT-2 yes, MPT no) */
	enum mlp_kind mlp;
	bool gelu_tanh;      /* GPT-2's approximation; false = erf */
	bool qkv_bias;       /* q, k, v projections */
	bool output_bias;    /* attention output projection */
	bool mlp_bias;       /* MLP projections */
	bool fused_qkv;      /* one parameter for q, k, v (GPT-2, MPT) */
	bool qk_norm;        /* RMSNorm over head_dim on q and k (Qwen3) */
	bool tied_head;      /* lm_head shares the embedding's weight */
	double norm_epsilon; /* default 1e-5 */
	double rope_theta;   /* default 10000 */
};

/* For reading and writing; every member in the order above. */
extern const struct field architecture_fields[];

/* Impossible shapes are errors at `where` (a node of the file, may be NULL): zero layers, heads
 * that do not divide, kv_heads > heads, odd head_dim with RoPE, counts that overflow. */
bool architecture_check(
	const struct architecture *architecture, const struct node *where, struct error *error);

/* A Hugging Face config.json of families llama, mistral, qwen2, qwen3, gpt2, mpt (key table with
 * the defaults of each family: docs/models.md). Accepts unknown keys, nulls, duplicate keys. A
 * missing key is named; an unknown model_type lists the known ones. */
bool architecture_from_hugging_face(struct arena *arena, const struct node *config,
	struct architecture *architecture, struct error *error);

#endif
