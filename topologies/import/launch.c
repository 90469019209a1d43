/* How a job was started: host files and the environment of its processes. */
#include <string.h>

#include "topologies/import/draft.h"

enum { LAUNCH_LINE = 65536 };

/* --- environment --------------------------------------------------------------------------------
 */

enum meaning {
	NODES,
	DEVICES_PER_NODE,
	DEVICES,
	NODE_LIST_SLURM,
	GPU_NAME,
	HOST_CORES,
	HOST_MEMORY,
	HOST_CPU
};

/* The names, of Slurm, torchrun, Open MPI, MPICH and MVAPICH (accelerate reads the same ones). */
static const struct variable {
	const char *name;
	enum meaning meaning;
} variables[] = {
	{"SLURM_NNODES", NODES},
	{"SLURM_JOB_NUM_NODES", NODES},
	{"SLURM_GPUS_ON_NODE", DEVICES_PER_NODE},
	{"SLURM_JOB_NODELIST", NODE_LIST_SLURM},
	{"GROUP_WORLD_SIZE", NODES},
	{"LOCAL_WORLD_SIZE", DEVICES_PER_NODE},
	{"WORLD_SIZE", DEVICES},
	{"OMPI_COMM_WORLD_LOCAL_SIZE", DEVICES_PER_NODE},
	{"OMPI_COMM_WORLD_SIZE", DEVICES},
	{"MPI_LOCALNRANKS", DEVICES_PER_NODE},
	{"PMI_SIZE", DEVICES},
	{"MV2_COMM_WORLD_LOCAL_SIZE", DEVICES_PER_NODE},
	{"SLURM_NTASKS_PER_NODE", DEVICES_PER_NODE},
	{"MV2_COMM_WORLD_SIZE", DEVICES},
	{"SLURM_NTASKS", DEVICES},
	/* What detection of this machine gives (executor/devices/nvml.c). */
	{"SHARDPLAN_GPUS", DEVICES_PER_NODE},
	{"SHARDPLAN_GPU", GPU_NAME},
	{"SHARDPLAN_HOST_CORES", HOST_CORES},
	{"SHARDPLAN_HOST_MEMORY", HOST_MEMORY},
	{"SHARDPLAN_HOST_CPU", HOST_CPU},
};

/* What the variables give, and which of them: the first of the table that is there counts. */
struct launch {
	int64_t nodes, each, all;
	const struct variable *nodes_by, *each_by, *all_by;
};

static const struct variable *find_variable(const char *line)
{
	size_t length = strcspn(line, "=");

	for (int i = 0; i < COUNT_OF(variables); i++)
		if (strlen(variables[i].name) == length &&
			strncmp(variables[i].name, line, length) == 0)
			return &variables[i];
	return NULL;
}

bool is_environment(const char *text, size_t length)
{
	struct lines lines = {text, text + length, 0, true};
	char *line = NULL;
	struct arena arena = {0};
	bool found = false;

	line = ARENA_ARRAY(&arena, char, LAUNCH_LINE);
	while (!found && lines_next(&lines, line, LAUNCH_LINE)) {
		const char *start = strncmp(line, "export ", 7) == 0 ? line + 7 : line;

		found = find_variable(start) != NULL;
	}
	arena_finish(&arena);
	return found;
}

/* "001-004" -> 4, "7" -> 1; -1 for something else. */
static int64_t count_range(const char *text, size_t length)
{
	int64_t first = 0, last = 0;
	size_t i = 0;

	for (; i < length && text[i] >= '0' && text[i] <= '9' && i < 12; i++)
		first = first * 10 + (text[i] - '0');
	if (i == length && i > 0)
		return 1;
	if (i == 0 || text[i] != '-')
		return -1;
	size_t start = ++i;
	for (; i < length && text[i] >= '0' && text[i] <= '9' && i < start + 12; i++)
		last = last * 10 + (text[i] - '0');
	return i == length && i > start && last >= first ? last - first + 1 : -1;
}

