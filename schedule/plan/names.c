/* Sets of names. */
#include "schedule/plan/names.h"

#include <string.h>

struct name_set name_set_of(unsigned of, const char *const *list, struct arena *arena)
{
	const char *text = NULL;
	for (int n = 0; list[n] != NULL; n++)
		if (of >> n & 1)
			text = arena_printf(arena, "%s%s%s", text != NULL ? text : "",
				text != NULL ? "+" : "", list[n]);
	return (struct name_set){.text = text, .of = of};
}

unsigned name_bit(const char *name, size_t length, const char *const *list)
{
	for (int n = 0; list[n] != NULL; n++)
		if (strlen(list[n]) == length && strncmp(list[n], name, length) == 0)
			return 1u << n;
	return 0;
}

bool name_set_read(const char *text, const char *const *list, const char *empty,
	struct name_set *set, struct arena *arena)
{
	bool more = strcmp(text, empty) != 0;
	unsigned of = 0;
	while (more) {
		size_t length = strcspn(text, "+");
		unsigned bit = name_bit(text, length, list);
		if (bit == 0 || of & bit)
			return false;
		of |= bit;
		more = text[length] == '+';
		text += length + more;
	}
	*set = name_set_of(of, list, arena);
	return true;
}
