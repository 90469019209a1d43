/* How long collectives take: measured pieces where the topology has them; else NCCL's model on
 * GPUs, memory traffic between processes of one host, latency and bandwidth between CPU nodes. */
#include <math.h>

#include "simulator/costs/collectives.h"
#include "simulator/nccl/nccl.h"

/* Two barriers between processes of one host, each about this long per doubling of ranks. A prior
 * until `calibrate` measured. */
static const double host_barrier = 4e-6;
/* With more ranks than cores a collective waits for ranks whose core computes for another one: for
 * each rank that a core has besides, about half of a scheduler's time slice of 4 ms. `calibrate`
 * times collectives while nothing computes, so this comes on top. Measured while training with 4
 * ranks on 2 cores: 1.9 and 2.3 ms a small all-reduce, 66 us when calibrated
 * (bench/results/training.md). */
static const double scheduler_wait = 2e-3;
/* A rank that waits for the network looks at its messages now and then: 5.6 % of a core on a link
 * of 200 Mbit/s, 9.0 % at 1 Gbit/s, sums included (docs/train.md). */
static const double network_idle = 0.9;
/* Channels that run are twice the graph's (connect.cc), one multiprocessor each. */
enum { CHANNELS_MAX = 32 };

bool collective_kind_of(enum op_kind kind, enum collective_kind *collective)
{
	static const struct {
		enum op_kind kind;
		enum collective_kind collective;
	} kinds[] = {{OP_ALL_GATHER, COLLECTIVE_ALL_GATHER},
		{OP_REDUCE_SCATTER, COLLECTIVE_REDUCE_SCATTER},
		{OP_ALL_REDUCE, COLLECTIVE_ALL_REDUCE}, {OP_ALL_TO_ALL, COLLECTIVE_ALL_TO_ALL},
		{OP_SEND_RECV, COLLECTIVE_SEND_RECV}};

	for (int i = 0; i < COUNT_OF(kinds); i++)
		if (kinds[i].kind == kind) {
			*collective = kinds[i].collective;
			return true;
		}
	return false;
}

/* Is it an exchange of messages between pairs, in which nothing is gathered or summed on the
 * way? */
static bool is_exchange(enum collective_kind kind)
{
	return kind == COLLECTIVE_ALL_TO_ALL || kind == COLLECTIVE_SEND_RECV;
}

/* Does the runtime reduce inside the node first, and does the group span nodes with several ranks
 * each? */
static bool is_hierarchical(
	const struct runtime *runtime, const struct placement *placement, enum collective_kind kind)
{
	return runtime->hierarchical && !is_exchange(kind) && placement->nodes > 1 &&
	       placement->ranks_per_node > 1;
}

/* The bytes that one rank sends. */
static double sent(enum collective_kind kind, double ranks, double bytes)
{
	/* multiples of (r - 1) / r of the bytes, by enum collective_kind */
	static const double passes[] = {1, 1, 2, 1};

	return kind == COLLECTIVE_SEND_RECV ? bytes : passes[kind] * bytes * (ranks - 1) / ranks;
}

/* The bytes of one group that leave a node, with ranks in order. A flat ring enters and leaves
 * every node once, so a node sends what one rank forwards (docs/cost-model.md). In an all-to-all a
 * node sends the parts of all its ranks for other nodes; in a chain of messages, one message. */
static double group_egress(
	const struct placement *placement, enum collective_kind kind, double bytes)
{
	double ranks = (double)placement->ranks;
	double local = (double)ceil_div(placement->ranks, placement->nodes);

	if (placement->nodes <= 1)
		return 0;
	if (kind == COLLECTIVE_ALL_TO_ALL)
		return local * bytes * (ranks - local) / ranks;
	return sent(kind, ranks, bytes);
}

/* --- processes of one host -------------------------------------------------------------------- */

/* Bytes of memory that one rank reads and writes: a gather copies the whole result, as do messages;
 * a reduction reads its chunk from every rank. */
