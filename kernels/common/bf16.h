/* bfloat16: the upper half of an fp32 number, rounded to nearest even. A NaN stays one. */
#ifndef KERNELS_BF16_H
#define KERNELS_BF16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"

static inline float bf16_to_float(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float y;

	memcpy(&y, &bits, sizeof(y));
	return y;
}

static inline uint16_t bf16_from_float(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	if (isnan(x))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Stochastically, by 16 random bits: those of x that are dropped are carried into the others with
 * the probability of their value. */
static inline uint16_t bf16_by_chance(float x, uint32_t random)
{
	uint32_t bits;

	if (isnan(x))
		return bf16_from_float(x);
	memcpy(&bits, &x, sizeof(bits));
	return (uint16_t)((bits + (random & 0xffff)) >> 16);
}

/* Element i of an array of fp32 or bf16. */
static inline float element_get(enum dtype dtype, const void *array, int64_t i)
{
	return dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)array)[i])
				   : ((const float *)array)[i];
}

static inline void element_put(enum dtype dtype, void *array, int64_t i, float x)
{
	if (dtype == DTYPE_BF16)
		((uint16_t *)array)[i] = bf16_from_float(x);
	else
		((float *)array)[i] = x;
}

/* The address of element i. */
static inline void *element_at(enum dtype dtype, void *array, int64_t i)
{
	return (char *)array + i * dtype_bytes(dtype);
}

static inline const void *element_of(enum dtype dtype, const void *array, int64_t i)
{
	return (const char *)array + i * dtype_bytes(dtype);
}

#endif
