#include "executor/transports/nccl_api.h"

#include "base/base.h"
#include "kernels/kernels.h"

static const struct symbol symbols[] = {
#define X(name, arguments) {#name, offsetof(struct nccl_api, name)},
	NCCL_FUNCTIONS(X)
#undef X
		{"ncclGetErrorString", offsetof(struct nccl_api, ncclGetErrorString)},
	{"ncclGetLastError", offsetof(struct nccl_api, ncclGetLastError)},
};

static const struct symbol newer_symbols[] = {
#define X(name, arguments) {#name, offsetof(struct nccl_api, name)},
	NCCL_NEWER_FUNCTIONS(X)
#undef X
};

static struct nccl_api found;

static void load(struct error *error)
{
	static const char file[] = "libnccl.so.2";
	const char *missing = library_open(file, symbols, COUNT_OF(symbols), &found);

	if (missing == file)
		error_set(error, EXIT_CODE_ENVIRONMENT,
			"nccl: libnccl.so.2 was not found; install NCCL 2.18 or newer (libnccl2), "
			"or use --transport device");
	else if (missing != NULL)
		error_set(error, EXIT_CODE_ENVIRONMENT,
			"nccl: libnccl.so.2 lacks %s, expected NCCL 2.18 or newer; update libnccl2",
			missing);
	for (int i = 0; i < COUNT_OF(newer_symbols); i++)
		library_open(file, &newer_symbols[i], 1, &found);
}

static struct shared_library library = LIBRARY(load, &found);

const struct nccl_api *nccl_api(struct error *error)
{
	return library_table(&library, error);
}

void nccl_api_use(const struct nccl_api *api)
{
	library_replace(&library, api);
}
