#include "cli/commands/listing.h"

#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

/* Models and topologies stand in the same folders: what is not of the wanted kind is not listed. */
static void add_found(const struct invocation *invocation, const struct listing *listing,
	struct writer *writer, struct text *text)
{
	int n;
	const char **found = search_path_names(invocation->arena, &n);

	for (int i = 0; i < n; i++) {
		struct error ignored = {0};
		listing->add(found[i], writer, text, &ignored);
	}
}

bool listing_write(const struct invocation *invocation, const struct listing *listing,
	struct text *text, struct error *error)
{
	bool json = argument_given(&invocation->arguments, "json");
	struct writer writer, *used = json ? &writer : NULL;

	if (json) {
		document_begin(&writer, text, listing->schema);
		writer_begin_list(&writer, listing->key);
	} else {
		text_add(text, listing->header);
	}
	for (int i = 0; i < listing->n_embedded; i++) {
		if (!listing->add(listing->embedded[i].name, used, text, error))
			return false;
	}
	add_found(invocation, listing, used, text);
	if (json) {
		writer_end_list(&writer);
		writer_finish(&writer);
	} else if (listing->footer != NULL) {
		text_add(text, listing->footer);
	}
	return true;
}
