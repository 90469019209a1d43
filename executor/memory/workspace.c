#include <sys/mman.h>

#include "executor/memory/memory.h"
#include "kernels/kernels.h"

void *workspace_reserve(void)
{
	void *workspace = mmap(NULL, KERNELS_WORKSPACE_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return workspace != MAP_FAILED ? workspace : NULL;
}

void workspace_release(void *workspace)
{
	if (workspace != NULL)
		munmap(workspace, KERNELS_WORKSPACE_BYTES);
}
