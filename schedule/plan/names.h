/* A value of a knob that is several names, each once: "moe_act+layernorm". */
#ifndef SCHEDULE_NAMES_H
#define SCHEDULE_NAMES_H

#include "base/base.h"

struct name_set {
	const char *text; /* the names in the order of their list; NULL: the set is empty */
	unsigned of;      /* bit n: name n of the list */
};

/* The set of the names of `list` (ends with NULL) whose bits are set. Its text is the arena's. */
struct name_set name_set_of(unsigned of, const char *const *list, struct arena *arena);

/* The name's bit; 0: the list has no such name. */
unsigned name_bit(const char *name, size_t length, const char *const *list);

/* Reads names of the list with + between them, or what an empty set is called. */
bool name_set_read(const char *text, const char *const *list, const char *empty,
	struct name_set *set, struct arena *arena);

#endif
