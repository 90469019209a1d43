/* The error of predicted times of collectives. */
#include "simulator/costs/costs.h"

enum { LEVEL_NODE, LEVEL_DOMAIN, LEVEL_NETWORK, LEVEL_COUNT };
enum { SIZES = 4, BARS = 3 };

/* Robust standard deviations of log(measured / predicted), all judged rows of bench/collectives,
 * those found later too (1637 rows, 59 sources; bench/results/collectives.md): up to 1,
 * 16, 256 MiB and more. Part of it is what equal hardware differs by. An all-reduce of up to 1 MiB
 * in an NVLink domain is not published: as up to 16 MiB. Messages are published in one host, from
 * 1 MiB on; elsewhere they are as gathers. */
static const double spreads[BARS][LEVEL_COUNT][SIZES] = {
	/* all-gather, reduce-scatter: in one host, in an NVLink domain of several, across nodes */
	{{0.124, 0.143, 0.090, 0.042}, {0.354, 0.424, 0.164, 0.160}, {0.284, 0.213, 0.234, 0.073}},
	/* all-reduce */
	{{0.140, 0.174, 0.066, 0.041}, {0.298, 0.298, 0.418, 0.162}, {0.134, 0.245, 0.277, 0.073}},
	/* messages */
	{{0.184, 0.184, 0.132, 0.051}, {0.354, 0.424, 0.164, 0.160}, {0.284, 0.213, 0.234, 0.073}},
};

double collective_spread(
	const struct placement *placement, enum collective_kind kind, int64_t bytes)
{
	int level = placement->nodes > 1    ? LEVEL_NETWORK
		    : placement->over_hosts ? LEVEL_DOMAIN
					    : LEVEL_NODE;
	static const int bars[] = {0, 0, 1, 2, 2}; /* by enum collective_kind */
	int size = 0;

	for (int64_t rest = bytes >> 20; rest > 0 && size < SIZES - 1; rest >>= 4)
		size++;
	return spreads[bars[kind]][level][size];
}
