/* Finds out what this machine and this build are, for the record. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "executor/ranks/machine.h"

#if defined(__clang__)
#define COMPILER "by" /* clang's version begins with its name */
#else
#define COMPILER "gcc"
#endif
#if !defined(SHARDPLAN_VERSION)
#define SHARDPLAN_VERSION "unknown"
#endif

/* Returns the number behind `key` in the text of a file of /proc, or -1 when it is not there. */
static int64_t number_after(const char *text, const char *key)
{
	const char *found = strstr(text, key);

	return found != NULL ? strtoll(found + strlen(key), NULL, 10) : -1;
}

static bool read_start(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

int64_t machine_pss(void)
{
	char text[2048];

	if (!read_start("/proc/self/smaps_rollup", text, sizeof(text)))
		return 0;
	/* Linux before 5.3 has no Pss_File: it tells only the sum. */
	int64_t file = max_i64(number_after(text, "\nPss_File:"), 0);
	return (max_i64(number_after(text, "\nPss:"), 0) - file) * 1024;
}

int64_t machine_cpus(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
		return CPU_COUNT(&set);
	return max_i64(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

int64_t machine_memory(void)
{
	return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

int64_t machine_available_memory(void)
{
	char text[4096];
	int64_t kib = -1;

	if (read_start("/proc/meminfo", text, sizeof(text)))
		kib = number_after(text, "MemAvailable:");
	return kib >= 0 ? kib * 1024 : INT64_MAX;
}

double machine_clock(void)
{
	char text[4096];
	const char *found;

	if (!read_start("/proc/cpuinfo", text, sizeof(text)))
		return 0;
	found = strstr(text, "cpu MHz");
	found = found != NULL ? strchr(found, ':') : NULL;
	return found != NULL ? 1e6 * strtod(found + 1, NULL) : 0;
}

bool machine_has_flag(const char *flag)
{
	char text[4096];

	return flag[0] == '\0' ||
	       (read_start("/proc/cpuinfo", text, sizeof(text)) && strstr(text, flag) != NULL);
}

const char *machine_cpu_name(struct arena *arena)
{
	static const char key[] = "model name";
	struct utsname system;
	char text[4096];

	if (read_start("/proc/cpuinfo", text, sizeof(text))) {
		char *found = strstr(text, key);
		char *colon = found != NULL ? strchr(found, ':') : NULL;

		if (colon != NULL) {
			colon += 1 + strspn(colon + 1, " \t");
			return arena_strndup(arena, colon, strcspn(colon, "\n"));
		}
	}
	return arena_strdup(arena, uname(&system) == 0 ? system.machine : "CPU");
}

const char *machine_hardware(struct arena *arena, int64_t cpus)
{
	double load[1] = {0};
	char memory[32];

	if (getloadavg(load, 1) < 1)
		load[0] = 0;
	return arena_printf(arena, "%s, %lld CPUs, %s, load average %.2f", machine_cpu_name(arena),
		(long long)cpus, format_bytes(memory, (double)machine_memory()), load[0]);
}

const char *machine_versions(const char *kernels, struct arena *arena)
{
	struct utsname system;
	const char *library = "libc";

#if defined(__GLIBC__)
	library = arena_printf(arena, "glibc %s", gnu_get_libc_version());
#endif
	if (uname(&system) != 0)
		memset(&system, 0, sizeof(system));
	return arena_printf(arena, "shardplan %s, kernels %s, %s %s, %s, %s %s", SHARDPLAN_VERSION,
		kernels, COMPILER, __VERSION__, library, system.sysname, system.release);
}

const char *machine_date(struct arena *arena)
{
	char text[32];
	time_t now = time(NULL);
	struct tm utc;

	gmtime_r(&now, &utc);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
	return arena_strdup(arena, text);
}

/* --- adapters --- */

/* Returns an adapter's kind, or NETWORK_NONE when it is not up. */
static enum network_kind adapter_kind(const char *folder, const char *name)
{
	char path[512], text[64];

	snprintf(path, sizeof(path), "%s/%s/ports/1/state", folder, name);
	if (!read_start(path, text, sizeof(text)) || strstr(text, "ACTIVE") == NULL)
		return NETWORK_NONE;
	/* Amazon's adapters name no link layer that we know. */
	if (strncmp(name, "efa", 3) == 0 || strncmp(name, "rdmap", 5) == 0)
		return NETWORK_EFA;
	snprintf(path, sizeof(path), "%s/%s/ports/1/link_layer", folder, name);
	if (!read_start(path, text, sizeof(text)))
		return NETWORK_NONE;
	return strncmp(text, "InfiniBand", 10) == 0 ? NETWORK_INFINIBAND : NETWORK_ROCE;
}

void machine_network(const char *folder, enum network_kind *kind, int64_t *adapters)
{
	static const enum network_kind kinds[] = {NETWORK_INFINIBAND, NETWORK_ROCE, NETWORK_EFA};
	int64_t seen[] = {0, 0, 0}, most = 0;
	DIR *directory = opendir(folder);
	const struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL)
		for (int k = 0; k < COUNT_OF(kinds); k++)
			seen[k] += adapter_kind(folder, entry->d_name) == kinds[k];
	if (directory != NULL)
		closedir(directory);
	for (int k = 0; k < COUNT_OF(kinds); k++)
		if (seen[k] > most) {
			*kind = kinds[k];
			*adapters = most = seen[k];
		}
}
