/* The contents of a model file: the numbers and choices that define a transformer. */
#ifndef MODELS_ARCHITECTURE_H
#define MODELS_ARCHITECTURE_H

#include "models/trainable.h"

/* X(suffix, name): one row each in families.c. The first six, and Mixtral, are what kernels/ can
 * train. */
#define MODEL_FAMILIES(X)                                                                          \
	X(GPT2, "gpt2")                                                                            \
	X(MPT, "mpt")                                                                              \
	X(LLAMA, "llama")                                                                          \
	X(MISTRAL, "mistral")                                                                      \
	X(QWEN2, "qwen2")                                                                          \
	X(QWEN3, "qwen3")                                                                          \
	X(ARCEE, "arcee")                                                                          \
	X(BLOOM, "bloom")                                                                          \
	X(CODEGEN, "codegen")                                                                      \
	X(COHERE, "cohere")                                                                        \
	X(COHERE2, "cohere2")                                                                      \
	X(DBRX, "dbrx")                                                                            \
	X(DEEPSEEK_V2, "deepseek_v2")                                                              \
	X(DEEPSEEK_V3, "deepseek_v3")                                                              \
	X(ERNIE4_5, "ernie4_5")                                                                    \
	X(EXAONE4, "exaone4")                                                                      \
	X(FALCON, "falcon")                                                                        \
	X(GEMMA, "gemma")                                                                          \
	X(GEMMA2, "gemma2")                                                                        \
	X(GEMMA3, "gemma3_text")                                                                   \
	X(GLM, "glm")                                                                              \
	X(GLM4, "glm4")                                                                            \
	X(GLM4_MOE, "glm4_moe")                                                                    \
	X(GPT_BIGCODE, "gpt_bigcode")                                                              \
	X(GPT_NEO, "gpt_neo")                                                                      \
	X(GPT_NEOX, "gpt_neox")                                                                    \
	X(GPT_OSS, "gpt_oss")                                                                      \
	X(GPTJ, "gptj")                                                                            \
	X(GRANITE, "granite")                                                                      \
	X(GRANITE_MOE, "granitemoe")                                                               \
	X(HELIUM, "helium")                                                                        \
	X(HUNYUAN_DENSE, "hunyuan_v1_dense")                                                       \
	X(HUNYUAN_MOE, "hunyuan_v1_moe")                                                           \
	X(LLAMA4, "llama4_text")                                                                   \
	X(MIXTRAL, "mixtral")                                                                      \
	X(NEMOTRON, "nemotron")                                                                    \
	X(OLMO, "olmo")                                                                            \
	X(OLMO2, "olmo2")                                                                          \
	X(OLMOE, "olmoe")                                                                          \
	X(OPT, "opt")                                                                              \
	X(PHI, "phi")                                                                              \
	X(PHI3, "phi3")                                                                            \
	X(PHIMOE, "phimoe")                                                                        \
	X(QWEN2_MOE, "qwen2_moe")                                                                  \
	X(QWEN3_MOE, "qwen3_moe")                                                                  \
	X(SEED_OSS, "seed_oss")                                                                    \
	X(SMOLLM3, "smollm3")                                                                      \
	X(STABLELM, "stablelm")                                                                    \
	X(STARCODER2, "starcoder2")                                                                \
	X(T5, "t5")

enum model_family {
#define X(suffix, name) FAMILY_##suffix,
	MODEL_FAMILIES(X)
#undef X
		MODEL_FAMILY_COUNT
};
/* Relative: T5's, a table of buckets x heads in the first block of each stack. */
enum positions { POSITIONS_LEARNED, POSITIONS_ROPE, POSITIONS_ALIBI, POSITIONS_RELATIVE };
/* Plain: LayerNorm without any parameter (OLMo). */
enum norm_kind { NORM_LAYERNORM, NORM_RMSNORM, NORM_PLAIN };
/* swiglu and geglu are gated: three matrices; gelu and relu two. */
enum mlp_kind { MLP_GELU, MLP_SWIGLU, MLP_GEGLU, MLP_RELU };
/* How norms, attention and MLP of a block follow one another: docs/models.md, "Blocks". */
enum block_kind {
	BLOCK_PRE_NORM,
	BLOCK_PARALLEL,       /* attention and MLP side by side, one norm before both */
	BLOCK_PARALLEL_NORMS, /* the same with a norm each */
	BLOCK_SANDWICH,       /* a norm before and after each: four */
	BLOCK_POST_NORM       /* a norm after each, none before */
};

extern const char *const model_family_names[]; /* "gpt2", "mpt", "llama", ... NULL-terminated */

