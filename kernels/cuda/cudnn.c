#include "kernels/cuda/cudnn.h"

#include "base/base.h"
#include "kernels/common/common.h"

static const struct symbol symbols[] = {
#define X(name, arguments) {#name, offsetof(struct cudnn_api, name)},
	CUDNN_FUNCTIONS(X)
#undef X
		{"cudnnGetVersion", offsetof(struct cudnn_api, cudnnGetVersion)},
};

static struct cudnn_api table;

static void load(struct error *error)
{
	const char *missing = library_open("libcudnn.so.9", symbols, COUNT_OF(symbols), &table);

	if (missing != NULL)
		error_set(error, EXIT_CODE_ENVIRONMENT, "no cuDNN here (%s)", missing);
}

static struct shared_library library = LIBRARY(load, &table);

const struct cudnn_api *cudnn_find(void)
{
	return library_table(&library, NULL);
}
