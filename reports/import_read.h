/* Private to reports/import*.c and the targets: taking files apart. */
#ifndef REPORTS_IMPORT_READ_H
#define REPORTS_IMPORT_READ_H

#include "reports/import.h"

struct importing {
	struct arena *arena;
	const struct source *source;
	struct imported *imported;
};

/* --- syntaxes: text to leaves ------------------------------------------------------------ */
bool source_read_tree(struct arena *arena, struct source *source, struct error *error);
bool source_read_toml(struct arena *arena, struct source *source, struct error *error);
bool source_read_python(struct arena *arena, struct source *source, struct error *error);
bool source_read_arguments(struct arena *arena, struct source *source, struct error *error);
void source_add(struct arena *arena, struct source *source, const char *path, const char *value,
	bool quoted, int line, int column);

/* --- for `recognizes` --------------------------------------------------------------------- */
/* '*' at the end of the path: any rest. The last one of a path counts. NULL: none. */
const struct node *source_find(const struct source *source, const char *path);
bool source_has(const struct source *source, const char *path);

/* --- for `finish` ------------------------------------------------------------------------- */
const struct node *import_find(const struct importing *importing, const char *path);
/* The text of a leaf, `otherwise` when it is absent, null or "auto". */
const char *import_text(const struct importing *importing, const char *path, const char *otherwise);
bool import_is(const struct importing *importing, const char *path, const char *value);
/* A whole number above 0; `otherwise` when absent, null, -1 or "auto". */
bool import_count(const struct importing *importing, const char *path, int64_t *count,
	int64_t otherwise, struct error *error);
/* true and false in the spellings of YAML, JSON, Python and the shell. */
bool import_switch(const struct importing *importing, const char *path, bool *value, bool otherwise,
	struct error *error);
/* `path` names the leaf that it follows from; NULL: a default of the framework. A later setting of
 * an option replaces the earlier one. */
void import_set(
	struct importing *importing, const char *option, const char *value, const char *path);
void import_set_count(
	struct importing *importing, const char *option, int64_t value, const char *path);
bool import_was_set(const struct importing *importing, const char *option);
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

#endif
