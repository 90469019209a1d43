/* Gathers and reduce-scatters by rings. Published times show the protocols as steps, at the sizes
 * where NCCL's tables change from one to the next: LL, LL128 and Simple each have a latency and a
 * share of the links. docs/cost-model.md lists the fitted constants and their sources. us, GB/s. */
#include "simulator/nccl/steps.h"

#include <math.h>

#include "simulator/nccl/time.h"

/* Across nodes: the share of NCCL's latency that a protocol takes (least median error over the
 * calibrating sources; flat from 1.75 to 1.9), and its share of the slowest link. */
static const double across_latency = 1.85;
static const double across_share[NCCL_PROTOCOL_COUNT] = {0.5, 0.92, 1};

/* Inside a node of Hopper or Blackwell: eight B200 (b200-slurm), to within 6 % in all but two of 21
 * rows; eight H100 agree (simumax-h100). Simple is time.c's. */
static const double inside_latency[NCCL_PROTOCOL_COUNT] = {1.39, 0.83};
static const double inside_share[NCCL_PROTOCOL_COUNT] = {0.86, 0.84};
static const double ll128_of_bus = 0.92; /* 120 of 128 bytes are data, less waiting */

/* Below this many bytes a channel and rank NCCL takes fewer channels, so that each moves as much:
 * 512 threads of 8 bytes (enqueue.cc; tuning.cc, threadThresholds). */
static const double full_channel = 512 * 8;
enum { RUNNING_MAX = 32 };

static bool inside(const struct topology *topology, const struct placement *placement)
{
	enum device_generation generation = topology->device.generation;

	return placement->nodes == 1 && topology->fabric.kind == FABRIC_NVSWITCH &&
	       (generation == GENERATION_HOPPER || generation == GENERATION_BLACKWELL);
}

/* Over EFA without a tuner, where only one size is published, gathers follow the law of time.c. */
bool nccl_shows_steps(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, enum nccl_algorithm algorithm)
{
	if (algorithm != NCCL_RING || kind == COLLECTIVE_ALL_REDUCE ||
		placement->ranks_per_node <= 1)
		return false;
	return inside(topology, placement) ||
	       (placement->nodes > 1 && !nccl_is_untuned(topology, libraries));
}

/* --- across nodes ----------------------------------------------------------------------------- */

/* The additional time of a byte by LL128 over Simple, by NCCL's estimate. Releases that limit LL128
 * below the graph's bandwidth leave it earlier. */
static double ll128_loss(const struct nccl_ring *ring, double bandwidth)
{
	if (ring->ll128 < across_share[NCCL_LL128] * ring->bus)
		return 1 / ring->ll128 - 1 / ring->bus;
	return (1 / across_share[NCCL_LL128] - 1) / bandwidth;
}

/* LL while its bytes take less than what LL128 adds in latency, LL128 while the 8 % that it loses
 * cost less than what Simple adds. Latencies are NCCL's tables' and LL128's bytes do not count
 * beside LL's, so that a better link never takes longer. */
static enum nccl_protocol across_protocol(
	const struct nccl_ring *ring, double moved, double bandwidth)
{
	const double *latency = ring->believed;
	bool ll128 = ring->may[NCCL_LL128];
	double ll = fmin(ring->ll, bandwidth / 2);

	if (ring->may[NCCL_LL] &&
		latency[NCCL_LL] + moved / (1e3 * ll) < latency[ll128 ? NCCL_LL128 : NCCL_SIMPLE])
		return NCCL_LL;
	if (ll128 && moved / 1e3 * ll128_loss(ring, bandwidth) <
			     latency[NCCL_SIMPLE] - latency[NCCL_LL128])
		return NCCL_LL128;
	return NCCL_SIMPLE;
}

/* The overhead that the tables give a hop on AMD hosts changes only the choice: B200 beside EPYC
 * (b200-slurm) change from LL to LL128 where the tables say, but take as long as beside Xeon. */
static double across_time(const struct nccl_ring *ring, const struct topology *topology,
	const struct libraries *libraries, const struct placement *placement, double moved,
	enum nccl_protocol *protocol)
{
	double bandwidth = nccl_ring_bandwidth(topology, libraries, placement);
	double latency, transfer;

