/* `models` and `topologies` without a name: the embedded ones, then what SHARDPLAN_PATH adds. */
#ifndef CLI_LISTING_H
#define CLI_LISTING_H

#include "cli/commands/commands.h"

struct listing {
	const char *schema, *key;    /* of the JSON document and its list */
	const char *header, *footer; /* of the text; footer may be NULL */
	const struct embedded_file *embedded;
	int n_embedded;
	/* One entry into `writer`, or as a line into `text` when `writer` is NULL. */
	bool (*add)(
		const char *name, struct writer *writer, struct text *text, struct error *error);
};

bool listing_write(const struct invocation *invocation, const struct listing *listing,
	struct text *text, struct error *error);

#endif
