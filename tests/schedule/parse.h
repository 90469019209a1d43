/* The text form of a schedule, read back: the law that what is printed can be parsed. */
#ifndef TESTS_SCHEDULE_PARSE_H
#define TESTS_SCHEDULE_PARSE_H

#include "schedule/schedule.h"

/* The inverse of schedule_print: printing the result again gives identical text. */
bool schedule_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct schedule **schedule, struct error *error);

#endif
