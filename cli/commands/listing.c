#include "cli/commands/listing.h"

#include <string.h>

#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

static bool add(const struct listing *listing, const char *name, struct writer *writer,
	struct text *text, struct error *error)
{
	struct arena arena = {0};
	bool ok = listing->add(&arena, name, writer, text, error);

	arena_finish(&arena);
	return ok;
}

/* Adds what SHARDPLAN_PATH has. Models and topologies are in the same folders, so files of the
 * other kind are left out. */
static void add_found(const struct invocation *invocation, const struct listing *listing,
	struct writer *writer, struct text *text)
{
	int n;
	const char **found = search_path_names(invocation->arena, &n);

	for (int i = 0; i < n; i++) {
		struct error ignored = {0};
		add(listing, found[i], writer, text, &ignored);
	}
}

static bool list(const struct invocation *invocation, const struct listing *listing,
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
		if (!add(listing, listing->embedded[i].name, used, text, error))
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

static bool misunderstood(
	const struct listing *listing, const char *what, int n, struct error *error)
{
	static const char *const ours[] = {"list", "show", "import", "fit", NULL};
	const char *near = nearest_name(what, ours);

	if (n == 1 && near == NULL)
		return error_set(error, EXIT_CODE_USAGE, "%s %.100s: type `%s show %.100s`",
			listing->key, what, listing->key, what);
	return error_set(error, EXIT_CODE_USAGE, "%s %.100s: expected %s", listing->key, what,
		listing->expected);
}

bool listing_run(struct invocation *invocation, const struct listing *listing, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	int n = arguments->n_operands;
	const char *what = n > 0 ? arguments->operands[0] : "list";
	struct text text = {0};
	bool ok;

	if ((strcmp(what, "list") == 0 || strcmp(what, "ls") == 0) && n <= 1)
		ok = list(invocation, listing, &text, error);
	else if (strcmp(what, "show") == 0 && n == 2)
		ok = listing->show(invocation, &text, error);
	else if (strcmp(what, "import") == 0 && listing->import != NULL)
		ok = listing->import(invocation, &text, error);
	else if (strcmp(what, "fit") == 0 && listing->fit != NULL)
		ok = listing->fit(invocation, &text, error);
	else
		ok = misunderstood(listing, what, n, error);
	ok = ok && output_text(&text, error);
	text_finish(&text);
	return ok;
}
