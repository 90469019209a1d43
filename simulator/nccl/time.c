/* The times of NCCL's algorithms: launch + hops * latency + bytes / bandwidth. The latency of a hop
 * grows with the bytes of one step: small steps use the LL protocol, larger ones LL128 and Simple,
 * which synchronise more and fill larger chunks.
 *
 * Constants belong to generations of interconnects, never to a node of the catalogue. They are
 * fitted to the calibrating sources of bench/collectives; docs/cost-model.md says how, and how well
 * they fit. us, GB/s. */
#include "simulator/nccl/time.h"

#include <math.h>

/* The nodes for which a congestion is stated, and the most that are published. */
enum { CONGESTION_NODES = 32, CONGESTION_MOST = 64 };
static const double congestion_growth = 0.55;
/* The bytes of one all-reduce that meet the traffic of others. Congestion is published only for 1
 * GiB, and larger sums lose no more: nanotron's ZeRO-1, which sums 9 to 17 GiB at once on the same
 * cluster, would take up to half longer steps (calibrating rows of the ultrascale playbook with
 * stages, one group of ranks a node, 4 to 32 nodes), while its DDP, which sums less at a time,
 * takes longer than with it. Gathers of that size are not published separately. */
static const double congested_bytes = 0x1p30;

/* Links inside a node. */
enum {
	LINK_NVLINK_2,
	LINK_NVLINK_3,
	LINK_NVLINK_4,
	LINK_NVLINK_5,
	LINK_XGMI,
	LINK_PCIE,
	LINK_COUNT
};

static const struct {
	double launch;     /* of the kernel, us */
	double hop;        /* of a small step */
	double growth;     /* of a hop, per doubling of the step beyond step_inside */
	double efficiency; /* of the link figure, with many ranks */
	double pair_loss;  /* of it between two ranks; divided by r - 1 with r */
	double sharp;      /* all-reduce bandwidth of NVLink SHARP over the link figure; 0 = none */
} links[LINK_COUNT] = {
	[LINK_NVLINK_2] = {9, 0.95, 1.5, 1.0, 0, 0},
	[LINK_NVLINK_3] = {11.4, 0.95, 1.245, 0.96, 0.097, 0},
	[LINK_NVLINK_4] = {6.4, 0.95, 0.824, 0.96, 0.097, 0.736},
	[LINK_NVLINK_5] = {12, 0.95, 0.598, 0.96, 0.097, 0.60},
	[LINK_XGMI] = {15, 1.5, 1.5, 0.93, 0, 0},
	[LINK_PCIE] = {11.4, 1.5, 2.0, 1.0, 0, 0},
};

/* A network of its own: EFA without a tuner (nccl_is_untuned). */
enum { NETWORK_EFA_UNTUNED = NETWORK_TCPX + 1 };
static const int first_tuner = LIBRARY_VERSION(2, 19); /* NCCL's release notes */

/* Networks. */
static const struct {
	double latency; /* if the topology states none, us */
	double growth, tree_growth;
	double ring, tree; /* efficiency of the NICs' bandwidth */
	/* 1 / the share of the NICs that is left over 32 nodes where others use the fabric too; the
	 * share falls with about the square root of the nodes. */
	double congestion;
	/* Every level of a tree waits for a full chunk, not for a small step: over 2 to 32 nodes
	 * one more takes 50 us each way for 32 MiB (hyperpod-p5). */
	bool fills_levels;
} networks[] = {
	[NETWORK_NONE] = {14, 3.97, 4.08, 0.88, 0.97, 1},
	[NETWORK_INFINIBAND] = {14, 3.97, 4.08, 0.88, 0.97, 1},
	[NETWORK_ROCE] = {14, 3.97, 4.08, 0.88, 0.97, 1},
	[NETWORK_EFA] = {29, 3.97, 4.08, 0.95, 0.95, 1, true},
	[NETWORK_EFA_UNTUNED] = {29, 12.4, 20, 0.95, 0.95, 5.5},
	[NETWORK_ETHERNET] = {56, 12.4, 20, 0.95, 0.92, 1},
	[NETWORK_TCPX] = {449, 12.4, 20, 0.72, 0.72, 1},
};

