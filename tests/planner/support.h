/* Shared by the tests of planner/: random questions small enough to enumerate. */
#ifndef TESTS_PLANNER_SUPPORT_H
#define TESTS_PLANNER_SUPPORT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/planner.h"
#include "planner/search/search.h"
#include "tests/sampled.h"

/* Draws the same numbers on every machine (xorshift64). */
int64_t random_below(uint64_t *state, int64_t limit);

struct model *load_model(struct arena *arena, const char *name);
struct topology *load_topology(struct arena *arena, const char *name);
/* Fails the test when the value does not parse. */
void set_choice(
	struct question *question, struct arena *arena, const char *name, const char *value);
/* Does the same with names and values by turns: SET_CHOICES(&question, &arena, "tensor", "2",
 * ...). */
void set_choices(struct question *question, struct arena *arena, int n, const char *const *options);
#define SET_CHOICES(question, arena, ...)                                                          \
	set_choices(question, arena,                                                               \
		(int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),                \
		(const char *const[]){__VA_ARGS__})
/* A list of values that the search may choose from. */
void restrict_to(struct question *question, struct arena *arena, enum knob_id id, int n,
	const char *const *values);
struct answer ask(const struct question *question, struct arena *arena);
/* What is said of that knob with that value; NULL: nothing. */
const struct sensitivity *sensitivity_row(
	const struct answer *answer, const char *knob, const char *value);

/* A small model on a few devices, with some knobs fixed and a limit that some plans exceed. At most
 * a few hundred plans. */
struct question random_question(uint64_t *state, struct arena *arena);
/* Has fewer blocks and fewer open knobs: tens of plans, not hundreds. */
struct question random_small_question(uint64_t *state, struct arena *arena);
/* Every plan of the search's space in a ranking of its own; `least` is the least peak per strategy.
 */
void rank_all(struct search *search, struct ranking *all, int64_t least[STRATEGY_COUNT]);
void describe_question(const struct question *question, struct text *text);

/* The candidate of a strategy, chosen or not; NULL when it is not listed. */
const struct candidate *find_strategy(const struct answer *answer, enum strategy strategy);

/* Everything a reader sees, for comparing two answers. */
void print_answer(const struct answer *answer, struct text *text);

#endif