/* Inside of brackets: "001-002,007". */
static int64_t count_ranges(const char *text, size_t length)
{
	int64_t total = 0;

	for (size_t at = 0; at <= length;) {
		const char *comma = memchr(text + at, ',', length - at);
		size_t part = comma != NULL ? (size_t)(comma - text) - at : length - at;
		int64_t n = count_range(text + at, part);

		if (n < 0 || total > TOPOLOGY_MAX_DEVICES)
			return -1;
		total += n;
		at += part + 1;
	}
	return total;
}

/* "gpu[001-002,007],login1" -> 4. Several brackets in one name multiply. */
static int64_t count_node_list(const char *text)
{
	int64_t total = 0, product = 1;

	for (const char *at = text; *at != '\0'; at++) {
		if (*at == '[') {
			const char *end = strchr(at, ']');
			int64_t n = end != NULL ? count_ranges(at + 1, (size_t)(end - at - 1)) : -1;

			if (n < 1 || !checked_mul(product, n, &product) ||
				product > TOPOLOGY_MAX_DEVICES)
				return -1;
			at = end;
		} else if (*at == ',') {
			total += product;
			product = 1;
		}
	}
	return total + product;
}

static void keep(const struct variable *v, int64_t value, struct launch *launch)
{
	int64_t *slot = &launch->nodes;
	const struct variable **by = &launch->nodes_by;

	if (v->meaning == DEVICES_PER_NODE) {
		slot = &launch->each;
		by = &launch->each_by;
	} else if (v->meaning == DEVICES) {
		slot = &launch->all;
		by = &launch->all_by;
	}
	if (*by == NULL || v < *by) {
		*slot = value;
		*by = v;
	}
}

/* Of this machine; a maker of processors that we do not know is left out. */
static bool set_machine(struct topology_import *import, const struct variable *v, const char *value,
	const char *name, struct error *error)
{
	static const char by[] = "this machine";
	int64_t n = 0;

	if (v->meaning == GPU_NAME)
		return draft_set_gpu(import, value, name, error);
	if (v->meaning == HOST_CPU) {
		while (cpu_vendor_names[n] != NULL && strcmp(cpu_vendor_names[n], value) != 0)
			n++;
		return cpu_vendor_names[n] == NULL ||
		       draft_set_int(import, PROPERTY_HOST_CPU, n, name, by, error);
	}
	if (!parse_int(value, &n) || n < 1)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: %s: expected a whole number from 1, got \"%.60s\"", name, v->name,
			value);
	return draft_set_int(import,
		v->meaning == HOST_CORES ? PROPERTY_HOST_CORES : PROPERTY_HOST_MEMORY, n, name, by,
		error);
}

static bool read_variable(struct topology_import *import, const char *line, const char *name,
	int number, struct launch *launch, struct error *error)
{
	const struct variable *v = find_variable(line);
	const char *value = strchr(line, '=');
	int64_t n = 0;

	if (v == NULL || value == NULL)
		return true;
	value++;
	if (v->meaning >= GPU_NAME)
		return set_machine(import, v, value, name, error);
	if (v->meaning == NODE_LIST_SLURM)
		n = count_node_list(value);
	else if (!parse_int(value, &n))
		n = -1;
	if (n < 1 || n > TOPOLOGY_MAX_DEVICES)
		return error_at(error, EXIT_CODE_INPUT, name, number, 1,
			"%s: expected %s, got \"%.60s\"", v->name,
			v->meaning == NODE_LIST_SLURM ? "a list of nodes such as gpu[001-004,007]"
						      : "a whole number from 1 to 1000000",
			value);
	keep(v, n, launch);
	return true;
}

