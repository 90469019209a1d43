/* NCCL's own performance model, by which it chooses algorithm and protocol. Their real times are in
 * time.c and steps.c.
 *
 * Re-implemented from the facts in NVIDIA/nccl, commit 5067397 (June 2026): src/graph/tuning.cc
 * (ncclTopoTuneModel, ncclTopoGetAlgoTime, the tuner constants), src/graph/search.cc (channel
 * speeds). Units there and here: GB/s and microseconds. All constants are in one block. */
#include "simulator/nccl/nccl.h"

#include <math.h>

#include "simulator/nccl/steps.h"
#include "simulator/nccl/time.h"

const char *const nccl_algorithm_names[] = {
#define X(suffix, name) name,
	NCCL_ALGORITHMS(X)
#undef X
};
const char *const nccl_protocol_names[] = {
#define X(suffix, name) name,
	NCCL_PROTOCOLS(X)
#undef X
};

enum { COMPUTE_VOLTA, COMPUTE_AMPERE, COMPUTE_HOPPER, COMPUTE_BLACKWELL, COMPUTE_COUNT };
enum { HARDWARE_NVLINK, HARDWARE_PCI, HARDWARE_NET, HARDWARE_COUNT };
enum { SPEEDS_MAX = 20, TREE_SIZES = 24 };

static const struct {
	double base_latency[NCCL_ALGORITHM_COUNT][NCCL_PROTOCOL_COUNT];
	double latency[HARDWARE_COUNT][NCCL_ALGORITHM_COUNT][NCCL_PROTOCOL_COUNT];
	double ll_max_node[COMPUTE_COUNT]; /* on one node, by GPU */
	double ll_max_cpu[2][2];           /* [Intel, AMD][2 nodes, more] */
	/* per channel: [compute][1, 2, more nodes] */
	double ring_ll128[COMPUTE_COUNT];
	double tree_ll128[COMPUTE_COUNT][3], tree[COMPUTE_COUNT][3], nvls_tree[COMPUTE_COUNT][3];
	double nvls_efficiency[COMPUTE_COUNT];
	double plateau[COMPUTE_COUNT]; /* of the latency: ring all-reduce, Simple, across nodes */
	/* bandwidth factor of tree all-reduce by log2(bytes / 64) */
	double tree_correction[NCCL_PROTOCOL_COUNT][TREE_SIZES];
	/* possible speeds of one channel, descending */
	double node_speeds[COMPUTE_COUNT][SPEEDS_MAX], network_speeds[COMPUTE_COUNT][SPEEDS_MAX];
	double usual_channel; /* GB/s, if a topology does not state the number of channels */
} facts = {
	.base_latency = {[NCCL_RING] = {6.6, 14.0, 8.4},
		[NCCL_TREE] = {6.8, 14.0, 8.4},
		[NCCL_PAT] = {8, 8, 8}},
	.latency = {[HARDWARE_NVLINK] = {[NCCL_RING] = {0.6, 1.9, 3.4},
			    [NCCL_TREE] = {0.6, 1.25, 4.0},
			    [NCCL_NVLS] = {0, 0, 25},
			    [NCCL_NVLS_TREE] = {0, 0, 25},
			    [NCCL_PAT] = {0, 0, 4}},
		[HARDWARE_PCI] = {[NCCL_RING] = {1.0, 2.5, 5.7},
			[NCCL_TREE] = {1.0, 1.9, 4.0},
			[NCCL_PAT] = {0, 0, 4}},
		[HARDWARE_NET] = {[NCCL_RING] = {2.7, 4.0, 14.0},
			[NCCL_TREE] = {5.0, 8.5, 14.0},
			[NCCL_NVLS] = {0, 0, 18},
			[NCCL_NVLS_TREE] = {0, 0, 20.9},
			[NCCL_PAT] = {0, 0, 14}}},
	.ll_max_node = {39.0, 87.7, 141.0, 282.0},
	.ll_max_cpu = {{39.0, 20.4}, {22.5, 19.0}},
	.ring_ll128 = {20.0, 20.0, 36.7, 40.0},
	.tree_ll128 = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}},
	.tree = {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}},
	.nvls_tree = {{0}, {0}, {0, 57.7, 45.5}, {0, 96.0, 80.0}},
	.nvls_efficiency = {0, 0, 0.85, 0.74},
	.plateau = {1.9, 1.4, 1.4, 1.4},
	.tree_correction = {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9,
				    1, 1, 1, 1, 1},
		{1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1,
			1, 1},
		{.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8,
			.9, .9, .9}},
	.node_speeds = {{40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3},
		{40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3},
		{60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3},
		{90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18}},
	.network_speeds =
		{{48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, .24, .12},
			{48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, .24, .12},
			{48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12},
			{96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2,
				.24, .12}},
	.usual_channel = 20,
};

