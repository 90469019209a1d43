#include "simulator/devices/devices.h"

#include <math.h>

/* A product's loads and stores hide behind its arithmetic, but not all of them: the first operands
 * and the last results have nothing to hide behind. Between their sum (exponent 1) and the
 * larger one (infinity). Fitted to training rows of narrow models (bench/fit). */
static const double overlap_exponent = 1.5;

double product_model(const struct machine *machine, double arithmetic, double memory)
{
	/* On a CPU operands are copied into caches, and results written back, between products. */
	if (!machine->gpu)
		return arithmetic + memory;
	double more = fmax(arithmetic, memory), less = fmin(arithmetic, memory);

	if (more <= 0)
		return 0;
	return more * pow(1 + pow(less / more, overlap_exponent), 1 / overlap_exponent);
}

/* From so many rows (or columns, or terms) on a product takes as long as it has more of them: it
 * fills waves of tiles, and a tile's beginning and end are nothing. So larger ones are as near. */
static const double large = 16384;

static double place_of(int64_t size)
{
	return log(fmin((double)size, large));
}

/* Measured ratios are clamped to these limits: beyond them something else was measured. */
static const double least_ratio = 0.25, most_ratio = 4;

static double log_ratio(
	const struct machine *alone, const struct gemm_shape *gemm, double flops, double model)
{
	double seconds = gemm_flops(gemm) / flops - alone->kernel_overhead;

	return log(fmin(fmax(seconds / model, least_ratio), most_ratio));
}

/* A GPU's were measured one by one and by us, so by the clock and the library of a product alone; a
 * processor's on one core that had the memory for itself. */
static struct machine measured_on(const struct machine *machine)
{
	struct machine alone = *machine;
	double bandwidth = machine->topology->calibration.memory_bandwidth;

	alone.gemm_flops /= machine->slower_than_alone;
	if (machine->gpu)
		return alone;
	alone.gemm_flops /= topology_rank_speedup(machine->topology);
	alone.core_share = 1;
	alone.kernel_overhead = 0;
	if (bandwidth > 0)
		alone.product_bandwidth = bandwidth;
	return alone;
}

void product_init(struct machine *machine)
{
	const struct calibration *c = &machine->topology->calibration;
	const struct machine alone = measured_on(machine);

	machine->n_products = 0;
	for (int i = 0; i < c->n_products; i++) {
		const struct calibration_product *p = &c->products[i];
		const struct gemm_shape gemm = {p->m, p->n, p->k, 1};
		double memory = gemm_bytes(&gemm, p->dtype) / alone.product_bandwidth;
		double model = product_model(&alone, gemm_arithmetic(&alone, &gemm), memory);
		double chosen = p->chosen_flops > 0 ? p->chosen_flops : p->flops;

		if (p->dtype != machine->dtype)
			continue;
		machine->products[machine->n_products++] = (struct measured_product){
			.m = p->m,
			.n = p->n,
			.k = p->k,
			.log_m = place_of(p->m),
			.log_n = place_of(p->n),
			.log_k = place_of(p->k),
			.log_ratio = log_ratio(&alone, &gemm, p->flops, model),
			.log_exact = log_ratio(&alone, &gemm, chosen, model),
		};
	}
}

static double distance_to(const struct measured_product *p, const struct gemm_shape *gemm)
{
	double m = p->log_m - place_of(gemm->m), n = p->log_n - place_of(gemm->n);
	double k = p->log_k - place_of(gemm->k);

	return m * m + n * n + k * k;
}

/* The exact ratio: the executor runs a measured shape with the kernel that was measured fastest. */
double product_ratio(const struct machine *machine, const struct gemm_shape *gemm)
{
	const double log2_squared = 0.48045301391820142; /* ln(2)^2 */
	const struct measured_product *same = NULL;
	double weights = 1 / log2_squared, sum = 0;

	for (int i = 0; i < machine->n_products; i++) {
		const struct measured_product *p = &machine->products[i];
		double distance = distance_to(p, gemm);

		if (p->m == gemm->m && p->n == gemm->n && p->k == gemm->k)
			return exp(p->log_exact);
		if (distance < 1e-12) {
			same = same == NULL ? p : same;
			continue;
		}
		weights += 1 / distance;
		sum += p->log_ratio / distance;
	}
	if (same != NULL)
		return exp(same->log_ratio);
	return machine->n_products > 0 ? exp(sum / weights) : 1;
}

double product_least_ratio(const struct machine *machine)
{
	double least = 0;

	for (int i = 0; i < machine->n_products; i++)
		least = fmin(least,
			fmin(machine->products[i].log_ratio, machine->products[i].log_exact));
	return exp(least);
}
