/* One row for each generation, and three laws that scale it to another part of the generation: an
 * export version with half of the arithmetic units, a workstation card, a lower power limit. */
#include "simulator/devices/priors.h"

#include <math.h>

struct row {
	/* The figures of one part of the generation: its peak over its multiprocessors, FLOP/s. */
	double per_multiprocessor;
	double gemm;
	/* Share of the peak, at 1 W per TFLOP/s of it, that the power limit allows: for a product
	 * alone, and in a step, which keeps the device at the limit with real numbers in its
	 * operands. It grows with the square root. 0: not known. */
	double alone_by_power, step_by_power;
	double sustained_clock; /* where no power limit is given */
	struct attention_rates attention[ATTENTION_GENERATION_COUNT];
	double half_k, memory, kernel_overhead, multiprocessors;
	bool has_steps;
};

static const struct row rows[GENERATION_COUNT] = {
	[GENERATION_CPU] = {0, 0.75, 0, 0, 1, {{0.5, 0.5}, {0.5, 0.5}, {0.5, 0.5}}, 32, 0.80, 1e-6,
		1, true},
	[GENERATION_VOLTA] = {0, 0.77, 0, 0, 0.90, {{0.30, 0.22}, {0.30, 0.22}, {0.30, 0.22}}, 120,
		0.85, 3e-6, 80, false},
	[GENERATION_TURING] = {0, 0.80, 0.60, 0.45, 0.80,
		{{0.30, 0.22}, {0.30, 0.22}, {0.30, 0.22}}, 120, 0.85, 3e-6, 40, false},
	[GENERATION_AMPERE] = {312e12 / 108, 0.833, 0.84, 0.684, 0.91,
		{{0.38, 0.30}, {0.64, 0.56}, {0.64, 0.56}}, 140, 0.90, 3e-6, 108, true},
	[GENERATION_ADA] = {362e12 / 142, 0.97, 0.708, 0.65, 0.90,
		{{0.41, 0.32}, {0.68, 0.59}, {0.68, 0.59}}, 120, 0.90, 3e-6, 128, false},
	[GENERATION_CDNA2] = {191.5e12 / 110, 0.77, 0.64, 0.55, 0.85,
		{{0.25, 0.18}, {0.35, 0.26}, {0.35, 0.26}}, 140, 0.80, 4e-6, 110, false},
	[GENERATION_CDNA3] = {1307e12 / 304, 0.75, 0.68, 0.62, 0.90,
		{{0.20, 0.15}, {0.33, 0.25}, {0.33, 0.25}}, 140, 0.80, 4e-6, 304, false},
	[GENERATION_CDNA4] = {2516e12 / 256, 0.75, 0.837, 0.70, 0.85,
		{{0.15, 0.11}, {0.30, 0.22}, {0.30, 0.22}}, 140, 0.80, 4e-6, 256, false},
	[GENERATION_OTHER] = {0, 0.75, 0, 0, 0.85, {{0.35, 0.28}, {0.45, 0.38}, {0.45, 0.38}}, 120,
		0.85, 4e-6, 100, false},
	[GENERATION_HOPPER] = {989e12 / 132, 0.872, 1.036, 0.684, 0.74,
		{{0.202, 0.170}, {0.34, 0.32}, {0.60, 0.54}}, 80, 0.90, 3e-6, 132, true},
	/* 0.774 by power; 0.88 lets products in fp8 reach as much of their peak (MAMF: 0.76). */
	[GENERATION_BLACKWELL] = {2250e12 / 148, 0.88, 1.161, 0.813, 0.62,
		{{0.10, 0.08}, {0.18, 0.17}, {0.55, 0.45}, {0.64, 0.505}}, 100, 0.80, 3e-6, 148,
		true},
};

/* A core of a CPU: products saturate in all three sizes. */
static const double cpu_half_m = 4, cpu_half_n = 16;

/* Attention of the peak is 1 / (c + slope * peak of a multiprocessor): softmax, copies and waits
 * run at the speed of the multiprocessor, whatever its matrix units do. TFLOP/s; from A100 and
 * H100, whose line also passes through the other generations. The third kernel overlaps softmax
 * with products; the fourth's line passes through B200 and GB200. */
