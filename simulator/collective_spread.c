/* How far off predicted times of collectives are. */
#include "simulator/collective.h"

enum { SIZES = 4, LEVELS = 2, BARS = 2 };

/* Robust standard deviations of log(measured / predicted), all judged rows of bench/collectives
 * (1013 rows, 35 sources; bench/results/2026-11-22-collectives.md): up to 1, 16, 256 MiB and more.
 * Part of it is what equal hardware differs by. */
static const double spreads[BARS][LEVELS][SIZES] = {
	/* all-gather, reduce-scatter: in one node, across nodes */
	{{0.177, 0.190, 0.078, 0.046}, {0.300, 0.153, 0.136, 0.100}},
	/* all-reduce */
	{{0.154, 0.187, 0.060, 0.041}, {0.120, 0.164, 0.233, 0.072}},
};

double collective_spread(
	const struct placement *placement, enum collective_kind kind, int64_t bytes)
{
	int size = 0;

	for (int64_t rest = bytes >> 20; rest > 0 && size < SIZES - 1; rest >>= 4)
		size++;
	return spreads[kind == COLLECTIVE_ALL_REDUCE][placement->nodes > 1][size];
}
