/* AdamW and SGD: the same roundings in the same order as the reference. */
#include "kernels/cpu/cpu.h"

void CPU(adamw)(struct kernel_context *context, const struct adamw *a)
{
	const struct adamw_factors f = adamw_factors(a);
	float beta2 = (float)a->beta2, epsilon = (float)a->epsilon;
	float take1 = (float)(1.0 - a->beta1), take2 = (float)(1.0 - a->beta2);

	(void)context;
	for (int64_t i = 0; i < a->n; i += LANES) {
		int64_t rest = a->n - i;
		vec g = load_some(a->g + i, rest) * a->gradient_scale;
		vec m = load_some(a->m + i, rest), v = load_some(a->v + i, rest);
		vec w = load_some(a->w + i, rest);

		m = m + take1 * (g - m);
		v = beta2 * v + take2 * (g * g);
		w = w * f.keep - f.step * (m / (sqrt_vec(v) / f.root + epsilon));
		store_some(a->m + i, m, rest);
		store_some(a->v + i, v, rest);
		store_some(a->w + i, w, rest);
	}
}

void CPU(sgd)(struct kernel_context *context, float *w, const float *g, int64_t n, float lr,
	float weight_decay, float gradient_scale)
{
	(void)context;
	for (int64_t i = 0; i < n; i += LANES) {
		vec x = load_some(w + i, n - i);
		vec d = load_some(g + i, n - i) * gradient_scale + weight_decay * x;
		store_some(w + i, x - lr * d, n - i);
	}
}
