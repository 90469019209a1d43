#include "kernels/cuda/api.h"

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

static struct cuda_api found;

/* In a machine without GPU the driver's library may be there and fail to start. */
static bool load_driver(struct error *error)
{
	static const char file[] = "libcuda.so.1";
	const char *missing = library_open(file, driver_symbols, COUNT_OF(driver_symbols), &found);

	if (missing == file)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"cuda: no driver here (libcuda.so.1 of NVIDIA's driver was not found); "
			"install it, or use --device host");
	if (missing != NULL)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"cuda: the driver is too old (no %s), "
			"expected CUDA 12 or newer (driver 525); update it, or use --device host",
			missing);
	int result = found.cuInit(0);
	return result == 0 ||
	       error_set(error, EXIT_CODE_ENVIRONMENT,
		       "cuda: no driver that works here: cuInit failed with %d (%s); "
		       "nvidia-smi says more, --device host trains without",
		       result, result == 100 ? "no device" : "see CUresult");
}

/* All or nothing. */
static void load_cublaslt(void)
{
	static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
	const char *missing = NULL;

	for (int i = 0; i < COUNT_OF(files); i++) {
		missing = library_open(
			files[i], cublaslt_symbols, COUNT_OF(cublaslt_symbols), &found);
		if (missing != files[i])
			break;
	}
	if (missing != NULL)
		found.cublasLtGetVersion = NULL;
}

static void load(struct error *error)
{
	found.image = cuda_image;
	found.image_bytes = cuda_image_bytes;
	found.cudnn = cudnn_find;
	if (load_driver(error))
		load_cublaslt();
}

static struct shared_library driver = LIBRARY(load, &found);

const struct cuda_api *cuda_api(struct error *error)
{
	return library_table(&driver, error);
}

bool cuda_api_has_cublaslt(const struct cuda_api *api)
{
	return api->cublasLtGetVersion != NULL;
}

void cuda_api_use(const struct cuda_api *api)
{
	library_replace(&driver, api);
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
