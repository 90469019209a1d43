/* Exact sums (kernels/common/exact_sum.h) on the device: integers add in any order, so that neither
 * the grid nor the shards matter. A square of fp32 has 48 significant bits and spans three digits;
 * each thread keeps four digits around the largest it has met in registers, and four around what is
 * smaller. */
#include "kernels/cuda/device/elements.cuh"

/* As in exact_sum.c. */
enum {
	DIGITS = 68,
	LIMBS = DIGITS + 4,
	NAN_COUNT = DIGITS,
	PLUS_INFINITY_COUNT,
	MINUS_INFINITY_COUNT,
	PENDING,
	WINDOW = 4,
};

struct window {
	int64_t digits[WINDOW];
	int base; /* the digit of the sum that digits[0] adds to */
};

DEVICE void window_flush(window &w, int64_t *limbs)
{
#pragma unroll
	for (int i = 0; i < WINDOW; i++) {
		if (w.digits[i] != 0)
			atomic_add(&limbs[w.base + i], w.digits[i]);
		w.digits[i] = 0;
	}
}

/* significand * 2^place, 2^0 being the lowest bit of digit 0. */
DEVICE void add_at(int64_t *limbs, uint64_t significand, int place, bool negative)
{
	int digit = place / 32, shift = place % 32;
	uint64_t low = (significand & 0xffffffffu) << shift;
	uint64_t high = ((significand >> 32) << shift) + (low >> 32);
	int64_t sign = negative ? -1 : 1;

	atomic_add(&limbs[digit], sign * (int64_t)(low & 0xffffffffu));
	atomic_add(&limbs[digit + 1], sign * (int64_t)(high & 0xffffffffu));
	atomic_add(&limbs[digit + 2], sign * (int64_t)(high >> 32));
}

DEVICE void add_in(window &w, int digit, uint64_t low, uint64_t high)
{
#pragma unroll
	for (int i = 0; i + 2 < WINDOW; i++) {
		if (digit == w.base + i) {
			w.digits[i] += (int64_t)(low & 0xffffffffu);
			w.digits[i + 1] += (int64_t)(high & 0xffffffffu);
			w.digits[i + 2] += (int64_t)(high >> 32);
		}
	}
}

/* x = m 2^e with an integer m of 24 bits; x^2 = m^2 2^(2e) and 2 e + 1088 >= 790. What is too small
 * for the window of the largest goes to another one, which follows it around: gradients of a head
 * have long stretches of words that never occur. */
DEVICE void add_square(window &w, window &small, float x, int64_t *limbs)
{
	uint32_t bits = bits_of_float(x), exponent = bits >> 23 & 0xff, m = bits & 0x7fffff;
	uint64_t square, low, high;
	int place, digit;

	if (exponent == 0xff) {
		atomic_add(&limbs[m ? NAN_COUNT : PLUS_INFINITY_COUNT], 1);
		return;
	}
	if (exponent > 0)
		m |= 0x800000;
	else
		exponent = 1;
	if (m == 0)
		return;
	square = (uint64_t)m * m;
	place = 2 * ((int)exponent - 150) + 1088;
	digit = place / 32;
	low = (square & 0xffffffffu) << place % 32;
	high = ((square >> 32) << place % 32) + (low >> 32);
	if (digit + 2 > w.base + WINDOW - 1) {
		window_flush(w, limbs);
		w.base = digit + 3 - WINDOW;
	}
	if (digit >= w.base) {
		add_in(w, digit, low, high);
		return;
	}
	if (digit < small.base || digit > small.base + WINDOW - 3) {
		window_flush(small, limbs);
		small.base = digit - 1;
	}
	add_in(small, digit, low, high);
}

DEVICE void clear_limbs(int64_t *limbs)
{
	for (int i = (int)threadIdx.x; i < LIMBS; i += (int)blockDim.x)
		limbs[i] = 0;
	__syncthreads();
}

/* Into [0, 2^32) with the sign on top, by one thread. */
DEVICE void normalise(int64_t *limbs)
{
	int64_t carry = 0;

#pragma unroll 1
	for (int i = 0; i < DIGITS - 1; i++) {
		int64_t digit = limbs[i] + carry;

		carry = digit >> 32;
		limbs[i] = digit & 0xffffffff;
	}
	limbs[DIGITS - 1] += carry;
}

/* The block's sum counts as one addition. */
DEVICE void add_limbs(int64_t *to, int64_t *limbs)
{
	__syncthreads();
	if (threadIdx.x == 0) {
		normalise(limbs);
		limbs[PENDING] = 1;
	}
	__syncthreads();
	for (int i = (int)threadIdx.x; i < LIMBS; i += (int)blockDim.x) {
		if (limbs[i] != 0)
			atomic_add(&to[i], limbs[i]);
	}
}