static double host_traffic(enum collective_kind kind, double ranks, double bytes)
{
	switch (kind) {
	case COLLECTIVE_ALL_GATHER:
	case COLLECTIVE_ALL_TO_ALL:
	case COLLECTIVE_SEND_RECV:
		return 2 * bytes;
	case COLLECTIVE_REDUCE_SCATTER:
		return bytes * (1 + 1 / ranks);
	case COLLECTIVE_ALL_REDUCE:
		return bytes * (3 + 1 / ranks);
	}
	return 0;
}

static double host_time(const struct machine *machine, const struct placement *placement,
	enum collective_kind kind, double bytes)
{
	double ranks = (double)placement->ranks;
	double latency = host_barrier * (1 + ceil(log2(ranks)));

	return latency + host_traffic(kind, ranks, bytes) / machine->memory_bandwidth;
}

/* --- CPU nodes over a network ----------------------------------------------------------------- */

static double network_time(const struct topology *topology, const struct placement *placement,
	enum collective_kind kind, double bytes)
{
	double ranks = (double)placement->ranks, nodes = (double)placement->nodes;
	double passes = kind == COLLECTIVE_ALL_REDUCE ? 2 : 1;
	double bandwidth = topology_node_bandwidth(topology) / (double)placement->groups_per_node;
	double hop = topology->network.latency;

	if (is_exchange(kind))
		return (kind == COLLECTIVE_ALL_TO_ALL ? nodes - 1 : 1) * hop +
		       group_egress(placement, kind, bytes) / bandwidth;
	return passes * ((nodes - 1) * hop + (ranks - nodes) * topology->fabric.latency +
				(ranks - 1) / ranks * bytes / bandwidth);
}

/* --- one level -------------------------------------------------------------------------------- */

static double modelled_time(const struct machine *machine, const struct placement *placement,
	enum collective_kind kind, int64_t bytes)
{
	if (placement->ranks <= 1)
		return 0;
	if (machine->gpu && is_exchange(kind))
		return nccl_exchange_seconds(
			machine->topology, &machine->libraries, placement, kind, bytes);
	if (machine->gpu)
		return nccl_choose(machine->topology, &machine->libraries, placement, kind, bytes)
			.seconds;
	if (placement->nodes == 1)
		return host_time(machine, placement, kind, (double)bytes);
	return network_time(machine->topology, placement, kind, (double)bytes);
}

/* The measured number of ranks nearest to `ranks` (as a ratio); 0: none was measured on this many
 * nodes. */
static int64_t nearest_measured(const struct calibration *calibration, enum collective_kind kind,
	int64_t ranks, int64_t nodes)
{
	int64_t best = 0;

	for (int i = 0; i < calibration->n_collectives; i++) {
		const struct calibration_collective *piece = &calibration->collectives[i];
		double distance = fabs(log2((double)piece->ranks / (double)ranks));

		if (piece->collective == kind && piece->nodes == nodes && piece->ranks > 1 &&
			(best == 0 || distance < fabs(log2((double)best / (double)ranks))))
			best = piece->ranks;
	}
	return best;
}

/* Between processes of one host an exchange copies as many bytes as a gather of as many, which
 * `calibrate` measures. */
static enum collective_kind measured_as(
	const struct machine *machine, const struct placement *placement, enum collective_kind kind)
{
	bool same = !machine->gpu && placement->nodes == 1 && is_exchange(kind);

	return same ? COLLECTIVE_ALL_GATHER : kind;
}

/* The measured time, scaled by the model for another number of ranks. Negative: it was never
 * measured. */
static double measured_time(const struct machine *machine, const struct placement *placement,
	enum collective_kind asked, int64_t bytes)
{
	const struct calibration *calibration = &machine->topology->calibration;
	enum collective_kind kind = measured_as(machine, placement, asked);
	const struct calibration_collective *piece;
	struct placement other = *placement;
	double time;

