/* Reading a target's file: what the file gives as options, notes with their lines, and what the
 * readers of several targets share. */
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

/* A model's size, where the file spells it out; 0: not given. */
struct import_shape {
	int64_t layers, hidden, heads, kv_heads, ffn;
};

struct import_note {
	int line;         /* INT_MAX: of none */
	const char *text; /* "file:3: fsdp_config.x: ..." */
};

struct imported {
	const struct export_target *target;
	int n_settings;
	struct import_setting settings[KEY_GPUS + 1];
	int n_notes, notes_room;
	struct import_note *notes; /* in the order of the file's lines */
	/* As the file names it, or a config.json in one line that says what the file spells out;
	 * NULL */
	const char *model;
	const char *block_class;
	struct import_shape shape;
	bool has_ranks; /* `gpus` is among the settings */
	/* Embedding and head are units of their own, and the tail is not resharded: import_settle.
	 */
	bool wraps_apart, tail_stays;
	/* Where the file leaves the number of ranks open: a shard group has ranks / replicas of
	 * them (replicas times ranks that divide the model). 0: the file does not say. */
	int64_t replicas;
};

struct importing {
	struct arena *arena;
	const struct source *source;
	struct imported *imported;
	int64_t beside_data; /* ranks that divide the model of one that shares data; 0: 1 */
};

/* Takes every leaf by its row in the target's table of keys; leaves of KEY_READ are left to
 * `finish`.
 */
bool import_take_leaves(struct importing *importing, struct error *error);

/* --- for `finish` ------------------------------------------------------------------------- */
/* The path by the n-th alias: of a key as the file has it, or back; "" where that alias does not
 * apply, NULL behind the last. */
const char *import_other_path(struct arena *arena, const struct config_format *format,
	const char *path, bool from_alias, int n);
/* The leaf at a path of the target's keys, or at one of its aliases; NULL: the file has none. */
const struct node *import_find(const struct importing *importing, const char *path);
/* The text of a leaf, `otherwise` when it is absent, null or "auto". */
const char *import_text(const struct importing *importing, const char *path, const char *otherwise);
bool import_is(const struct importing *importing, const char *path, const char *value);
/* Absent, null, "auto" or "None": left to the framework. */
bool import_is_unset(const struct node *node);
/* The value of a leaf that is set, or an error at the leaf. */
bool import_read_count(const struct node *node, int64_t *count, struct error *error);
bool import_read_switch(const struct node *node, bool *value, struct error *error);
/* A whole number above 0; `otherwise` when absent, null, -1 or "auto". */
bool import_count(const struct importing *importing, const char *path, int64_t *count,
	int64_t otherwise, struct error *error);
/* true and false in the spellings of YAML, JSON, Python and the shell. */
bool import_switch(const struct importing *importing, const char *path, bool *value, bool otherwise,
	struct error *error);
/* Takes a leaf of KEY_READ by its row. Where the file leaves it to the framework the value is
 * `otherwise`; NULL: nothing is set then. */
bool import_key(
	struct importing *importing, const char *path, const char *otherwise, struct error *error);
/* `path` names the leaf that it follows from; NULL: a default of the framework. A later setting of
 * a knob (or KEY_GPUS) replaces the earlier one. */
void import_set(struct importing *importing, int knob, const char *value, const char *path);
/* Takes a switch that moves activations to host memory: the checkpoints, or all saved tensors where
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
/* `shard` and `replicate`, -1 or 0 being "the rest", of `ranks` (0 = unknown): sets the hybrid
 * strategy or leaves the flat one, --shard-group and --gpus. */
bool import_mesh(struct importing *importing, int64_t replicate, int64_t shard, const char *path,
	bool *hybrid, struct error *error);
/* FULL_SHARD or fully_shard's enum in any case, or its number: sets strategy; FSDP1. */
bool import_fsdp1_strategy(
	struct importing *importing, const char *path, const char *otherwise, struct error *error);
/* auto_wrap_policy, class and min_num_params below `prefix`. `no_policy`: what absence means. */
bool import_wrap(struct importing *importing, const char *policy, const char *block_class,
	const char *least, const char *no_policy, struct error *error);
/* Of the Trainer and of axolotl: an error where "deepspeed" names a file, which says how the model
 * is sharded, in place of this one. */
bool import_shards_itself(const struct importing *importing, struct error *error);

#endif