/* Of nodes, devices of one and devices in all, two give the third. */
static bool complete(const char *name, struct launch *l, struct error *error)
{
	/* Slurm counts tasks, and torchrun's are one a node. */
	bool tasks = l->all_by != NULL && strncmp(l->all_by->name, "SLURM", 5) == 0;

	if (l->nodes == 0 && l->each > 0 && l->all > 0 && l->all % l->each == 0)
		l->nodes = l->all / l->each;
	if (l->each == 0 && l->nodes > 0 && l->all > 0 && l->all % l->nodes == 0)
		l->each = l->all / l->nodes;
	if (!tasks && l->all > 0 && l->nodes > 0 && l->each > 0 && l->all != l->nodes * l->each)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: %s says %lld ranks, but there are %lld nodes of %lld; "
			"expected one rank for each GPU",
			name, l->all_by->name, (long long)l->all, (long long)l->nodes,
			(long long)l->each);
	return true;
}

static const char *origin(
	struct topology_import *import, const struct launch *l, const struct variable *by)
{
	const char *name = by != NULL ? by->name : l->all_by->name;

	return arena_printf(import->arena, "launch environment: %s", name);
}

static bool set_launch(
	struct topology_import *import, const char *name, struct launch *l, struct error *error)
{
	if (!complete(name, l, error))
		return false;
	return (l->nodes == 0 || draft_set_int(import, PROPERTY_NODES, l->nodes, name,
					 origin(import, l, l->nodes_by), error)) &&
	       (l->each == 0 || draft_set_int(import, PROPERTY_DEVICES_PER_NODE, l->each, name,
					origin(import, l, l->each_by), error));
}

bool import_environment(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	struct lines lines = {text, text + length, 0, true};
	char *line = ARENA_ARRAY(import->arena, char, LAUNCH_LINE);
	struct launch launch = {0};

	while (lines_next(&lines, line, LAUNCH_LINE)) {
		const char *start = strncmp(line, "export ", 7) == 0 ? line + 7 : line;

		if (!read_variable(import, start, name, lines.number, &launch, error))
			return false;
	}
	return set_launch(import, name, &launch, error);
}

/* --- host files ---------------------------------------------------------------------------------
 */

/* "host slots=8 max_slots=8" (DeepSpeed, Open MPI), "host:8" (MPICH); 0 = no such line. */
static int64_t slots_of(char *line)
{
	char *words[4];
	int n;
	int64_t slots;

	line[strcspn(line, "#")] = '\0';
	n = split_words(line, words, 4);
	if (n == 1 && strchr(words[0], ':') != NULL && words[0][0] != ':' &&
		parse_int(strchr(words[0], ':') + 1, &slots))
		return slots;
	for (int i = 1; i < n; i++)
		if (strncmp(words[i], "slots=", 6) == 0 && parse_int(words[i] + 6, &slots))
			return slots;
	return 0;
}

static bool is_blank(const char *line)
{
	const char *start = line + strspn(line, " \t");

	return *start == '\0' || *start == '#';
}

bool is_host_file(const char *text, size_t length)
{
	struct lines lines = {text, text + length, 0, true};
	char line[512];

	while (lines_next(&lines, line, sizeof(line)))
		if (!is_blank(line))
			return slots_of(line) > 0;
	return false;
}

bool import_host_file(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	struct lines lines = {text, text + length, 0, true};
	int64_t nodes = 0, each = 0;
	char line[512], copy[512];

	while (lines_next(&lines, line, sizeof(line))) {
		int64_t slots;

		if (is_blank(line))
			continue;
		memcpy(copy, line, sizeof(copy));
		slots = slots_of(copy);
		if (slots < 1 || slots > TOPOLOGY_MAX_DEVICES)
			return error_at(error, EXIT_CODE_INPUT, name, lines.number, 1,
				"expected HOST slots=N or HOST:N, got \"%.60s\"", line);
		if (each != 0 && slots != each)
			return error_at(error, EXIT_CODE_INPUT, name, lines.number, 1,
				"%lld slots here and %lld above, expected equal nodes",
				(long long)slots, (long long)each);
		each = slots;
		nodes++;
	}
	return draft_set_int(import, PROPERTY_NODES, nodes, name, "host file", error) &&
	       draft_set_int(import, PROPERTY_DEVICES_PER_NODE, each, name, "host file", error);
}
