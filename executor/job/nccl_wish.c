#include "executor/job/nccl_wish.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const nccl_policy_names[] = {"default", "efficiency", "zero", NULL};

static const struct row {
	const char *name;
	size_t offset;
} rows[] = {
#define X(member, name, since) {name, offsetof(struct nccl_wish, member)},
	NCCL_WISHES(X)
#undef X
};

/* Returns the names of a wish's values, or NULL when they are numbers. */
static const char *const *names_of(const struct row *row)
{
	return row->offset == offsetof(struct nccl_wish, cta_policy) ? nccl_policy_names : NULL;
}

static int *value_of(const struct row *row, struct nccl_wish *wish)
{
	return (int *)((char *)wish + row->offset);
}

static bool read_value(const struct row *row, const char *word, int *value)
{
	const char *const *names = names_of(row);
	int64_t number;

	for (int i = 0; names != NULL && names[i] != NULL; i++)
		if (strcmp(word, names[i]) == 0) {
			*value = i;
			return true;
		}
	if (names != NULL || !parse_int(word, &number) || number < 1 || number > 1024)
		return false;
	*value = (int)number;
	return true;
}

static bool read_word(char *word, struct nccl_wish *wish)
{
	char *value = strchr(word, '=');

	if (value == NULL)
		return false;
	*value = '\0';
	for (int i = 0; i < COUNT_OF(rows); i++)
		if (strcmp(word, rows[i].name) == 0 &&
			read_value(&rows[i], value + 1, value_of(&rows[i], wish)))
			return true;
	*value = '=';
	return false;
}

bool nccl_wish_parse(const char *text, struct nccl_wish *wish, struct error *error)
{
	char word[64];

	*wish = (struct nccl_wish){0};
	while (text != NULL && *text != '\0') {
		size_t length = strcspn(text, ",");

		snprintf(word, sizeof(word), "%.*s", (int)length, text);
		if (!read_word(word, wish))
			return error_set(error, EXIT_CODE_USAGE,
				"--nccl: expected cta-policy=default|efficiency|zero, "
				"min-ctas=N, max-ctas=N, nvls-ctas=N, "
				"cga-cluster-size=N or traffic-class=N (1 to 1024), got \"%s\"",
				word);
		text += length + (text[length] == ',');
	}
	/* Where no max-ctas is given, NCCL would find the least larger than its own most. */
	return wish->min_ctas <= wish->max_ctas ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--nccl: min-ctas=%d: expected max-ctas too, at least as large",
		       wish->min_ctas);
}

void nccl_wish_print(const struct nccl_wish *wish, struct text *text)
{
	struct nccl_wish copy = *wish;
	const char *before = "";

	for (int i = 0; i < COUNT_OF(rows); i++) {
		int value = *value_of(&rows[i], &copy);

		if (value == 0)
			continue;
		text_printf(text, "%s%s=", before, rows[i].name);
		if (names_of(&rows[i]) != NULL)
			text_add(text, names_of(&rows[i])[value]);
		else
			text_printf(text, "%d", value);
		before = ",";
	}
}
