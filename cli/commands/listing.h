/* `models` and `topologies`: list what is known by name, show one. */
#ifndef CLI_LISTING_H
#define CLI_LISTING_H

#include "cli/commands/commands.h"

struct listing {
	const char *schema, *key;    /* of the JSON document and its list */
	const char *header, *footer; /* of the text; footer may be NULL */
	const struct embedded_file *embedded;
	int n_embedded;
	/* One entry into `writer`, or as a line into `text` when `writer` is NULL. */
	bool (*add)(struct arena *arena, const char *name, struct writer *writer, struct text *text,
		struct error *error);
	bool (*show)(struct invocation *invocation, struct text *text, struct error *error);
	bool (*import)(const struct invocation *invocation, struct text *text, struct error *error);
	bool (*fit)(struct invocation *invocation, struct text *text, struct error *error);
	const char *expected; /* "`models list` or ..." */
};

/* `list`, `show NAME`, `import [FILE...]` or `fit ...`; the last two may be NULL. Lists the
 * embedded ones, then what SHARDPLAN_PATH adds. */
bool listing_run(struct invocation *invocation, const struct listing *listing, struct error *error);

#endif
