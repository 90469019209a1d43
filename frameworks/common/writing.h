/* Writing a plan as a target's file: the plan that the file can express, notes about the rest, and
 * functions that several writers share. */
#ifndef FRAMEWORKS_COMMON_WRITING_H
#define FRAMEWORKS_COMMON_WRITING_H

#include "frameworks/common/target.h"

struct export_note {
	const char *knob; /* "prefetch" */
	const char *text; /* "none -> pre: ..." or "2: DataLoader(batch_size=2)" */
	bool elsewhere;   /* to be given in the script; else: changed */
};

struct exported {
	struct plan plan; /* what the file stands for */
	int n_notes, notes_room;
	struct export_note *notes; /* from the arena */
	bool leaves_clip;          /* clipping is left to the framework's default */
	const char *launch;        /* "accelerate launch --config_file plan.yaml train.py" */
};

struct exporting {
	const struct export_target *target;
	int version; /* place in the target's versions */
	const struct plan_file *file;
	const struct plan *plan; /* already what the target can express */
	const struct model *model;
	const struct topology *topology;
	struct exported *exported;
	struct arena *arena;
	struct text *text;
};

/* Applies the target's rules to a copy of the plan; every change becomes a note. */
void export_adapt(struct exporting *exporting, struct plan *plan);
/* Sets the target's default clip if the plan leaves it open. Only for writing a file: a search
 * compares plans with the clip that was asked for. */
void export_adapt_clip(struct exporting *exporting, struct plan *plan);
/* Sets one knob, with mesh and resharding, and notes the change. Does nothing if the plan has that
 * value already, or if this version has no such value. */
void export_change(struct exporting *exporting, struct plan *plan, enum knob_id knob,
	const char *value, const char *why);
void export_add_note(
	struct exporting *exporting, const char *what, bool elsewhere, const char *words);
/* `what` the file cannot express, and where to give it: a knob's name, or "model". */
void export_note_elsewhere(struct exporting *exporting, const char *what, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The value of a knob as text, without quotes. */
const char *export_knob(const struct plan *plan, enum knob_id knob, struct arena *arena);

/* --- the file ---------------------------------------------------------------------------- */
enum setting_type {
	SETTING_STRING,
	SETTING_NULL,
	SETTING_BOOL,
	SETTING_INT,
	SETTING_NUMBER,
	SETTING_COMMENT,
};
struct setting {
	const char *path, *text;
	enum setting_type type;
};
enum { SETTINGS_MOST = 64 };
struct settings {
	int n;
	struct setting rows[SETTINGS_MOST];
};

/* Header and settings: all that most targets write. */
void export_write(struct exporting *exporting);
/* The target's keys with the values of the plan. */
void export_settings(struct exporting *exporting, struct settings *settings);
/* Appends the settings in the target's syntax; in Python each line begins with `prefix`. */
void export_add_settings(
	struct exporting *exporting, const struct settings *settings, const char *prefix);

/* Comment lines: a title, how to start it, and what it cannot express. */
void export_header(struct exporting *exporting);

/* The index in `versions` of the version of the target's program that `name` is or begins ("0.3" is
 * 0.3.0), or -1 with an EXIT_CODE_USAGE that names the known ones. */
int export_find_version(const struct export_target *target, const char *name, struct error *error);
/* "accelerate 1.15.0" */
const char *export_version(const struct export_target *target, int version, struct arena *arena);

/* --- questions about the plan ----------------------------------------------------------- */
bool export_is_hybrid(const struct exporting *exporting);
bool export_is_sharded(const struct exporting *exporting);
/* Why FSDP2 through accelerate cannot make these ranks, in a sentence (its parallelism_config.py);
 * NULL: it can. */
const char *fsdp2_refuses(const struct plan *plan);
/* The class to wrap; adds a note once when the family's is not known. */
const char *export_class(struct exporting *exporting);
/* The nearest stage of ZeRO: 0 nothing, 1 optimizer state, 2 + gradients, 3 + parameters. */
int export_zero_stage(const struct plan *plan);

/* --- values of keys; NULL: nothing is written ----------------------------------------------- */
const char *value_model(struct exporting *exporting); /* its name */
const char *value_nodes(struct exporting *exporting);
const char *value_replicas(struct exporting *exporting); /* mesh.replicate */
/* "true" or "false", whatever becomes of the tail. */
const char *value_reshards(struct exporting *exporting);
/* Liger's kernels: any of them; those that are not its loss, false where its loss is alone; its
 * loss. NULL without Liger. */
const char *value_liger(struct exporting *exporting);
const char *value_liger_model(struct exporting *exporting);
const char *value_liger_loss(struct exporting *exporting);
const char *value_zero_stage(struct exporting *exporting);
const char *value_fsdp_version(struct exporting *exporting);
const char *value_wrap_policy(struct exporting *exporting); /* "TRANSFORMER_BASED_WRAP" */
const char *value_wrap_class(struct exporting *exporting);  /* of a wrap by block */
const char *value_wrap_least(struct exporting *exporting);  /* N of wrap "size:N" */

bool export_has(const char *const *names, const char *name);
/* The class of a transformer block in Hugging Face's Transformers ("LlamaDecoderLayer"); NULL for a
 * family that is not known. */
const char *export_block_class(const char *family);

#endif
