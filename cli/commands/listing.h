/* `models` and `topologies`: lists what is known by name, or shows one. */
#ifndef CLI_LISTING_H
#define CLI_LISTING_H

#include "cli/commands/commands.h"

struct listing {
	const char *schema, *key;    /* of the JSON document and its list */
	const char *header, *footer; /* of the text; footer may be NULL */
	const struct embedded_file *embedded;
	int n_embedded;
	/* Adds one entry to `writer`, or a line to `text` if `writer` is NULL. */
	bool (*add)(struct arena *arena, const char *name, struct writer *writer, struct text *text,
		struct error *error);
	bool (*show)(struct invocation *invocation, struct text *text, struct error *error);
	bool (*import)(const struct invocation *invocation, struct text *text, struct error *error);
	bool (*fit)(struct invocation *invocation, struct text *text, struct error *error);
	const char *expected; /* for a message: "`models list` or ..." */
};

/* Runs `list`, `show NAME`, `import [FILE...]` or `fit ...`; the last two may be NULL. Lists
 * embedded entries, then those of SHARDPLAN_PATH. */
bool listing_run(struct invocation *invocation, const struct listing *listing, struct error *error);

#endif