/* The latency of a hop in NCCL's tables (ring, Simple), to which a topology's `latency` is
 * relative. */
static const double reference_nvlink = 3.4, reference_pcie = 5.7, reference_network = 14;
/* RDMA by NICs of 200 Gbit/s and less. The share that a ring gets falls with faster ones, down to
 * `ring` at 400. */
static const double ring_of_slow_nic = 0.95, slow_nic = 25, fast_nic = 50;
static const double network_hop = 9.5;      /* of a small step at that latency */
static const double step_inside = 177e3;    /* bytes: larger steps take longer than small ones */
static const double step_across = 7.8e3;    /* the same over a network */
static const double tree_parts = 8;         /* of the bytes that one step of a tree moves */
static const double tree_efficiency = 0.82; /* link bandwidth of a tree / that of a ring */
static const double sharp_start = 16.9, sharp_growth = 10.26; /* from 1 MiB, per doubling */
static const double sharp_across = 0.906; /* bandwidth of NVLink SHARP across nodes / on one node */
static const double pat_efficiency = 0.75;

/* The share of its links that a ring over several hosts of one NVLink domain gets: the median of
 * six calibrating rows (torchtitan-gb300; single rows give 0.56 to 0.78). */
static const double over_hosts_share = 0.66;

/* A chunk goes by Simple in two slices (collectives.h: CHUNKSTEPS, SLICESTEPS), and the next rank
 * begins when it has the first: a step takes half of the chunk and this long, or the chunk, if that
 * is more. us; the median of the first sizes by Simple over eight B200 and eight H100 (b200-slurm
 * 64 MiB, simumax-h100 32 MiB: 10.0 to 12.1). */
static const double slice_wait = 11.7;

/* Rings of a hybrid cube mesh (DGX-1 with V100) over its first n GPUs, of the six that all eight
 * have: what its links allow (0-1, 0-2 and 1-3 are single, 0-3, 0-4, 1-2, 1-5 double, ...). Five
 * have no cycle over NVLink; their figure is measured (vTrain). */
static const double cube_rings[] = {6, 6, 1, 2, 4, 1.65, 2, 4, 6};

static int link_of(const struct topology *topology)
{
	static const int links_of[] = {
		[GENERATION_CPU] = LINK_PCIE,
		[GENERATION_VOLTA] = LINK_NVLINK_2,
		[GENERATION_TURING] = LINK_NVLINK_2,
		[GENERATION_AMPERE] = LINK_NVLINK_3,
		[GENERATION_ADA] = LINK_PCIE,
		[GENERATION_CDNA2] = LINK_XGMI,
		[GENERATION_CDNA3] = LINK_XGMI,
		[GENERATION_CDNA4] = LINK_XGMI,
		[GENERATION_OTHER] = LINK_XGMI,
		[GENERATION_HOPPER] = LINK_NVLINK_4,
		[GENERATION_BLACKWELL] = LINK_NVLINK_5,
	};

	if (topology->fabric.kind == FABRIC_PCIE || topology->fabric.kind == FABRIC_SHARED_MEMORY)
		return LINK_PCIE;
	return links_of[topology->device.generation];
}

static double given(double stated, double otherwise)
{
	return stated > 0 ? stated : otherwise;
}

static double port_bandwidth(const struct topology *topology, int link, int64_t local)
{
	double port = topology->fabric.bandwidth / 1e9 * links[link].efficiency;

	if (topology->fabric.kind == FABRIC_NVLINK_CUBE_MESH && local < COUNT_OF(cube_rings))
		port *= cube_rings[local] / 6;
	/* In a mesh, some of the ranks use only the links between themselves. */
	if (topology->fabric.kind == FABRIC_NVLINK_MESH && local > 1)
		port *= (double)(local - 1) / (double)(topology->devices_per_node - 1);
	if (local > 1)
		port *= 1 - links[link].pair_loss / (double)(local - 1);
	return port;
}

