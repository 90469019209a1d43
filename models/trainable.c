/* What is trained, from its text; and names compared with it. */
#include "models/trainable.h"

#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 1 << 20 };

/* --- from text -------------------------------------------------------------------------------- */

/* "16", up to a colon or the end. */
static bool parse_rank(const char **text, int64_t *rank)
{
	char *end;

	*rank = strtoll(*text, &end, 10);
	if (end == *text || **text < '0' || **text > '9' || *rank < 1 || *rank > RANK_MAX ||
		(*end != '\0' && *end != ':'))
		return false;
	*text = end;
	return true;
}

static bool parse_alpha(const char *text, double *alpha)
{
	char *end;

	*alpha = strtod(text, &end);
	return end != text && *end == '\0' && *alpha > 0 && *alpha < 1e9 && *text != '+';
}

/* ":MODULES" and ":alpha=A", in this order. */
static bool parse_lora(const char *text, struct trainable *trainable, struct arena *arena)
{
	static const char alpha[] = "alpha=";
	const size_t n = sizeof(alpha) - 1;

	if (!parse_rank(&text, &trainable->rank))
		return false;
	trainable->alpha = 2 * (double)trainable->rank;
	if (*text == ':' && strncmp(text + 1, alpha, n) != 0) {
		size_t length = strcspn(++text, ":");

		if (length == 0)
			return false;
		trainable->modules = arena_strndup(arena, text, length);
		text += length;
	}
	return *text == '\0' ||
	       (strncmp(text + 1, alpha, n) == 0 && parse_alpha(text + 1 + n, &trainable->alpha));
}

static bool parse(const struct field *field, const char *text, void *member, struct arena *arena)
{
	static const char lora[] = "lora:";
	struct trainable trainable = {0};

	(void)field;
	if (*text == '\0' || strcspn(text, " \t\r\n\"'") != strlen(text) ||
		strcmp(text, "lora") == 0) /* of which rank? */
		return false;
	if (strcmp(text, "all") != 0)
		trainable.text = arena_strdup(arena, text);
	if (strncmp(text, lora, sizeof(lora) - 1) == 0 &&
		!parse_lora(text + sizeof(lora) - 1, &trainable, arena))
		return false;
	*(struct trainable *)member = trainable;
	return true;
}

const struct field_decoded trainable_decoded = {
	.size = sizeof(struct trainable),
	.expectation = "all, lora:RANK[:MODULES][:alpha=A], or names of parameters with * and ?",
	.parse = parse,
	.zero = "all",
};

bool trainable_equal(const struct trainable *a, const struct trainable *b)
{
	if (a->text == NULL || b->text == NULL)
		return a->text == b->text;
	return strcmp(a->text, b->text) == 0;
}

/* --- names ------------------------------------------------------------------------------------ */

/* [abc], [a-z], [!abc]; `*glob` stands behind the bracket and moves behind the closing one. */
static bool in_set(const char **glob, const char *end, char c)
{
	bool negated = *glob < end && **glob == '!', found = false;
	const char *at = *glob + negated;

	for (; at < end && *at != ']'; at++) {
		if (at + 2 < end && at[1] == '-' && at[2] != ']') {
			found = found || (c >= at[0] && c <= at[2]);
			at += 2;
		} else {
			found = found || c == *at;
		}
	}
	*glob = at < end ? at + 1 : end;
	return found != negated;
}

/* The glob [glob, end). Where a star has been tried with too little, it takes one more. */
static bool glob_matches(const char *glob, const char *end, const char *name)
{
	const char *star = NULL, *retry = NULL;

	while (*name != '\0') {
		const char *next = glob + 1;
		bool same = false;

		if (glob < end && *glob == '*') {
			star = ++glob;
			retry = name;
			continue;
		}
		if (glob < end)
			same = *glob == '['   ? in_set(&next, end, *name)
			       : *glob == '?' ? true
					      : *glob == *name;
		if (same) {
			glob = next;
			name++;
		} else if (star != NULL) {
			glob = star;
			name = ++retry;
		} else {
			return false;
		}
	}
	while (glob < end && *glob == '*')
		glob++;
	return glob == end;
}

bool trainable_matches(const struct trainable *trainable, const char *name)
{
	const char *glob = trainable->text;

	if (glob == NULL)
		return true;
	for (;;) {
		const char *end = glob + strcspn(glob, ",");

		if (glob_matches(glob, end, name))
			return true;
		if (*end == '\0')
			return false;
		glob = end + 1;
	}
}

/* peft: the name itself, or what stands behind a dot of it. */
static bool ends_with(const char *name, const char *part, size_t length)
{
	size_t n = strlen(name);

	return n >= length && strncmp(name + n - length, part, length) == 0 &&
	       (n == length || name[n - length - 1] == '.');
}

bool trainable_adapts(const struct trainable *trainable, const char *name, bool usual)
{
	const char *part = trainable->modules;

	if (part == NULL)
		return usual;
	if (strcmp(part, "all-linear") == 0)
		return true;
	for (;;) {
		size_t length = strcspn(part, ",");

		if (length > 0 && ends_with(name, part, length))
			return true;
		if (part[length] == '\0')
			return false;
		part += length + 1;
	}
}

bool trainable_names_layers(const struct trainable *trainable)
{
	static const char layer[] = "linear_";
	const char *part = trainable->modules;

	for (; part != NULL; part = strchr(part, ','), part += part != NULL)
		if (strncmp(part, layer, sizeof(layer) - 1) == 0)
			return true;
	return false;
}
