#include "cases.h"
#include "schedule/resolve/resolve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void case_load(struct case_ *c, const char *model, const char *topology)
{
	struct error error = {0};

	*c = (struct case_){0};
	if (!model_load_preset(&c->arena, model, &c->model, &error) ||
		!topology_load_name(&c->arena, topology, &c->topology, &error))
		fail_msg("%s", error.message);
}

static bool set(struct case_ *c, struct question *question, char *choice, struct error *error)
{
	char *value = strchr(choice, '=');

	assert_non_null(value);
	*value++ = '\0';
	return question_set_by_name(question, choice, choice, value, &c->arena, error);
}

static bool plan(struct case_ *c, const char *text, struct error *error)
{
	struct question question = {.model = c->model, .topology = c->topology};
	char *copy = arena_strdup(&c->arena, text);
	char *rest = NULL;

	for (char *t = strtok_r(copy, " ", &rest); t != NULL; t = strtok_r(NULL, " ", &rest))
		if (!set(c, &question, t, error))
			return false;
	return plan_resolve(&question, &c->arena, &c->plan, error) &&
	       schedule_build(&c->arena, &c->plan, c->model, c->topology, &c->schedule, error);
}

void case_plan(struct case_ *c, const char *choices)
{
	struct error error = {0};

	if (!plan(c, choices, &error))
		fail_msg("%s: %s", choices, error.message);
}

bool case_try_plan(struct case_ *c, const char *choices)
{
	struct error error = {0};
	bool ok = plan(c, choices, &error);

	/* Refused, not broken. */
	if (!ok)
		assert_int_equal(error.code, EXIT_CODE_USAGE);
	return ok;
}

const struct prediction *case_simulate(
	struct case_ *c, const struct simulation_options *options, bool details)
{
	struct error error = {0};

	if (!simulate(c->schedule, options, details, &c->arena, &c->simulation, &error))
		fail_msg("%s", error.message);
	return &c->simulation.prediction;
}

void case_finish(struct case_ *c)
{
	arena_finish(&c->arena);
}
