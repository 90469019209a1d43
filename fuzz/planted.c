/* Readers with one defect each, which the judge must find: its negative controls. */
#include <stdlib.h>

#include "fuzz/fuzz.h"

/* The defect shows in about one of so many damaged inputs. */
static bool shows(const char *text, size_t length)
{
	unsigned sum = 0;

	for (size_t i = 0; i < length; i++)
		sum = sum * 31 + (unsigned char)text[i];
	return sum % 16 == 0;
}

/* error_set would tidy it. */
static bool raw(struct error *error, const char *message)
{
	error->code = EXIT_CODE_INPUT;
	strcpy(error->message, message);
	return false;
}

/* Work that no compiler leaves out. */
static volatile unsigned sink;

static bool answer(const struct target *target, struct arena *arena, const char *text,
	size_t length, struct text *printed, struct error *error)
{
	const char *name = target->name;

	if (!shows(text, length))
		return strlen(text) % 2 == 0 ||
		       error_set(error, EXIT_CODE_INPUT, INPUT_NAME ":1:1: expected no sense");
	if (strcmp(name, "planted-internal") == 0)
		return error_set(error, EXIT_CODE_INTERNAL, "this is a bug");
	if (strcmp(name, "planted-lines") == 0)
		return raw(error, "one\ntwo");
	if (strcmp(name, "planted-bytes") == 0)
		return raw(error, "got \xff");
	if (strcmp(name, "planted-long") == 0)
		return error_set(error, EXIT_CODE_INPUT, "%0700d", 0);
	if (strcmp(name, "planted-note") == 0)
		return judge_lines("a note\na note with \xff\n", error);
	if (strcmp(name, "planted-silent") == 0)
		return false;
	if (strcmp(name, "planted-print") == 0)
		text_printf(printed, "%.*sx", (int)length, text);
	if (strcmp(name, "planted-slow") == 0)
		for (unsigned i = 0; i < 300000000; i++)
			sink += i;
	if (strcmp(name, "planted-memory") == 0)
		memset(arena_alloc(arena, 200 << 20, 1), 1, 200 << 20);
	return true;
}

#define PLANTED(name)                                                                              \
	{                                                                                          \
		"planted-" name, answer, "tests/cli/data/tiny.yaml", NULL, NULL, NULL              \
	}

const struct target planted_targets[] = {PLANTED("internal"), PLANTED("lines"), PLANTED("bytes"),
	PLANTED("long"), PLANTED("note"), PLANTED("silent"), PLANTED("print"), PLANTED("slow"),
	PLANTED("memory")};
const int n_planted_targets = COUNT_OF(planted_targets);