	other.ranks = nearest_measured(calibration, kind, placement->ranks, placement->nodes);
	if (other.ranks == 0)
		return -1;
	other.ranks_per_node = ceil_div(other.ranks, other.nodes);
	piece = calibration_find(calibration, kind, other.ranks, other.nodes, bytes);
	time = piece->latency + (double)bytes / piece->bandwidth;
	if (other.ranks != placement->ranks)
		time *= modelled_time(machine, placement, kind, bytes) /
			modelled_time(machine, &other, kind, bytes);
	return time;
}

static double level_time(const struct machine *machine, const struct placement *placement,
	enum collective_kind kind, int64_t bytes)
{
	double time = -1;

	if (placement->ranks > 1)
		time = measured_time(machine, placement, kind, bytes);
	return time >= 0 ? time : modelled_time(machine, placement, kind, bytes);
}

/* --- levels ----------------------------------------------------------------------------------- */

/* All-gather: across nodes among ranks of equal local index, then inside the node. Reduce-scatter:
 * the other way round. All-reduce: the second, an all-reduce across nodes, then the first. */
static double hierarchical_time(const struct machine *machine, const struct placement *placement,
	enum collective_kind kind, int64_t bytes)
{
	int64_t local = placement->ranks_per_node;
	struct placement inside = {
		local, 1, local, placement->groups_per_node, placement->over_hosts};
	struct placement across = {
		placement->nodes, placement->nodes, 1, local * placement->groups_per_node, false};
	int64_t part = ceil_div(bytes, local);

	if (kind != COLLECTIVE_ALL_REDUCE)
		return level_time(machine, &inside, kind, bytes) +
		       level_time(machine, &across, kind, part);
	return level_time(machine, &inside, COLLECTIVE_REDUCE_SCATTER, bytes) +
	       level_time(machine, &across, COLLECTIVE_ALL_REDUCE, part) +
	       level_time(machine, &inside, COLLECTIVE_ALL_GATHER, bytes);
}

/* Every rank's part is a broadcast of its own, all of one communicator, so one after the other. */
static double broadcasts_time(
	const struct machine *machine, const struct placement *placement, int64_t bytes)
{
	double once = nccl_broadcast_seconds(machine->topology, &machine->libraries, placement,
		ceil_div(bytes, placement->ranks));

	return (double)placement->ranks * once;
}

static bool goes_by_broadcast(
	const struct machine *machine, const struct runtime *runtime, enum collective_kind kind)
{
	return machine->gpu && runtime->gathers_by_broadcast && kind == COLLECTIVE_ALL_GATHER;
}

static double wait_for_cores(const struct machine *machine)
{
	return machine->core_share < 1 ? scheduler_wait * (1 / machine->core_share - 1) : 0;
}

static double placed_time(const struct machine *machine, const struct runtime *runtime,
	const struct placement *placement, enum collective_kind kind, int64_t bytes)
{
	double measured;

	if (placement->ranks <= 1)
		return 0;
	if (goes_by_broadcast(machine, runtime, kind))
		return broadcasts_time(machine, placement, bytes);
	measured = measured_time(machine, placement, kind, bytes);
	if (measured < 0 && placement->nodes == 1 && !machine->gpu)
		measured = modelled_time(machine, placement, kind, bytes);
	if (measured >= 0)
		return measured + wait_for_cores(machine);
	if (is_hierarchical(runtime, placement, kind))
		return hierarchical_time(machine, placement, kind, bytes);
	return modelled_time(machine, placement, kind, bytes);
}

