/* Values that can be, but are more likely a slip: what the user is told of a file. */
#include <math.h>
#include <string.h>

#include "topologies/plausible.h"
#include "topologies/topologies.h"

/* Memory is 7 % less in GB than in GiB. */
#define SAME_MEMORY 0.02

/* The first device of the catalogue that has this name. */
static const struct topology *same_device(struct arena *arena, const char *name)
{
	for (int i = 0; i < n_topology_catalogue; i++) {
		const struct embedded_file *file = &topology_catalogue[i];
		struct topology *topology;
		if (same_name(topology_catalogue_device(arena, file), name) &&
			topology_load_name(arena, file->name, &topology, NULL))
			return topology;
	}
	return NULL;
}

static void doubt_memory(const struct topology *topology, struct arena *arena, struct text *lines)
{
	const struct topology *known = same_device(arena, topology->device.name);
	double has = (double)topology->device.memory_bytes;
	char shown[32];

	if (known == NULL || fabs(has / (double)known->device.memory_bytes - 1) <= SAME_MEMORY)
		return;
	text_printf(lines, "device.memory is %s, but the catalogue's %s has ",
		format_bytes(shown, has), known->device.name);
	unit_print_bytes(lines, known->device.memory_bytes);
	bool mixed = fabs(has * 1.073741824 / (double)known->device.memory_bytes - 1) < SAME_MEMORY;
	text_add(lines, mixed ? " (GB is 10^9 bytes, GiB is 2^30)\n" : "\n");
}

void topology_doubts(const struct topology *topology, struct arena *arena, struct text *lines)
{
	if (topology->device.kind != DEVICE_GPU || topology->emulated)
		return;
	for (int i = 0; i < n_topology_plausible; i++) {
		const struct plausible *row = &topology_plausible[i];
		double value = plausible_value(row, topology);
		if (plausible_usual(row, value))
			continue;
		text_printf(lines, "%s.%s is ", row->section, row->key);
		plausible_print(row, value, lines);
		text_add(lines, ", far from what the catalogue has: ");
		plausible_range(row, lines);
		text_add_char(lines, '\n');
	}
	doubt_memory(topology, arena, lines);
}
