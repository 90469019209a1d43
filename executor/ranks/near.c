#include "executor/ranks/near.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096 };

static const char *devices = "/sys/bus/pci/devices";

void near_use_devices(const char *folder)
{
	devices = folder;
}

/* Reads a list of cores like "0-3,8-11". */
static bool read_list(const char *text, cpu_set_t *cores)
{
	CPU_ZERO(cores);
	while (isdigit((unsigned char)*text)) {
		char *end;
		long first = strtol(text, &end, 10), last = first;

		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
			CPU_SET((int)cpu, cores);
		text = end + (*end == ',');
	}
	return CPU_COUNT(cores) > 0;
}

bool near_cores(const char *bus_id, cpu_set_t *cores)
{
	char path[ROOM], name[32] = "", text[ROOM];

	/* The driver writes the address in capitals, the kernel in small letters. */
	for (size_t i = 0; i + 1 < sizeof(name) && bus_id[i] != '\0'; i++)
		name[i] = (char)tolower((unsigned char)bus_id[i]);
	snprintf(path, sizeof(path), "%s/%s/local_cpulist", devices, name);
	FILE *file = fopen(path, "r");
	bool ok = file != NULL && fgets(text, sizeof(text), file) != NULL;

	if (file != NULL)
		fclose(file);
	return ok && read_list(text, cores);
}

void near_stay(const char *bus_id)
{
	cpu_set_t cores, allowed;

	if (!near_cores(bus_id, &cores) || sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return;
	CPU_AND(&cores, &cores, &allowed);
	if (CPU_COUNT(&cores) > 0)
		sched_setaffinity(0, sizeof(cores), &cores);
}
