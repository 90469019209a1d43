/* Shared by the tests of frameworks/: a plan on its way through a target. */
#ifndef TESTS_FRAMEWORKS_SUPPORT_H
#define TESTS_FRAMEWORKS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frameworks/frameworks.h"
#include "schedule/resolve/resolve.h"

struct trip {
	struct arena *arena;
	struct plan_file file;
	const struct export_target *target;
	int version;
	struct exported exported;
	struct imported imported;
	struct text text;
};

/* Presets; the plan is not made yet. */
void load(struct arena *arena, const char *model, const char *topology, struct plan_file *file);
/* The plan of nobody's choices. */
void resolve(struct plan_file *file, struct arena *arena);
/* Returns the target of that name; the test fails when there is none. */
const struct export_target *target_of(const char *name);
/* Has the export said something of the knob? */
bool has_note(const struct trip *trip, const char *knob);
/* ... that it is given outside of the file. */
bool is_beside(const struct trip *trip, const char *knob);
/* The plan that the file's words stand for. */
void read_back(struct trip *trip, struct plan *plan);
/* Fails where it is not the plan that went out. */
void compare(struct trip *trip, const struct plan *back);
/* Every difference between the plan and what the file stands for has a note, and so has every knob
 * that is not in the file. */
void check_notes(const struct trip *trip);
int count_versions(const struct export_target *target);

#endif
