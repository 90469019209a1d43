/* Rotary position embedding: the pair (x[i], x[i + head_dim/2]) is rotated by an angle. */
#include <math.h>

#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

static void rotate(void *x, const struct rope *r, double position)
{
	int64_t half = r->head_dim / 2;

	for (int64_t i = 0; i < half; i++) {
		double angle = position * rope_frequency(r, i) * (r->inverse ? -1.0 : 1.0);
		double a = element_get(r->dtype, x, i), b = element_get(r->dtype, x, i + half);

		element_put(r->dtype, x, i, (float)(a * cos(angle) - b * sin(angle)));
		element_put(r->dtype, x, i + half, (float)(b * cos(angle) + a * sin(angle)));
	}
}

void reference_rope(struct kernel_context *context, const struct rope *r)
{
	(void)context;
	for (int64_t t = 0; t < r->tokens; t++) {
		for (int64_t head = 0; head < r->heads; head++)
			rotate(element_at(r->dtype, r->x, t * r->stride + head * r->head_dim), r,
				(double)(t % r->length));
	}
}