/* Sets the name of the algorithm that placed_time used. */
static void name_choice(const struct machine *machine, const struct runtime *runtime,
	const struct placement *placement, enum collective_kind kind, int64_t bytes,
	struct collective_choice *choice)
{
	choice->protocol = "";
	if (placement->ranks <= 1) {
		choice->algorithm = "none";
	} else if (goes_by_broadcast(machine, runtime, kind)) {
		choice->algorithm = "broadcasts";
	} else if (measured_time(machine, placement, kind, bytes) >= 0) {
		choice->algorithm = "measured";
	} else if (is_hierarchical(runtime, placement, kind)) {
		choice->algorithm = "two levels";
	} else if (machine->gpu && is_exchange(kind)) {
		choice->algorithm = "messages";
	} else if (machine->gpu) {
		struct nccl_choice nccl =
			nccl_choose(machine->topology, &machine->libraries, placement, kind, bytes);

		choice->algorithm = nccl_algorithm_names[nccl.algorithm];
		choice->protocol = nccl_protocol_names[nccl.protocol];
	} else {
		choice->algorithm = placement->nodes == 1 ? "host" : "network";
	}
}

struct collective_choice cost_collective_choice(const struct topology *topology,
	const struct libraries *libraries, const struct runtime *runtime, enum collective_kind kind,
	const struct group *group, int64_t bytes)
{
	struct placement placement = topology_place(topology, group->size, group->stride);
	struct collective_choice choice = {.algorithm = "none", .protocol = ""};
	struct machine machine;

	machine_init(&machine, topology, libraries, DTYPE_FP32);
	choice.seconds = placed_time(&machine, runtime, &placement, kind, bytes);
	name_choice(&machine, runtime, &placement, kind, bytes, &choice);
	return choice;
}

/* --- wire and loads --------------------------------------------------------------------------- */

/* The bytes that all groups of a node send. With two levels only the node's own part is sent. */
static double placed_egress(const struct runtime *runtime, const struct placement *placement,
	enum collective_kind kind, int64_t bytes)
{
	double groups = (double)placement->groups_per_node;

	if (is_hierarchical(runtime, placement, kind))
		return groups * sent(kind, (double)placement->nodes, (double)bytes);
	return groups * group_egress(placement, kind, (double)bytes);
}

double collective_node_egress(const struct topology *topology, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes)
{
	struct placement placement = topology_place(topology, group->size, group->stride);

	return placed_egress(runtime, &placement, kind, bytes);
}

double op_wire_bytes(const struct schedule *schedule, const struct op *op)
{
	if (is_deepep(schedule, op))
		return deepep_wire_bytes(schedule, op);
	return collective_wire_bytes(op->kind, schedule->groups[op->group].size, op->bytes);
}

double op_node_egress(const struct schedule *schedule, const struct op *op)
{
	enum collective_kind kind;

	if (is_deepep(schedule, op))
		return deepep_node_egress(schedule, op);
	if (!collective_kind_of(op->kind, &kind))
		return 0;
	return collective_node_egress(schedule->topology, runtime_of(schedule->plan.runtime), kind,
		&schedule->groups[op->group], op->bytes);
}

/* The bytes that one rank sends over the links inside its node. */
static double sent_inside(
	const struct placement *placement, enum collective_kind kind, double bytes)
{
	double local = (double)placement->ranks_per_node;
	double all = sent(kind, (double)placement->ranks, bytes);

	if (placement->nodes <= 1)
		return all;
	if (kind == COLLECTIVE_ALL_TO_ALL)
		return bytes * (local - 1) / (double)placement->ranks;
	return kind == COLLECTIVE_SEND_RECV ? 0 : all * (local - 1) / local;
}

static double load(double bytes, double seconds, double bandwidth)
{
	if (seconds <= 0 || bandwidth <= 0 || isinf(bandwidth))
		return 0;
	return fmin(1, bytes / seconds / bandwidth);
}

/* Traffic in device memory: a gather writes what it receives and reads what it forwards, as
 * messages do; a reduction also reads its own data. */
static double memory_passes(enum collective_kind kind)
{
	static const double passes[] = {2, 3, 2.5, 2, 2}; /* by enum collective_kind */

	return passes[kind];
}

/* Before 2.28 NCCL copied the rings of Blackwell nodes until they were as many as NVLink SHARP's
 * channels, 32. */
