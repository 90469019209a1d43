#include "executor/compute/random.h"

#include <math.h>

#include "kernels/kernels.h"

enum { FEISTEL_ROUNDS = 6 };

/* Domains keep the streams of one seed apart. */
enum domain { DOMAIN_WEIGHTS = 1, DOMAIN_PERMUTATION = 2, DOMAIN_ROUNDING = 3 };

static void seed_key(int64_t seed, enum domain domain, uint32_t key[2])
{
	key[0] = (uint32_t)seed;
	key[1] = (uint32_t)((uint64_t)seed >> 32) ^ ((uint32_t)domain << 24);
}

/* In (0, 1): the logarithm below is finite. */
static double uniform(uint32_t bits)
{
	return ((double)bits + 0.5) * 0x1p-32;
}

static void normal_block(const uint32_t key[2], int64_t tensor, int64_t block, double normals[4])
{
	const uint32_t counter[4] = {(uint32_t)block, (uint32_t)((uint64_t)block >> 32),
		(uint32_t)tensor, (uint32_t)((uint64_t)tensor >> 32)};
	uint32_t bits[4];

	philox4x32(counter, key, bits);
	for (int pair = 0; pair < 2; pair++) {
		double radius = sqrt(-2 * log(uniform(bits[2 * pair])));
		double angle = 2 * M_PI * uniform(bits[2 * pair + 1]);

		normals[2 * pair] = radius * cos(angle);
		normals[2 * pair + 1] = radius * sin(angle);
	}
}

void random_normal_fill(
	int64_t seed, int64_t tensor, int64_t first, int64_t n, double deviation, float *out)
{
	uint32_t key[2];
	double normals[4];

	seed_key(seed, DOMAIN_WEIGHTS, key);
	for (int64_t element = first; element < first + n; element++) {
		if (element == first || element % 4 == 0)
			normal_block(key, tensor, element / 4, normals);
		out[element - first] = (float)(deviation * normals[element % 4]);
	}
}

/* A permutation of 0 .. 2^(2 half) - 1 (Luby and Rackoff 1988). */
static uint64_t feistel(const uint32_t key[2], int64_t round, int half, uint64_t value)
{
	uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
	uint32_t left = (uint32_t)(value >> half) & mask, right = (uint32_t)value & mask;

	for (uint32_t i = 0; i < FEISTEL_ROUNDS; i++) {
		const uint32_t counter[4] = {
			right, i, (uint32_t)round, (uint32_t)((uint64_t)round >> 32)};
		uint32_t bits[4];

		philox4x32(counter, key, bits);
		uint32_t next = left ^ (bits[0] & mask);
		left = right;
		right = next;
	}
	return ((uint64_t)left << half) | right;
}

int64_t random_permute(int64_t seed, int64_t round, int64_t n, int64_t i)
{
	uint32_t key[2];
	uint64_t value = (uint64_t)i;
	int half = 1;

	while (half < 31 && ((int64_t)1 << (2 * half)) < n)
		half++;
	seed_key(seed, DOMAIN_PERMUTATION, key);
	/* Values beyond n walk on along their cycle, which ends below n: at most four steps on
	 * average. */
	do
		value = feistel(key, round, half, value);
	while (value >= (uint64_t)n);
	return (int64_t)value;
}

struct rounding random_rounding(int64_t seed, int64_t tensor, int64_t step, int64_t first)
{
	struct rounding rounding = {.stream = {(uint32_t)tensor, (uint32_t)step}, .first = first};

	seed_key(seed, DOMAIN_ROUNDING, rounding.key);
	return rounding;
}
