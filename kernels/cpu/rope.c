/* Rotary position embedding: the rotation of a position is computed once and applied to that
 * position of every sequence and head. Angles in double, so that far positions keep their digits.
 */
#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

struct rotations {
	double *frequency;    /* [head_dim / 2] */
	float *cosine, *sine; /* of the current position */
};

static void set_position(
	const struct rotations *rotations, int64_t half, int64_t position, bool inverse)
{
	for (int64_t i = 0; i < half; i++) {
		double angle = (double)position * rotations->frequency[i];

		rotations->cosine[i] = (float)cos(angle);
		rotations->sine[i] = (float)(inverse ? -sin(angle) : sin(angle));
	}
}

INLINE void rotate_head(
	const enum dtype dtype, void *x, const struct rotations *rotations, int64_t half)
{
	for (int64_t i = 0; i < half; i += LANES) {
		int64_t rest = half - i;
		vec a = load_as(dtype, x, i, rest), b = load_as(dtype, x, half + i, rest);
		vec c = load_some(rotations->cosine + i, rest),
		    s = load_some(rotations->sine + i, rest);

		store_as(dtype, x, i, a * c - b * s, rest);
		store_as(dtype, x, half + i, b * c + a * s, rest);
	}
}

void CPU(rope)(struct kernel_context *context, const struct rope *r)
{
	int64_t half = r->head_dim / 2;
	struct rotations rotations = {.frequency = context->workspace};

	rotations.cosine = (float *)(rotations.frequency + half);
	rotations.sine = rotations.cosine + half;
	for (int64_t i = 0; i < half; i++)
		rotations.frequency[i] = rope_frequency(r, i);
	for (int64_t position = 0; position < r->length && position < r->tokens; position++) {
		set_position(&rotations, half, r->first + position, r->inverse);
		for (int64_t t = position; t < r->tokens; t += r->length) {
			for (int64_t head = 0; head < r->heads; head++)
				BY_DTYPE(rotate_head, r->dtype,
					element_at(
						r->dtype, r->x, t * r->stride + head * r->head_dim),
					&rotations, half);
		}
	}
}