/* A channel of LL128 in a ring on Blackwell, as releases have it: [1, 2, more nodes]. Before, and
 * where no release is named, it is more than a graph has (73.4). */
static const struct {
	int version;
	double of[3];
} blackwell_ring_ll128[] = {
	{LIBRARY_VERSION(2, 28) + 7, {73.4, 34.6, 73.4}},
	{LIBRARY_VERSION(2, 29) + 2, {34.5, 34.6, 34.5}},
	{LIBRARY_VERSION(2, 29) + 7, {40, 40, 40}},
};

static const int compute_of[] = {
	[GENERATION_CPU] = COMPUTE_VOLTA,
	[GENERATION_VOLTA] = COMPUTE_VOLTA,
	[GENERATION_TURING] = COMPUTE_VOLTA,
	[GENERATION_AMPERE] = COMPUTE_AMPERE,
	[GENERATION_ADA] = COMPUTE_AMPERE,
	[GENERATION_CDNA2] = COMPUTE_AMPERE,
	[GENERATION_CDNA3] = COMPUTE_AMPERE,
	[GENERATION_CDNA4] = COMPUTE_AMPERE,
	[GENERATION_OTHER] = COMPUTE_AMPERE,
	[GENERATION_HOPPER] = COMPUTE_HOPPER,
	[GENERATION_BLACKWELL] = COMPUTE_BLACKWELL,
};

/* One group of ranks as NCCL's graph search sees it. */
struct graph {
	int compute, hardware; /* COMPUTE_, HARDWARE_ inside the node */
	int size;              /* index by number of nodes: 1, 2, more */
	bool amd, nvswitch;
	int64_t ranks, nodes, ranks_per_node;
	enum network_protocols protocols; /* allowed by the environment */
	bool has[NCCL_ALGORITHM_COUNT];   /* exists in this version */
	double ring_ll128;                /* GB/s of a channel at most in this version */
	bool capped;                      /* the version is known and limits it */
	double channels;
	double bus;                       /* GB/s of all channels together */
	double node_bus;                  /* the same inside one node */
	double node_extra, network_extra; /* latency beyond that of the tables, us */
};

/* The largest speed that a channel may have. Below the list any speed is possible. */
static double quantised(const double *speeds, double bandwidth)
{
	for (int i = 0; i < SPEEDS_MAX && speeds[i] > 0; i++)
		if (speeds[i] <= bandwidth * (1 + 1e-9))
			return speeds[i];
	return bandwidth;
}

static void init_node(struct graph *graph, const struct topology *topology)
{
	const struct fabric *fabric = &topology->fabric;
	double bandwidth = fabric->bandwidth / 1e9;
	double channels = (double)fabric->channels;

	if (channels <= 0)
		channels = fmax(1, floor(bandwidth / facts.usual_channel));
	graph->channels = channels;
	graph->node_bus =
		channels * quantised(facts.node_speeds[graph->compute], bandwidth / channels);
	graph->bus = graph->node_bus;
	graph->node_extra = nccl_fabric_latency(topology) -
			    facts.latency[graph->hardware][NCCL_RING][NCCL_SIMPLE];
}

/* A ring enters and leaves a node once in each channel. Groups that share NICs share their
 * channels. */
static void init_network(
	struct graph *graph, const struct topology *topology, const struct placement *placement)
{
	const struct network *network = &topology->network;
	double nics = (double)network->nics_per_node;
	double speed =
		quantised(facts.network_speeds[graph->compute], network->nic_bandwidth / 1e9);
	double sharing = (double)placement->groups_per_node;
	double bus = nics * speed / fmax(1, network->oversubscription) / sharing;

	graph->channels = fmax(1, floor(nics / sharing));
	graph->bus = placement->ranks_per_node > 1 ? fmin(bus, graph->node_bus) : bus;
	graph->protocols = network->protocols;
	graph->network_extra = nccl_network_latency(topology) -
			       facts.latency[HARDWARE_NET][NCCL_RING][NCCL_SIMPLE];
}

static struct graph graph_of(const struct topology *topology, const struct placement *placement)
{
	enum fabric_kind fabric = topology->fabric.kind;
	struct graph graph = {.ranks = placement->ranks,
		.nodes = placement->nodes,
		.ranks_per_node = placement->ranks_per_node};

