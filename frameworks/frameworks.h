/* Plans as the configuration files of other frameworks, and back.
 *
 * Writing: what a file cannot express is a note, never silence; `plan` of struct exported is the
 * plan that the file stands for, and importing the file gives that plan back in every knob that the
 * file has.
 *
 * Reading: a file of any syntax becomes a flat list of leaves; a target's rows tell what each leaf
 * means, its `finish` what takes two of them. Every leaf that no table knows, and every one that
 * cannot be honoured, is a note with its line. */
#ifndef FRAMEWORKS_FRAMEWORKS_H
#define FRAMEWORKS_FRAMEWORKS_H

#include "frameworks/common/common.h"
#include "frameworks/targets/targets.h"

/* For people, who add PyTorch scripts. */
#define FRAMEWORK_NAMES                                                                            \
	"accelerate, the Hugging Face Trainer, torchtitan, DeepSpeed, Megatron-LM and -Bridge, "   \
	"axolotl, TRL, nanotron, llm-foundry"

/* NULL with an EXIT_CODE_USAGE that suggests the nearest name. */
const struct export_target *export_find(const char *name, struct error *error);

/* Does the framework shard there? EXIT_CODE_USAGE. */
bool export_runs_on(
	const struct export_target *target, const struct topology *topology, struct error *error);

/* Appends the file to `text`, for a version by its place. `file_name` is only for the launch line.
 * EXIT_CODE_USAGE when the target has no word for the plan's kind of parallelism. */
bool export_plan(const struct export_target *target, int version, const struct plan_file *file,
	const char *file_name, struct arena *arena, struct exported *exported, struct text *text,
	struct error *error);

/* The nearest plan that the target's file can say, with nothing written: `plan` itself when it says
 * all of it. Strings come from `arena`. */
void export_settle(const struct export_target *target, const struct model *model,
	const struct topology *topology, struct arena *arena, struct plan *plan);

/* The targets that say the plan unchanged; their names are left in `names`, in `arena`. */
int export_sayers(const struct model *model, const struct topology *topology,
	const struct plan *plan, struct arena *arena, const char *const **names);

/* `export --list`: a row a target; `export --knobs`: a row a knob. */
void export_list(struct text *text);
void export_table(struct text *text);

/* target: NULL = by the content. `function`: of a Python file with several; NULL. `layers`: blocks
 * of the model that is named beside the file, for a file without its own; 0: not known.
 * EXIT_CODE_INPUT with the place. */
bool import_config(struct arena *arena, const char *name, const char *text, size_t length,
	const struct export_target *target, const char *function, int64_t layers,
	struct imported *imported, struct error *error);
/* What follows from the model: the ends of a plan that was made of the settings. What the user
 * typed stays: a policy with a '+', resharding with `reshards`. */
void import_settle(const struct imported *imported, const struct model *model, bool reshards,
	struct arena *arena, struct plan *plan);
/* What was understood, for people; with the plan that it was settled in, or NULL. */
void import_print(const struct imported *imported, const struct plan *plan, struct text *text);

#endif
