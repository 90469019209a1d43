#include "kernels/cuda/api.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/base.h"
#include "kernels/common/common.h"
#include "kernels/cuda/cudnn.h"

static const struct symbol driver_symbols[] = {
#define X(name, suffix, arguments) {#name suffix, offsetof(struct cuda_api, name)},
	CUDA_DRIVER_FUNCTIONS(X)
#undef X
};

static const struct symbol cublaslt_symbols[] = {
#define X(name, suffix, arguments) {#name suffix, offsetof(struct cuda_api, name)},
	CUBLASLT_FUNCTIONS(X)
#undef X
		{"cublasLtGetVersion", offsetof(struct cuda_api, cublasLtGetVersion)},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cuda_api found;
static struct error failure; /* message "" = `found` is complete */
static const struct cuda_api *other;

/* In a machine without GPU the driver's library may be there and fail to start. */
static void load_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL) {
		error_set(&failure, EXIT_CODE_ENVIRONMENT,
			"cuda: no driver here (libcuda.so.1 of NVIDIA's driver was not found); "
			"install it, or use --device host");
		return;
	}
	const char *missing =
		symbols_find(library, driver_symbols, COUNT_OF(driver_symbols), &found);
	if (missing != NULL) {
		error_set(&failure, EXIT_CODE_ENVIRONMENT,
			"cuda: the driver is too old (no %s), expected CUDA 12 or newer "
			"(driver 525); update it, or use --device host",
			missing);
		return;
	}
	int result = found.cuInit(0);
	if (result != 0)
		error_set(&failure, EXIT_CODE_ENVIRONMENT,
			"cuda: no driver that works here: cuInit failed with %d (%s); nvidia-smi "
			"says more, --device host trains without",
			result, result == 100 ? "no device" : "see CUresult");
}

/* All or nothing. */
static void load_cublaslt(void)
{
	static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
	void *library = NULL;

	for (int i = 0; i < COUNT_OF(names) && library == NULL; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (library == NULL ||
		symbols_find(library, cublaslt_symbols, COUNT_OF(cublaslt_symbols), &found) != NULL)
		found.cublasLtGetVersion = NULL;
}

static void load(void)
{
	found.image = cuda_image;
	found.image_bytes = cuda_image_bytes;
	found.cudnn = cudnn_find;
	load_driver();
	if (failure.message[0] == '\0')
		load_cublaslt();
}

const struct cuda_api *cuda_api(struct error *error)
{
	if (other != NULL)
		return other;
	pthread_once(&once, load);
	if (failure.message[0] == '\0')
		return &found;
	error_set(error, failure.code, "%s", failure.message);
	return NULL;
}

bool cuda_api_has_cublaslt(const struct cuda_api *api)
{
	return api->cublasLtGetVersion != NULL;
}

void cuda_api_use(const struct cuda_api *api)
{
	other = api;
}

bool cuda_check(const struct cuda_api *api, int result, const char *what, struct error *error)
{
	const char *words = NULL;

	if (result == 0)
		return true;
	if (api->cuGetErrorString(result, &words) != 0 || words == NULL)
		words = "unknown error";
	return error_set(error,
		result == CUDA_ERROR_OUT_OF_MEMORY ? EXIT_CODE_ENVIRONMENT : EXIT_CODE_FAULT,
		"cuda: %s: %s (%d)", what, words, result);
}
