/* Messages between pairs of ranks: how long a group's send and receive (pipelines) and all-to-all
 * (experts, sequences) take.
 *
 * NCCL (NVIDIA/nccl commit 5067397; enqueue.cc, scheduleP2pTasksToPlan and addP2pToPlan; paths.cc,
 * ncclTopoGetNchannels; init.cc, computeBuffSizes) carries all messages of a group out in one
 * kernel. A message is cut over a few channels and goes in chunks; up to eight messages a channel
 * are under way, so those inside a node and those between nodes go side by side. Between nodes a
 * rank uses the NICs that are nearest to it, and a thread of the host posts each message. us, GB/s.
 */
#include "simulator/nccl/nccl.h"

#include <math.h>

#include "simulator/nccl/time.h"

/* init.cc: what moves at once. */
static const double chunk_inside = 512 << 10, chunk_across = 128 << 10;
/* What the host's thread spends on a message to another node, both ways [U]. */
static const double message_post = 1.2;

/* paths.cc: channels of a message between nodes, 14 GB/s each. */
static const double channel_network = 14;
enum { CHANNELS_MAX = 32, CHANNELS_LEAST = 2 };

static int64_t local_of(const struct placement *placement)
{
	return ceil_div(placement->ranks, placement->nodes);
}

/* NICs that the ranks use which send to another node at the same time: one rank of each group. */
static double nics_reached(const struct topology *topology, const struct placement *placement)
{
	int64_t nics = topology->network.nics_per_node;
	int64_t near = ceil_div(placement->groups_per_node * nics, topology->devices_per_node);

	return (double)min_i64(nics, max_i64(1, near));
}

/* Of one rank that sends to another node: ranks that send share the NICs that they are next to. */
static double flow_bandwidth(const struct topology *topology, const struct placement *placement,
	const struct nccl_links *group)
{
	return group->ring * nics_reached(topology, placement) /
	       (double)topology->network.nics_per_node;
}

/* --- send and receive ------------------------------------------------------------------------- */

/* The slowest pair of the group: the one that lies on two nodes, where there is one. */
static double send_time(const struct topology *topology, const struct placement *placement,
	const struct nccl_links *group, double bytes)
{
	if (group->nodes <= 1)
		return nccl_hop_inside(group, fmin(bytes, chunk_inside)) +
		       bytes / (1e3 * nccl_pair_bandwidth(topology, group));
	return message_post + nccl_hop_across(group, fmin(bytes, chunk_across)) +
	       bytes / (1e3 * flow_bandwidth(topology, placement, group));
}

/* --- all-to-all ------------------------------------------------------------------------------- */

/* Each rank's parts for its own node pass its port, those for others the NICs; the two go side by
 * side. */
static double all_to_all_time(
	const struct placement *placement, const struct nccl_links *group, double bytes)
{
	double local = (double)local_of(placement), others = group->ranks - local;
	double part = bytes / group->ranks;
	double inside = (local - 1) * part / (1e3 * group->port);

	if (group->nodes <= 1)
		return nccl_hop_inside(group, fmin(part, chunk_inside)) + inside;
	return others * message_post + nccl_hop_across(group, fmin(part, chunk_across)) +
	       fmax(inside, local * others * part / (1e3 * group->ring));
}

double nccl_exchange_seconds(const struct topology *topology, const struct placement *placement,
	enum collective_kind kind, int64_t bytes)
{
	struct nccl_links group = nccl_links_of(topology, placement);
	double time = kind == COLLECTIVE_SEND_RECV
			      ? send_time(topology, placement, &group, (double)bytes)
			      : all_to_all_time(placement, &group, (double)bytes);

	return 1e-6 * (group.launch + time);
}

double nccl_exchange_channels(const struct topology *topology, const struct placement *placement,
	enum collective_kind kind)
{
	const struct network *network = &topology->network;
	double nics = (double)network->nics_per_node / (double)topology->devices_per_node;
	double needed = ceil(fmax(1, nics) * network->nic_bandwidth / 1e9 / channel_network);
	double messages = kind == COLLECTIVE_SEND_RECV ? 1 : (double)placement->ranks - 1;

	if (placement->nodes <= 1)
		return CHANNELS_MAX;
	return fmin(CHANNELS_MAX, messages * fmax(CHANNELS_LEAST, needed));
}
