/* Makes a topology of a calibrated cluster: nodes like this one, and the link that its collectives
 * have shown. */
#include <math.h>
#include <string.h>

#include "executor/calibration/calibration.h"
#include "executor/ranks/ranks.h"

/* --- the link --- */

/* The link is read from all-gathers over one rank of each node, all such groups at once, if the
 * largest was steady. The rate is that of the whole node. */
static bool read_link(
	const struct topology *t, const struct calibration *c, double *bandwidth, double *latency)
{
	const struct calibration_collective *large =
		calibration_find(c, COLLECTIVE_ALL_GATHER, t->nodes, t->nodes, INT64_MAX);
	const struct calibration_collective *small =
		calibration_find(c, COLLECTIVE_ALL_GATHER, t->nodes, t->nodes, 0);
	double nodes = (double)t->nodes;

	if (large == NULL)
		return false;
	*bandwidth = (double)t->devices_per_node * large->bandwidth * (nodes - 1) / nodes;
	*latency = small->latency / fmax(nodes - 1, 1);
	return true;
}

static bool fill_network(
	struct topology *t, const struct calibration *c, enum network_kind kind, int64_t nics)
{
	double bandwidth, latency;

	if (!read_link(t, c, &bandwidth, &latency))
		return false;
	t->network = (struct network){.kind = kind,
		.nics_per_node = nics,
		.nic_bandwidth = bandwidth / (double)nics,
		.latency = latency,
		.oversubscription = 1};
	return true;
}

static bool not_measured(struct error *error)
{
	return error_set(error, EXIT_CODE_INTERNAL, "the link was not measured");
}

/* --- processors --- */

bool describe_cluster(const struct launcher *launcher, const struct calibration *calibration,
	struct arena *arena, struct topology **topology, struct error *error)
{
	int64_t nodes = 1;

	for (int i = 0; i < calibration->n_collectives; i++)
		nodes = max_i64(nodes, calibration->collectives[i].nodes);
	if (!detect_local(launcher->ranks / nodes, arena, topology, error))
		return false;
	struct topology *t = *topology;
	t->name = "cluster";
	t->nodes = nodes;
	t->calibration = *calibration;
	t->source = arena_printf(arena,
		"%lld nodes of %lld ranks, started by %s; "
		"the first node's processors and the link between the nodes were measured",
		(long long)nodes, (long long)t->devices_per_node, launcher->name);
	if (nodes > 1 && !fill_network(t, calibration, NETWORK_ETHERNET, 1))
		return not_measured(error);
	return topology_check(t, NULL, error);
}

/* --- GPUs --- */

/* True for the key itself or one below it. */
static bool is_of(const char *one, const char *key)
{
	size_t length = strlen(key);

	return strncmp(one, key, length) == 0 && (one[length] == '\0' || one[length] == '.');
}

void bench_forget_origin(struct topology *t, const char *key)
{
	int n = 0;

	for (int i = 0; i < t->n_provenance; i++)
		if (!is_of(t->provenance[i].key, key))
			t->provenance[n++] = t->provenance[i];
	t->n_provenance = n;
}

static void add_origin(struct topology *t, const char *key, const char *text, struct arena *arena)
{
	struct provenance *all = ARENA_ARRAY(arena, struct provenance, t->n_provenance + 1);

	if (t->n_provenance > 0)
		memcpy(all, t->provenance, (size_t)t->n_provenance * sizeof(*all));
	all[t->n_provenance++] = (struct provenance){key, text};
	t->provenance = all;
}

bool bench_describe_gpu_cluster(const struct bench *bench, struct topology *t, struct error *error)
{
	static const char *const replaced[] = {"nodes", "devices_per_node", "network"};
	const char *name = bench->options->launcher.name;
	enum network_kind kind = NETWORK_ETHERNET;
	int64_t nics = 1;

	if (bench->ranks_per_node > t->devices_per_node)
		return error_set(error, EXIT_CODE_USAGE,
			"calibrate cluster: %lld ranks on this node, which has %lld GPUs; "
			"expected one rank a GPU",
			(long long)bench->ranks_per_node, (long long)t->devices_per_node);
	t->name = "cluster";
	t->nodes = bench->nodes;
	t->devices_per_node = bench->ranks_per_node;
	t->source = arena_printf(bench->arena,
		"%lld nodes of %lld GPUs, started by %s; "
		"the first node's first GPU and NCCL's collectives were measured",
		(long long)t->nodes, (long long)t->devices_per_node, name);
	for (int i = 0; i < COUNT_OF(replaced); i++)
		bench_forget_origin(t, replaced[i]);
	if (t->nodes > 1) {
		machine_network("/sys/class/infiniband", &kind, &nics);
		if (!fill_network(t, bench->calibration, kind, nics))
			return not_measured(error);
		add_origin(t, "network",
			arena_printf(bench->arena,
				"as NCCL's all-gathers over the nodes have it; %s",
				kind == NETWORK_ETHERNET ? "no adapter but Ethernet was seen"
							 : "adapters of the first node"),
			bench->arena);
	}
	return topology_check(t, NULL, error);
}
