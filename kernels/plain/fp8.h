/* Numbers in fp8 and the scales before them, for hosts and devices (C and CUDA C++ include this
 * file): Micikevicius et al. 2022, "FP8 formats for deep learning". */
#ifndef KERNELS_PLAIN_FP8_H
#define KERNELS_PLAIN_FP8_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FP8_FUNCTION __device__ __forceinline__
#else
#define FP8_FUNCTION static inline
#endif

/* Sign, exponent and mantissa: 1 4 3 without infinities, up to 448; 1 5 2 up to 57344. */
enum fp8_format {
	FP8_E4M3,
	FP8_E5M2,
};

enum {
	FP8_NAN = 0x7f, /* of both formats */
	FP8_ALIGNMENT = 16,
};

FP8_FUNCTION uint32_t fp8_bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

FP8_FUNCTION float fp8_of_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

FP8_FUNCTION float fp8_most(int format)
{
	return format == FP8_E4M3 ? 448.0f : 57344.0f;
}

/* x rounded to nearest even; what is too large, infinity too, becomes the largest number (as
 * cvt.rn.satfinite has it). */
FP8_FUNCTION uint8_t fp8_round(float x, int format)
{
	int mantissa = format == FP8_E4M3 ? 3 : 2, bias = format == FP8_E4M3 ? 7 : 15;
	uint32_t all = fp8_bits_of(x), sign = all >> 31 << 7, bits = all & 0x7fffffffu;
	uint32_t drop = (uint32_t)(23 - mantissa), normal = (uint32_t)(128 - bias) << 23;

	if (bits > 0x7f800000u)
		return FP8_NAN;
	if (bits >= fp8_bits_of(fp8_most(format)))
		return (uint8_t)(sign | (format == FP8_E4M3 ? 0x7e : 0x7b));
	if (bits < normal) {
		/* Adding this power of two rounds a number to a multiple of the smallest fp8
		 * number. */
		uint32_t power = (uint32_t)(127 + 1 - bias - mantissa + 23) << 23;

		return (uint8_t)(sign |
				 (fp8_bits_of(fp8_of_bits(bits) + fp8_of_bits(power)) - power));
	}
	bits += (1u << (drop - 1)) - 1 + (bits >> drop & 1);
	return (uint8_t)(sign | (bits - ((uint32_t)(127 - bias) << 23)) >> drop);
}

/* The factor by which numbers are multiplied before they are rounded, so that the largest becomes
 * the largest of the format. `largest`: the bits of its absolute value, which as integers are
 * ordered like numbers, NaN last. Products undo it by 1 / scale. The floor is torchao's
 * (float8_utils.py): zeros alone have a finite scale. */
FP8_FUNCTION float fp8_scale(uint32_t largest, int format)
{
	float most = fp8_of_bits(largest);

	return fp8_most(format) / (most < 1e-12f ? 1e-12f : most);
}

/* Bytes of memory that a product of [m, k] and [k, n] in fp8 needs for the copies of its operands,
 * and for a largest element and a scale of each of their rows. */
FP8_FUNCTION int64_t fp8_product_bytes(int64_t m, int64_t n, int64_t k)
{
	return (m + n) * (k + 8);
}

#endif
