/* Which parameters are trained: all; those whose names match a pattern; or low-rank adapters beside
 * some projections (LoRA, Hu et al. 2021, as peft adds them), and nothing else. */
#ifndef MODELS_TRAINABLE_H
#define MODELS_TRAINABLE_H

#include "base/base.h"

struct module_names;

/* "all", "lora:RANK[:MODULES][:alpha=A]", or globs over names of parameters, with commas. */
struct trainable {
	const char *text; /* NULL: all */
	int64_t rank;     /* r of the adapters; 0: there are none */
	double alpha;     /* what they compute counts alpha / r times; 2 r unless given */
	/* Names of the projections, with commas, as peft's target_modules: the last part of a name,
	 * or more of it. "all-linear": all of the blocks; NULL: what peft takes for the family.
	 * Megatron-Core's layers have names of their own: linear_qkv and linear_fc1 are several
	 * projections in one, which share an adapter; linear_proj, linear_fc2. */
	const char *modules;
};

extern const struct field_decoded trainable_decoded;

static inline bool trainable_is_all(const struct trainable *trainable)
{
	return trainable->text == NULL;
}

bool trainable_equal(const struct trainable *a, const struct trainable *b);

/* Does the name match one of the globs (*, ?, [a-z], [!a-z])? Does a projection of that name get an
 * adapter? `usual`: peft would give it one. */
bool trainable_matches(const struct trainable *trainable, const char *name);
bool trainable_adapts(const struct trainable *trainable, const char *name, bool usual);

/* Are there names of Megatron-Core's layers among them? */
bool trainable_names_layers(const struct trainable *trainable);

#endif
