/* Measures the GPUs of this machine: opens them, takes times, and writes down where the figures
 * come from. */
#include "executor/calibration/gpu/bench.h"
#include "executor/calibration/gpu/gpu.h"

#include <math.h>
#include <string.h>

#include "executor/devices/devices.h"
#include "executor/ranks/ranks.h"
#include "executor/transports/transports.h"

enum { PINNED_BYTES = 64 << 20, MEMORY_LEAST = 512 << 20 };

/* Seconds of all samples of one figure. */
#define BUDGET_QUICK 0.03
#define BUDGET_FULL  0.1

/* --- opening --- */

static bool allocate(
	struct gpu_bench *g, int64_t bytes, const char *what, char **memory, struct error *error)
{
	uint64_t address = 0;
	int result = g->api->cuMemAlloc(&address, (size_t)bytes);

	if (result != 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"calibrate: no room for %s on GPU 0 (%lld MiB): "
			"is another process using it?",
			what, (long long)(bytes >> 20));
	*memory = (char *)(uintptr_t)address;
	return true;
}

static bool find_device(struct gpu_bench *g, struct error *error)
{
	int device = 0, multiprocessors = 0;

	if (!gpu_check(g, g->api->cuDeviceGet(&device, 0), "cuDeviceGet", error) ||
		!gpu_check(g,
			g->api->cuDeviceGetAttribute(
				&multiprocessors, CUDA_ATTRIBUTE_MULTIPROCESSORS, device),
			"cuDeviceGetAttribute", error) ||
		!gpu_check(g, g->api->cuDevicePrimaryCtxRetain(&g->context, device),
			"cuDevicePrimaryCtxRetain", error) ||
		!gpu_check(g, g->api->cuCtxSetCurrent(g->context), "cuCtxSetCurrent", error))
		return false;
	g->multiprocessors = multiprocessors;
	return true;
}

static bool find_kernels(struct gpu_bench *g, struct error *error)
{
	const struct cuda_api *api = g->api;

	return gpu_check(g,
		       api->cuLibraryLoadData(
			       &g->library, api->image, NULL, NULL, 0, NULL, NULL, 0),
		       "the kernels do not suit this GPU (cuLibraryLoadData)", error) &&
	       gpu_check(g, api->cuLibraryGetKernel(&g->hold_begin, g->library, "pace_begin"),
		       "pace_begin", error) &&
	       gpu_check(g, api->cuLibraryGetKernel(&g->hold_end, g->library, "pace_end"),
		       "pace_end", error);
}

static bool make_memory(struct gpu_bench *g, struct error *error)
{
	char *clock = NULL;
	void *pinned = NULL;

	/* The largest product of products.c needs this much for operands and result: 2.6 GiB of an
	 * H100. */
	g->memory_bytes =
		max_i64(MEMORY_LEAST, (int64_t)(20 << 20) * max_i64(g->multiprocessors, 1));
	g->pinned_bytes = PINNED_BYTES;
	if (!allocate(g, g->memory_bytes, "operands", &g->memory, error) ||
		!allocate(g, KERNELS_WORKSPACE_BYTES, "a workspace", &g->workspace, error) ||
		!allocate(g, sizeof(*g->clock), "a clock", &clock, error) ||
		!gpu_check(g,
			g->api->cuMemHostAlloc(&pinned, PINNED_BYTES, CUDA_HOST_ALLOC_PORTABLE),
			"pinned host memory (cuMemHostAlloc)", error))
		return false;
	g->clock = (uint64_t *)clock;
	g->pinned = pinned;
	gpu_make_values(g);
	return gpu_fill(g, error);
}

static bool open_gpu(struct gpu_bench *g, struct error *error)
{
	if (!find_device(g, error) || !find_kernels(g, error) ||
		!gpu_stopwatch_open(&g->watch, g->api, error) || !make_memory(g, error))
		return false;
	/* Kernels run as they will beside collectives, if there will be any. */
	g->base.context = (struct kernel_context){.threads = 1,
		.beside = g->gpus > 1 || g->base.options->launcher.ranks > 1 ? KERNELS_SOME : 0,
		.workspace = g->workspace,
		.workspace_bytes = KERNELS_WORKSPACE_BYTES,
		.stream = g->watch.stream};
	return g->base.kernels->open(&g->base.context, error);
}

static void close_gpu(struct gpu_bench *g)
{
	void *const device[] = {g->memory, g->workspace, g->clock};

	if (g->base.context.workspace != NULL)
		g->base.kernels->close(&g->base.context);
	for (int i = 0; i < COUNT_OF(device); i++)
		if (device[i] != NULL)
			g->api->cuMemFree((uint64_t)(uintptr_t)device[i]);
	if (g->pinned != NULL)
		g->api->cuMemFreeHost(g->pinned);
	gpu_stopwatch_close(&g->watch);
	if (g->library != NULL)
		g->api->cuLibraryUnload(g->library);
	if (g->context != NULL)
		g->api->cuDevicePrimaryCtxRelease(0);
}

