#include <string.h>

#include "executor/gpu_transports.h"
#include "executor/transports/transports.h"

#define X(name) extern const struct gpu_transport transport_##name;
GPU_TRANSPORTS(X)
#undef X

const struct gpu_transport *const gpu_transports[] = {
#define X(name) &transport_##name,
	GPU_TRANSPORTS(X)
#undef X
		NULL};

const struct gpu_transport *gpu_transport_find(const char *name)
{
	for (const struct gpu_transport *const *t = gpu_transports; *t != NULL; t++)
		if (strcmp((*t)->name, name) == 0)
			return *t;
	return NULL;
}
