/* One step of AdamW on vectors: the same roundings in the same order as the reference, whatever the
 * states are kept in. */
#ifndef KERNELS_CPU_ADAMW_H
#define KERNELS_CPU_ADAMW_H

#include "kernels/common/common.h"
#include "kernels/cpu/vector.h"

struct adamw_constants {
	struct adamw_factors by_step;
	float beta2, epsilon, take1, take2, gradient_scale;
};

INLINE struct adamw_constants adamw_constants(const struct adamw *a)
{
	return (struct adamw_constants){
		.by_step = adamw_factors(a),
		.beta2 = (float)a->beta2,
		.epsilon = (float)a->epsilon,
		.take1 = (float)(1.0 - a->beta1),
		.take2 = (float)(1.0 - a->beta2),
		.gradient_scale = a->gradient_scale,
	};
}

INLINE void adamw_step(const struct adamw_constants *c, vec *w, vec *m, vec *v, vec g)
{
	const struct adamw_factors *f = &c->by_step;

	g = g * c->gradient_scale;
	*m = *m + c->take1 * (g - *m);
	*v = c->beta2 * *v + c->take2 * (g * g);
	*w = *w * f->keep - f->step * (*m / (sqrt_vec(*v) / f->root + c->epsilon));
}

#endif
