/* Slowdowns of collectives between nodes in a step, compared with tables of collectives that run
 * alone on an idle network: other tenants use the fabric, and flows share links. A ring or tree is
 * as slow as its slowest link, so all slowdowns grow with the nodes. */
#include <math.h>

#include "simulator/costs/collectives.h"
#include "simulator/devices/devices.h"
#include "simulator/nccl/nccl.h"

/* Shared with other tenants: the relative standard deviation of one operation's time for each
 * doubling of nodes. Published 5th and 95th percentiles over 2, 8 and 32 nodes of a shared EFA
 * cluster (hf-ultrascale-comm in bench/published/collectives.csv) are 0.12, 0.43 and 0.58; one node
 * 0.03. Of other clouds, and of EFA since NCCL takes tuners, nothing is published, and none is
 * assumed. */
static const double shared = 0.12;
/* What is left from step to step without it, as of one node. */
static const double steady = 0.03;
/* Flows that a hash puts on equal paths collide (ECMP, so RoCE): how much longer the wire takes
 * over 32 nodes. Baidu sees 70 of 100 Gbit/s; Meta gains up to 40 % for all-reduces by more queue
 * pairs (SIGCOMM 2024); Tolly report 225112 has 10 to 23 % between eight nodes. InfiniBand routes
 * adaptively. */
static const double hashed = 1 / 0.7 - 1;

/* Sharing was measured up to this many doublings of nodes; beyond them it does not grow. */
enum { DOUBLINGS_MEASURED = 5, COLLISIONS_NODES = 32 };

static double doublings(int64_t nodes)
{
	return fmin(DOUBLINGS_MEASURED, log2((double)nodes));
}

static double deviation(const struct machine *machine, int64_t nodes)
{
	return nccl_is_untuned(machine->topology, &machine->libraries) ? shared * doublings(nodes)
								       : 0;
}

static double collisions(const struct machine *machine)
{
	return machine->topology->network.kind == NETWORK_ROCE ? hashed : 0;
}

/* The percentiles are of runs at many times and places. Half of the variance is assumed to be
 * between steps, half between runs [U]. */
double network_jitter(const struct machine *machine, int64_t nodes)
{
	return fmax(steady, deviation(machine, nodes) / sqrt(2));
}

/* The factor from the median to the mean. A step waits for the sum of its collectives, so for their
 * means, while tables show medians; for a log-normal time the mean is exp(deviation^2 / 2) times
 * the median. */
static double mean_of_shared(const struct machine *machine, int64_t nodes)
{
	double d = deviation(machine, nodes);

	return exp(d * d / 2);
}

/* The degree to which flows share links. It is 0 between two nodes, which have one path each way;
 * from there it grows as the load of the busiest of n paths exceeds the mean, where a hash assigns
 * flows to paths. It goes on growing slowly. */
static double meeting(int64_t nodes)
{
	double pair = expected_maximum(2);

	return nodes > 2 ? (expected_maximum(nodes) - pair) /
				   (expected_maximum(COLLISIONS_NODES) - pair)
			 : 0;
}

double network_late(const struct machine *machine, int64_t nodes, double seconds, double wire)
{
	if (nodes <= 1)
		return 0;
	return seconds * (mean_of_shared(machine, nodes) - 1) +
	       fmin(wire, seconds) * collisions(machine) * meeting(nodes);
}

/* The load of the busiest path varies less from one hash to the next the more paths there are. */
double network_spread(const struct machine *machine, int64_t nodes)
{
	return collisions(machine) * fmin(1, meeting(nodes)) / 2;
}
