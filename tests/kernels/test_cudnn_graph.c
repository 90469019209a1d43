/* The real cuDNN, where it is installed, without a GPU: that it takes our graph of attention and
 * compiles plans of it, for GPUs that are only described. Skipped (77) where it is not there, or
 * says that it cannot do that. What the plans compute, and how fast, only a GPU shows.
 *
 *   test_cudnn_graph libcuda.so.1    a driver that stands in (no_gpu.c)
 *   test_cudnn_graph ... say         prints every plan that it got */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/attention_graph.h"

enum { ALGORITHMS = 8 };

/* As cuDNN writes a device down: what NVIDIA says of each in its documents. */
#define DEVICE(version, name, multiprocessors, shared, cache)                                      \
	"{\"deviceVer\":" version ",\"driverVer\":13000,\"cudaDeviceId\":0,\"deviceName\":\"" name \
	"\",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"             \
	"\"regsPerBlock\":65536,\"multiProcessorCount\":" multiprocessors ",\"warpSize\":32,"      \
	"\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" shared               \
	",\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"  \
	"\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0" \
	",\"supportCoopLaunch\":1,\"totalGlobalMem\":85000000000,\"smClockRateKHz\":1980000,"      \
	"\"memClockRateKHz\":2619000,\"l2CacheSize\":" cache "}"

static const struct device {
	const char *name, *json;
} devices[] = {
	{"sm_80", DEVICE("800", "NVIDIA A100-SXM4-80GB", "108", "166912", "41943040")},
	{"sm_90", DEVICE("900", "NVIDIA H100 80GB HBM3", "132", "232448", "52428800")},
	{"sm_100", DEVICE("1000", "NVIDIA B200", "148", "232448", "132644864")},
};

/* Sequences, length, heads, heads for keys, their size: of GPT-2, of Llama with shared keys; and a
 * length that no tile divides. */
static const int64_t shapes[][5] = {
	{8, 1024, 25, 25, 64}, {2, 4096, 32, 8, 128}, {3, 1000, 12, 12, 64}};

static bool say;
static int failures;

/* Rows as the executor packs them: queries, keys and values of a token side by side. */
static struct attention_call shape_of(const int64_t *n)
{
	int64_t packed = (n[2] + 2 * n[3]) * n[4], width = n[2] * n[4];
	const struct attention forward = {.sequences = n[0],
		.length = n[1],
		.heads = n[2],
		.kv_heads = n[3],
		.head_dim = n[4],
		.dtype = DTYPE_BF16,
		.q_stride = packed,
		.k_stride = packed,
		.v_stride = packed,
		.out_stride = width};

	return (struct attention_call){{.forward = forward,
					       .dout_stride = width,
					       .dq_stride = packed,
					       .dk_stride = packed,
					       .dv_stride = packed},
		n[2]};
}

static void expect(bool true_one, const char *what, const struct device *device, const int64_t *n)
{
	if (true_one)
		return;
	failures++;
	fprintf(stderr, "%s, %d x %d, %d and %d heads of %d: %s\n", device->name, (int)n[0],
		(int)n[1], (int)n[2], (int)n[3], (int)n[4], what);
}

/* NULL where this cuDNN cannot be told of a device. */
static void *describe(const struct cudnn_api *api, const struct device *device)
{
	void *made = NULL;

	if (api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made) == 0 &&
		api->cudnnBackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
			CUDNN_TYPE_CHAR, (int64_t)strlen(device->json) + 1, device->json) == 0 &&
		api->cudnnBackendFinalize(made) == 0)
		return made;
	return NULL;
}

static void print(const struct device *device, const int64_t *n, enum attention_pass pass,
	const struct attention_algorithm *w, int64_t workspace)
{
	printf("%-6s %s %2d x %4d, %2d and %2d heads of %3d: engine %d, kernel %d, cluster %d, "
	       "stream %d, tile %d x %d, stages %d, workspace %lld bytes\n",
		device->name, pass == ATTENTION_BACKWARD ? "backward" : "forward", (int)n[0],
		(int)n[1], (int)n[2], (int)n[3], (int)n[4], w->engine, w->kernel, w->cluster,
		w->stream_k, w->tile_m, w->tile_n, w->stages, (long long)workspace);
}