	*protocol = across_protocol(ring, moved, bandwidth);
	latency = across_latency * ring->usual[*protocol] + ring->stated[*protocol];
	transfer = moved / (1e3 * across_share[*protocol] * bandwidth);
	/* A message through the kernel waits long but occupies nothing, so others pass
	 * meanwhile. */
	if (topology->network.kind == NETWORK_TCPX)
		return hypot(latency, transfer);
	return latency + transfer;
}

/* --- inside a node ---------------------------------------------------------------------------- */

/* The bandwidth of a protocol on links with this bus bandwidth. */
static double bandwidth_on(const struct nccl_ring *ring, enum nccl_protocol protocol, double bus)
{
	if (protocol == NCCL_LL)
		return fmin(ring->ll, bus / 2);
	return bus * (protocol == NCCL_LL128 ? ll128_of_bus : 1);
}

/* NCCL's own estimate of each protocol's bandwidth. */
static double believed_bandwidth(const struct nccl_ring *ring, enum nccl_protocol protocol)
{
	double bandwidth = bandwidth_on(ring, protocol, ring->bus);

	return protocol == NCCL_LL128 ? fmin(ring->ll128, bandwidth) : bandwidth;
}

/* The bytes from which on NCCL estimates the second protocol to be faster; infinite if a release
 * leaves it no more bandwidth. */
static double overtakes(
	const struct nccl_ring *ring, enum nccl_protocol first, enum nccl_protocol second)
{
	double wait = ring->believed[second] - ring->believed[first];
	double gain = 1 / believed_bandwidth(ring, first) - 1 / believed_bandwidth(ring, second);

	return gain > 0 ? fmax(0, wait) * 1e3 / gain : INFINITY;
}

/* `share`: of the links, for a ring. */
static double inside_protocol_time(const struct nccl_ring *ring, enum nccl_protocol protocol,
	double share, double moved, double full)
{
	double bandwidth = inside_share[protocol] * bandwidth_on(ring, protocol, share * ring->bus);

	return inside_latency[protocol] * ring->usual[protocol] + ring->stated[protocol] +
	       fmax(moved, protocol == NCCL_LL ? full : 0) / (1e3 * bandwidth);
}

/* NCCL keeps LL longer than it is the fastest, so a larger gather may take less time. Here it takes
 * as long as the largest one by LL, and by Simple as the largest one by LL128. */
static double inside_time(const struct nccl_ring *ring, double share, double moved, double simple,
	double ranks, enum nccl_protocol *protocol)
{
	double running = fmin(RUNNING_MAX, 2 * ring->channels);
	double full = running * full_channel * (ranks - 1);
	double to_ll128 = overtakes(ring, NCCL_LL, NCCL_LL128);
	double to_simple = overtakes(ring, NCCL_LL, NCCL_SIMPLE);
	bool ll128 = to_ll128 < to_simple;
	double ll = inside_protocol_time(ring, NCCL_LL, share, moved, full), last;

	*protocol = NCCL_LL;
	if (moved <= fmin(to_ll128, to_simple))
		return ll;
	last = inside_protocol_time(ring, NCCL_LL, share, fmin(to_ll128, to_simple), full);
	if (!ll128) {
		*protocol = NCCL_SIMPLE;
		return fmax(last, fmin(ll, simple));
	}
	to_simple = overtakes(ring, NCCL_LL128, NCCL_SIMPLE);
	*protocol = moved <= to_simple ? NCCL_LL128 : NCCL_SIMPLE;
	last = fmax(last, fmin(ll, inside_protocol_time(
					   ring, NCCL_LL128, share, fmin(moved, to_simple), full)));
	return *protocol == NCCL_LL128 ? last : fmax(last, simple);
}

double nccl_stepped_seconds(const struct nccl_ring *ring, const struct topology *topology,
	const struct libraries *libraries, const struct placement *placement,
	enum collective_kind kind, int64_t bytes, enum nccl_protocol *protocol)
{
	double ranks = (double)placement->ranks;
	double moved = (double)bytes * (ranks - 1) / ranks;

	if (placement->nodes > 1)
		return 1e-6 * across_time(ring, topology, libraries, placement, moved, protocol);
	return 1e-6 *
	       inside_time(ring, nccl_links_share(placement), moved,
		       1e6 * nccl_simple_seconds(topology, libraries, placement, kind, bytes),
		       ranks, protocol);
}