double nccl_pair_bandwidth(const struct topology *topology, const struct nccl_links *group)
{
	bool switched = topology->fabric.kind != FABRIC_NVLINK_MESH &&
			topology->fabric.kind != FABRIC_NVLINK_CUBE_MESH;

	return switched ? group->port : port_bandwidth(topology, group->link, 2);
}

double nccl_links_share(const struct placement *placement)
{
	return placement->over_hosts ? over_hosts_share : 1;
}

static double ring_efficiency(const struct topology *topology)
{
	double fast = networks[topology->network.kind].ring;
	double nic = topology->network.nic_bandwidth / 1e9;
	double share = fmin(1, fmax(0, (nic - slow_nic) / (fast_nic - slow_nic)));

	if (topology->network.kind == NETWORK_INFINIBAND || topology->network.kind == NETWORK_ROCE)
		return ring_of_slow_nic + share * (fast - ring_of_slow_nic);
	return fast;
}

bool nccl_is_untuned(const struct topology *topology, const struct libraries *libraries)
{
	enum device_generation generation = topology->device.generation;
	bool known = generation == GENERATION_HOPPER || generation == GENERATION_BLACKWELL;

	return topology->network.kind == NETWORK_EFA &&
	       (!known || library_before(libraries, LIBRARY_NCCL, first_tuner));
}

static int network_of(const struct topology *topology, const struct libraries *libraries)
{
	return nccl_is_untuned(topology, libraries) ? NETWORK_EFA_UNTUNED
						    : (int)topology->network.kind;
}

/* Traffic that leaves a neighbourhood meets that of others on the way: published medians of a
 * shared EFA cluster over 2 to 64 nodes (1.05, 2.4, 3.8, 4.5, 5.9 and 11.5 by the all-reduces), and
 * its absence on dedicated InfiniBand. Beyond 64 nothing is known. It is what one communicator
 * gets: of several that a node is in, each takes what is left to it until the NICs are full (tensor
 * parallel rows of the ultrascale playbook: over 32 nodes a node moves some 110 GB/s for one group
 * of ranks, 300 and more for eight). */
static double congestion_of(
	const struct topology *topology, const struct nccl_links *group, int64_t nodes)
{
	double far = given(topology->network.congestion, networks[group->network].congestion);
	double ratio = (double)min_i64(nodes, CONGESTION_MOST) / CONGESTION_NODES;

	return far > 1 ? fmax(1, far * pow(ratio, congestion_growth)) : 1;
}

static double reference_inside(int link)
{
	return link == LINK_PCIE ? reference_pcie : reference_nvlink;
}

double nccl_fabric_latency(const struct topology *topology)
{
	return given(topology->fabric.latency * 1e6, reference_inside(link_of(topology)));
}

double nccl_network_latency(const struct topology *topology)
{
	return given(topology->network.latency * 1e6, networks[topology->network.kind].latency);
}

static void init_across(struct nccl_links *group, const struct topology *topology,
	const struct placement *placement)
{
	group->node = topology_node_bandwidth(topology) / 1e9 /
		      fmax((double)placement->groups_per_node,
			      congestion_of(topology, group, placement->nodes));
	group->ring = group->node * ring_efficiency(topology);
	group->flow = group->node * networks[group->network].tree;
	group->across = fmax(1, network_hop + nccl_network_latency(topology) - reference_network);
}

struct nccl_links nccl_links_of(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement)
{
	int link = link_of(topology);
	struct nccl_links group = {.link = link,
		.launch = links[link].launch,
		.network = network_of(topology, libraries),
		.ranks = (double)placement->ranks,
		.nodes = (double)placement->nodes,
		.node = INFINITY,
		.ring = INFINITY};
	group.local = (double)ceil_div(placement->ranks, placement->nodes);
	group.port = placement->ranks_per_node > 1
			     ? nccl_links_share(placement) * port_bandwidth(topology, group.link,
								     placement->ranks_per_node)
			     : INFINITY;
	group.inside = fmax(0.1, links[group.link].hop + nccl_fabric_latency(topology) -
					 reference_inside(group.link));
	if (placement->nodes > 1)
		init_across(&group, topology, placement);
	return group;
}

