/* The invariants of a topology. Tables of fields already refuse most bad files; this is what they
 * cannot say (one value against another), and it also guards topologies that were detected. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "topologies/plausible.h"
#include "topologies/topologies.h"

struct check {
	const struct topology *topology;
	const struct node *where; /* NULL without a document */
	struct error *error;
};

static bool bad(const struct check *check, const char *section, const char *key, const char *format,
	...) __attribute__((format(printf, 4, 5)));

/* An error about section.key ("" = none) at the nearest node there is: node_error names the key it
 * stands at, so only the rest of the path is added. Without a document the name comes first. */
static bool bad(
	const struct check *check, const char *section, const char *key, const char *format, ...)
{
	const char *dot = *section != '\0' && *key != '\0' ? "." : "";
	const struct node *map = *section != '\0' ? node_get(check->where, section) : check->where;
	const struct node *value = *key != '\0' ? node_get(map, key) : map;
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	if (value != NULL)
		return node_error(value, check->error, "%s", message);
	if (map != NULL)
		return node_error(map, check->error, "%s: %s", key, message);
	if (check->where != NULL)
		return node_error(
			check->where, check->error, "%s%s%s: %s", section, dot, key, message);
	return error_set(check->error, EXIT_CODE_INPUT, "topology \"%s\": %s%s%s: %s",
		check->topology->name != NULL ? check->topology->name : "", section, dot, key,
		message);
}

