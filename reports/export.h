/* Plans as the configuration files of other frameworks. What a file cannot say is a note, never
 * silence: `plan` of struct exported is the plan that the file's words stand for, and importing
 * the file gives that plan back in every knob that the file says.
 *
 * Which target can say which knob is data (struct export_rule); docs/exports.md is that table. */
#ifndef REPORTS_EXPORT_H
#define REPORTS_EXPORT_H

#include "schedule/plan_file.h"

enum saying {
	SAYS_KEY,    /* a key of the file; `import` reads it back */
	SAYS_ALWAYS, /* no choice: what the framework does in any case */
	SAYS_BESIDE, /* outside of the file: in the training script or on its command line */
};

struct export_rule {
	const char *knob; /* a name of plan_fields, or "shard_group" */
	enum saying saying;
	/* What becomes of a value: words separated by blanks, the first that matches counts.
	 * "value" stays; "value>other" becomes other; a '*' at the end of the left side matches any
	 * rest; "@knob" on the right side is the value of another knob, "@node" the devices of a
	 * node. NULL: every value stays. A value that no word matches stays too. */
	const char *values;
	/* KEY, ALWAYS: why a value changed. BESIDE: where to say it. */
	const char *words;
};

struct exporting;
struct importing;

enum export_syntax {
	SYNTAX_YAML,
	SYNTAX_JSON,
	SYNTAX_TOML,
	SYNTAX_PYTHON,
	SYNTAX_ARGUMENTS, /* "--name value", one a line, or a shell script that has them */
};

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
	/* What `import` knows of its keys: reports/import.h. */
	const struct import_format *import;
};

extern const struct export_target *const export_targets[]; /* FSDP2 first */
extern const int n_export_targets;
/* NULL with an EXIT_CODE_USAGE that suggests the nearest name. */
const struct export_target *export_find(const char *name, struct error *error);

struct export_note {
	const char *knob;   /* "prefetch" */
	const char *text;   /* "none -> pre: ..." or "2: DataLoader(batch_size=2)" */
	enum saying saying; /* SAYS_BESIDE: to be said elsewhere; else: changed */
};

struct exported {
	struct plan plan; /* what the file stands for */
	int n_notes, notes_room;
	struct export_note *notes; /* from the arena */
	const char *launch;        /* "accelerate launch --config_file plan.yaml train.py" */
};

/* Appends the file to `text`. `file_name` is only for the launch line. EXIT_CODE_USAGE when the
 * target has no word for the plan's kind of parallelism. */
bool export_plan(const struct export_target *target, const struct plan_file *file,
	const char *file_name, struct arena *arena, struct exported *exported, struct text *text,
	struct error *error);

/* `export --list`: a row a target; and docs/exports.md's table: a row a knob. */
void export_list(struct text *text);
void export_table(struct text *text);

/* The class of a transformer block in Hugging Face's Transformers ("LlamaDecoderLayer"); NULL for a
 * family that is not known. */
const char *export_block_class(const char *family);
/* The family whose block has that class; NULL. */
const char *export_block_family(const char *block_class);

#endif