struct architecture {
	const char *name;
	enum model_family family;
	int64_t layers;   /* blocks; of both stacks when there is an encoder */
	int64_t hidden;   /* h */
	int64_t heads;    /* a */
	int64_t kv_heads; /* kv <= a, divides a */
	int64_t head_dim; /* d of queries and keys; a*d need not be h */
	int64_t ffn;      /* f, of dense MLPs */
	int64_t vocab;    /* V */
	int64_t context;  /* longest sequence */
	enum positions positions;
	enum norm_kind norm;
	bool norm_bias; /* LayerNorm has a bias (GPT-2 yes, MPT no) */
	enum mlp_kind mlp;
	bool gelu_tanh;      /* GPT-2's approximation; false = erf */
	bool qkv_bias;       /* q, k, v projections */
	bool output_bias;    /* attention output projection */
	bool mlp_bias;       /* MLP projections, also of experts */
	bool fused_qkv;      /* one parameter for q, k, v (GPT-2, MPT) */
	bool qk_norm;        /* norm over head_dim on q and k (Qwen3) */
	bool tied_head;      /* lm_head shares the embedding's weight */
	double norm_epsilon; /* default 1e-5 */
	double rope_theta;   /* default 10000 */

	/* Choices that most models do not have: 0 or false. */
	enum block_kind block;
	bool qk_norm_wide;    /* q and k norms have a weight for every head: a*d and kv*d */
	bool fused_gate_up;   /* one parameter for gate and up (Phi-3) */
	bool embedding_norm;  /* a norm after the embedding (BLOOM) */
	bool no_final_norm;   /* OPT-350m */
	bool head_bias;       /* lm_head has a bias (Phi-2, GPT-J) */
	bool attention_sinks; /* one learned logit per head (gpt-oss) */
	/* Blocks whose tokens see so many back, themselves among them, or those of their piece of
	 * the sequence alone (Llama 4); 0 = all. Every n-th block sees all anyway; 0 = none does.
	 */
	int64_t attention_window, attention_chunk, full_attention_every;
	int64_t position_extra;  /* more rows in the learned table than positions (OPT: 2) */
	int64_t embedding_width; /* of a narrower embedding, projected to h (OPT-350m); 0 = h */
	int64_t encoder_layers;  /* the first blocks are an encoder; the others attend to it (T5) */
	int64_t relative_buckets;
	/* Multi-head latent attention (DeepSeek): q and k, v come from narrow tensors. kv_rank 0 =
	 * none; query_rank 0 = q straight from h. head_dim is then the part without positions plus
	 * rope_dim. */
	int64_t query_rank, kv_rank, rope_dim;
	int64_t value_dim; /* d of values when it is not head_dim; only with kv_rank */
	/* Mixture of experts: experts 0 = none. Blocks from dense_layers on, every moe_every-th
	 * counted from the first block of all, have experts, the others an MLP of width ffn. */
	int64_t experts, experts_per_token;
	/* A token meets experts of so many groups alone (DeepSeek); 0 = of all. */
	int64_t expert_groups, groups_per_token;
	int64_t expert_ffn;   /* f of one expert */
	int64_t shared_ffn;   /* f of the expert that sees every token; 0 = none */
	bool shared_gate;     /* its output is gated by a scalar (Qwen2-MoE) */
	bool router_bias;     /* gpt-oss */
	int64_t dense_layers; /* blocks at the start without experts */
	int64_t moe_every;    /* 0 = 1 */
	/* The last of `layers` are modules of multi-token prediction (DeepSeek-V3), each with its
	 * own loss, through the model's head. */
	int64_t mtp_layers;
	int64_t experts_held;  /* not of the file: of one of several ranks; 0 = all */
	int64_t adapter_parts; /* nor is this: ranks that cut each adapter; 0 = 1 */
	/* Not of the file: what of it is trained. The model has adapters and frozen parameters
	 * accordingly. */
	struct trainable trainable;
};

/* For reading and writing; every member in the order above. */
extern const struct field architecture_fields[];

/* Impossible shapes are errors at `where` (a node of the file, may be NULL): zero layers, heads
 * that do not divide, kv_heads > heads, odd head_dim with RoPE, counts that overflow. */
bool architecture_check(
	const struct architecture *architecture, const struct node *where, struct error *error);

/* A Hugging Face config.json (keys and defaults of each family: docs/models.md). Accepts unknown
 * keys, nulls, duplicate keys; descends into `text_config`, and `*part` then says so ("the text
 * part of a gemma3 model; ..."), else NULL. A missing key is named; an unknown model_type gets the
 * reason where we know one. */
bool architecture_from_hugging_face(struct arena *arena, const struct node *config,
	struct architecture *architecture, const char **part, struct error *error);

/* Losses of a token: its own, and one for each module of multi-token prediction. The head makes
 * logits for each. */
int64_t architecture_losses(const struct architecture *architecture);
/* Experts of the model, or of the part of it that a rank has; 0: none. */
int64_t architecture_experts_held(const struct architecture *architecture);
/* Of so many places that share the experts evenly, in their order: how many have an expert of a
 * token, in the mean over routers that choose groups, and experts of them, at random. */
double architecture_expert_places(const struct architecture *architecture, double places);
bool architecture_is_gated(const struct architecture *architecture);        /* three matrices */
bool architecture_has_experts(const struct architecture *a, int64_t layer); /* in that block */

/* The kernels that are missing to train it ("a mixture of experts"); NULL: none. */
const char *architecture_not_trainable(const struct architecture *architecture);

#endif
