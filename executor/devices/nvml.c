/* The GPUs of this machine, asked of NVIDIA's driver at run time: libnvidia-ml.so.1 comes with the
 * driver and not with this program. What it says is written as `nvidia-smi topo -m` prints it, so
 * that one importer reads both. */
#include <stdio.h>
#include <string.h>

#include "executor/devices/devices.h"
#include "executor/ranks/ranks.h"
#include "kernels/kernels.h"

static const char nvml_file[] = "libnvidia-ml.so.1";

enum { GPUS_MAX = 64, LINKS_MAX = 18, NVML_SUCCESS = 0 };

/* The structs and values here are as in nvml.h (NVIDIA Management Library, API 12). */
struct nvml_pci {
	char legacy_bus_id[16];
	unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
};

static const struct level {
	int most; /* nvmlGpuTopologyLevel_t */
	const char *name;
} levels[] = {{10, "PIX"}, {20, "PXB"}, {30, "PHB"}, {40, "NODE"}, {1000, "SYS"}};

struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	int (*count)(unsigned *);
	int (*handle)(unsigned, void **);
	int (*name)(void *, char *, unsigned);
	int (*pci)(void *, struct nvml_pci *);
	int (*link_state)(void *, unsigned, int *);
	int (*link_remote)(void *, unsigned, struct nvml_pci *);
	int (*ancestor)(void *, void *, int *);
	unsigned n;
	void *devices[GPUS_MAX];
	char bus_ids[GPUS_MAX][32];
	int links[GPUS_MAX][GPUS_MAX]; /* [i][i]: to switches */
};

static const struct symbol symbols[] = {
	{"nvmlInit_v2", offsetof(struct nvml, init)},
	{"nvmlShutdown", offsetof(struct nvml, shutdown)},
	{"nvmlDeviceGetCount_v2", offsetof(struct nvml, count)},
	{"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, handle)},
	{"nvmlDeviceGetName", offsetof(struct nvml, name)},
	{"nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci)},
	{"nvmlDeviceGetNvLinkState", offsetof(struct nvml, link_state)},
	{"nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(struct nvml, link_remote)},
	{"nvmlDeviceGetTopologyCommonAncestor", offsetof(struct nvml, ancestor)},
};

static bool load(struct nvml *nvml, struct error *error)
{
	const char *missing = library_open(nvml_file, symbols, COUNT_OF(symbols), nvml);

	if (missing == nvml_file)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"no NVIDIA driver here (libnvidia-ml.so.1): "
			"`local` imports machines with GPUs; "
			"`topologies show local` describes the processors");
	return missing == NULL ||
	       error_set(error, EXIT_CODE_ENVIRONMENT,
		       "the NVIDIA driver lacks %s, expected version 450 or newer", missing);
}

static bool find_devices(struct nvml *nvml, struct error *error)
{
	if (nvml->count(&nvml->n) != NVML_SUCCESS || nvml->n == 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"the NVIDIA driver sees no GPU in this machine");
	if (nvml->n > GPUS_MAX)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "expected at most %d GPUs, got %u",
			GPUS_MAX, nvml->n);
	for (unsigned i = 0; i < nvml->n; i++) {
		struct nvml_pci pci = {0};

		if (nvml->handle(i, &nvml->devices[i]) != NVML_SUCCESS ||
			nvml->pci(nvml->devices[i], &pci) != NVML_SUCCESS)
			return error_set(error, EXIT_CODE_ENVIRONMENT,
				"GPU %u does not answer the NVIDIA driver", i);
		snprintf(nvml->bus_ids[i], sizeof(nvml->bus_ids[i]), "%.31s", pci.bus_id);
	}
	return true;
}

/* A link that ends at no GPU ends at a switch. */
static void find_links(struct nvml *nvml)
{
	for (unsigned i = 0; i < nvml->n; i++)
		for (unsigned l = 0; l < LINKS_MAX; l++) {
			struct nvml_pci remote = {0};
			int active = 0;
			unsigned to = i;

			if (nvml->link_state(nvml->devices[i], l, &active) != NVML_SUCCESS ||
				active == 0 ||
				nvml->link_remote(nvml->devices[i], l, &remote) != NVML_SUCCESS)
				continue;
			for (unsigned j = 0; j < nvml->n; j++)
				if (strncmp(nvml->bus_ids[j], remote.bus_id, 31) == 0)
					to = j;
			nvml->links[i][to]++;
		}
}

static void write_cell(const struct nvml *nvml, unsigned i, unsigned j, struct text *text)
{
	/* Through a switch every GPU reaches every other over all its links. */
	int links = nvml->links[i][i] > 0 ? nvml->links[i][i] : nvml->links[i][j];
	int level = 1000, k = 0;

	if (i == j) {
		text_add(text, "\tX");
	} else if (links > 0) {
		text_printf(text, "\tNV%d", links);
	} else {
		nvml->ancestor(nvml->devices[i], nvml->devices[j], &level);
		while (levels[k].most < level && k + 1 < COUNT_OF(levels))
			k++;
		text_printf(text, "\t%s", levels[k].name);
	}
}

static void write_matrix(const struct nvml *nvml, struct text *text)
{
	for (unsigned i = 0; i < nvml->n; i++)
		text_printf(text, "\tGPU%u", i);
	text_add(text, "\tCPU Affinity\n");
	for (unsigned i = 0; i < nvml->n; i++) {
		text_printf(text, "GPU%u", i);
		for (unsigned j = 0; j < nvml->n; j++)
			write_cell(nvml, i, j, text);
		text_add(text, "\n");
	}
}

/* Writes facts as variables; the number of GPUs is among them, because one GPU alone has no
 * matrix. */
static void write_facts(const struct nvml *nvml, const struct topology *host, struct text *text)
{
	char name[96] = "";

	nvml->name(nvml->devices[0], name, sizeof(name) - 1);
	text_printf(text, "SHARDPLAN_GPU=%s\n", name);
	text_printf(text, "SHARDPLAN_GPUS=%u\n", nvml->n);
	text_printf(text, "SHARDPLAN_HOST_CORES=%lld\n", (long long)host->host.cores);
	text_printf(text, "SHARDPLAN_HOST_MEMORY=%lld\n", (long long)host->host.memory_bytes);
	text_printf(text, "SHARDPLAN_HOST_CPU=%s\n", cpu_vendor_names[host->host.cpu]);
}

static bool ask(struct nvml *nvml, const struct topology *host, struct arena *arena,
	const char **facts, const char **matrix, struct error *error)
{
	struct text first = {0}, second = {0};

	if (!find_devices(nvml, error))
		return false;
	find_links(nvml);
	write_facts(nvml, host, &first);
	write_matrix(nvml, &second);
	*facts = arena_strdup(arena, text_string(&first));
	*matrix = arena_strdup(arena, text_string(&second));
	text_finish(&first);
	text_finish(&second);
	return true;
}

bool nvml_describe(
	struct arena *arena, const char **facts, const char **matrix, struct error *error)
{
	struct nvml *nvml = ARENA_NEW(arena, struct nvml);
	struct topology *host;

	if (!detect_local(0, arena, &host, error) || !load(nvml, error))
		return false;
	if (nvml->init() != NVML_SUCCESS)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"the NVIDIA driver does not start (nvidia-smi says why)");
	bool ok = ask(nvml, host, arena, facts, matrix, error);
	nvml->shutdown();
	return ok;
}

