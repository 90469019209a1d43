/* The face of models/: architecture -> modules -> parameters, FLOPs, activations.
 *
 * A model is a tree of modules in registration order, which is also execution order. Leaves
 * compute; containers exist because wrap policies walk them. Everything here is pure arithmetic on
 * text. */
#ifndef MODELS_MODELS_H
#define MODELS_MODELS_H

#include "base/base.h"
#include "models/activations.h"
#include "models/architecture.h"
#include "models/flops.h"
#include "models/model.h"
#include "models/safetensors.h"
#include "models/stage.h"
#include "models/stored.h"

/* The presets that are embedded in the binary, sorted by name. */
extern const struct embedded_file model_presets[];
extern const int n_model_presets;

/* A preset by name; an unknown name is EXIT_CODE_INPUT with the nearest one suggested. */
bool model_load_preset(
	struct arena *arena, const char *name, struct model **model, struct error *error);

/* The preset that a name of Hugging Face or of people means: "meta-llama/Llama-3.1-8B",
 * "llama2-7b", "gpt2-xl". NULL: none. */
const char *model_preset_name(const char *typed);

/* Text of a file that describes a model: our own YAML (has the key `shardplan: model/1`) or a
 * Hugging Face config.json (has `model_type`). `name` is the file's name for messages; the model is
 * named after the file's own `name` / `_name_or_path`, else after `name`. */
bool model_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct model **model, struct error *error);

/* The `model:` map of a plan file, and its inverse: writes the architecture into the open map. */
bool model_read(
	struct arena *arena, const struct node *map, struct model **model, struct error *error);
void model_write(const struct model *model, struct writer *writer);

/* A Hugging Face config.json, appended; reading it back gives the same architecture. False for
 * families other than gpt2, llama, mistral, mixtral, qwen2 and qwen3. */
bool model_write_hugging_face(const struct model *model, struct text *text);

/* peft's adapter_config.json of a model with adapters (LoraConfig of peft 0.21), appended; and its
 * target_modules: as they were typed, which may be more than the last part of a name, else what has
 * an adapter. */
void model_write_adapter_config(const struct model *model, struct text *text);
const char **model_adapted_modules(const struct model *model, struct arena *arena, int *n);

/* `models show --json`: everything with modules and parameters. */
void model_write_details(const struct model *model, struct writer *writer);

#endif
