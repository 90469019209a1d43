/* This machine as a topology. What detection cannot know (peaks, bandwidths) is a prior, and the
 * topology's source says so, until a calibration is added. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if HAVE_HWLOC
#include <hwloc.h>
#endif

#include "executor/devices/devices.h"
#include "executor/ranks/ranks.h"

/* These are priors: what one core of a server of the last ten years reaches with streams, and what
 * several cores deliver together. */
#define CORE_BANDWIDTH     10e9
#define HOST_BANDWIDTH     40e9
#define EXCHANGE_BANDWIDTH 5e9
#define EXCHANGE_LATENCY   10e-6
#define UNKNOWN_CLOCK      2.5e9

/* Each row says how many fp32 operations a cycle the widest vectors do; the first match counts. The
 * clock that /proc shows is the base clock on many machines; cores with 512-bit vectors either run
 * them at it or have half of the units, others go beyond it. So the product is nearer to a ceiling
 * than to what matrix products reach. */
static const struct vectors {
	const char *flag;
	double flops_per_cycle, turbo;
} vectors[] = {{" avx512f ", 64, 1}, {" fma ", 32, 1.4}, {" asimd ", 32, 1.2}, {"", 16, 1.2}};

static double peak_of_core(void)
{
	double clock = machine_clock();
	int i = 0;

	while (!machine_has_flag(vectors[i].flag))
		i++;
	return vectors[i].flops_per_cycle * vectors[i].turbo * (clock > 0 ? clock : UNKNOWN_CLOCK);
}

/* One instruction multiplies twice as many pairs of bf16; without it they are multiplied as
 * fp32. */
static double bf16_peak_of_core(void)
{
	return peak_of_core() * (machine_has_flag(" avx512_bf16 ") ? 2 : 1);
}

#if HAVE_HWLOC

/* Counts the cores that this process may use; returns 0 when hwloc does not know. */
static int64_t count_cores(void)
{
	hwloc_topology_t topology;
	int cores = 0;

	/* Plugins know GPUs and displays, and bring OpenCL, X11 and libxml2: none counts cores. */
	setenv("HWLOC_PLUGINS_PATH", "", 0);
	if (hwloc_topology_init(&topology) != 0)
		return 0;
	if (hwloc_topology_load(topology) == 0)
		cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
	hwloc_topology_destroy(topology);
	return max_i64(cores, 0);
}

static const char *detector(struct arena *arena)
{
	unsigned version = hwloc_get_api_version();

	return arena_printf(arena, "hwloc %u.%u", version >> 16, version >> 8 & 255);
}

#else

static int64_t count_cores(void)
{
	return 0;
}

static const char *detector(struct arena *arena)
{
	return arena_strdup(arena, "/proc");
}

#endif

static enum cpu_vendor vendor_of(const char *name)
{
	static const struct {
		const char *word;
		enum cpu_vendor vendor;
	} words[] = {{"AMD", CPU_AMD}, {"Intel", CPU_INTEL}, {"ARM", CPU_ARM}, {"aarch64", CPU_ARM},
		{"Neoverse", CPU_ARM}};

	for (int i = 0; i < COUNT_OF(words); i++)
		if (strstr(name, words[i].word) != NULL)
			return words[i].vendor;
	return CPU_OTHER;
}

bool detect_local(
	int64_t devices, struct arena *arena, struct topology **topology, struct error *error)
{
	/* Virtual machines may show hardware threads as cores; whichever is less is true. */
	int64_t cpus = machine_cpus(), cores = count_cores();
	int64_t memory = machine_memory();
	const char *name = machine_cpu_name(arena);
	struct topology *t = ARENA_NEW(arena, struct topology);

	cores = cores > 0 ? min_i64(cores, cpus) : cpus;
	devices = devices > 0 ? devices : cores;
	*t = (struct topology){.name = "local",
		.source = arena_printf(arena,
			"this machine, detected by %s; peak and bandwidths are priors",
			detector(arena)),
		.nodes = 1,
		.devices_per_node = devices,
		.device = {.name = name,
			.kind = DEVICE_CPU,
			.generation = GENERATION_CPU,
			.memory_bytes = max_i64(memory / devices, 1),
			.memory_bandwidth = CORE_BANDWIDTH,
			.fp32_flops = peak_of_core(),
			.bf16_flops = bf16_peak_of_core(),
			.multiprocessors = 1},
		.fabric = {.kind = FABRIC_SHARED_MEMORY,
			.bandwidth = EXCHANGE_BANDWIDTH,
			.latency = EXCHANGE_LATENCY},
		.network = {.kind = NETWORK_NONE, .oversubscription = 1},
		.host = {.memory_bytes = memory,
			.memory_bandwidth = HOST_BANDWIDTH,
			.cores = cores,
			.cpu = vendor_of(name)},
		.shares_host = true};
	*topology = t;
	return topology_check(t, NULL, error);
}
