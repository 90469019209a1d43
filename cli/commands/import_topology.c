/* `topologies import`: what other tools print becomes a topology file. */
#include "cli/commands/import_topology.h"

#include <string.h>
#include <unistd.h>

#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "executor/executor.h"
#include "topologies/import/import.h"

/* A whole number from 1; 0 when the option was not given. */
static bool count_option(
	const struct arguments *arguments, const char *name, int64_t *value, struct error *error)
{
	const char *typed = argument(arguments, name);

	if (typed == NULL ||
		(parse_int(typed, value) && *value >= 1 && *value <= TOPOLOGY_MAX_DEVICES))
		return true;
	return error_set(error, EXIT_CODE_USAGE, "--%s %.40s: expected a whole number from 1 to %d",
		name, typed, TOPOLOGY_MAX_DEVICES);
}

static bool read_options(const struct invocation *invocation,
	struct topology_import_options *options, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *like = argument(arguments, "like");
	struct topology *topology = NULL;

	*options = (struct topology_import_options){
		.gpu = argument(arguments, "gpu-name"),
		.collective = argument(arguments, "collective"),
		.network = argument(arguments, "network"),
	};
	if (!count_option(arguments, "nodes", &options->nodes, error) ||
		!count_option(arguments, "gpus", &options->devices, error))
		return false;
	if (like != NULL && !input_topology(invocation->arena, like, 0, &topology, error))
		return false;
	options->like = topology;
	return true;
}

/* "out/cluster.yaml" -> "cluster"; without -o the first file's name says it, or the device's. */
static const char *name_of(const struct invocation *invocation)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *output = argument(arguments, "output");
	const char *path = output != NULL && strcmp(output, "-") != 0 ? output
			   : arguments->n_operands > 1                ? arguments->operands[1]
			   : argument_given(arguments, "gpu-name") ? argument(arguments, "gpu-name")
								   : "";
	const char *slash = strrchr(path, '/');
	const char *base = slash != NULL ? slash + 1 : path;
	size_t length = strcspn(base, ".");

	return length > 0 ? arena_strndup(invocation->arena, base, length) : "imported";
}

static bool write_topology(const struct invocation *invocation, const struct topology *topology,
	struct text *text, struct error *error)
{
	const char *path = argument(&invocation->arguments, "output");
	struct text file = {0};
	bool ok;

	if (argument_given(&invocation->arguments, "json")) {
		struct writer writer;

		document_begin(&writer, text, "shardplan/topology/1");
		topology_write(topology, &writer);
		writer_finish(&writer);
	}
	topology_print(topology, WRITER_YAML, path != NULL ? &file : text);
	ok = path == NULL || file_write(invocation->arena, path, &file, error);
	if (ok && path != NULL && strcmp(path, "-") != 0)
		output_note("the topology is in %s", path);
	text_finish(&file);
	return ok;
}

/* The variables of this process; the importer keeps those of launchers that it knows. */
static const char *environment_text(struct arena *arena)
{
	struct text text = {0};

	for (char **variable = environ; *variable != NULL; variable++)
		if (strchr(*variable, '\n') == NULL)
			text_printf(&text, "%s\n", *variable);
	const char *copy = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return copy;
}

/* `local`: the GPUs of this machine, and how this job was started. */
static bool add_local(
	const struct invocation *invocation, struct topology_import *import, struct error *error)
{
	const char *environment = environment_text(invocation->arena), *facts, *matrix;

	return executor_describe_gpus(invocation->arena, &facts, &matrix, error) &&
	       topology_import_add(import, "this machine", facts, strlen(facts), error) &&
	       topology_import_add(import, "this machine", matrix, strlen(matrix), error) &&
	       topology_import_environment(
		       import, "this environment", environment, strlen(environment), error);
}

static bool add_file(const struct invocation *invocation, const char *path,
	struct topology_import *import, struct error *error)
{
	struct contents contents;

	if (strcmp(path, "local") == 0)
		return add_local(invocation, import, error);
	return file_read(invocation->arena, path, &contents, error) &&
	       topology_import_add(import, contents.name, contents.text, contents.length, error);
}

bool topologies_import(const struct invocation *invocation, struct text *text, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct topology_import_options options;
	struct topology *topology;
	struct topology_import *import;
	const char *const *notes;

	if (!read_options(invocation, &options, error))
		return false;
	if (arguments->n_operands == 1 && options.gpu == NULL && options.like == NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"topologies import: expected FILE..., "
			"or --gpu-name NAME --nodes N --gpus N, or --like TOPOLOGY");
	import = topology_import_new(invocation->arena, &options);
	for (int i = 1; i < arguments->n_operands; i++)
		if (!add_file(invocation, arguments->operands[i], import, error))
			return false;
	if (!topology_import_finish(import, name_of(invocation), &topology, error))
		return false;
	int n = topology_import_notes(import, &notes);
	for (int i = 0; i < n; i++)
		output_note("%s", notes[i]);
	return write_topology(invocation, topology, text, error);
}
