/* Private to models/: one table declares the families. */
#ifndef MODELS_FAMILIES_H
#define MODELS_FAMILIES_H

#include "models/model.h"

/* How a family of config.json names its sizes: a column of the table in hugging_face.c. */
enum config_dialect { DIALECT_LLAMA, DIALECT_GPT2, DIALECT_MPT, DIALECT_T5, DIALECT_COUNT };

/* Hugging Face's module names, by kind; a missing one is llama's. MODULE_MODEL is the inner model,
 * MODULE_LAYERS its list. Names with dots stand for modules that only hold others. */
struct module_names {
	const char *of[MODULE_KIND_COUNT];
	/* The norms of a block after the first; final_norm is the stack's. */
	const char *second_norm, *third_norm, *fourth_norm;
	const char *final_norm;
};

extern const struct module_names llama_names, gpt2_names, mpt_names, neox_names, falcon_names,
	bloom_names, gptj_names, opt_names, phi_names, mixtral_names, granite_moe_names,
	qwen2_moe_names, llama4_names, gpt_oss_names, starcoder2_names, olmo2_names, gemma2_names,
	glm4_names, codegen_names, dbrx_names, gpt_neo_names, hunyuan_names, t5_names;
const char *module_name_of(const struct module_names *names, enum module_kind kind);

/* Marks what the architecture's `trainable` says is trained. `refused`: a projection that cannot
 * have an adapter; NULL. */
/* Parameters that a token meets: of each expert one the share of experts that it goes to. */
int64_t model_count_active(const struct model *model);
bool model_choose_trained(struct model *model, const char *refused, struct error *error);

/* Is read after the sizes, with the row's defaults in place. */
typedef bool config_reader(
	const struct node *config, struct architecture *architecture, struct error *error);

struct family {
	/* Choices that a file may leave out; no sizes. */
	struct architecture defaults;
	enum config_dialect dialect;
	double config_norm_epsilon; /* of a config.json without the key */
	const char *config_class;   /* architectures[0] when model_type is missing */
	const char *const *aliases; /* other model_types of the same layout; may be NULL */
	const struct module_names *names;
	config_reader *const *readers; /* NULL-terminated; config_readers.c */
};

/* Indexed by enum model_family. */
extern const struct family model_families[];
extern const int n_model_families;

config_reader read_mpt_rest, read_dbrx_rest; /* config_mpt.c */
config_reader config_read_windows;           /* config_windows.c, for all families */

/* The lists of readers that the rows name. */
extern config_reader *const read_llama[];
extern config_reader *const read_gpt2[];
extern config_reader *const read_mpt[];
extern config_reader *const read_qwen2[];
extern config_reader *const read_neox[];
extern config_reader *const read_falcon[];
extern config_reader *const read_bloom[];
extern config_reader *const read_gptj[];
extern config_reader *const read_opt[];
extern config_reader *const read_phi[];
extern config_reader *const read_gemma[];
extern config_reader *const read_stablelm[];
extern config_reader *const read_starcoder2[];
extern config_reader *const read_cohere[];
extern config_reader *const read_bigcode[];
extern config_reader *const read_t5[];
extern config_reader *const read_mixtral[];
extern config_reader *const read_qwen2_moe[];
extern config_reader *const read_qwen3_moe[];
extern config_reader *const read_deepseek[];
extern config_reader *const read_gpt_oss[];
extern config_reader *const read_llama4[];
extern config_reader *const read_olmoe[];
extern config_reader *const read_glm[];
extern config_reader *const read_separate[];
extern config_reader *const read_ernie[];
extern config_reader *const read_gpt_neo[];
extern config_reader *const read_hunyuan_moe[];
extern config_reader *const read_dbrx[];
extern config_reader *const read_glm_moe[];

/* Model types that are not read, and why: { "mamba", "a state-space model ..." }. */
struct refused_type {
	const char *type, *reason;
};
const char *refused_reason(const char *model_type); /* NULL = simply not known */

/* Fills what follows from the rest: kv_heads = heads, head_dim = hidden / heads where they are 0
 * and the division is exact. What stays 0 is architecture_check's business. */
void architecture_complete(struct architecture *architecture);

/* A model's name from a path: "a/gpt2-large/config.json" -> "gpt2-large", "my.yaml" -> "my". */
const char *model_name_from_path(struct arena *arena, const char *path);

#endif