static double running_channels(
	const struct machine *machine, const struct placement *placement, double graph)
{
	bool copied = machine->topology->device.generation == GENERATION_BLACKWELL &&
		      placement->nodes > 1 &&
		      library_before(&machine->libraries, LIBRARY_NCCL, LIBRARY_VERSION(2, 28));

	return copied ? CHANNELS_MAX : fmin(CHANNELS_MAX, 2 * graph);
}

static double channels_of(const struct machine *machine, const struct placement *placement,
	enum collective_kind kind, int64_t bytes)
{
	if (is_exchange(kind))
		return nccl_exchange_channels(machine->topology, placement, kind);
	return running_channels(machine, placement,
		nccl_choose(machine->topology, &machine->libraries, placement, kind, bytes)
			.channels);
}

/* Adds waits for busy links, which measured times already contain. */
static void wait_for_links(const struct machine *machine, const struct runtime *runtime,
	const struct placement *placement, enum collective_kind kind, int64_t bytes,
	struct cost *cost)
{
	const struct topology *topology = machine->topology;
	double wire =
		placed_egress(runtime, placement, kind, bytes) / topology_node_bandwidth(topology);

	if (measured_time(machine, placement, kind, bytes) >= 0)
		return;
	cost->late = network_late(machine, placement->nodes, cost->device, wire);
	cost->device += cost->late;
}

static void gpu_loads(const struct machine *machine, const struct runtime *runtime,
	const struct placement *placement, enum collective_kind kind, int64_t bytes,
	struct cost *cost)
{
	const struct topology *topology = machine->topology;

	cost->spread = hypot(collective_spread(placement, kind, bytes),
		network_spread(machine, placement->nodes));
	cost->jitter = network_jitter(machine, placement->nodes);
	cost->multiprocessors = channels_of(machine, placement, kind, bytes);
	cost->fabric_load = load(sent_inside(placement, kind, (double)bytes), cost->device,
		topology->fabric.bandwidth);
	cost->network_load = load(placed_egress(runtime, placement, kind, bytes), cost->device,
		topology_node_bandwidth(topology));
	cost->memory_load =
		load(memory_passes(kind) * sent(kind, (double)placement->ranks, (double)bytes),
			cost->device, topology->device.memory_bandwidth);
}

static void host_loads(const struct machine *machine, const struct placement *placement,
	enum collective_kind kind, int64_t bytes, struct cost *cost)
{
	cost->multiprocessors = 1;
	cost->memory_load = load(host_traffic(kind, (double)placement->ranks, (double)bytes),
		cost->device, machine->memory_bandwidth);
	cost->network_load = placement->nodes > 1 ? 1 : 0;
	cost->idle = placement->nodes > 1 ? network_idle : 0;
}

void collective_cost(const struct machine *machine, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes, struct cost *cost)
{
	struct placement placement = topology_place(machine->topology, group->size, group->stride);

	if (placement.ranks <= 1)
		return;
	cost->device = placed_time(machine, runtime, &placement, kind, bytes);
	if (machine->gpu && placement.nodes > 1)
		wait_for_links(machine, runtime, &placement, kind, bytes, cost);
	if (machine->gpu)
		gpu_loads(machine, runtime, &placement, kind, bytes, cost);
	else
		host_loads(machine, &placement, kind, bytes, cost);
}

/* The rank's own chunk is multiplied before the first copy has arrived, and the last chunk when it
 * has. Of sums the last chunk stays on its rank. Copy engines use no multiprocessors. */
void collective_beside_cost(const struct machine *machine, const struct runtime *runtime,
	enum collective_kind kind, const struct group *group, int64_t bytes, double chunk,
	struct cost *cost)
{
	struct placement placement = topology_place(machine->topology, group->size, group->stride);

	cost->device = chunk + nccl_copies_seconds(machine->topology, &machine->libraries,
				       &placement, kind, bytes);
	gpu_loads(machine, runtime, &placement, kind, bytes, cost);
	cost->multiprocessors = 0;
}
