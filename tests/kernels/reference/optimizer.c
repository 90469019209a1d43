/* AdamW and SGD. Every operation is rounded to fp32 as the cpu table does, so that a weight gets
 * the same bits whichever table updates it. */
#include <math.h>

#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

/* The random words of element i. */
static void draw(const struct rounding *r, int64_t i, uint32_t words[2])
{
	uint64_t element = (uint64_t)(r->first + i), block = element / 2;
	const uint32_t counter[] = {
		(uint32_t)block, (uint32_t)(block >> 32), r->stream[0], r->stream[1]};
	uint32_t out[4];

	philox4x32(counter, r->key, out);
	words[0] = out[element % 2];
	words[1] = out[2 + element % 2];
}

static void put(enum dtype dtype, void *array, int64_t i, float x, uint32_t random)
{
	if (dtype == DTYPE_BF16)
		((uint16_t *)array)[i] = bf16_by_chance(x, random);
	else
		((float *)array)[i] = x;
}

void reference_adamw_with(const struct adamw *a, struct adamw_factors f)
{
	float beta2 = (float)a->beta2, epsilon = (float)a->epsilon;
	float take1 = (float)(1.0 - a->beta1), take2 = (float)(1.0 - a->beta2);
	uint32_t words[2] = {0};

	for (int64_t i = 0; i < a->n; i++) {
		float g = a->g[i] * a->gradient_scale;
		float w = element_get(a->dtype, a->w, i);
		float m = element_get(a->dtype, a->m, i), v = element_get(a->dtype, a->v, i);

		m = m + take1 * (g - m);
		v = beta2 * v + take2 * (g * g);
		w = w * f.keep - f.step * (m / (sqrtf(v) / f.root + epsilon));
		if (a->dtype == DTYPE_BF16)
			draw(&a->rounding, i, words);
		put(a->dtype, a->m, i, m, words[0] >> 16);
		put(a->dtype, a->v, i, v, words[1]);
		put(a->dtype, a->w, i, w, words[0]);
	}
}

void reference_adamw(struct kernel_context *context, const struct adamw *a)
{
	(void)context;
	reference_adamw_with(a, adamw_factors(a));
}

void reference_sgd(struct kernel_context *context, const struct sgd *s)
{
	uint32_t words[2] = {0};

	(void)context;
	for (int64_t i = 0; i < s->n; i++) {
		float w = element_get(s->dtype, s->w, i);

		w = w - s->lr * (s->g[i] * s->gradient_scale + s->weight_decay * w);
		if (s->dtype == DTYPE_BF16)
			draw(&s->rounding, i, words);
		put(s->dtype, s->w, i, w, words[0]);
	}
}
