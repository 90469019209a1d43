/* What is known of one framework's configuration file, as data: which knobs it has and in which
 * words, how it is started, what its keys mean when it is read back. docs/exports.md shows the
 * rules of all targets as one table. */
#ifndef FRAMEWORKS_COMMON_TARGET_H
#define FRAMEWORKS_COMMON_TARGET_H

#include "frameworks/readers/leaves.h"
#include "schedule/documents/documents.h"
#include "schedule/plan/plan.h"

struct exporting;
struct importing;

/* --- writing ------------------------------------------------------------------------------- */

enum saying {
	SAYS_KEY,    /* a key of the file; `import` reads it back */
	SAYS_ALWAYS, /* no choice: what the framework does in any case */
	SAYS_BESIDE, /* outside of the file: in the training script or on its command line */
};

struct export_rule {
	const char *knob; /* a name of knob_table */
	enum saying saying;
	/* What becomes of a value: words separated by blanks, the first that matches counts.
	 * "value" stays; "value>other" becomes other; a '*' at the end of the left side matches any
	 * rest; "@knob" on the right side is the value of another knob, "@node" the devices of a
	 * node. NULL: every value stays. A value that no word matches stays too. */
	const char *values;
	/* KEY, ALWAYS: why a value changed. BESIDE: where to say it. */
	const char *words;
};

/* --- reading ------------------------------------------------------------------------------- */

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

struct import_format {
	/* How surely the file is this target's: 0 no; more is surer. */
	int (*recognizes)(const struct source *source);
	const struct import_key *keys; /* ended by a NULL path */
	bool (*finish)(struct importing *importing, struct error *error);
	/* Keys of this section may leave out this prefix: "fsdp_config.", "fsdp_"; or NULL. */
	const char *section, *prefix;
};

/* --- the row ------------------------------------------------------------------------------- */

struct export_target {
	const char *name;   /* of --to and --from */
	const char *title;  /* for people */
	const char *file;   /* the name in a folder */
	const char *source; /* whose field list it was checked against, and when */
	enum export_syntax syntax;
	/* Wrap policies without their "+embedding+head" that a file can say, separated by blanks;
	 * NULL: all, with it. Others become "block". */
	const char *wraps;
	/* The framework wraps embedding and head apart, whatever the plan says. */
	bool wraps_apart;
	bool has_own_ddp; /* NO_SHARD is the framework's own, not PyTorch's DDP */
	/* What words cannot tell; before the rules. NULL: nothing. */
	void (*adapt)(struct exporting *exporting, struct plan *plan);
	const struct export_rule *rules; /* ended by a NULL knob */
	/* How it is started: %f the file, %n nodes, %g devices a node, %w all of them. */
	const char *launch;
	void (*write)(struct exporting *exporting);
	const struct import_format *import;
};

#endif