static bool check_counts(const struct check *check)
{
	const struct topology *topology = check->topology;
	int64_t devices;

	if (topology->nodes < 1)
		return bad(check, "", "nodes", "expected at least 1, got %lld",
			(long long)topology->nodes);
	if (topology->devices_per_node < 1)
		return bad(check, "", "devices_per_node", "expected at least 1, got %lld",
			(long long)topology->devices_per_node);
	if (!checked_mul(topology->nodes, topology->devices_per_node, &devices) ||
		devices > TOPOLOGY_MAX_DEVICES)
		return bad(check, "", "nodes",
			"expected at most %d devices in all, got %lld nodes of %lld",
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

static bool check_quantities(
	const struct check *check, const struct quantity *quantities, int count)
{
	for (int i = 0; i < count; i++) {
		const struct quantity *q = &quantities[i];

		if (!q->needed || (isfinite(q->value) && q->value > 0))
			continue;
		return bad(check, q->section, q->key, "expected more than 0 (%s), got %g", q->why,
			q->value);
	}
	return true;
}

static bool check_device(const struct check *check)
{
	const struct topology *topology = check->topology;
	const struct device *device = &topology->device;
	double peak = fmax(fmax(device->fp32_flops, device->bf16_flops),
		fmax(device->fp16_flops, device->fp8_flops));

	if (device->name == NULL || device->name[0] == '\0')
		return bad(check, "device", "name", "expected a name, got nothing");
	if ((device->kind == DEVICE_CPU) != (device->generation == GENERATION_CPU))
		return bad(check, "device", "generation",
			"expected %s for a device of kind %s, got %s",
			device->kind == DEVICE_CPU ? "cpu" : "a GPU generation",
			device_kind_names[device->kind],
			device_generation_names[device->generation]);
	if (!(peak > 0) && !(topology->calibration.gemm_flops > 0))
		return bad(check, "device", "",
			"expected a peak (fp32, bf16, fp16 or fp8) "
			"or a calibration with gemm_flops, got neither");
	if (topology->shares_host && device->kind != DEVICE_CPU)
		return bad(check, "", "shares_host",
			"expected CPU devices (ranks of one host), got a GPU");
	return true;
}

static bool check_network(const struct check *check)
{
	const struct topology *topology = check->topology;
	const struct network *network = &topology->network;

	if (topology->nodes > 1 && network->kind == NETWORK_NONE)
		return bad(check, "network", "kind",
			"%lld nodes need a network, "
			"expected a kind, nics_per_node and nic_bandwidth, got none",
			(long long)topology->nodes);
	/* The negation also catches NaN. */
	if (network->kind != NETWORK_NONE &&
		!(network->oversubscription >= 1 && isfinite(network->oversubscription)))
		return bad(check, "network", "oversubscription",
			"expected 1 (full bisection) or more, got %g", network->oversubscription);
	return true;
}

/* A machine that does less in a second would never end a step: the figure is damaged. */
static bool check_measured_rates(const struct check *check)
{
	const struct calibration *c = &check->topology->calibration;
	const struct {
		const char *key;
		double value, least;
	} rates[] = {
		{"gemm_flops", c->gemm_flops, 1e3},
		{"bf16_gemm_flops", c->bf16_gemm_flops, 1e3},
		{"sustained_clock", c->sustained_clock, 1e-3},
		{"attention_forward_flops", c->attention_forward_flops, 1e3},
		{"attention_backward_flops", c->attention_backward_flops, 1e3},
		{"memory_bandwidth", c->memory_bandwidth, 1e3},
		{"memory_bandwidth_shared", c->memory_bandwidth_shared, 1e3},
		{"optimizer_bandwidth", c->optimizer_bandwidth, 1e3},
		{"optimizer_bandwidth_shared", c->optimizer_bandwidth_shared, 1e3},
		{"activation_rate", c->activation_rate, 1e3},
		{"bf16_activation_rate", c->bf16_activation_rate, 1e3},
		{"loss_rate", c->loss_rate, 1e3},
		{"bf16_loss_rate", c->bf16_loss_rate, 1e3},
		{"gradient_norm_rate", c->gradient_norm_rate, 1e3},
	};

	for (int i = 0; i < COUNT_OF(rates); i++) {
		if (rates[i].value == 0 || rates[i].value >= rates[i].least)
			continue;
		return bad(check, "calibration", rates[i].key,
			"%g is not plausible, expected %g or more; leave it out, or calibrate anew",
			rates[i].value, rates[i].least);
	}
	return true;
}

static bool check_calibration(const struct check *check)
{
	const struct topology *topology = check->topology;
	const struct calibration *calibration = &topology->calibration;

	if (!check_measured_rates(check))
		return false;
	if (calibration->n_collectives < 0)
		return bad(check, "calibration", "collectives", "expected 0 or more, got %d",
			calibration->n_collectives);
	for (int i = 1; i < calibration->n_collectives; i++) {
		const struct calibration_collective *segment = &calibration->collectives[i];

		if (calibration_compare(segment - 1, segment) < 0)
			continue;
		return bad(check, "calibration", "collectives",
			"expected segments sorted by collective, ranks, nodes, "
			"from_bytes and each once, got entry %d at or before entry %d",
			i + 1, i);
	}
	return true;
}

/* Ranks on a CPU have no context or communicator buffers, and their workspace is the kernels'. */
static bool check_overheads(const struct check *check)
{
	const struct topology *topology = check->topology;
	const struct overheads *overheads = &topology->overheads;
	int64_t most = min_i64(topology->device.memory_bytes, INT64_C(1) << 50); /* for sums */
	const struct {
		const char *key;
		int64_t bytes;
	} given[] = {
		{"context", overheads->context_bytes},
		{"communicator", overheads->communicator_bytes},
		{"workspace", overheads->workspace_bytes},
	};

	for (int i = 0; i < COUNT_OF(given); i++) {
		if (given[i].bytes < 0 || given[i].bytes > most)
			return bad(check, "overheads", given[i].key,
				"expected at most device.memory, %lld bytes, got %lld",
				(long long)most, (long long)given[i].bytes);
		if (given[i].bytes > 0 && topology->device.kind != DEVICE_GPU)
			return bad(check, "overheads", given[i].key,
				"expected a GPU, got a device of kind cpu; leave it out");
	}
	return true;
}

/* Of a file. What was detected or computed may be as it is. */
static bool check_plausible(const struct check *check)
{
	for (int i = 0; check->where != NULL && i < n_topology_plausible; i++) {
		const struct plausible *row = &topology_plausible[i];
		struct text why = {0};

		if (plausible_refuses(row, check->topology, &why)) {
			bad(check, row->section, row->key, "%s", text_string(&why));
			text_finish(&why);
			return false;
		}
	}
	return true;
}

bool topology_check(const struct topology *topology, const struct node *where, struct error *error)
{
	const struct device *device = &topology->device;
	const struct network *network = &topology->network;
	const struct host *host = &topology->host;
	const struct check check = {topology, where, error};
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

	return check_counts(&check) && check_device(&check) && check_network(&check) &&
	       check_quantities(&check, quantities, COUNT_OF(quantities)) &&
	       check_overheads(&check) && check_calibration(&check) && check_plausible(&check);
}
