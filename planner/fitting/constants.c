/* The constants of a cluster: the place of each in a topology, and its prior doubt. */
#include "planner/fitting/parts.h"

#include <math.h>
#include <string.h>

const char *const fit_constant_ids[] = {
#define X(suffix, id, name) id,
	FIT_CONSTANTS(X)
#undef X
		NULL};
const char *const fit_constant_names[] = {
#define X(suffix, id, name) name,
	FIT_CONSTANTS(X)
#undef X
		NULL};
const char *const fit_verdict_names[] = {"told", "cannot tell", "absent", NULL};

/* The doubt that a cluster adds to a figure of each kind. Attention and memory: the difference
 * between sources and the doubt of compute as a whole. NICs: 0.23, by which equal networks differ
 * between 64 and 256 MiB (simulator/costs/spread.c). Latency: published hops of EFA take 29 to 75
 * us (topologies/catalogue). Host: the doubt of a host that was not measured. */
static const double of_attention = 0.10, of_memory = 0.08, of_nics = 0.23, of_latency = 0.5,
		    of_host = 0.30;

static double products(const struct topology *topology)
{
	return topology->calibration.sustained_clock;
}

static double attention(const struct topology *topology)
{
	return topology->calibration.attention_forward_flops;
}

static double memory(const struct topology *topology)
{
	return topology->calibration.memory_bandwidth;
}

static double fabric(const struct topology *topology)
{
	return topology->devices_per_node > 1 ? topology->fabric.bandwidth : 0;
}

static double network(const struct topology *topology)
{
	return topology->nodes > 1 ? topology_node_bandwidth(topology) : 0;
}

static double latency(const struct topology *topology)
{
	return topology->nodes > 1 ? topology->network.latency : 0;
}

static double host(const struct topology *topology)
{
	return topology->calibration.host_factor;
}

/* No product is faster than the datasheet says. */
static void scale_products(struct topology *topology, double factor)
{
	struct calibration *c = &topology->calibration;
	double peak = fmax(topology->device.bf16_flops, topology->device.fp16_flops);
	double most = peak > 0 && c->gemm_flops > 0 ? peak / c->gemm_flops : INFINITY;

	c->sustained_clock = fmin(c->sustained_clock * factor, fmax(most, c->sustained_clock));
}

static void scale_attention(struct topology *topology, double factor)
{
	topology->calibration.attention_forward_flops *= factor;
	topology->calibration.attention_backward_flops *= factor;
}

static void scale_memory(struct topology *topology, double factor)
{
	struct calibration *c = &topology->calibration;
	double *rates[] = {&c->memory_bandwidth, &c->memory_bandwidth_shared,
		&c->optimizer_bandwidth, &c->optimizer_bandwidth_shared};
	double most = topology->shares_host ? INFINITY : topology->device.memory_bandwidth;

	for (int i = 0; i < COUNT_OF(rates); i++)
		*rates[i] = fmin(*rates[i] * factor, fmax(most, *rates[i]));
}

/* Measured times of collectives take precedence over the model, so they are scaled too. */
static void scale_pieces(struct topology *topology, bool across, double bandwidth, double latency)
{
	for (int i = 0; i < topology->calibration.n_collectives; i++) {
		struct calibration_collective *piece = &topology->calibration.collectives[i];

		if ((piece->nodes > 1) != across)
			continue;
		piece->bandwidth *= bandwidth;
		piece->latency *= latency;
	}
}

static void scale_fabric(struct topology *topology, double factor)
{
	topology->fabric.bandwidth *= factor;
	scale_pieces(topology, false, factor, 1);
}

/* NICs that deliver less than their rated speed become a slower fabric, because NCCL chooses its
 * algorithms by the rated speed. */
static void scale_network(struct topology *topology, double factor)
{
	struct network *n = &topology->network;
	double share = factor / n->oversubscription;

	n->oversubscription = fmax(1, 1 / share);
	n->nic_bandwidth *= fmax(1, share);
	scale_pieces(topology, true, factor, 1);
}

static void scale_latency(struct topology *topology, double factor)
{
	topology->network.latency *= factor;
	scale_pieces(topology, true, 1, factor);
}

static void scale_host(struct topology *topology, double factor)
{
	topology->calibration.host_factor *= factor;
}

enum { KEYS = 5 };

static const struct {
	double (*value)(const struct topology *topology);
	void (*scale)(struct topology *topology, double factor);
	const char *unit;
	const char *keys[KEYS];
} constants[CONSTANTS] = {
	[FIT_PRODUCTS] = {products, scale_products, "of alone",
		{"calibration.sustained_clock", NULL}},
	[FIT_ATTENTION] = {attention, scale_attention, "FLOP/s",
		{"calibration.attention_forward_flops", "calibration.attention_backward_flops",
			NULL}},
	[FIT_MEMORY] = {memory, scale_memory, "B/s",
		{"calibration.memory_bandwidth", "calibration.optimizer_bandwidth", NULL}},
	[FIT_FABRIC] = {fabric, scale_fabric, "B/s", {"fabric.bandwidth", NULL}},
	[FIT_NETWORK] = {network, scale_network, "B/s",
		{"network.oversubscription", "network.nic_bandwidth", NULL}},
	[FIT_LATENCY] = {latency, scale_latency, "s", {"network.latency", NULL}},
	[FIT_HOST] = {host, scale_host, "of the runtime's", {"calibration.host_factor", NULL}},
};

double constant_value(enum fit_constant constant, const struct topology *topology)
{
	return constants[constant].value(topology);
}

const char *constant_unit(enum fit_constant constant)
{
	return constants[constant].unit;
}

const char *const *constant_keys(enum fit_constant constant)
{
	return constants[constant].keys;
}

double constant_doubt(enum fit_constant constant, const struct time_doubt *doubt)
{
	const double doubts[CONSTANTS] = {
		[FIT_PRODUCTS] = doubt->compute,
		[FIT_ATTENTION] = hypot(doubt->compute, of_attention),
		[FIT_MEMORY] = hypot(doubt->compute, of_memory),
		[FIT_FABRIC] = doubt->collective,
		[FIT_NETWORK] = hypot(doubt->collective, of_nics),
		[FIT_LATENCY] = hypot(doubt->collective, of_latency),
		[FIT_HOST] = fmax(doubt->host, of_host),
	};

	return doubts[constant];
}

void constants_move(const double x[CONSTANTS], const struct topology *from, struct arena *arena,
	struct topology *topology)
{
	struct calibration *c = &topology->calibration;

	*topology = *from;
	c->collectives = ARENA_ARRAY(arena, struct calibration_collective, c->n_collectives);
	if (c->n_collectives > 0)
		memcpy(c->collectives, from->calibration.collectives,
			(size_t)c->n_collectives * sizeof(c->collectives[0]));
	state_rates(topology);
	for (int i = 0; i < CONSTANTS; i++)
		if (x[i] != 0 && constant_value((enum fit_constant)i, topology) > 0)
			constants[i].scale(topology, exp(x[i]));
}
