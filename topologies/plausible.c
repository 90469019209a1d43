/* What hardware there is bounds what can be meant: a value a hundred thousand times beyond all of
 * the catalogue is a unit that was left out. Emulated machines are slow, but not that slow. */
#include "topologies/plausible.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "topologies/topologies.h"

/* How far beyond the catalogue a value is refused, and is not usual any more. */
#define REFUSED         1e5
#define REFUSED_LATENCY 100
#define USUAL           4
/* Of a CPU only the unit that is missing shows. */
#define REFUSED_OF_CPU 1e6

#define SIZE(section, member, least, most)                                                         \
	{                                                                                          \
#section, "memory", UNIT_BYTES, true, offsetof(struct topology, section.member),   \
			least, most                                                                \
	}
#define RATE(section, member, name, unit, least, most)                                             \
	{                                                                                          \
#section, name, unit, false, offsetof(struct topology, section.member), least,     \
			most                                                                       \
	}

const struct plausible topology_plausible[] = {
	SIZE(device, memory_bytes, 15360 * 0x1p20, 284208 * 0x1p20),
	RATE(device, memory_bandwidth, "memory_bandwidth", UNIT_BANDWIDTH, 300e9, 8e12),
	RATE(device, fp32_flops, "fp32", UNIT_FLOPS, 8.1e12, 163.4e12),
	RATE(device, bf16_flops, "bf16", UNIT_FLOPS, 70e12, 2500e12),
	RATE(device, fp16_flops, "fp16", UNIT_FLOPS, 65e12, 2500e12),
	RATE(device, fp8_flops, "fp8", UNIT_FLOPS, 242e12, 5000e12),
	RATE(fabric, bandwidth, "bandwidth", UNIT_BANDWIDTH, 10e9, 721.8e9),
	RATE(fabric, latency, "latency", UNIT_TIME, 3.4e-6, 5.7e-6),
	RATE(network, nic_bandwidth, "nic_bandwidth", UNIT_BANDWIDTH, 12.5e9, 100e9),
	RATE(network, latency, "latency", UNIT_TIME, 14e-6, 449e-6),
	SIZE(host, memory_bytes, 384 * 0x1p30, 17280 * 0x1p30),
	RATE(host, memory_bandwidth, "memory_bandwidth", UNIT_BANDWIDTH, 153.6e9, 18.4e12),
	RATE(host, pcie_bandwidth, "pcie_bandwidth", UNIT_BANDWIDTH, 12e9, 450e9),
};
const int n_topology_plausible = COUNT_OF(topology_plausible);

double plausible_value(const struct plausible *row, const struct topology *topology)
{
	const char *member = (const char *)topology + row->offset;

	return row->is_int ? (double)*(const int64_t *)member : *(const double *)member;
}

/* NICs are sold in bits; of memory no one counts the MiB. */
void plausible_print(const struct plausible *row, double value, struct text *text)
{
	if (strcmp(row->key, "nic_bandwidth") == 0 && value >= 1e6)
		text_printf(text, "%.4gGbit/s", value * 8 / 1e9);
	else if (row->unit == UNIT_BYTES && value >= 0x1p30)
		text_printf(text, "%.4gGiB", value / 0x1p30);
	else
		unit_print(text, row->unit, value);
}

/* In one unit of thousands or of 1024s the same number may be what was meant: 312 -> 312TFLOPS. */
static void add_meant(const struct plausible *row, double value, struct text *text)
{
	double step = row->unit == UNIT_BYTES ? 1024 : row->unit == UNIT_TIME ? 1e-3 : 1e3;
	double meant = strcmp(row->key, "nic_bandwidth") == 0 ? value / 8 : value;

	for (int i = 0; i < 4; i++) {
		meant *= step;
		if (meant < row->least / USUAL || meant > row->most * USUAL)
			continue;
		text_add(text, "; write ");
		plausible_print(row, meant, text);
		return;
	}
}

void plausible_range(const struct plausible *row, struct text *text)
{
	plausible_print(row, row->least, text);
	text_add(text, " to ");
	plausible_print(row, row->most, text);
}

bool plausible_refuses(
	const struct plausible *row, const struct topology *topology, struct text *why)
{
	double value = plausible_value(row, topology);
	bool is_gpu = topology->device.kind == DEVICE_GPU && !topology->emulated;
	double least = row->least / (is_gpu ? REFUSED : REFUSED_OF_CPU);
	double most = row->most * (row->unit == UNIT_TIME ? REFUSED_LATENCY : REFUSED);

	if (value == 0 ||
		((value >= least || row->unit == UNIT_TIME) && (value <= most || !is_gpu)))
		return false;
	unit_print(why, row->unit, value);
	text_add(why, " is not plausible, expected about ");
	plausible_range(row, why);
	add_meant(row, value, why);
	return true;
}

bool plausible_usual(const struct plausible *row, double value)
{
	return value == 0 || row->unit == UNIT_TIME ||
	       (value >= row->least / USUAL && value <= row->most * USUAL);
}
