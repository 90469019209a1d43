/* One framework's configuration file, as data: a row for each key, which is read and written by the
 * same row; the treatment of knobs that it cannot express; and how it is started. `export --knobs`
 * shows all targets as one table. */
#ifndef FRAMEWORKS_COMMON_TARGET_H
#define FRAMEWORKS_COMMON_TARGET_H

#include "frameworks/common/ends.h"
#include "frameworks/readers/leaves.h"
#include "schedule/documents/documents.h"
#include "schedule/plan/plan.h"

struct exporting;
struct importing;

/* --- keys ---------------------------------------------------------------------------------- */

enum key_kind {
	KEY_COUNT,  /* a whole number above 0: the knob's value */
	KEY_SWITCH, /* true or false: the knob's value */
	KEY_NUMBER, /* not below 0; infinity is 0: the knob's value */
	KEY_WORD,   /* translated by `words`, any case */
	KEY_READ,   /* as KEY_WORD, but the target's `finish` reads it */
	KEY_PLAIN,  /* of no consequence for memory or time of a step; written: `words` as it is */
	KEY_UNPRICED, /* has consequences that are not predicted: a note */
	KEY_ONE,      /* a kind of parallelism that is not predicted: an error unless it is 1 */
};

/* Instead of a knob: none, the number of ranks, and modules of multi-token prediction. */
enum { NO_KNOB = KNOB_COUNT, KEY_GPUS, KEY_MTP_LAYERS, SETTINGS_MAX };

/* When a key is written; all of them must hold. */
enum key_when {
	ONLY_READ = 1 << 0,
	IF_SHARDED = 1 << 1,
	IF_REPLICATED = 1 << 2, /* DDP */
	IF_HYBRID = 1 << 3,
	IF_FSDP1 = 1 << 4,
	IF_FSDP2 = 1 << 5,
	IF_ZERO = 1 << 6, /* stage 1, 2 or 3 */
	IF_ZERO_1_2 = 1 << 7,
	IF_ZERO_3 = 1 << 8,
	IF_OFFLOADED = 1 << 9,
	IF_PARAMETERS_OFFLOADED = 1 << 10,
	IF_COMPILED = 1 << 11,
	IF_ACCUMULATED = 1 << 12,
	IF_CLIPPED = 1 << 13,
	IF_ADAM = 1 << 14,
	IF_BF16 = 1 << 15, /* of the parameters, as below */
	IF_FP16 = 1 << 16,
	IF_NEWEST = 1 << 17, /* of the target's versions the first */
	IF_OTHER = 1 << 18,  /* another version */
	AS_STRING = 1 << 19,
	EXACT_CASE = 1 << 20,
	EVEN_IF_LEFT = 1 << 21, /* the clip, where the file must have it */
};

struct config_key {
	/* '.' between keys, "[]" behind a list, '*' at the end: any rest. "#": a comment, which is
	 * `words`. Keys are written in the order of the rows. */
	const char *path;
	enum key_kind kind;
	int knob; /* enum knob_id, NO_KNOB or KEY_GPUS */
	/* "word>value" separated by blanks: the file's word, the knob's value; "word" alone is
	 * both,
	 * '*' at its end is any rest. The first that matches counts, in both directions. NULL: the
	 * knob's own values. */
	const char *words;
	unsigned when; /* enum key_when */
	const char *(*value)(
		struct exporting *exporting); /* what is written instead; NULL: nothing */
};

struct config_format {
	/* How surely the file is this target's: 0 no; more is surer. */
	int (*recognizes)(const struct source *source);
	const struct config_key *keys; /* ended by a NULL path */
	/* Keys that are only read, of KEY_PLAIN and KEY_UNPRICED, separated by blanks; after
	 * `keys`. */
	const char *plain, *unpriced;
	/* What follows from more than one key. */
	bool (*finish)(struct importing *importing, struct error *error);
	/* Keys of this section may leave out this prefix: "fsdp_config.", "fsdp_"; or NULL. */
	const char *section, *prefix;
	bool has_functions; /* each function of a file is a configuration */
	/* Other places of keys: "ParallelismConfig.>parallelism. ..."; or NULL. */
	const char *aliases;
};

/* --- knobs that a file cannot express ------------------------------------------------------- */

enum expressed {
	IN_FILE,   /* a key of the file; `import` reads it back */
	FIXED,     /* no choice: what the framework does in any case */
	ELSEWHERE, /* outside of the file: in the training script or on its command line */
};

/* For a knob that a key has, only where not every value can be written. */
struct export_rule {
	int knob; /* enum knob_id; NO_KNOB ends the list */
	enum expressed expressed;
	/* What becomes of a value: words separated by blanks, the first that matches counts.
	 * "value" stays; "value>other" becomes other; a '*' at the end of the left side matches any
	 * rest; "@knob" on the right side is the value of another knob, "@node" the devices of a
	 * node. NULL: every value stays. A value that no word matches stays too. */
	const char *values;
	/* IN_FILE, FIXED: why a value changed. ELSEWHERE: where to give it. */
	const char *words;
};

/* --- the row of a target -------------------------------------------------------------------- */

struct export_target {
	const char *name;  /* of --to and --from */
	const char *title; /* for people */
	const char *file;  /* the name in a folder */
	/* The program that reads the file, and its known versions, separated by blanks: the newest
	 * release, then others whose files differ. */
	const char *program, *versions;
	enum config_syntax syntax;
	/* Wrap policies, without their "+embedding+head", that a file can express, separated by
	 * blanks; NULL: all, with it. Others become "block". */
	const char *wraps;
	/* The framework wraps embedding and head apart, whatever the plan asks for. */
	bool wraps_apart;
	enum tail tail;   /* with FSDP2 */
	bool gpus_only;   /* on CPUs the framework would not shard */
	bool clips;       /* gradients to 1, unless the file says otherwise */
	bool has_own_ddp; /* NO_SHARD is the framework's own, not PyTorch's DDP */
	/* What words cannot tell; before the rules. NULL: nothing. */
	void (*adapt)(struct exporting *exporting, struct plan *plan);
	/* Each knob has a key, and yet they cannot make this plan; NULL: they always can. Which
	 * values nothing makes: why, a sentence. Which a note leaves to the user: true. */
	const char *(*refuses)(const struct plan *plan);
	bool (*leaves)(const struct exporting *exporting);
	const struct export_rule *rules;
	/* How it is started, with placeholders (write.c): %f the file, %n nodes, ... */
	const char *launch;
	/* "%x" of that line; NULL where it has none. */
	const char *(*started_with)(struct exporting *exporting);
	void (*write)(struct exporting *exporting); /* NULL: the keys, in the order of their rows */
	const struct config_format *format;
};

/* How the target expresses a knob; false: not at all. */
bool target_expresses(
	const struct export_target *target, enum knob_id knob, enum expressed *expressed);

#endif