/* The best proposal is found again by its numbers; what there is not is refused, and no more. */
static void check_shape(const struct cudnn_target *target, const struct device *device,
	enum attention_pass pass, const int64_t *n)
{
	const struct attention_call a = shape_of(n);
	const int64_t most =
		pass == ATTENTION_BACKWARD ? (int64_t)1 << 40 : (int64_t)KERNELS_WORKSPACE_BYTES;
	static const struct attention_algorithm unknown = {.engine = 4711};
	struct attention_algorithm algorithms[ALGORITHMS];
	int64_t bytes[ALGORITHMS];
	struct attention_graph g;

	expect(attention_graph_build(&g, target, pass, &a), "the graph is refused", device, n);
	int found = attention_graph_algorithms(&g, most, algorithms, bytes, ALGORITHMS);
	expect(found > 0, "no plan", device, n);
	expect(!attention_graph_plan(&g, &unknown), "an engine that there is not", device, n);
	attention_graph_drop(&g);
	expect(g.n_made == 0, "descriptors are left", device, n);
	for (int i = 0; i < (say ? found : found > 0); i++) {
		expect(attention_graph_build(&g, target, pass, &a) &&
				attention_graph_plan(&g, &algorithms[i]),
			"no plan by numbers", device, n);
		expect(g.workspace_bytes == bytes[i], "workspace", device, n);
		if (say)
			print(device, n, pass, &algorithms[i], g.workspace_bytes);
		attention_graph_drop(&g);
	}
}

/* Heads that keys cannot be shared among, and such as lie on no 16 bytes: cuDNN looks at what it
 * gets. */
static void check_refusals(const struct cudnn_target *target, const struct device *device)
{
	static const int64_t wrong[][5] = {{2, 1024, 32, 5, 64}, {2, 1024, 32, 32, 20}};
	struct attention_algorithm algorithms[ALGORITHMS];
	int64_t bytes[ALGORITHMS];
	struct attention_graph g;

	for (int i = 0; i < COUNT_OF(wrong) * ATTENTION_PASSES; i++) {
		const int64_t *n = wrong[i / ATTENTION_PASSES];
		const struct attention_call a = shape_of(n);
		bool built = attention_graph_build(&g, target, i % ATTENTION_PASSES, &a);

		expect(!built || attention_graph_algorithms(
					 &g, (int64_t)1 << 40, algorithms, bytes, ALGORITHMS) == 0,
			"was not refused", device, n);
		attention_graph_drop(&g);
	}
}

static int skip(const char *why)
{
	printf("test_cudnn_graph: skipped, %s\n", why);
	return 77;
}

int main(int argc, char **argv)
{
	struct cudnn_target target = {0};

	say = argc > 2 && strcmp(argv[2], "say") == 0;
	/* First, so that whoever asks for a driver gets this one. */
	if (argc < 2 || dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == NULL) {
		fprintf(stderr, "test_cudnn_graph: no driver: %s\n", argc < 2 ? "" : dlerror());
		return 1;
	}
	target.api = cudnn_find();
	if (target.api == NULL)
		return skip("there is no libcudnn.so.9");
	if (dlopen("libnvrtc.so.13", RTLD_NOW) == NULL &&
		dlopen("libnvrtc.so.12", RTLD_NOW) == NULL)
		return skip("there is no NVRTC, which it compiles with");
	size_t version = target.api->cudnnGetVersion();
	printf("cuDNN %zu\n", version);
	if (version < CUDNN_LEAST_VERSION)
		return skip("it is older than what is used");
	for (int d = 0; d < COUNT_OF(devices); d++) {
		target.device = describe(target.api, &devices[d]);
		if (target.device == NULL)
			return skip("it cannot compile for a GPU that is not there");
		check_refusals(&target, &devices[d]);
		for (int i = 0; i < COUNT_OF(shapes); i++)
			for (int pass = 0; pass < ATTENTION_PASSES; pass++)
				if (pass == ATTENTION_FORWARD || version >= CUDNN_LEAST_BACKWARD)
					check_shape(&target, &devices[d], pass, shapes[i]);
		target.api->cudnnBackendDestroyDescriptor(target.device);
	}
	return failures > 0;
}