/* The doublings of a step beyond the largest small size. */
static double doublings(double step, double small)
{
	double ratio = step / small;

	return 0.5 * log2(1 + ratio * ratio);
}

double nccl_hop_inside(const struct nccl_links *group, double step)
{
	return group->inside + links[group->link].growth * doublings(step, step_inside);
}

static double hop_across(const struct nccl_links *group, double growth, double step)
{
	return group->across + growth * doublings(step, step_across);
}

double nccl_hop_across(const struct nccl_links *group, double step)
{
	return hop_across(group, networks[group->network].growth, step);
}

/* Over EFA, untuned, the chunks of a gather or reduce-scatter follow one another through a NIC, and
 * every step waits for one: what a hop takes longer with its bytes, each step takes, up to a full
 * chunk. 16 and 32 ranks on two and four nodes wait 38 us a step, for steps of 1 to 32 MiB alike
 * (tensor parallel rows of the ultrascale playbook, 8.86B, the calibrating part). */
static const double efa_chunk = 64 << 10;

static double efa_ring_time(const struct nccl_links *group, double bytes)
{
	double steps = group->ranks - 1, step = bytes / group->ranks;
	double wait =
		networks[group->network].growth * doublings(fmin(step, efa_chunk), step_across);

	return group->nodes * group->across + steps * (group->inside + wait) +
	       step * steps / (1e3 * fmin(group->port, group->ring));
}

/* A ring of n nodes crosses the network n times; one rank a node: at each step. */
static double ring_time(const struct nccl_links *group, enum collective_kind kind, double bytes)
{
	double passes = kind == COLLECTIVE_ALL_REDUCE ? 2 : 1;
	double steps = passes * (group->ranks - 1);
	double across = group->nodes == 1 ? 0 : group->local > 1 ? passes * group->nodes : steps;
	double step = bytes / group->ranks;
	double bus = fmin(group->port, group->ring);

	if (group->nodes > 1 && group->network == NETWORK_EFA_UNTUNED &&
		kind != COLLECTIVE_ALL_REDUCE)
		return efa_ring_time(group, bytes);
	return fmax(0, steps - across) * nccl_hop_inside(group, step) +
	       across * nccl_hop_across(group, step) + step * steps / (1e3 * bus);
}

/* The hops from a leaf to the root across nodes. */
static double tree_depth(const struct nccl_links *group)
{
	return group->nodes > 1 ? ceil(log2(group->nodes)) : 0;
}

/* The bytes that NICs carry for an all-reduce up and down a tree: between two nodes all bytes once
 * in each direction, else twice. */
static double tree_network(const struct nccl_links *group)
{
	return group->node * networks[group->network].tree * (group->nodes > 2 ? 0.5 : 1);
}

/* Up to the root and down again. Chunks follow one another through the tree, so filling them counts
 * once each way, and each level adds only a small hop, unless it waits for a chunk. */
static double tree_across(const struct nccl_links *group, double step)
{
	double chunk = hop_across(group, networks[group->network].tree_growth, step);

	if (group->nodes <= 1)
		return 0;
	return 2 *
	       (chunk + (tree_depth(group) - 1) *
				(networks[group->network].fills_levels ? chunk : group->across));
}

static double tree_time(const struct nccl_links *group, double bytes)
{
	double step = bytes / tree_parts;
	double inside = group->port / 2 * tree_efficiency;
	double bandwidth = group->nodes == 1 ? inside : fmin(1.3 * inside, tree_network(group));

	return 2 * (group->local - 1) * nccl_hop_inside(group, step) + tree_across(group, step) +
	       bytes / (1e3 * bandwidth);
}