	graph.compute = compute_of[topology->device.generation];
	graph.nvswitch = fabric == FABRIC_NVSWITCH;
	graph.hardware =
		graph.nvswitch || fabric == FABRIC_NVLINK_MESH || fabric == FABRIC_NVLINK_CUBE_MESH
			? HARDWARE_NVLINK
			: HARDWARE_PCI;
	graph.size = (int)min_i64(placement->nodes, 3) - 1;
	graph.amd = topology->host.cpu == CPU_AMD;
	init_node(&graph, topology);
	if (placement->nodes > 1)
		init_network(&graph, topology, placement);
	return graph;
}

/* The algorithms of each version. NVLink SHARP's multicast also needs CUDA 12.1. */
static void init_versions(struct graph *graph, const struct libraries *libraries)
{
	static const int first[NCCL_ALGORITHM_COUNT] = {[NCCL_NVLS] = LIBRARY_VERSION(2, 17),
		[NCCL_NVLS_TREE] = LIBRARY_VERSION(2, 18),
		[NCCL_PAT] = LIBRARY_VERSION(2, 23)};
	bool multicast = !library_before(libraries, LIBRARY_CUDA, LIBRARY_VERSION(12, 1));

	for (int a = 0; a < NCCL_ALGORITHM_COUNT; a++)
		graph->has[a] = !library_before(libraries, LIBRARY_NCCL, first[a]) &&
				(multicast || (a != NCCL_NVLS && a != NCCL_NVLS_TREE));
}

static void init_ll128(struct graph *graph, const struct libraries *libraries)
{
	graph->ring_ll128 = facts.ring_ll128[graph->compute];
	if (graph->compute != COMPUTE_BLACKWELL || libraries->version[LIBRARY_NCCL] == 0)
		return;
	for (int i = 0; i < COUNT_OF(blackwell_ring_ll128); i++)
		if (libraries->version[LIBRARY_NCCL] >= blackwell_ring_ll128[i].version) {
			graph->ring_ll128 = blackwell_ring_ll128[i].of[graph->size];
			graph->capped = true;
		}
}

static double steps_of(const struct graph *graph, enum collective_kind kind)
{
	double once = (double)(graph->ranks - 1);

	return kind == COLLECTIVE_ALL_REDUCE ? 2 * once : once;
}

/* Algorithm bandwidth (bytes / time) in GB/s; 0: NCCL does not use the algorithm here. */

static double ring_bandwidth(
	const struct graph *graph, enum collective_kind kind, enum nccl_protocol protocol)
{
	double bus = graph->bus;
	double ll_max = graph->nodes == 1 ? facts.ll_max_node[graph->compute]
					  : facts.ll_max_cpu[graph->amd][graph->nodes > 2];

	if (protocol == NCCL_LL)
		bus = fmin(ll_max, bus * 0.5);
	if (protocol == NCCL_LL128)
		bus = fmin(bus * 0.92, graph->channels * graph->ring_ll128);
	return bus * (double)graph->ranks / steps_of(graph, kind);
}

static double tree_bandwidth(
	const struct graph *graph, enum collective_kind kind, enum nccl_protocol protocol)
{
	double ll_max = graph->nodes == 1 ? facts.ll_max_node[graph->compute]
					  : facts.ll_max_cpu[graph->amd][graph->nodes > 2];
	/* Between two nodes a tree is one link, over which each node sends everything once, which
	 * is half of what a ring sends. */
	double links = graph->nodes == 2 ? fmin(2 * graph->bus, graph->node_bus) : graph->bus;
	double bus = fmin(links * 0.92, graph->channels * facts.tree[graph->compute][graph->size]);

	if (kind != COLLECTIVE_ALL_REDUCE)
		return 0;
	if (protocol == NCCL_LL)
		bus = fmin(bus / 3.8, ll_max);
	if (protocol == NCCL_LL128)
		bus = fmin(bus * (graph->nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0),
			graph->channels * facts.tree_ll128[graph->compute][graph->size]);
	return bus / 2;
}

/* NVLink SHARP: only all-reduce, among more than two GPUs (ncclNvlsInit). On one node there are as
 * many heads as GPUs; across nodes it is a tree. */
