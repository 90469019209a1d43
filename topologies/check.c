/* The invariants of a topology. Tables of fields already refuse most bad files; this is what they
 * cannot say (one value against another), and it also guards topologies that were detected. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "topologies/topologies.h"

/* The node of section.key (both may be NULL), or the nearest one that exists around it. */
static const struct node *place_of(const struct node *where, const char *section, const char *key)
{
	const struct node *map = section != NULL ? node_get(where, section) : where;
	const struct node *value = key != NULL ? node_get(map, key) : NULL;

	if (value != NULL)
		return value;
	return map != NULL ? map : where;
}

static bool bad(const struct topology *topology, const struct node *where, struct error *error,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Without a document (a detected topology) the name takes the place of file:line:col. */
static bool bad(const struct topology *topology, const struct node *where, struct error *error,
	const char *format, ...)
{
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (where != NULL)
		return node_error(where, error, "%s", message);
	return error_set(error, EXIT_CODE_INPUT, "topology %s: %s",
		topology->name != NULL ? topology->name : "without a name", message);
}

static bool check_counts(
	const struct topology *topology, const struct node *where, struct error *error)
{
	int64_t devices;

	if (topology->nodes < 1)
		return bad(topology, place_of(where, NULL, "nodes"), error,
			"nodes: expected at least 1, got %lld", (long long)topology->nodes);
	if (topology->devices_per_node < 1)
		return bad(topology, place_of(where, NULL, "devices_per_node"), error,
			"devices_per_node: expected at least 1, got %lld",
			(long long)topology->devices_per_node);
	if (!checked_mul(topology->nodes, topology->devices_per_node, &devices) ||
		devices > TOPOLOGY_MAX_DEVICES)
		return bad(topology, place_of(where, NULL, "nodes"), error,
			"nodes x devices_per_node: expected at most %d devices, got %lld x %lld",
			TOPOLOGY_MAX_DEVICES, (long long)topology->nodes,
			(long long)topology->devices_per_node);
	return true;
}

/* What must be a positive finite number, with the condition under which it must. */
struct quantity {
	bool needed;
	const char *section, *key;
	double value;
	const char *why;
};

static bool check_quantities(const struct topology *topology, const struct quantity *quantities,
	int count, const struct node *where, struct error *error)
{
	for (int i = 0; i < count; i++) {
		const struct quantity *q = &quantities[i];

		if (!q->needed || (isfinite(q->value) && q->value > 0))
			continue;
		return bad(topology, place_of(where, q->section, q->key), error,
			"%s.%s: expected more than 0 (%s), got %g", q->section, q->key, q->why,
			q->value);
	}
	return true;
}

static bool check_device(
	const struct topology *topology, const struct node *where, struct error *error)
{
	const struct device *device = &topology->device;
	double peak = fmax(fmax(device->fp32_flops, device->bf16_flops),
		fmax(device->fp16_flops, device->fp8_flops));
	const struct node *section = place_of(where, "device", NULL);

	if (device->name == NULL || device->name[0] == '\0')
		return bad(topology, section, error, "device.name: expected a name, got nothing");
	if ((device->kind == DEVICE_CPU) != (device->generation == GENERATION_CPU))
		return bad(topology, place_of(where, "device", "generation"), error,
			"device.generation: expected %s for a device of kind %s, got %s",
			device->kind == DEVICE_CPU ? "cpu" : "a GPU generation",
			device_kind_names[device->kind],
			device_generation_names[device->generation]);
	if (!(peak > 0) && !(topology->calibration.gemm_flops > 0))
		return bad(topology, section, error,
			"device: expected a peak (fp32, bf16, fp16 or fp8) or a calibration "
			"with gemm_flops, got neither");
	if (topology->shares_host && device->kind != DEVICE_CPU)
		return bad(topology, place_of(where, NULL, "shares_host"), error,
			"shares_host: expected CPU devices (they are ranks of one host), got a "
			"GPU");
	return true;
}

static bool check_network(
	const struct topology *topology, const struct node *where, struct error *error)
{
	const struct network *network = &topology->network;

	if (topology->nodes > 1 && network->kind == NETWORK_NONE)
		return bad(topology, place_of(where, "network", "kind"), error,
			"%lld nodes need a network, expected `network:` with kind, nics_per_node "
			"and nic_bandwidth, got none",
			(long long)topology->nodes);
	/* The negation also catches NaN. */
	if (network->kind != NETWORK_NONE &&
		!(network->oversubscription >= 1 && isfinite(network->oversubscription)))
		return bad(topology, place_of(where, "network", "oversubscription"), error,
			"network.oversubscription: expected 1 (full bisection) or more, got %g",
			network->oversubscription);
	return true;
}

static bool check_calibration(
	const struct topology *topology, const struct node *where, struct error *error)
{
	const struct calibration *calibration = &topology->calibration;
	const struct node *section = place_of(where, "calibration", "collectives");

	if (calibration->n_collectives < 0)
		return bad(topology, section, error,
			"calibration.collectives: expected 0 or more, got %d",
			calibration->n_collectives);
	for (int i = 1; i < calibration->n_collectives; i++) {
		const struct calibration_collective *piece = &calibration->collectives[i];

		if (calibration_compare(piece - 1, piece) < 0)
			continue;
		return bad(topology, section, error,
			"calibration.collectives: expected pieces sorted by collective, ranks, "
			"nodes, "
			"from_bytes and each once, got entry %d at or before entry %d",
			i + 1, i);
	}
	return true;
}

bool topology_check(const struct topology *topology, const struct node *where, struct error *error)
{
	const struct device *device = &topology->device;
	const struct network *network = &topology->network;
	const struct host *host = &topology->host;
	bool networked = network->kind != NETWORK_NONE;
	const struct quantity quantities[] = {
		{true, "device", "memory", (double)device->memory_bytes, "state lives there"},
		{true, "device", "memory_bandwidth", device->memory_bandwidth,
			"element-wise kernels run at it"},
		{topology->devices_per_node > 1, "fabric", "bandwidth", topology->fabric.bandwidth,
			"the devices of a node exchange data"},
		{networked, "network", "nics_per_node", (double)network->nics_per_node,
			"a network was named"},
		{networked, "network", "nic_bandwidth", network->nic_bandwidth,
			"a network was named"},
		{true, "host", "memory", (double)host->memory_bytes, "offload needs it"},
		{true, "host", "memory_bandwidth", host->memory_bandwidth, "offload needs it"},
		{true, "host", "cores", (double)host->cores, "each rank has a host thread"},
		{device->kind == DEVICE_GPU, "host", "pcie_bandwidth", host->pcie_bandwidth,
			"GPUs hang on it"},
	};

	return check_counts(topology, where, error) && check_device(topology, where, error) &&
	       check_network(topology, where, error) &&
	       check_quantities(topology, quantities, COUNT_OF(quantities), where, error) &&
	       check_calibration(topology, where, error);
}
