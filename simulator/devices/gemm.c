/* Matrix products. A GPU's library cuts the result into tiles; a wave of them, one on each
 * multiprocessor, runs at a time. On CPUs the rate saturates smoothly. Fitted figures: bench/fit.
 */
#include "simulator/devices/devices.h"

#include <math.h>

/* The tiles that libraries choose from, and the share of the full rate that each reaches: small
 * tiles read their operands more often from the cache. The share of 128 x 128 is fitted; the others
 * follow in proportion to the operands that they read. */
static const struct tile {
	double m, n, efficiency;
} tiles[] = {
	{256, 128, 1},
	{128, 256, 1},
	{128, 128, 0.84},
	{64, 128, 0.71},
	{128, 64, 0.71},
	{64, 64, 0.58},
};

/* The last wave is not full. Idle multiprocessors cost less than their number: clocks rise, and
 * libraries hand out the rest in smaller pieces. 1: a full wave; 0: nothing. Fitted. */
static const double partial_wave = 0.53;

static const double most_splits = 8, split_limit = 2;

double gemm_mixed_bytes(const struct gemm_shape *gemm, enum dtype operands, enum dtype result)
{
	double m = (double)gemm->m, n = (double)gemm->n, k = (double)gemm->k;

	return ((m * k + k * n) * dtype_bytes(operands) + m * n * dtype_bytes(result)) *
	       (double)gemm->count;
}

double gemm_bytes(const struct gemm_shape *gemm, enum dtype dtype)
{
	return gemm_mixed_bytes(gemm, dtype, dtype);
}

double gemm_flops(const struct gemm_shape *gemm)
{
	return 2.0 * (double)gemm->m * (double)gemm->n * (double)gemm->k * (double)gemm->count;
}

static double saturation(double size, double half)
{
	return size / (size + half);
}

/* Waves that `count` tiles take. */
static double waves_of(double count, double multiprocessors)
{
	double waves = count / multiprocessors;

	return waves + partial_wave * (ceil(waves) - waves);
}

static double tile_count(const struct gemm_shape *gemm, const struct tile *tile)
{
	return ceil((double)gemm->m / tile->m) * ceil((double)gemm->n / tile->n) *
	       (double)gemm->count;
}

/* With `splits` parts of k, whose partial sums (fp32) are written and read once more. */
static double tiled_seconds(const struct machine *machine, const struct gemm_shape *gemm,
	const struct tile *tile, double splits)
{
	double m = (double)gemm->m, n = (double)gemm->n;
	double count = tile_count(gemm, tile) * splits;
	double depth = (double)gemm->k / splits + machine->gemm_half_k;
	double rate = machine->gemm_flops / machine->multiprocessors * tile->efficiency;
	double seconds =
		waves_of(count, machine->multiprocessors) * 2 * tile->m * tile->n * depth / rate;

	if (splits > 1)
		seconds += 8 * m * n * (double)gemm->count * splits / machine->memory_bandwidth +
			   machine->kernel_overhead;
	return seconds;
}

/* We assume that the library's heuristics find the best of its kernels. */
static double best_tiling(const struct machine *machine, const struct gemm_shape *gemm)
{
	double best = INFINITY;

	for (int i = 0; i < COUNT_OF(tiles); i++) {
		const struct tile *tile = &tiles[i];
		double count = tile_count(gemm, tile);

		for (double splits = 1; splits <= most_splits; splits *= 2) {
			if (splits > 1 && count * splits > split_limit * machine->multiprocessors)
				break;
			best = fmin(best, tiled_seconds(machine, gemm, tile, splits));
		}
	}
	return best;
}

double gemm_arithmetic(const struct machine *machine, const struct gemm_shape *gemm)
{
	double flops = gemm_flops(gemm);
	double rate = machine->gemm_flops;

	if (machine->gpu && machine->tiles)
		return fmax(best_tiling(machine, gemm),
			machine->peak_flops > 0 ? flops / machine->peak_flops : 0);
	rate *= saturation((double)gemm->m, machine->gemm_half_m) *
		saturation((double)gemm->n, machine->gemm_half_n) *
		saturation((double)gemm->k, machine->gemm_half_k);
	if (machine->gpu && machine->peak_flops > 0)
		rate = fmin(rate, machine->peak_flops);
	return flops / (rate * machine->core_share);
}
