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

/* init.cc: the bytes that move at once. */
static const double chunk_inside = 512 << 10, chunk_across = 128 << 10;
/* enqueue.cc: what one channel carries of a message inside a node, at least and at most: more
 * channels are taken rather than pass the latter. */
static const double part_least = 64 << 10, part_most = 16 << 20;
/* The time of the host's thread for a message to another node, both ways [U]: 16 ranks on two nodes
 * take 30.5 us up to 8 KiB where GPUs have no NVLink (NCCL 2.30), which is 1.2 a message, and 49.8
 * on A100 (2.17; 29.8 for two ranks), which is 2.8. */
static const double message_post = 2;
/* Many messages to other nodes at a time. NICs deliver 0.81 of 8 x 200 Gbit/s to two nodes of eight
 * A100 (microsoft/mscclpp, performance-ndmv4.md), 0.86 of 8 x 400 to two of eight H100
 * (NVIDIA/nccl-tests issue 355). On Blackwell the thread that posts the chunks of one rank keeps up
 * with 27 to 30 (B200, orcd-b200) and 24 GB/s (128 GB300 in two racks, oracle-quickstart's guide).
 */
static const double many_share = 0.81, many_posted = 30;

/* paths.cc: channels of a message between nodes, 14 GB/s each. */
static const double channel_network = 14;
enum { CHANNELS_MAX = 32, CHANNELS_LEAST = 2 };

/* GB/s that one multiprocessor copies over NVLink. Blackwell: 20.8 to 21.5 of eight B200 that send
 * 16 MiB to 16 GiB (orcd-b200-rocky); Ampere: eight A100 that send 128 MiB over eight channels;
 * Hopper, whose clock is Blackwell's, is taken for it [U]. */
static double channel_bandwidth(const struct topology *topology)
{
	enum device_generation generation = topology->device.generation;

	return generation == GENERATION_HOPPER || generation == GENERATION_BLACKWELL ? 21 : 13.9;
}

static int64_t local_of(const struct placement *placement)
{
	return ceil_div(placement->ranks, placement->nodes);
}

/* The NICs that are used by ranks which send to another node at the same time: one rank of each
 * group. */
static double nics_reached(const struct topology *topology, const struct placement *placement)
{
	int64_t nics = topology->network.nics_per_node;
	int64_t near = ceil_div(placement->groups_per_node * nics, topology->devices_per_node);

	return (double)min_i64(nics, max_i64(1, near));
}

/* The bandwidth of one rank that sends to another node: sending ranks share the NICs nearest to
 * them. */
static double flow_bandwidth(const struct topology *topology, const struct placement *placement,
	const struct nccl_links *group)
{
	return group->flow * nics_reached(topology, placement) /
	       (double)topology->network.nics_per_node;
}

/* The least number of channels for every message of the group: as many as leave one for each
 * message. */
static double channels_each(double ranks)
{
	double each = CHANNELS_MAX;

	while (each * ranks > CHANNELS_MAX && each > 1)
		each /= 2;
	return each;
}

/* The time of `bytes` in messages of `message` inside a node: that of the links, or that of the
 * channel with a part of one message. NCCL doubles the channels where a part would exceed its
 * limit, so its times fall there; ours stay at the time of the largest part. */
static double inside_time(const struct topology *topology, const struct nccl_links *group,
	double bandwidth, double bytes, double message)
{
	double channel = channel_bandwidth(topology);
	double part = fmax(message / channels_each(group->ranks), fmin(message, part_least));
	double all = fmin(bandwidth, CHANNELS_MAX * channel);

	if (topology->fabric.kind == FABRIC_PCIE || topology->fabric.kind == FABRIC_SHARED_MEMORY)
		return bytes / (1e3 * bandwidth);
	return fmax(bytes / all, fmin(part, part_most) / channel) / 1e3;
}

/* --- send and receive ------------------------------------------------------------------------- */

