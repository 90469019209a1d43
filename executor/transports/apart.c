/* Checks that ranks which need a GPU each were not given the same one. */
#include <stdio.h>
#include <string.h>

#include "executor/transports/transports.h"

void gpu_uuid_print(const struct gpu_uuid *name, char *text, size_t size)
{
	int n = snprintf(text, size, "GPU-");

	for (size_t i = 0; i < sizeof(name->bytes); i++)
		n += snprintf(text + n, size - (size_t)n, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", name->bytes[i]);
}

/* The second rank that has the GPU says so; all others give up in silence. */
static bool compare_names(
	const struct gpu_uuid *all, const struct comm *host, int per_node, struct error *error)
{
	char text[48];

	for (int r = 1; r < host->ranks; r++)
		for (int first = r / per_node * per_node; first < r; first++) {
			if (memcmp(&all[first], &all[r], sizeof(all[0])) != 0)
				continue;
			if (host->rank != r)
				return error_set(error, EXIT_CODE_USAGE, "%s", "");
			gpu_uuid_print(&all[r], text, sizeof(text));
			return error_set(error, EXIT_CODE_USAGE,
				"transport nccl: ranks %d and %d were both given %s; "
				"each needs a GPU of its own "
				"(CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)",
				first, r, text);
		}
	return true;
}

bool gpu_check_apart(const struct cuda_api *api, int ordinal, struct comm *host, struct heap *heap,
	int per_node, struct arena *arena, struct error *error)
{
	struct gpu_uuid *all = ARENA_ARRAY(arena, struct gpu_uuid, host->ranks);
	int device = 0, block = heap_take(heap, sizeof(*all), error);

	if (block < 0)
		return false;
	struct gpu_uuid *mine = heap_address(heap, block);
	bool ok = cuda_check(api, api->cuDeviceGet(&device, ordinal), "cuDeviceGet", error) &&
		  cuda_check(api, api->cuDeviceGetUuid(mine->bytes, device), "cuDeviceGetUuid",
			  error) &&
		  comm_exchange(host, mine, all, sizeof(*all)) &&
		  compare_names(all, host, per_node, error);
	heap_give(heap, block);
	return ok;
}
