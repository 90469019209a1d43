#include <stdlib.h>
#include <string.h>

#include "cli/options/options.h"

static int compare_name(const void *name, const void *command)
{
	return strcmp(name, (*(const struct command *const *)command)->name);
}

/* Commands of other tools, and ours in their place. */
static const struct {
	const char *typed, *instead;
} other_words[] = {
	{"sweep", "type predict --cases FILE.csv, or plan with a list (--micro-batch 1,2,4)"},
	{"compare", "type plan --compare PLAN.yaml, or check PLAN.yaml MEASURED.json"},
	{"simulate", "type predict"},
	{"estimate", "type predict"},
	{"search", "type plan"},
	{"tune", "type plan"},
	{"optimize", "type plan"},
	{"run", "type train"},
	{"launch", "type train"},
	{"profile", "type diagnose"},
	{"convert", "type import, or export"},
};

static const char *instead_of(const char *name)
{
	for (int i = 0; i < COUNT_OF(other_words); i++)
		if (strcmp(other_words[i].typed, name) == 0)
			return other_words[i].instead;
	return NULL;
}

static bool unknown_command(
	const struct command *const commands[], const char *name, struct error *error)
{
	const char *names[COMMAND_COUNT + 1] = {NULL};

	for (int i = 0; i < COMMAND_COUNT; i++)
		names[i] = commands[i]->name;
	const char *instead = instead_of(name), *near = nearest_name(name, names);
	if (instead != NULL)
		return error_set(error, EXIT_CODE_USAGE, "%s: unknown command; %s", name, instead);
	return error_set(error, EXIT_CODE_USAGE,
		"%.100s: unknown command%s%s%s `shardplan help` lists them", name,
		near != NULL ? "; did you mean " : ";", near != NULL ? near : "",
		near != NULL ? "?" : "");
}

const struct command *command_find(
	const struct command *const commands[], const char *name, struct error *error)
{
	const struct command *const *found =
		bsearch(name, commands, COMMAND_COUNT, sizeof(*commands), compare_name);

	if (found == NULL)
		unknown_command(commands, name, error);
	return found != NULL ? *found : NULL;
}

enum command_index command_index(
	const struct command *const commands[], const struct command *command)
{
	int i = 0;

	while (commands[i] != command)
		i++;
	return (enum command_index)i;
}
