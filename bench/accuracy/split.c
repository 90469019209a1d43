/* Which rows may be fitted to: a rule that uses sources and models only, so that no measurement can
 * influence it. */
#include "accuracy.h"

#include <stdlib.h>
#include <string.h>

const char *const part_names[] = {"calibration", "test", "found later"};

/* A model of a source, by its size. */
struct member {
	const char *source, *family;
	int64_t parameters;
};

static int compare(const void *left, const void *right)
{
	const struct member *a = left, *b = right;
	int by_source = strcmp(a->source, b->source);

	if (by_source != 0)
		return by_source;
	if (a->parameters != b->parameters)
		return a->parameters < b->parameters ? -1 : 1;
	return strcmp(a->family, b->family);
}

static int find(const struct member *members, int n, const struct row *row)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(members[i].source, row->source) == 0 &&
			strcmp(members[i].family, row->family) == 0)
			return i;
	}
	return -1;
}

static int place_in_source(const struct member *members, int at)
{
	int place = 0;

	while (place < at && strcmp(members[at - place - 1].source, members[at].source) == 0)
		place++;
	return place;
}

static enum part part_of(const struct row *row, int place)
{
	if (row->given_part != NULL)
		return strcmp(row->given_part, part_names[PART_TEST]) == 0 ? PART_TEST
									   : PART_CALIBRATION;
	return row->later ? PART_FOUND : place % 2 == 1 ? PART_CALIBRATION : PART_TEST;
}

void row_list_split(struct row_list *rows)
{
	struct member *members = calloc((size_t)rows->n + 1, sizeof(*members));
	int n = 0;

	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		int at = find(members, n, row);
		if (at < 0) {
			at = n++;
			members[at] = (struct member){row->source, row->family, 0};
		}
		/* A learned position table grows with the sequence, so the smallest count stands
		 * for the model. */
		if (members[at].parameters == 0 ||
			(row->parameters > 0 && row->parameters < members[at].parameters))
			members[at].parameters = row->parameters;
	}
	qsort(members, (size_t)n, sizeof(*members), compare);
	for (int i = 0; i < rows->n; i++) {
		int place = place_in_source(members, find(members, n, &rows->of[i]));
		rows->of[i].part = part_of(&rows->of[i], place);
	}
	free(members);
}
