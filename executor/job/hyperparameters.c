#include "executor/job/job.h"

#include <math.h>

const char *const lr_schedule_names[] = {"constant", "linear", "cosine", NULL};

struct training training_defaults(void)
{
	return (struct training){.steps = 100,
		.learning_rate = 3e-4,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.epsilon = 1e-8,
		.weight_decay = 0.1};
}

double training_learning_rate(const struct training *t, int64_t step)
{
	double done = (double)step, span = (double)(t->steps - t->warmup);
	double fall = t->learning_rate - t->min_lr, part;

	if (step + 1 < t->warmup)
		return t->learning_rate * (done + 1) / (double)t->warmup;
	if (t->lr_schedule == LR_CONSTANT || step < t->warmup || span <= 0)
		return t->learning_rate;
	part = fmin((done - (double)t->warmup) / span, 1);
	if (t->lr_schedule == LR_LINEAR)
		return t->learning_rate - fall * part;
	return t->min_lr + fall * 0.5 * (1 + cos(acos(-1) * part));
}