KERNEL(sum_squares)
{
	int64_t *limbs = (int64_t *)SHARED_MEMORY;
	int64_t step = (int64_t)gridDim.x * blockDim.x * 4;
	window w = {{0}, 0}, small = {{0}, 0};

	clear_limbs(limbs);
	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < a.n; i += step) {
		float x[4];

		load_some(x, (const float *)a.x + i, a.n - i, a.vector);
#pragma unroll
		for (int j = 0; j < 4; j++)
			add_square(w, small, x[j], limbs);
	}
	window_flush(w, limbs);
	window_flush(small, limbs);
	add_limbs(a.limbs, limbs);
}

DEVICE void add_double(int64_t *limbs, double x)
{
	uint64_t bits = bits_of_double(x), significand = bits & (((uint64_t)1 << 52) - 1);
	int exponent = (int)(bits >> 52 & 0x7ff);
	bool negative = bits >> 63;

	if (exponent == 0x7ff) {
		atomic_add(&limbs[significand ? NAN_COUNT
				   : negative ? MINUS_INFINITY_COUNT
					      : PLUS_INFINITY_COUNT],
			1);
		return;
	}
	if (exponent > 0)
		significand |= (uint64_t)1 << 52;
	else
		exponent = 1;
	if (significand != 0)
		add_at(limbs, significand, exponent - 1075 + 1088, negative);
}

KERNEL(sum_floats)
{
	int64_t *limbs = (int64_t *)SHARED_MEMORY;
	int64_t step = (int64_t)gridDim.x * blockDim.x;

	clear_limbs(limbs);
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += step)
		add_double(limbs, (double)((const float *)a.x)[i]);
	add_limbs(a.limbs, limbs);
}

/* Carries are propagated, so that equal sums have equal limbs. One block. */
KERNEL(settle)
{
	int64_t *limbs = (int64_t *)SHARED_MEMORY;

	for (int i = (int)threadIdx.x; i < LIMBS; i += (int)blockDim.x)
		limbs[i] = a.limbs[i];
	__syncthreads();
	if (threadIdx.x == 0) {
		normalise(limbs);
		limbs[PENDING] = 0;
	}
	__syncthreads();
	for (int i = (int)threadIdx.x; i < LIMBS; i += (int)blockDim.x)
		a.limbs[i] = limbs[i];
}

/* A normalised sum that is not negative, rounded to nearest, ties to even. */
DEVICE double value_of(const int64_t *limbs)
{
	int top = DIGITS - 1, lead, cut;
	uint64_t high, low, kept, lost;
	bool below = false;

	while (top >= 0 && limbs[top] == 0)
		top--;
	if (top < 2)
		return 0.0; /* below 2^-990: no square of fp32 is there */
	lead = leading_zeros((uint64_t)limbs[top]) - 32;
	/* The 64 bits from the first one on, and whether anything follows. */
	high = (uint64_t)limbs[top] << 32 | (uint64_t)limbs[top - 1];
	low = (uint64_t)limbs[top - 2] << 32 | (top > 2 ? (uint64_t)limbs[top - 3] : 0);
	if (lead > 0) {
		high = high << lead | low >> (64 - lead);
		below = low << lead != 0;
	} else {
		below = low != 0;
	}
	for (int i = 0; i < top - 3; i++)
		below = below || limbs[i] != 0;
	kept = high >> 11;
	lost = high & 0x7ff;
	if (lost > 0x400 || (lost == 0x400 && (below || (kept & 1))))
		kept++;
	cut = (top + 1) * 32 - lead - 53 - 1088;
	return ldexp((double)kept, cut);
}

/* norm = sqrt(sum); scale = min(1, limit / (norm + 1e-6)), 1 without a limit; NaN stays NaN. */
KERNEL(clip_scale)
{
	int64_t *limbs = (int64_t *)SHARED_MEMORY;
	double norm;

	for (int i = (int)threadIdx.x; i < LIMBS; i += 32)
		limbs[i] = a.limbs[i];
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	normalise(limbs);
	norm = sqrt(value_of(limbs));
	if (limbs[NAN_COUNT] != 0)
		norm = (double)bits_as_float(0x7fc00000u);
	else if (limbs[PLUS_INFINITY_COUNT] != 0)
		norm = (double)bits_as_float(0x7f800000u);
	*a.norm = norm;
	*a.scale = 1.0f;
	if (a.limit > 0.0 && !(a.limit / (norm + 1e-6) >= 1.0))
		*a.scale = (float)(a.limit / (norm + 1e-6));
}
