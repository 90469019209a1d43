/* Configuration files of other frameworks, read back as the options of a question.
 *
 * A file of any syntax becomes a flat list of leaves ("fsdp_config.fsdp_version" = 2, with its
 * place); a target's table says what each leaf means; what takes two leaves is the target's
 * `finish`. Every leaf that no table knows, and every one that cannot be honoured, is a note with
 * its line. */
#ifndef REPORTS_IMPORT_H
#define REPORTS_IMPORT_H

#include "planner/planner.h"
#include "reports/export.h"

struct leaf {
	const char *path;        /* keys with '.' between */
	const struct node *node; /* a scalar; in a list, one leaf an element, "path[]" */
};

/* A file, taken apart. */
struct source {
	const char *name, *text;
	size_t length;
	enum export_syntax syntax;
	int n_leaves, room;
	struct leaf *leaves; /* from the arena */
};

enum import_kind {
	IMPORT_COUNT,    /* a whole number above 0: the option's value */
	IMPORT_SWITCH,   /* true or false: the option's value */
	IMPORT_NUMBER,   /* not below 0; infinity is 0 */
	IMPORT_WORD,     /* translated by `values` (struct export_rule's grammar), any case */
	IMPORT_READ,     /* the target's `finish` reads it */
	IMPORT_PLAIN,    /* of no consequence for memory or time of a step */
	IMPORT_UNPRICED, /* has consequences that are not predicted: a note */
	IMPORT_ONE,      /* a kind of parallelism that is not predicted: an error unless it is 1 */
};

struct import_key {
	const char *path; /* '*' at the end: any rest */
	enum import_kind kind;
	const char *option; /* COUNT, SWITCH, NUMBER, WORD: the option without dashes */
	const char *values; /* WORD */
};

struct importing;

struct import_format {
	/* How surely the file is this target's: 0 no; more is surer. */
	int (*recognizes)(const struct source *source);
	const struct import_key *keys; /* ended by a NULL path */
	bool (*finish)(struct importing *importing, struct error *error);
	/* Keys of this section may leave out this prefix: "fsdp_config.", "fsdp_"; or NULL. */
	const char *section, *prefix;
};

/* One option that the file gives. */
struct import_setting {
	const char *option, *value; /* "micro-batch", "2" */
	const char *key;            /* where it came from: "fsdp_config.fsdp_version", ... */
	const struct node *node;    /* NULL: a default of the framework */
};

enum { IMPORT_SETTINGS_MOST = 40 };

/* A model's size, where the file spells it out; 0: not said. */
struct import_shape {
	int64_t layers, hidden, heads, kv_heads, ffn;
};

struct imported {
	const struct export_target *target;
	int n_settings;
	struct import_setting settings[IMPORT_SETTINGS_MOST];
	int n_notes, notes_room;
	const char **notes; /* "file:3: fsdp_config.x: ..." */
	const char *model;  /* as the file names it; NULL */
	const char *block_class;
	struct import_shape shape;
	bool has_ranks; /* `gpus` is among the settings */
	/* Embedding and head are units of their own, unless they share a weight: the caller knows.
	 */
	bool wraps_apart;
	int64_t replicas; /* groups of a hybrid whose size the file leaves to the number of ranks; 0
			   */
};

/* target: NULL = by the content. EXIT_CODE_INPUT with the place. */
bool import_config(struct arena *arena, const char *name, const char *text, size_t length,
	const struct export_target *target, struct imported *imported, struct error *error);
/* What was understood, for people. */
void import_print(const struct imported *imported, struct text *text);
/* The plan of the file beside the planner's for the same batch; NULL: there is none. */
void import_better_text(const struct plan *plan, const struct prediction *prediction,
	const struct candidate *best, struct text *text);

#endif
