/* `local`: this machine, with its last measurement by `calibrate`. */
#include <stdlib.h>
#include <string.h>

#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "executor/executor.h"
#include "topologies/import/import.h"

bool input_local_cache(struct arena *arena, const char **path, struct error *error)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	/* A relative path is ignored (XDG Base Directory Specification). */
	if (cache != NULL && cache[0] == '/')
		*path = arena_printf(arena, "%s/shardplan/local.yaml", cache);
	else if (home != NULL && home[0] == '/')
		*path = arena_printf(arena, "%s/.cache/shardplan/local.yaml", home);
	else
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"there is no place for the calibration of this machine: "
			"set HOME or XDG_CACHE_HOME, or use -o FILE");
	return true;
}

/* Is the calibration of this machine? Several machines may share a home folder. */
static bool is_same_machine(const struct topology *cached, const struct topology *here)
{
	return cached->host.cores == here->host.cores &&
	       strcmp(cached->device.name, here->device.name) == 0;
}

/* A container or taskset may have given it other cores. */
static const char *how_it_differs(
	struct arena *arena, const struct topology *cached, const struct topology *here)
{
	if (strcmp(cached->device.name, here->device.name) != 0)
		return "another machine was calibrated in";
	return arena_printf(arena, "it was calibrated with %lld core%s, here are %lld, in",
		(long long)cached->host.cores, cached->host.cores == 1 ? "" : "s",
		(long long)here->host.cores);
}

/* Prints a note once, however many cases ask for `local`. */
static void note_once(const char *text, const char *path)
{
	output_note_once("%s%s%s: times of `local` are a prior; "
			 "`shardplan calibrate local` measures it",
		text, path[0] != '\0' ? " " : "", path);
}

static bool add_calibration(struct arena *arena, struct topology *here, struct error *error)
{
	struct topology *cached;
	struct contents contents;
	const char *path = "";

	if (!input_local_cache(arena, &path, NULL) || !file_exists(path)) {
		note_once("this machine is not calibrated", "");
		return true;
	}
	if (!file_read(arena, path, &contents, error) ||
		!topology_parse(
			arena, contents.name, contents.text, contents.length, &cached, error))
		return false;
	if (!is_same_machine(cached, here)) {
		note_once(how_it_differs(arena, cached, here), path);
		return true;
	}
	/* The figures of devices come with it, so that detected ones do not replace measured
	 * rates. */
	here->calibration = cached->calibration;
	return true;
}

bool input_local_gpus(struct arena *arena, struct topology **topology, struct error *error)
{
	static const struct topology_import_options options;
	struct topology_import *import = topology_import_new(arena, &options);
	const char *facts, *matrix;

	return executor_describe_gpus(arena, &facts, &matrix, error) &&
	       topology_import_add(import, "this machine", facts, strlen(facts), error) &&
	       topology_import_add(import, "this machine", matrix, strlen(matrix), error) &&
	       topology_import_finish(import, "local-gpus", topology, error);
}

bool input_local(
	struct arena *arena, int64_t ranks, struct topology **topology, struct error *error)
{
	if (ranks < 0 || ranks > TOPOLOGY_MAX_DEVICES)
		return error_set(error, EXIT_CODE_USAGE, "--gpus %lld: expected 1 to %d ranks",
			(long long)ranks, TOPOLOGY_MAX_DEVICES);
	return executor_detect_local(ranks, arena, topology, error) &&
	       add_calibration(arena, *topology, error);
}
