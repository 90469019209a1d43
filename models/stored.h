/* The contents of weights beside a config.json, by the headers of their safetensors files: only
 * shapes. They tell if the two are the same model. */
#ifndef MODELS_STORED_H
#define MODELS_STORED_H

#include "models/model.h"

struct stored;

struct stored *stored_new(struct arena *arena);

/* The header of one more file, as safetensors_read_header takes it. */
bool stored_add_header(struct stored *stored, const char *name, const char *text, size_t length,
	struct error *error);

int64_t stored_tensors(const struct stored *stored);
/* Elements of all tensors that are parameters of the (text) model: buffers, a copy of a tied head,
 * and other parts of multi-modal models are left out. `quantised`: some are packed, so that
 * elements are not parameters. */
int64_t stored_parameters(struct stored *stored, const struct model *model, bool *quantised);

/* One line for each part ("model.layers.3": expected, got) that differs, at most `max`; returns how
 * many there are. Call stored_parameters first. */
int stored_differences(struct arena *arena, const struct stored *stored, const struct model *model,
	const char **lines, int max);

#endif