/* --- of a measurement --- */

enum { CLOCK_MULTIPROCESSORS = 1 };

/* Where one of these is missing, a measurement says nothing of the driver. */
struct facts_api {
	int (*init)(void);
	int (*shutdown)(void);
	int (*handle)(unsigned, void **);
	int (*driver)(char *, unsigned);
	int (*clock)(void *, int, unsigned *);
	int (*most_clock)(void *, int, unsigned *);
	int (*power)(void *, unsigned *);
	int (*power_limit)(void *, unsigned *);
};

static const struct symbol facts_symbols[] = {
	{"nvmlInit_v2", offsetof(struct facts_api, init)},
	{"nvmlShutdown", offsetof(struct facts_api, shutdown)},
	{"nvmlDeviceGetHandleByIndex_v2", offsetof(struct facts_api, handle)},
	{"nvmlSystemGetDriverVersion", offsetof(struct facts_api, driver)},
	{"nvmlDeviceGetClockInfo", offsetof(struct facts_api, clock)},
	{"nvmlDeviceGetMaxClockInfo", offsetof(struct facts_api, most_clock)},
	{"nvmlDeviceGetPowerUsage", offsetof(struct facts_api, power)},
	{"nvmlDeviceGetEnforcedPowerLimit", offsetof(struct facts_api, power_limit)},
};

static void ask_facts(const struct facts_api *api, struct gpu_facts *facts)
{
	unsigned clock = 0, most = 0, power = 0, limit = 0;
	void *device = NULL;

	api->driver(facts->driver, sizeof(facts->driver) - 1);
	if (api->handle(0, &device) != NVML_SUCCESS)
		return;
	if (api->clock(device, CLOCK_MULTIPROCESSORS, &clock) == NVML_SUCCESS)
		facts->clock_mhz = (int)clock;
	if (api->most_clock(device, CLOCK_MULTIPROCESSORS, &most) == NVML_SUCCESS)
		facts->most_mhz = (int)most;
	if (api->power(device, &power) == NVML_SUCCESS)
		facts->watts = (int)(power / 1000);
	if (api->power_limit(device, &limit) == NVML_SUCCESS)
		facts->most_watts = (int)(limit / 1000);
}

void gpu_facts_read(struct gpu_facts *facts)
{
	struct facts_api api;

	*facts = (struct gpu_facts){0};
	if (library_open(nvml_file, facts_symbols, COUNT_OF(facts_symbols), &api) != NULL ||
		api.init() != NVML_SUCCESS)
		return;
	ask_facts(&api, facts);
	api.shutdown();
}

/* It is as in nvml.h, version 2. Its `used` leaves out what the driver reserves, as cuMemGetInfo
 * does. */
struct nvml_memory {
	unsigned version;
	unsigned long long total, reserved, available, used;
};

struct memory_api {
	int (*init)(void);
	int (*shutdown)(void);
	int (*handle)(const char *, void **);
	int (*memory)(void *, struct nvml_memory *);
};

static const struct symbol memory_symbols[] = {
	{"nvmlInit_v2", offsetof(struct memory_api, init)},
	{"nvmlShutdown", offsetof(struct memory_api, shutdown)},
	{"nvmlDeviceGetHandleByUUID", offsetof(struct memory_api, handle)},
	{"nvmlDeviceGetMemoryInfo_v2", offsetof(struct memory_api, memory)},
};

int64_t gpu_memory_in_use(const char *name)
{
	struct nvml_memory memory = {.version = sizeof(memory) | 2u << 24};
	struct memory_api api;
	void *device = NULL;
	int64_t used = -1;

	if (library_open(nvml_file, memory_symbols, COUNT_OF(memory_symbols), &api) != NULL ||
		api.init() != NVML_SUCCESS)
		return -1;
	if (api.handle(name, &device) == NVML_SUCCESS &&
		api.memory(device, &memory) == NVML_SUCCESS)
		used = (int64_t)memory.used;
	api.shutdown();
	return used;
}
