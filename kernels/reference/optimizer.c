/* AdamW and SGD. Every operation is rounded to fp32 as the cpu table does, so that a weight gets
 * the same bits whichever table updates it. */
#include <math.h>

#include "kernels/reference/reference.h"

void reference_adamw(struct kernel_context *context, const struct adamw *a)
{
	const struct adamw_factors f = adamw_factors(a);
	float beta2 = (float)a->beta2, epsilon = (float)a->epsilon;
	float take1 = (float)(1.0 - a->beta1), take2 = (float)(1.0 - a->beta2);

	(void)context;
	for (int64_t i = 0; i < a->n; i++) {
		float g = a->g[i] * a->gradient_scale;
		float m = a->m[i] + take1 * (g - a->m[i]);
		float v = beta2 * a->v[i] + take2 * (g * g);

		a->m[i] = m;
		a->v[i] = v;
		a->w[i] = a->w[i] * f.keep - f.step * (m / (sqrtf(v) / f.root + epsilon));
	}
}

void reference_sgd(struct kernel_context *context, float *w, const float *g, int64_t n, float lr,
	float weight_decay, float gradient_scale)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		w[i] = w[i] - lr * (g[i] * gradient_scale + weight_decay * w[i]);
}
