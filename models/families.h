/* Private to models/: one table declares the families. */
#ifndef MODELS_FAMILIES_H
#define MODELS_FAMILIES_H

#include "models/model.h"

/* Which dialect of config.json a family speaks. */
enum config_dialect { DIALECT_LLAMA, DIALECT_GPT2, DIALECT_MPT, DIALECT_COUNT };

/* Hugging Face's module names, by kind. MODULE_MODEL is the inner model, MODULE_LAYERS its list. */
struct module_names {
	const char *of[MODULE_KIND_COUNT];
	const char *second_norm;
	const char *final_norm;
};

struct family {
	/* What a file may leave out; no sizes. */
	struct architecture defaults;
	enum config_dialect dialect;
	double config_norm_epsilon; /* of a config.json without the key */
	const char *config_class;   /* architectures[0] when model_type is missing */
	const struct module_names *names;
};

/* Indexed by enum model_family. */
extern const struct family model_families[];
extern const int n_model_families;

/* Fills what follows from the rest: kv_heads = heads, head_dim = hidden / heads where they are 0
 * and the division is exact. What stays 0 is architecture_check's business. */
void architecture_complete(struct architecture *architecture);

/* A model's name from a path: "a/gpt2-large/config.json" -> "gpt2-large", "my.yaml" -> "my". */
const char *model_name_from_path(struct arena *arena, const char *path);

#endif