static double nvls_bandwidth(
	const struct graph *graph, enum collective_kind kind, enum nccl_algorithm algorithm)
{
	double heads = fmin(8, (double)graph->ranks_per_node);
	double node =
		2 * graph->node_bus * facts.nvls_efficiency[graph->compute] * (heads - 1) / heads;
	double network = graph->bus * (graph->nodes == 2 ? 2 : 1);
	bool tree = algorithm == NCCL_NVLS_TREE;

	if (kind != COLLECTIVE_ALL_REDUCE || !graph->nvswitch || graph->ranks_per_node <= 2 ||
		tree != (graph->nodes > 1) || graph->channels < 2)
		return 0;
	if (tree)
		node = fmin(fmin(node, network),
			graph->channels * facts.nvls_tree[graph->compute][graph->size]);
	return node * (double)graph->ranks / steps_of(graph, kind);
}

static double pat_bandwidth(const struct graph *graph, enum collective_kind kind)
{
	if (kind == COLLECTIVE_ALL_REDUCE || graph->ranks != graph->nodes)
		return 0;
	return graph->bus * 0.75;
}

/* LL128 relies on NVLink's ordering of 128-byte stores. */
static bool may_use(const struct graph *graph, enum nccl_protocol protocol)
{
	static const bool left[][NCCL_PROTOCOL_COUNT] = {[PROTOCOLS_ALL] = {true, true, true},
		[PROTOCOLS_SIMPLE] = {[NCCL_SIMPLE] = true},
		[PROTOCOLS_SIMPLE_LL128] = {[NCCL_LL128] = true, [NCCL_SIMPLE] = true}};

	return left[graph->protocols][protocol] &&
	       (protocol != NCCL_LL128 || graph->hardware == HARDWARE_NVLINK);
}

static double bandwidth_of(const struct graph *graph, enum collective_kind kind,
	enum nccl_algorithm algorithm, enum nccl_protocol protocol)
{
	if (!graph->has[algorithm] || !may_use(graph, protocol))
		return 0;
	switch (algorithm) {
	case NCCL_RING:
		return ring_bandwidth(graph, kind, protocol);
	case NCCL_TREE:
		return tree_bandwidth(graph, kind, protocol);
	case NCCL_NVLS:
	case NCCL_NVLS_TREE:
		return protocol == NCCL_SIMPLE ? nvls_bandwidth(graph, kind, algorithm) : 0;
	case NCCL_PAT:
		return protocol == NCCL_SIMPLE ? pat_bandwidth(graph, kind) : 0;
	case NCCL_ALGORITHM_COUNT:
		break;
	}
	return 0;
}

/* The latency of one hop inside the node and between nodes. A NIC's own latency counts twice for
 * Simple, which flushes. With one rank per node the network is fully exposed, and the tree's figure
 * also holds for rings. */
static double node_latency(
	const struct graph *graph, enum nccl_algorithm algorithm, enum nccl_protocol protocol)
{
	return fmax(0, facts.latency[graph->hardware][algorithm][protocol] + graph->node_extra);
}

static double network_latency(
	const struct graph *graph, enum nccl_algorithm algorithm, enum nccl_protocol protocol)
{
	enum nccl_algorithm row = graph->ranks_per_node == 1 ? NCCL_TREE : algorithm;
	double extra = graph->network_extra * (protocol == NCCL_SIMPLE ? 2 : 1);

	return fmax(0, facts.latency[HARDWARE_NET][row][protocol] + extra);
}

static double ring_latency(
	const struct graph *graph, enum collective_kind kind, enum nccl_protocol protocol)
{
	double steps = steps_of(graph, kind);
	double hops = (double)(graph->nodes - 1) * (kind == COLLECTIVE_ALL_REDUCE ? 2 : 1);
	double overhead = graph->nodes == 1 ? 0 : graph->amd ? 2 : 1;
	double node = fmax(node_latency(graph, NCCL_RING, protocol),
		overhead * (protocol == NCCL_SIMPLE ? 3 : 1));

	return (steps - hops) * node + hops * network_latency(graph, NCCL_RING, protocol);
}

static double latency_of(const struct graph *graph, enum collective_kind kind,
	enum nccl_algorithm algorithm, enum nccl_protocol protocol)
{
	double base = facts.base_latency[algorithm][protocol];
	double node = node_latency(graph, algorithm, protocol);
	double network = network_latency(graph, algorithm, protocol);
	double levels = floor(log2((double)graph->nodes));

	switch (algorithm) {
	case NCCL_RING:
		return base + ring_latency(graph, kind, protocol);
	case NCCL_TREE:
		return base +
		       2 * ((double)(graph->ranks / graph->nodes - 1) * node + levels * network);
	case NCCL_NVLS:
		return node;
	case NCCL_NVLS_TREE:
		return base + node + 2 * levels * network;
	case NCCL_PAT:
		return base + levels * network / 3.5 + (double)graph->ranks * 2.8;
	case NCCL_ALGORITHM_COUNT:
		break;
	}
	return 0;
}

