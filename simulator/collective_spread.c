/* How far off predicted times of collectives are. */
#include "simulator/collective.h"

enum { LEVEL_NODE, LEVEL_DOMAIN, LEVEL_NETWORK, LEVEL_COUNT };
enum { SIZES = 4, BARS = 2 };

/* Robust standard deviations of log(measured / predicted), all judged rows of bench/collectives,
 * those found later too (1532 rows, 58 sources; bench/results/2026-11-23-collectives.md): up to 1,
 * 16, 256 MiB and more. Part of it is what equal hardware differs by. An all-reduce of less than
 * 256 MiB in an NVLink domain is not published: as in a host, where that is more. */
static const double spreads[BARS][LEVEL_COUNT][SIZES] = {
	/* all-gather, reduce-scatter: in one host, in an NVLink domain of several, across nodes */
	{{0.174, 0.202, 0.149, 0.042}, {0.409, 0.511, 0.516, 0.461}, {0.284, 0.235, 0.235, 0.099}},
	/* all-reduce */
	{{0.167, 0.199, 0.065, 0.041}, {0.167, 0.199, 0.112, 0.112}, {0.134, 0.245, 0.277, 0.073}},
};

/* Hosts have at most 16 GPUs; what counts as a node of more is an NVLink domain of several. */
static bool in_domain(const struct topology *topology, const struct placement *placement)
{
	enum { HOST_DEVICES_MAX = 16 };

	return placement->nodes == 1 && topology->devices_per_node > HOST_DEVICES_MAX;
}

double collective_spread(const struct topology *topology, const struct placement *placement,
	enum collective_kind kind, int64_t bytes)
{
	int level = placement->nodes > 1             ? LEVEL_NETWORK
		    : in_domain(topology, placement) ? LEVEL_DOMAIN
						     : LEVEL_NODE;
	int size = 0;

	for (int64_t rest = bytes >> 20; rest > 0 && size < SIZES - 1; rest >>= 4)
		size++;
	return spreads[kind == COLLECTIVE_ALL_REDUCE][level][size];
}
