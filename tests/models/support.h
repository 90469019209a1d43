/* Shared by the tests of models/. */
#ifndef TESTS_MODELS_SUPPORT_H
#define TESTS_MODELS_SUPPORT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "models/models.h"

/* Fails the test with the message when the text is no model. */
static inline struct model *parse_model(struct arena *arena, const char *name, const char *text)
{
	struct error error = {0};
	struct model *model = NULL;

	if (!model_parse(arena, name, text, strlen(text), &model, &error))
		fail_msg("%s", error.message);
	return model;
}

static inline struct model *load_preset(struct arena *arena, const char *name)
{
	struct error error = {0};
	struct model *model = NULL;

	if (!model_load_preset(arena, name, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

static inline int find_module(const struct model *model, const char *name)
{
	for (int i = 0; i < model->n_modules; i++)
		if (strcmp(model->modules[i].name, name) == 0)
			return i;
	fail_msg("no module \"%s\"", name);
	return -1;
}

/* Draws the same numbers on every machine (xorshift64). */
static inline int64_t random_below(uint64_t *state, int64_t limit)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (int64_t)(*state % (uint64_t)limit);
}

/* Any family, any mix of parts, sizes up to a few hundred. */
static inline struct architecture random_architecture(uint64_t *state)
{
	struct architecture a = {.name = "random", .norm_epsilon = 1e-5, .rope_theta = 1e4};

	a.family = (enum model_family)random_below(state, 6);
	a.layers = 1 + random_below(state, 5);
	a.kv_heads = 1 + random_below(state, 4);
	a.heads = a.kv_heads * (1 + random_below(state, 4));
	a.head_dim = 2 * (1 + random_below(state, 16));
	a.hidden = random_below(state, 2) ? a.heads * a.head_dim : 1 + random_below(state, 300);
	a.ffn = 1 + random_below(state, 500);
	a.vocab = 1 + random_below(state, 1000);
	a.context = 1 + random_below(state, 128);
	a.positions = (enum positions)random_below(state, 3);
	a.norm = (enum norm_kind)random_below(state, 2);
	a.norm_bias = a.norm == NORM_LAYERNORM && random_below(state, 2);
	a.mlp = (enum mlp_kind)random_below(state, 2);
	a.qkv_bias = random_below(state, 2);
	a.output_bias = random_below(state, 2);
	a.mlp_bias = random_below(state, 2);
	a.fused_qkv = random_below(state, 2);
	a.qk_norm = random_below(state, 2);
	a.tied_head = random_below(state, 2);
	return a;
}

static inline struct model *build_model(struct arena *arena, const struct architecture *a)
{
	struct error error = {0};
	struct model *model = NULL;

	if (!architecture_check(a, NULL, &error) || !model_build(arena, a, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

#endif
