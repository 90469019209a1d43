/* The fabric of a node from how its GPUs reach each other. */
#include <math.h>
#include <string.h>

#include "topologies/import/draft.h"

const char *const path_names[] = {
	[PATH_NVLINK] = "NV",
	[PATH_PIX] = "PIX",
	[PATH_PXB] = "PXB",
	[PATH_PHB] = "PHB",
	[PATH_NODE] = "NODE",
	[PATH_SYS] = "SYS",
	NULL,
};

/* What one NVLink carries in one direction, by compute capability, as NCCL counts it
 * (src/graph/topo.h, NCCL 2.28): the payload, not the wire. */
static double nvlink_bandwidth(int sm)
{
	static const struct {
		int first, last;
		double bandwidth;
	} generations[] = {{60, 62, 18e9}, {70, 75, 20e9}, {80, 80, 20e9}, {86, 87, 12e9},
		{90, 90, 20.6e9}, {100, 109, 40.1e9}};

	for (int i = 0; i < COUNT_OF(generations); i++)
		if (sm >= generations[i].first && sm <= generations[i].last)
			return generations[i].bandwidth;
	return 0;
}

static int links_of(const struct node_links *links, int gpu)
{
	int total = 0;

	if (links->nvswitch)
		return links->nvlinks[gpu][gpu];
	for (int i = 0; i < links->gpus; i++)
		total += i != gpu ? links->nvlinks[gpu][i] : 0;
	return total;
}

/* The fewest links of any GPU; 0 when some GPU has none. */
static int fewest_links(const struct node_links *links)
{
	int fewest = 255;

	for (int i = 0; i < links->gpus; i++) {
		int n = links_of(links, i);

		fewest = n < fewest ? n : fewest;
	}
	return links->gpus > 0 ? fewest : 0;
}

static void reach(const struct node_links *links, int from, bool seen[GPUS_MAX])
{
	int stack[GPUS_MAX], depth = 0;

	seen[from] = true;
	stack[depth++] = from;
	while (depth > 0) {
		int at = stack[--depth];

		for (int i = 0; i < links->gpus; i++)
			if (!seen[i] && links->nvlinks[at][i] > 0) {
				seen[i] = true;
				stack[depth++] = i;
			}
	}
}

/* Can data go round all GPUs over NVLink only? Every GPU needs two neighbours (two GPUs: one). */
static bool is_mesh(const struct node_links *links)
{
	bool seen[GPUS_MAX] = {false};

	reach(links, 0, seen);
	for (int i = 0; i < links->gpus; i++) {
		int neighbours = 0;

		for (int j = 0; j < links->gpus; j++)
			neighbours += i != j && links->nvlinks[i][j] > 0;
		if (!seen[i] || neighbours < (links->gpus > 2 ? 2 : 1))
			return false;
	}
	return true;
}

static bool all_alike(const struct node_links *links)
{
	for (int i = 0; i < links->gpus; i++)
		for (int j = 0; j < links->gpus; j++)
			if (i != j && links->nvlinks[i][j] != links->nvlinks[0][1])
				return false;
	return true;
}

/* A matrix prints a switched GPU's links once for every other GPU: more than a GPU has. */
static bool looks_switched(const struct node_links *links)
{
	enum { LINKS_OF_A_GPU = 18 }; /* Hopper's, the most so far */

	return all_alike(links) && links_of(links, 0) > LINKS_OF_A_GPU;
}

/* In the order of the devices, which is also NCCL's where nothing is gained by another. */
static double ring_bandwidth(const struct node_links *links, enum path *worst)
{
	double least = INFINITY;

	*worst = PATH_NVLINK;
	for (int i = 0; i < links->gpus; i++) {
		int next = (i + 1) % links->gpus;

		if (links->paths[i][next] > (unsigned char)*worst)
			*worst = (enum path)links->paths[i][next];
		least = fmin(least, links->bandwidth[i][next]);
	}
	return least;
}

/* Links that are down, or the wrong name for the GPU, would pass for a slow fabric. */
static void note_count(
	struct topology_import *import, const struct topology *like, int count, double each)
{
	double usual = like->fabric.kind == FABRIC_PCIE ? 0 : like->fabric.bandwidth / each;

	if (strcmp(like->device.name, import->gpu) != 0 || usual < 1 ||
		fabs(usual - round(usual)) > 0.01 || round(usual) == count)
		return;
	draft_note(import,
		"%s: %d NVLinks for each GPU, but %s has %.0f in %s; "
		"is that the GPU, and are all links up (nvidia-smi nvlink -s)?",
		import->links->name, count, import->gpu, usual, like->name);
}

static bool set_nvlink(struct topology_import *import, const struct topology *like, int count,
	enum fabric_kind kind, struct error *error)
{
	const struct node_links *links = import->links;
	int sm = import->sm > 0 ? import->sm : gpu_sm(import->topology.device.name);
	double each = nvlink_bandwidth(sm);

	if (!draft_set_int(import, PROPERTY_FABRIC_KIND, kind, links->name, links->by, error))
		return false;
	if (each == 0) {
		draft_note(import, "%s: what one NVLink of this GPU carries is not known; assumed",
			links->name);
		return true;
	}
	note_count(import, like, count, each);
	return draft_set_double(import, PROPERTY_FABRIC_BANDWIDTH, count * each, links->name,
		arena_printf(import->arena, "%s: %d NVLinks x %.4g GB/s (NCCL's for sm%d)",
			links->by, count, each / 1e9, sm),
		error);
}

static bool set_pcie(struct topology_import *import, struct error *error)
{
	const struct node_links *links = import->links;
	enum path worst;
	double bandwidth = ring_bandwidth(links, &worst);

	if (!draft_set_int(
		    import, PROPERTY_FABRIC_KIND, FABRIC_PCIE, links->name, links->by, error))
		return false;
	if (!(bandwidth > 0) || isinf(bandwidth))
		return true;
	return draft_set_double(import, PROPERTY_FABRIC_BANDWIDTH, bandwidth, links->name,
		arena_printf(import->arena, "%s: the slowest step of a ring, %s, NCCL's arithmetic",
			links->by, path_names[worst]),
		error);
}

bool draft_links(struct topology_import *import, const struct topology *like, struct error *error)
{
	struct node_links *links = import->links;

	if (links == NULL || links->gpus < 2)
		return true;
	if (!links->nvswitch && looks_switched(links)) {
		links->nvswitch = true;
		for (int i = 0; i < links->gpus; i++)
			links->nvlinks[i][i] = links->nvlinks[0][1];
	}
	if (links->nvswitch && fewest_links(links) > 0)
		return set_nvlink(import, like, fewest_links(links), FABRIC_NVSWITCH, error);
	if (fewest_links(links) > 0 && is_mesh(links))
		return set_nvlink(import, like, fewest_links(links),
			all_alike(links) ? FABRIC_NVLINK_MESH : FABRIC_NVLINK_CUBE_MESH, error);
	return set_pcie(import, error);
}
