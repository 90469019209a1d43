/* AdamW and SGD. */
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/cpu.h"

static void adamw_fp32(const struct adamw *a)
{
	const struct adamw_constants constants = adamw_constants(a);
	float *states[] = {a->w, a->m, a->v};

	for (int64_t i = 0; i < a->n; i += LANES) {
		int64_t rest = a->n - i;
		vec w = load_some(states[0] + i, rest), m = load_some(states[1] + i, rest);
		vec v = load_some(states[2] + i, rest);

		adamw_step(&constants, &w, &m, &v, load_some(a->g + i, rest));
		store_some(states[1] + i, m, rest);
		store_some(states[2] + i, v, rest);
		store_some(states[0] + i, w, rest);
	}
}

void CPU(adamw)(struct kernel_context *context, const struct adamw *a)
{
	(void)context;
	if (a->dtype == DTYPE_BF16)
		CPU(adamw_bf16)(a);
	else
		adamw_fp32(a);
}

static void sgd_fp32(const struct sgd *s)
{
	float *w = s->w;

	for (int64_t i = 0; i < s->n; i += LANES) {
		vec x = load_some(w + i, s->n - i);
		vec g = load_some(s->g + i, s->n - i);
		vec d = g * s->gradient_scale + s->weight_decay * x;

		store_some(w + i, x - s->lr * d, s->n - i);
	}
}

void CPU(sgd)(struct kernel_context *context, const struct sgd *s)
{
	(void)context;
	if (s->dtype == DTYPE_BF16)
		CPU(sgd_bf16)(s);
	else
		sgd_fp32(s);
}