/* NVLink SHARP reduces in the switch; across nodes, a tree of what the switches hold. */
static double sharp_time(
	const struct nccl_links *group, const struct topology *topology, double bytes)
{
	double bandwidth = topology->fabric.bandwidth / 1e9 * links[group->link].sharp;
	double time = sharp_start + sharp_growth * log2(1 + bytes / 0x1p20);

	if (group->nodes == 1)
		return time + bytes / (1e3 * bandwidth);
	return time + tree_across(group, bytes / tree_parts) +
	       bytes / (1e3 * fmin(bandwidth * sharp_across, tree_network(group)));
}

/* One rank in each node: halving distances, log2 of them. */
static double pat_time(const struct nccl_links *group, double bytes)
{
	double share = (group->ranks - 1) / group->ranks;

	return ceil(log2(group->ranks)) * nccl_hop_across(group, bytes / group->ranks) +
	       bytes * share / (1e3 * group->ring * pat_efficiency);
}

static double algorithm_time(const struct nccl_links *group, const struct topology *topology,
	enum collective_kind kind, enum nccl_algorithm algorithm, double bytes)
{
	switch (algorithm) {
	case NCCL_RING:
		return ring_time(group, kind, bytes);
	case NCCL_TREE:
		return tree_time(group, bytes);
	case NCCL_NVLS:
	case NCCL_NVLS_TREE:
		return sharp_time(group, topology, bytes);
	case NCCL_PAT:
		return pat_time(group, bytes);
	case NCCL_ALGORITHM_COUNT:
		break;
	}
	return INFINITY;
}

/* The time of the bytes after the first ones, as on a fabric that nobody else uses. */
static double rest_time(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, enum nccl_algorithm algorithm,
	double first, double bytes)
{
	struct topology idle = *topology;
	struct nccl_links group;

	idle.network.congestion = 1;
	group = nccl_links_of(&idle, libraries, placement);
	return algorithm_time(&group, &idle, kind, algorithm, bytes) -
	       algorithm_time(&group, &idle, kind, algorithm, first);
}

double nccl_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, enum nccl_algorithm algorithm,
	int64_t bytes)
{
	struct nccl_links group = nccl_links_of(topology, libraries, placement);
	bool congested = kind == COLLECTIVE_ALL_REDUCE && placement->nodes > 1 &&
			 congestion_of(topology, &group, placement->nodes) > 1;
	double first = fmin((double)bytes, congested ? congested_bytes : INFINITY);
	double time = algorithm_time(&group, topology, kind, algorithm, first);

	if (first < (double)bytes)
		time += rest_time(
			topology, libraries, placement, kind, algorithm, first, (double)bytes);
	return 1e-6 * (group.launch + time);
}

double nccl_simple_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes)
{
	struct nccl_links group = nccl_links_of(topology, libraries, placement);
	double chunk = (double)bytes / group.ranks / (1e3 * group.port);
	double sliced = (group.ranks - 1) * (chunk / 2 + slice_wait);

	return fmax(nccl_seconds(topology, libraries, placement, kind, NCCL_RING, bytes),
		1e-6 * (group.launch + sliced));
}

/* The last rank has everything when the chunks have filled the ring and passed through. */
static double broadcast_time(const struct nccl_links *group, double bytes)
{
	double across = group->nodes > 1 ? fmin(group->nodes, group->ranks - 1) : 0;
	double step = bytes / group->ranks;
	double growth = networks[group->network].growth;
	double fill = group->nodes > 1 ? growth * doublings(step, step_across)
				       : links[group->link].growth * doublings(step, step_inside);

	return (group->ranks - 1 - across) * group->inside + across * group->across + fill +
	       bytes / (1e3 * fmin(group->port, group->ring));
}

double nccl_broadcast_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, int64_t bytes)
{
	struct nccl_links group = nccl_links_of(topology, libraries, placement);

	return 1e-6 * (group.launch + broadcast_time(&group, (double)bytes));
}

double nccl_ring_bandwidth(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement)
{
	struct nccl_links group = nccl_links_of(topology, libraries, placement);

	return fmin(group.port, group.ring);
}