static const struct attention_rates slopes[ATTENTION_GENERATION_COUNT] = {
	[ATTENTION_FIRST] = {0.59, 0.66},
	[ATTENTION_SECOND] = {0.30, 0.29},
	[ATTENTION_THIRD] = {0.10, 0.10},
	[ATTENTION_FOURTH] = {0.10, 0.10}};
static const double most_attention = 0.90;

double reference_peak(const struct device *device)
{
	if (device->kind == DEVICE_CPU)
		return device->fp32_flops;
	if (device->bf16_flops > 0)
		return device->bf16_flops;
	return device->fp16_flops > 0 ? device->fp16_flops : device->fp32_flops;
}

static double by_power(const struct device *device, double factor)
{
	double reference = reference_peak(device);

	if (device->power <= 0 || factor <= 0 || reference <= 0)
		return INFINITY;
	return factor * sqrt(device->power / (reference / 1e12));
}

/* The peak of a multiprocessor beyond that of the row, TFLOP/s. */
static double beyond(const struct device *device, const struct row *row)
{
	double count = (double)device->multiprocessors;

	if (count <= 0 || row->per_multiprocessor <= 0)
		return 0;
	return (reference_peak(device) / count - row->per_multiprocessor) / 1e12;
}

/* The share of the peak that a product reaches alone. Its loss at the begin, at the end and in
 * feeding operands is in proportion to the matrix units of a multiprocessor, which may be worth
 * `times` as many. */
static double products_alone(const struct device *device, const struct row *row, double times)
{
	double share = 1, limit = by_power(device, row->alone_by_power);

	if (row->per_multiprocessor > 0)
		share += fmin(0, beyond(device, row) * 1e12 / row->per_multiprocessor);
	return fmin(1 - (1 - row->gemm) * share * times, limit);
}

static double clock_in_step(const struct device *device, const struct row *row, double alone)
{
	double limit = by_power(device, row->step_by_power);

	return isfinite(limit) ? fmin(PRIOR_MOST_CLOCK, limit / alone) : row->sustained_clock;
}

static double carried_over(double fraction, double slope, double beyond)
{
	if (fabs(beyond) < 1e-9)
		return fraction;
	return fmin(fmax(fraction, most_attention), 1 / fmax(1, 1 / fraction + slope * beyond));
}

static struct prior prior_of(const struct device *device, double times)
{
	const struct row *row = &rows[device->generation];
	bool cpu = device->kind == DEVICE_CPU;
	struct prior prior = {.gemm = products_alone(device, row, times),
		.half_m = cpu ? cpu_half_m : 0,
		.half_n = cpu ? cpu_half_n : 0,
		.half_k = row->half_k * times,
		.memory = row->memory,
		.kernel_overhead = row->kernel_overhead,
		.multiprocessors = row->multiprocessors};

	prior.sustained_clock = clock_in_step(device, row, prior.gemm);
	for (int i = 0; i < ATTENTION_GENERATION_COUNT; i++) {
		const struct attention_rates *rates = &row->attention[i];

		prior.attention[i].forward =
			carried_over(rates->forward, slopes[i].forward, beyond(device, row));
		prior.attention[i].backward =
			carried_over(rates->backward, slopes[i].backward, beyond(device, row));
	}
	return prior;
}

struct prior device_prior(const struct device *device)
{
	return prior_of(device, 1);
}

struct prior device_prior_in(const struct device *device, enum dtype dtype)
{
	double reference = reference_peak(device), peak = device_peak_flops(device, dtype);

	return prior_of(device, peak > 0 && reference > 0 ? peak / reference : 1);
}

/* GPT-2's 50257 words: measured on an H100, printed of A100s (docs/cost-model.md); the others [U].
 * Of AMD's nothing is known. */
double generation_unaligned(enum device_generation generation)
{
	static const double times[GENERATION_COUNT] = {
		[GENERATION_VOLTA] = 2.7,
		[GENERATION_TURING] = 2.7,
		[GENERATION_AMPERE] = 2.7,
		[GENERATION_ADA] = 2.7,
		[GENERATION_HOPPER] = 5.5,
		[GENERATION_BLACKWELL] = 5.5,
	};

	return fmax(1, times[generation]);
}

bool generation_sources_agree(enum device_generation generation)
{
	return generation == GENERATION_AMPERE;
}

bool generation_has_steps(enum device_generation generation)
{
	return rows[generation].has_steps;
}
