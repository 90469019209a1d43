#include "executor/transports/nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>

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

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nccl_api found;
static struct error failure; /* message "" = `found` is complete */
static const struct nccl_api *other;

static void load(void)
{
	void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL) {
		error_set(&failure, EXIT_CODE_ENVIRONMENT,
			"nccl: libnccl.so.2 was not found; install NCCL 2.18 or newer (libnccl2), "
			"or use --transport device");
		return;
	}
	const char *missing = symbols_find(library, symbols, COUNT_OF(symbols), &found);
	if (missing != NULL)
		error_set(&failure, EXIT_CODE_ENVIRONMENT,
			"nccl: libnccl.so.2 lacks %s, expected NCCL 2.18 or newer; update libnccl2",
			missing);
	for (int i = 0; i < COUNT_OF(newer_symbols); i++)
		symbols_find(library, &newer_symbols[i], 1, &found);
}

const struct nccl_api *nccl_api(struct error *error)
{
	if (other != NULL)
		return other;
	pthread_once(&once, load);
	if (failure.message[0] == '\0')
		return &found;
	error_set(error, failure.code, "%s", failure.message);
	return NULL;
}

void nccl_api_use(const struct nccl_api *api)
{
	other = api;
}