static int log2_of_64(int64_t bytes)
{
	int log = -1;

	for (int64_t n = bytes >> 6; n > 0; n >>= 1)
		log++;
	return log;
}

/* us; negative: not possible. */
static double time_of(const struct graph *graph, enum collective_kind kind,
	enum nccl_algorithm algorithm, enum nccl_protocol protocol, int64_t bytes)
{
	double bandwidth = bandwidth_of(graph, kind, algorithm, protocol);
	double latency = latency_of(graph, kind, algorithm, protocol);
	int log = log2_of_64(bytes);

	if (bandwidth <= 0)
		return -1;
	if (algorithm == NCCL_TREE && log >= 0 && log < TREE_SIZES - 1)
		bandwidth *= facts.tree_correction[protocol][log];
	if (algorithm == NCCL_RING && protocol == NCCL_SIMPLE && graph->nodes > 1 &&
		kind == COLLECTIVE_ALL_REDUCE &&
		(double)bytes >= 64 * graph->channels * (double)graph->ranks)
		latency *= facts.plateau[graph->compute];
	return latency + (double)bytes / (1000 * bandwidth);
}

/* The time in us by the protocol that NCCL would take with this algorithm; negative: NCCL does not
 * use it here. */
static double tuned_time(const struct graph *graph, enum collective_kind kind,
	enum nccl_algorithm algorithm, int64_t bytes, enum nccl_protocol *protocol)
{
	double best = -1;

	for (int p = 0; p < NCCL_PROTOCOL_COUNT; p++) {
		double time = time_of(graph, kind, algorithm, p, bytes);

		if (time < 0 || (best >= 0 && time >= best))
			continue;
		best = time;
		*protocol = p;
	}
	return best;
}

/* The figures of a ring for steps.c. */
static struct nccl_ring ring_of(const struct graph *graph, enum collective_kind kind)
{
	struct graph table = *graph, usual = *graph;
	struct nccl_ring ring = {.bus = graph->bus, .channels = graph->channels};

	ring.ll128 = graph->capped ? graph->channels * graph->ring_ll128 : INFINITY;
	table.node_extra = table.network_extra = 0;
	usual.amd = false;
	ring.ll = graph->nodes == 1 ? facts.ll_max_node[graph->compute]
				    : facts.ll_max_cpu[graph->amd][graph->nodes > 2];
	for (int p = 0; p < NCCL_PROTOCOL_COUNT; p++) {
		double with = latency_of(&usual, kind, NCCL_RING, p);

		ring.may[p] = may_use(graph, p);
		ring.believed[p] = latency_of(&table, kind, NCCL_RING, p);
		usual.node_extra = usual.network_extra = 0;
		ring.usual[p] = latency_of(&usual, kind, NCCL_RING, p);
		ring.stated[p] = with - ring.usual[p];
		usual.node_extra = graph->node_extra;
		usual.network_extra = graph->network_extra;
	}
	return ring;
}

/* Chooses by measured times: NCCL intends to take the fastest, but its own estimates are coarse. */
struct nccl_choice nccl_choose(const struct topology *topology, const struct libraries *libraries,
	const struct placement *placement, enum collective_kind kind, int64_t bytes)
{
	struct graph graph = graph_of(topology, placement);
	struct nccl_choice best = {
		.seconds = INFINITY, .tuner_seconds = INFINITY, .channels = graph.channels};

	init_versions(&graph, libraries);
	init_ll128(&graph, libraries);
	for (int a = 0; a < NCCL_ALGORITHM_COUNT; a++) {
		enum nccl_protocol protocol = NCCL_SIMPLE;
		double tuned = tuned_time(&graph, kind, a, bytes, &protocol);
		double seconds;

		if (tuned < 0)
			continue;
		best.tuner_seconds = fmin(best.tuner_seconds, tuned * 1e-6);
		if (nccl_shows_steps(topology, libraries, placement, kind, a)) {
			struct nccl_ring ring = ring_of(&graph, kind);

			seconds = nccl_stepped_seconds(
				&ring, topology, libraries, placement, kind, bytes, &protocol);
		} else {
			seconds = nccl_seconds(topology, libraries, placement, kind, a, bytes);
		}
		if (seconds >= best.seconds)
			continue;
		best.algorithm = a;
		best.protocol = protocol;
		best.seconds = seconds;
	}
	return best;
}
