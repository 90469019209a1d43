/* The subject of the tests of reports: a real schedule with times from a toy interpreter, so that
 * nothing depends on the cost model. */
#ifndef TESTS_REPORTS_FIXTURE_H
#define TESTS_REPORTS_FIXTURE_H

#include "reports/reports.h"

struct fixture {
	struct arena arena;
	struct model *model;
	struct topology *topology;
	struct schedule *schedule;
	struct timeline timeline;
	struct memory_curve memory;
	struct critical_path critical;
	struct prediction prediction;
	struct measurement measurement;
	struct question question;
	struct answer answer;
	struct candidate chosen;
	struct explained explained; /* without the measurement */
	struct check check;
	struct study scaling, link;
	struct report report; /* with everything */
};

/* `options`: name and value in turn, ended by NULL. Fails the test when the plan cannot be built.
 */
void fixture_init(struct fixture *fixture, const char *model, const char *topology,
	const char *const *options);
/* Every name that can come from a file becomes `name`. */
void fixture_rename(struct fixture *fixture, const char *name);
void fixture_finish(struct fixture *fixture);
/* For a group of tests: *state is gpt2-nano on 2xdgx-a100-80gb, FULL_SHARD by block. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

#endif
