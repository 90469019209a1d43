/* Reading a target's file: its options, notes with their lines, and functions that several readers
 * share. */
#ifndef FRAMEWORKS_COMMON_READING_H
#define FRAMEWORKS_COMMON_READING_H

#include "frameworks/common/target.h"

/* One option that the file gives. */
struct import_setting {
	int knob;                   /* enum knob_id or KEY_GPUS */
	const char *option, *value; /* "micro-batch", "2" */
	const char *key;            /* where it came from: "fsdp_config.fsdp_version", ... */
	const struct node *node;    /* NULL: a default of the framework */
};

/* A model's size, if the file spells it out; 0: not given. */
struct import_shape {
	int64_t layers, hidden, heads, kv_heads, ffn;
};

struct import_note {
	int line;         /* INT_MAX: no line */
	const char *text; /* "file:3: fsdp_config.x: ..." */
};

struct imported {
	const struct export_target *target;
	int n_settings;
	struct import_setting settings[SETTINGS_MAX];
	int n_notes, notes_room;
	struct import_note *notes; /* in the order of the file's lines */
	/* The model as the file names it, or a config.json in one line with what the file spells
	 * out; NULL: neither. */
	const char *model;
	struct import_shape shape;
	bool has_ranks; /* `gpus` is among the settings */
	/* Embedding and head are units of their own, and the tail is not resharded: import_settle.
	 */
	bool wraps_apart, tail_stays;
	/* For files that leave the number of ranks open: a shard group has ranks / replicas of them
	 * (replicas times ranks that divide the model). 0: the file does not say. */
	int64_t replicas;
};

struct importing {
	struct arena *arena;
	const struct source *source;
	struct imported *imported;
	int64_t layers;      /* of the model beside the file; 0: not known */
	int64_t beside_data; /* ranks that divide the model of one that shares data; 0: 1 */
};

/* Blocks of the model, of the file's own or of the one beside it; 0: neither says. */
int64_t import_layers(const struct importing *importing);

/* Takes every leaf by its row in the target's table of keys; leaves of KEY_READ are left to
 * `finish`.
 */
bool import_take_leaves(struct importing *importing, struct error *error);

/* --- for `finish` ------------------------------------------------------------------------- */
/* The path by the n-th alias: of a key as the file has it, or back; "" where that alias does not
 * apply, NULL behind the last. */
const char *import_other_path(struct arena *arena, const struct config_format *format,
	const char *path, bool from_alias, int n);
/* The leaf at a path of the target's keys or at one of its aliases; NULL: the file has none. */
const struct node *import_find(const struct importing *importing, const char *path);
/* The text of a leaf, or `otherwise` if it is absent, null or "auto". */
const char *import_text(const struct importing *importing, const char *path, const char *otherwise);
bool import_is(const struct importing *importing, const char *path, const char *value);
/* Is the leaf left to the framework: absent, null, "auto" or "None"? */
bool import_is_unset(const struct node *node);
/* The path of a list's elements, or of its only word, as the file has it; NULL: there is none. */
const char *import_list(const struct importing *importing, const char *path);
/* The bits of names that stand in the list; a note says which are not known. */
unsigned import_names(struct importing *importing, const char *path, const char *const *known);
/* Reads the value of a leaf that is set; else an error at the leaf. */
bool import_read_count(const struct node *node, int64_t *count, struct error *error);
bool import_read_switch(const struct node *node, bool *value, struct error *error);
/* A whole number above 0; `otherwise` if it is absent, null, -1 or "auto". */
bool import_count(const struct importing *importing, const char *path, int64_t *count,
	int64_t otherwise, struct error *error);
/* Reads true and false in the spellings of YAML, JSON, Python and the shell. */
bool import_switch(const struct importing *importing, const char *path, bool *value, bool otherwise,
	struct error *error);
/* Takes a leaf of KEY_READ by its row. If the file leaves it to the framework, the value is
 * `otherwise`; NULL: then nothing is set. */
bool import_key(
	struct importing *importing, const char *path, const char *otherwise, struct error *error);
/* Sets a knob. `path` names the leaf from which it follows; NULL: a default of the framework. A
 * later setting of a knob (or KEY_GPUS) replaces an earlier one. */
void import_set(struct importing *importing, int knob, const char *value, const char *path);
/* Takes a switch that offloads activations to host memory: the checkpoints, or all saved tensors if
 * nothing is checkpointed. */
void import_activation_offload(struct importing *importing, const char *path, bool checkpoints);
void import_set_count(struct importing *importing, int knob, int64_t value, const char *path);
/* Sets a knob that no key has set. */
void import_set_default(struct importing *importing, int knob, const char *value);
/* The value that was set; NULL: none. */
const char *import_value(const struct importing *importing, int knob);
/* "micro-batch", "gpus". */
const char *import_option(const struct importing *importing, int knob);
void import_note(struct importing *importing, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* An error at the leaf. Always false. */
bool import_fail(const struct importing *importing, const char *path, struct error *error,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* --- what several targets share ----------------------------------------------------------- */
/* FULL_SHARD and the others from version, resharding and the mesh of FSDP2. */
void import_fsdp2_strategy(
	struct importing *importing, bool reshards, bool hybrid, const char *path);
/* `shard` and `replicate` of `ranks` (0: unknown), where -1 or 0 means "the rest". Sets the hybrid
 * strategy or keeps the other one, and --shard-group and --gpus. */
bool import_mesh(struct importing *importing, int64_t replicate, int64_t shard, const char *path,
	bool *hybrid, struct error *error);
/* FULL_SHARD or fully_shard's enum in any case, or its number: sets strategy; FSDP1. */
bool import_fsdp1_strategy(
	struct importing *importing, const char *path, const char *otherwise, struct error *error);
/* Reads auto_wrap_policy and min_num_params at these paths. `no_policy`: the meaning of absence. */
bool import_wrap(struct importing *importing, const char *policy, const char *least,
	const char *no_policy, struct error *error);
/* For the Trainer and axolotl: an error if "deepspeed" names a file, which then decides how the
 * model is sharded. */
bool import_shards_itself(const struct importing *importing, struct error *error);

#endif
