/* Names, field tables and plain arithmetic of struct topology. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "topologies/topologies.h"

const char *const device_kind_names[] = {"gpu", "cpu", NULL};
const char *const device_generation_names[] = {"cpu", "volta", "turing", "ampere", "ada", "cdna2",
	"cdna3", "cdna4", "other", "hopper", "blackwell", NULL};
const char *const fabric_kind_names[] = {
	"nvswitch", "nvlink-mesh", "nvlink-cube-mesh", "pcie", "shared-memory", NULL};
const char *const network_kind_names[] = {
	"none", "infiniband", "roce", "efa", "ethernet", "tcpx", NULL};
const char *const network_protocols_names[] = {"all", "simple", "simple-ll128", NULL};
const char *const cpu_vendor_names[] = {"amd", "intel", "arm", "other", NULL};

/* Words for networks that are no kind of them; what is nearest in letters would be another one. */
static const struct {
	const char *word, *kind;
} network_words[] = {{"tcp", "ethernet"}, {"tcp/ip", "ethernet"}, {"socket", "ethernet"},
	{"sockets", "ethernet"}, {"eth", "ethernet"}, {"ip", "ethernet"}, {"ib", "infiniband"},
	{"hdr", "infiniband"}, {"ndr", "infiniband"}, {"rdma", "infiniband or roce"}};

const char *network_kind_meant(const char *word)
{
	for (int i = 0; i < COUNT_OF(network_words); i++)
		if (same_name(network_words[i].word, word))
			return network_words[i].kind;
	return NULL;
}

/* Devices, and what their makers call an architecture, by how they begin. */
static const struct {
	const char *start, *generation;
} generation_words[] = {{"v100", "volta"}, {"sm_70", "volta"}, {"t4", "turing"},
	{"sm_75", "turing"}, {"a100", "ampere"}, {"a800", "ampere"}, {"a10", "ampere"},
	{"a40", "ampere"}, {"a6000", "ampere"}, {"sm_80", "ampere"}, {"sm_86", "ampere"},
	{"l4", "ada"}, {"rtx4090", "ada"}, {"sm_89", "ada"}, {"h100", "hopper"}, {"h200", "hopper"},
	{"h800", "hopper"}, {"h20", "hopper"}, {"gh200", "hopper"}, {"sm_90", "hopper"},
	{"b200", "blackwell"}, {"b300", "blackwell"}, {"gb200", "blackwell"},
	{"gb300", "blackwell"}, {"sm_100", "blackwell"}, {"sm_103", "blackwell"},
	{"sm_120", "blackwell"}, {"mi2", "cdna2"}, {"mi300", "cdna3"}, {"mi325", "cdna3"},
	{"mi35", "cdna4"}, {"gfx90a", "cdna2"}, {"gfx942", "cdna3"}, {"gfx950", "cdna4"}};

const char *generation_meant(const char *word)
{
	for (int i = 0; i < COUNT_OF(generation_words); i++)
		if (strncasecmp(generation_words[i].start, word,
			    strlen(generation_words[i].start)) == 0)
			return generation_words[i].generation;
	return NULL;
}

#define REQUIRED_POSITIVE (FIELD_REQUIRED | FIELD_POSITIVE)
#define OPTIONAL          (FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO)
#define GIVEN_POSITIVE    (FIELD_POSITIVE | FIELD_OMIT_ZERO)

const struct field device_fields[] = {
	FIELD_STRING(struct device, name, "name", FIELD_REQUIRED),
	FIELD_ENUM(struct device, kind, "kind", FIELD_REQUIRED, device_kind_names),
	FIELD_ENUM(
		struct device, generation, "generation", FIELD_REQUIRED, device_generation_names),
	FIELD_BYTES(struct device, memory_bytes, "memory", REQUIRED_POSITIVE),
	FIELD_BANDWIDTH(struct device, memory_bandwidth, "memory_bandwidth", REQUIRED_POSITIVE),
	FIELD_FLOPS(struct device, fp32_flops, "fp32", OPTIONAL),
	FIELD_FLOPS(struct device, bf16_flops, "bf16", OPTIONAL),
	FIELD_FLOPS(struct device, fp16_flops, "fp16", OPTIONAL),
	FIELD_FLOPS(struct device, fp8_flops, "fp8", OPTIONAL),
	FIELD_INT(struct device, multiprocessors, "multiprocessors", OPTIONAL),
	FIELD_DOUBLE(struct device, power, "power_w", OPTIONAL),
	FIELD_END,
};

