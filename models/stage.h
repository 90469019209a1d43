/* The part of a model that one rank of a pipeline holds. */
#ifndef MODELS_STAGE_H
#define MODELS_STAGE_H

#include "models/model.h"

/* Blocks of a model, and perhaps what is before and behind all of them. */
struct stage_part {
	int n_layers;
	const int *layers; /* their numbers in the model, ascending; copied */
	bool embedding;    /* all that runs before the first block */
	bool head;         /* all that runs behind the last one */
};

/* A model of these blocks alone. Blocks are numbered from 0 on in it; `layers` has their numbers in
 * the model. A tied head without the embedding has a table of its own, which is a copy. The model
 * has no encoder. */
const struct model *model_stage(
	struct arena *arena, const struct model *model, const struct stage_part *stage);

/* The tied table of a stage that has one of its two ends: another stage has it too. -1: none. */
int model_shared_table(const struct model *stage);
/* Is that the head's, a copy of the one that the embedding owns? */
bool model_parameter_is_copy(const struct model *stage, int parameter);

/* Does a leaf outside of the blocks run before them? */
bool module_kind_is_before_blocks(enum module_kind kind);

#endif