/* --- where the figures come from --- */

static void add_versions(const struct gpu_bench *g, struct text *text)
{
	const struct nccl_api *nccl = g->gpus > 1 ? nccl_api(NULL) : NULL;
	int cuda = 0, version = 0;

	if (g->api->cuDriverGetVersion(&cuda) == 0)
		text_printf(text, "; CUDA %d.%d of the driver", cuda / 1000, cuda % 1000 / 10);
	if (cuda_image_compiler[0] != '\0')
		text_printf(text, "; kernels by %s", cuda_image_compiler);
	if (cuda_api_has_cublaslt(g->api))
		text_printf(text, "; cuBLASLt %zu", g->api->cublasLtGetVersion());
	if (nccl != NULL && nccl->ncclGetVersion(&version) == 0)
		text_printf(text, "; NCCL %d.%d.%d", version / 10000, version / 100 % 100,
			version % 100);
}

static const char *provenance(const struct gpu_bench *g)
{
	struct gpu_facts facts;
	struct text text = {0};
	char name[96] = "a GPU without a name";

	gpu_facts_read(&facts);
	g->api->cuDeviceGetName(name, sizeof(name), 0);
	text_printf(&text, "shardplan calibrate --device cuda%s; %d x %s",
		g->base.options->quick ? " --quick" : "", g->gpus, name);
	if (facts.driver[0] != '\0')
		text_printf(&text, "; driver %s", facts.driver);
	add_versions(g, &text);
	if (g->clock_mhz > 0)
		text_printf(
			&text, "; %d MHz under load of at most %d", g->clock_mhz, facts.most_mhz);
	if (g->watts > 0)
		text_printf(&text, "; %d W under load", g->watts);
	if (facts.most_watts > 0)
		text_printf(&text, "; power limit %d W", facts.most_watts);
	const char *copy = arena_strdup(g->base.arena, text_string(&text));
	text_finish(&text);
	return copy;
}

/* The driver keeps some of a GPU's memory for itself. Plans have what a process can get. */
static bool measure_room(struct gpu_bench *g, struct error *error)
{
	size_t available = 0, total = 0;
	char room[32];

	if (!gpu_check(g, g->api->cuMemGetInfo(&available, &total), "cuMemGetInfo", error))
		return false;
	if (total == 0 || (int64_t)total >= g->topology->device.memory_bytes)
		return true;
	g->topology->device.memory_bytes = (int64_t)total;
	bench_forget_origin(g->topology, "device.memory");
	bench_say(&g->base, "memory that a process can get: %s", format_bytes(room, (double)total));
	return true;
}

static bool measure_first(struct gpu_bench *g, struct error *error)
{
	struct calibration *c = g->base.calibration;
	bool ok = open_gpu(g, error) && measure_room(g, error) && calibrate_gpu_memory(g, error) &&
		  calibrate_gpu_kernels(g, error) && calibrate_gpu_rates(g, error) &&
		  calibrate_gpu_update(g, error);

	if (ok) {
		c->date = machine_date(g->base.arena);
		c->provenance = provenance(g);
	}
	close_gpu(g);
	return ok;
}

bool calibrate_gpus(const struct calibrate_options *options, struct arena *arena,
	struct topology *topology, struct error *error)
{
	const struct launcher *launcher = &options->launcher;
	struct calibration none = {0}, *c = topology != NULL ? &topology->calibration : &none;
	struct gpu_bench g = {.base = {.options = options,
				      .arena = arena,
				      .calibration = c,
				      .budget = options->quick ? BUDGET_QUICK : BUDGET_FULL},
		.topology = topology};

	*c = (struct calibration){0};
	/* What will be needed is looked for first, and not after a minute. */
	if (!device_cuda_available(&g.gpus, error) ||
		((g.gpus > 1 || launcher->ranks > 1) && nccl_api(error) == NULL))
		return false;
	g.api = cuda_api(error);
	g.base.kernels = g.api->kernels != NULL ? g.api->kernels : kernels_by_name("cuda");
	/* All ranks measure together first, so that none waits while the first rank measures
	 * alone. */
	if (!calibrate_gpu_collectives(&g.base, g.gpus, error))
		return false;
	if (launcher->rank > 0)
		return true;
	if (launcher->ranks > 1 && !bench_describe_gpu_cluster(&g.base, topology, error))
		return false;
	bench_forget_origin(topology, "calibration");
	bench_forget_origin(topology, "host.pcie_bandwidth");
	c->measured = measure_first(&g, error);
	c->residual_spread = g.base.n_spreads > 0 ? g.base.spread / g.base.n_spreads : 0;
	return c->measured;
}