const struct field fabric_fields[] = {
	FIELD_ENUM(struct fabric, kind, "kind", FIELD_REQUIRED, fabric_kind_names),
	FIELD_BANDWIDTH(struct fabric, bandwidth, "bandwidth", FIELD_NOT_NEGATIVE),
	FIELD_TIME(struct fabric, latency, "latency", OPTIONAL),
	FIELD_INT(struct fabric, channels, "channels", OPTIONAL),
	FIELD_INT(struct fabric, host_devices, "host_devices", OPTIONAL),
	FIELD_END,
};

const struct field network_fields[] = {
	FIELD_ENUM(struct network, kind, "kind", FIELD_REQUIRED, network_kind_names),
	FIELD_INT(struct network, nics_per_node, "nics_per_node", OPTIONAL),
	FIELD_BANDWIDTH(struct network, nic_bandwidth, "nic_bandwidth", OPTIONAL),
	FIELD_TIME(struct network, latency, "latency", OPTIONAL),
	/* Always written, because an absent one reads as 1. */
	FIELD_DOUBLE(struct network, oversubscription, "oversubscription", FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(struct network, congestion, "congestion", OPTIONAL),
	FIELD_ENUM(
		struct network, protocols, "protocols", FIELD_OMIT_ZERO, network_protocols_names),
	FIELD_END,
};

const struct field host_fields[] = {
	FIELD_BYTES(struct host, memory_bytes, "memory", REQUIRED_POSITIVE),
	FIELD_BANDWIDTH(struct host, memory_bandwidth, "memory_bandwidth", REQUIRED_POSITIVE),
	FIELD_INT(struct host, cores, "cores", REQUIRED_POSITIVE),
	FIELD_BANDWIDTH(struct host, pcie_bandwidth, "pcie_bandwidth", OPTIONAL),
	FIELD_INT(struct host, devices_per_root, "devices_per_root",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_ENUM(struct host, cpu, "cpu", FIELD_REQUIRED, cpu_vendor_names),
	FIELD_END,
};

const struct field overheads_fields[] = {
	FIELD_BYTES(struct overheads, context_bytes, "context", GIVEN_POSITIVE),
	FIELD_BYTES(struct overheads, communicator_bytes, "communicator", GIVEN_POSITIVE),
	FIELD_BYTES(struct overheads, workspace_bytes, "workspace", GIVEN_POSITIVE),
	FIELD_END,
};

const struct field topology_fields[] = {
	FIELD_STRING(struct topology, name, "name", FIELD_REQUIRED),
	FIELD_STRING(struct topology, source, "source", FIELD_OMIT_ZERO),
	FIELD_INT(struct topology, nodes, "nodes", FIELD_POSITIVE),
	FIELD_INT(struct topology, devices_per_node, "devices_per_node", REQUIRED_POSITIVE),
	FIELD_BOOL(struct topology, shares_host, "shares_host", FIELD_OMIT_ZERO),
	FIELD_BOOL(struct topology, emulated, "emulated", FIELD_OMIT_ZERO),
	FIELD_END,
};

int64_t topology_devices(const struct topology *topology)
{
	return topology->nodes * topology->devices_per_node;
}

bool topology_issues_inline(const struct topology *topology)
{
	return topology->device.kind == DEVICE_CPU || topology->emulated;
}

double device_peak_flops(const struct device *device, enum dtype dtype)
{
	/* A dtype that is not listed here (int8 stores optimizer state) has no matrix peak. */
	static const size_t offset_of[DTYPE_COUNT] = {
		[DTYPE_FP32] = offsetof(struct device, fp32_flops),
		[DTYPE_BF16] = offsetof(struct device, bf16_flops),
		[DTYPE_FP16] = offsetof(struct device, fp16_flops),
		[DTYPE_FP8] = offsetof(struct device, fp8_flops),
	};
	size_t offset = dtype < DTYPE_COUNT ? offset_of[dtype] : 0;

	return offset == 0 ? 0 : *(const double *)((const char *)device + offset);
}

int64_t topology_rank_threads(const struct topology *topology)
{
	if (!topology->shares_host)
		return 1;
	return max_i64(topology->host.cores / max_i64(topology->devices_per_node, 1), 1);
}

double topology_rank_speedup(const struct topology *topology)
{
	/* Unless it was measured: of each further thread. */
	static const double prior = 0.85;
	double more = (double)topology_rank_threads(topology) - 1;
	double cores = (double)topology->host.cores - 1;
	double measured = topology->calibration.threads_speedup;

	if (more <= 0)
		return 1;
	return 1 + more * (measured > 0 ? (measured - 1) / cores : prior);
}

double topology_node_bandwidth(const struct topology *topology)
{
	const struct network *network = &topology->network;

	if (topology->nodes <= 1)
		return INFINITY;
	return (double)network->nics_per_node * network->nic_bandwidth / network->oversubscription;
}
