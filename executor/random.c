#include "executor/random.h"

#include <math.h>

enum { PHILOX_ROUNDS = 10, FEISTEL_ROUNDS = 6 };

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < PHILOX_ROUNDS; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53u * c0;
		uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)p1;
		c3 = (uint32_t)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

/* Domains keep the streams of one seed apart. */
enum domain { DOMAIN_WEIGHTS = 1, DOMAIN_PERMUTATION = 2 };

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
