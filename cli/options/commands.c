#include <stdlib.h>
#include <string.h>

#include "cli/options/options.h"

static int compare_name(const void *name, const void *command)
{
	return strcmp(name, (*(const struct command *const *)command)->name);
}

static bool unknown_command(
	const struct command *const commands[], const char *name, struct error *error)
{
	const char *names[COMMAND_COUNT + 1] = {NULL};

	for (int i = 0; i < COMMAND_COUNT; i++)
		names[i] = commands[i]->name;
	const char *near = nearest_name(name, names);
	return error_set(error, EXIT_CODE_USAGE,
		"%.100s: unknown command%s%s%s; `shardplan help` lists them", name,
		near != NULL ? ", did you mean " : "", near != NULL ? near : "",
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
