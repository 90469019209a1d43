#include "kernels/cuda/cudnn.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/base.h"
#include "kernels/common/common.h"

static const struct symbol symbols[] = {
#define X(name, arguments) {#name, offsetof(struct cudnn_api, name)},
	CUDNN_FUNCTIONS(X)
#undef X
		{"cudnnGetVersion", offsetof(struct cudnn_api, cudnnGetVersion)},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cudnn_api table;
static const struct cudnn_api *found;

static void load(void)
{
	void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);

	if (library != NULL && symbols_find(library, symbols, COUNT_OF(symbols), &table) == NULL)
		found = &table;
}

const struct cudnn_api *cudnn_find(void)
{
	pthread_once(&once, load);
	return found;
}