/* The time of the slowest pair of the group: one on two nodes, if there is one. */
static double send_time(const struct topology *topology, const struct placement *placement,
	const struct nccl_links *group, double bytes)
{
	double pair = nccl_pair_bandwidth(topology, group);

	if (group->nodes <= 1)
		return nccl_hop_inside(group, fmin(bytes, chunk_inside)) +
		       inside_time(topology, group, pair, bytes, bytes);
	return message_post + nccl_hop_across(group, fmin(bytes, chunk_across)) +
	       bytes / (1e3 * flow_bandwidth(topology, placement, group));
}

/* --- all-to-all ------------------------------------------------------------------------------- */

/* GB/s of all ranks of a node. */
static double many_bandwidth(
	const struct topology *topology, const struct nccl_links *group, double local)
{
	bool posted = topology->device.generation == GENERATION_BLACKWELL;

	return fmin(group->flow,
		fmin(group->node * many_share, posted ? local * many_posted : INFINITY));
}

/* A rank's parts for its own node pass its port, those for others the NICs, at the same time. */
static double all_to_all_time(const struct topology *topology, const struct placement *placement,
	const struct nccl_links *group, double bytes)
{
	double local = (double)local_of(placement), others = group->ranks - local;
	double part = bytes / group->ranks;
	double nics = others > 1 ? many_bandwidth(topology, group, local) : group->flow;
	double inside = inside_time(topology, group, group->port, (local - 1) * part, part);

	if (group->nodes <= 1)
		return nccl_hop_inside(group, fmin(part, chunk_inside)) + inside;
	return others * message_post + nccl_hop_across(group, fmin(part, chunk_across)) +
	       fmax(local > 1 ? inside : 0, local * others * part / (1e3 * nics));
}

double nccl_exchange_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes)
{
	struct nccl_links group = nccl_links_of(topology, libraries, placement);
	double time;

	/* Messages get the full links between hosts of an NVLink domain: 685 GB/s of bus bandwidth
	 * over 8 GB300 and 667 over 64 (oracle-quickstart's guide). */
	group.port /= nccl_links_share(placement);
	time = kind == COLLECTIVE_SEND_RECV
		       ? send_time(topology, placement, &group, (double)bytes)
		       : all_to_all_time(topology, placement, &group, (double)bytes);

	return 1e-6 * (group.launch + time);
}

/* --- copies ----------------------------------------------------------------------------------- */

/* Copy engines use the links in both directions at once: 374 GB/s each way on H100, whose figure
 * here is 371 (NVIDIA/nccl issue 1264). In a mesh these are the links to one other rank. */
double nccl_copies_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes)
{
	const struct nccl_links group = nccl_links_of(topology, libraries, placement);
	double pair = nccl_pair_bandwidth(topology, &group);
	double port = pair == group.port ? topology->fabric.bandwidth / 1e9 : pair;
	double others = group.ranks - 1, part = (double)bytes / group.ranks;
	double barriers = kind == COLLECTIVE_REDUCE_SCATTER ? 2 * others + 2 : 3;

	return 1e-6 * ((barriers + others) * group.inside + others * part / (1e3 * port));
}

double nccl_exchange_channels(const struct topology *topology, const struct placement *placement,
	enum collective_kind kind)
{
	const struct network *network = &topology->network;
	double nics = (double)network->nics_per_node / (double)topology->devices_per_node;
	double needed = ceil(fmax(1, nics) * network->nic_bandwidth / 1e9 / channel_network);
	double messages = kind == COLLECTIVE_SEND_RECV ? 1 : (double)placement->ranks - 1;

	/* One message each way, on the channels of one message. */
	if (placement->nodes <= 1 && kind == COLLECTIVE_SEND_RECV)
		return channels_each((double)placement->ranks);
	if (placement->nodes <= 1)
		return CHANNELS_MAX;
	return fmin(CHANNELS_MAX, messages * fmax(CHANNELS_LEAST, needed));
}
