/* The end of a step: gradient norm, clipping, the update of the local shards. */
#include "executor/compute.h"

#include <math.h>

static int64_t floats_in(const struct compute *compute, int buffer)
{
	return compute->program->buffers[buffer].bytes / (int64_t)sizeof(float);
}

static enum buffer_role role_of(const struct compute *compute, int buffer)
{
	return compute->program->buffers[buffer].role;
}

/* The squares of all gradient shards, exactly; padding is zero. Other ranks' parts come with the
 * all-reduce of the scalars. */
void compute_norm(struct compute *compute, const struct op *op)
{
	const int *uses = slice_of(compute->program, op->uses);
	int scalars = uses[op->uses.count - 1];

	compute->scalars = buffers_address(compute->buffers, scalars);
	if (compute->rehearsal)
		return;
	if (op->takes.count > 0) /* the host's part adds to the device's */
		*compute->scalars = (struct exact_sum){0};
	for (int i = 0; i < op->uses.count - 1; i++)
		compute->kernels->sum_squares(compute->context, compute->scalars,
			buffers_address(compute->buffers, uses[i]), floats_in(compute, uses[i]));
	exact_sum_normalise(compute->scalars);
}

/* The first operation after the reduction of the scalars learns the norm. All ranks see the same
 * value, so all stop in the same step, before the update. */
static bool learn_norm(struct compute *compute, struct error *error)
{
	if (compute->scalars == NULL || compute->rehearsal)
		return true;
	compute->gradient_norm = sqrt(exact_sum_value(compute->scalars));
	compute->scalars = NULL;
	return isfinite(compute->gradient_norm) ||
	       error_set(error, EXIT_CODE_FAULT,
		       "step %lld: the gradient norm is %f; nothing was updated",
		       (long long)compute->step, compute->gradient_norm);
}

bool compute_clip(struct compute *compute, const struct op *op, struct error *error)
{
	const int *uses = slice_of(compute->program, op->uses);

	if (!learn_norm(compute, error))
		return false;
	double factor = compute->schedule->plan.clip / (compute->gradient_norm + 1e-6);
	for (int i = 0; i < op->uses.count && factor < 1; i++)
		if (role_of(compute, uses[i]) != BUFFER_NORM_SCALARS)
			compute->kernels->scale(compute->context,
				buffers_address(compute->buffers, uses[i]), (float)factor,
				floats_in(compute, uses[i]));
	return true;
}

/* Of one update: where the shards are, and the run of them that one parameter has. */
struct update {
	struct compute *compute;
	float *w, *state, *g;
	int64_t chunk;
	int64_t at, n; /* elements of the shard */
	const struct parameter *parameter;
};

static double learning_rate(const struct compute *compute)
{
	const struct training *t = &compute->training;
	double steps = (double)(compute->step + 1);

	if (t->warmup <= 0 || steps >= (double)t->warmup)
		return t->learning_rate;
	return t->learning_rate * steps / (double)t->warmup;
}

static void run_adamw(const struct update *u)
{
	struct compute *c = u->compute;
	const struct training *t = &c->training;
	double steps = (double)(c->step + 1);

	c->kernels->adamw(
		c->context, &(struct adamw){.n = u->n,
				    .w = u->w + u->at,
				    .m = u->state + u->at,
				    .v = u->state + u->chunk + u->at,
				    .g = u->g + u->at,
				    .lr = learning_rate(c),
				    .beta1 = t->beta1,
				    .beta2 = t->beta2,
				    .epsilon = t->epsilon,
				    .weight_decay = u->parameter->decay ? t->weight_decay : 0,
				    .bias_correction1 = 1 - pow(t->beta1, steps),
				    .bias_correction2 = 1 - pow(t->beta2, steps),
				    .gradient_scale = 1});
}

static void update_slice(struct update *u, const struct unit_slice *slice, int64_t first)
{
	const struct compute *c = u->compute;
	int64_t begin = max_i64(slice->offset, first);
	int64_t end = min_i64(slice->offset + slice->elements, first + u->chunk);

	u->parameter = &c->model->parameters[slice->parameter];
	u->at = begin - first;
	u->n = end - begin;
	if (fault_hits(&c->fault, FAULT_DROP_LAST_ELEMENT, c->rank, c->step))
		u->n--;
	if (u->n <= 0 || !u->parameter->trainable)
		return;
	run_adamw(u);
}

static void *use_of(const struct compute *compute, const struct op *op, enum buffer_role role)
{
	int buffer = op_buffer(compute->program, op, role);

	return buffer >= 0 ? buffers_address(compute->buffers, buffer) : NULL;
}

/* What is updated: the shard, or the host's master copy of one that the device keeps. */
static float *weights_of(const struct compute *compute, const struct op *op)
{
	float *master = use_of(compute, op, BUFFER_MASTER_SHARD);

	return master != NULL ? master : use_of(compute, op, BUFFER_PARAMETER_SHARD);
}

/* Of gradient shards on the device: what `model_states_bytes` counts. */
static void count_gradient(struct compute *compute, const struct op *op)
{
	int buffer = op_buffer(compute->program, op, BUFFER_GRADIENT_SHARD);

	if (!buffer_in_host(&compute->program->buffers[buffer]))
		compute->gradient_bytes += buffers_bytes(compute->buffers, buffer);
}

bool compute_update(struct compute *compute, const struct op *op, struct error *error)
{
	const struct unit *unit = &compute->schedule->units[op->unit];
	struct update update = {.compute = compute,
		.w = weights_of(compute, op),
		.state = use_of(compute, op, BUFFER_OPTIMIZER_STATE),
		.g = use_of(compute, op, BUFFER_GRADIENT_SHARD),
		.chunk = unit->chunk};
	int64_t first = compute->rank % compute->schedule->plan.mesh.shard * unit->chunk;

	if (!learn_norm(compute, error))
		return false;
	if (update.w == NULL || update.state == NULL || update.g == NULL)
		return error_set(
			error, EXIT_CODE_INTERNAL, "optimizer of %s lacks operands", unit->name);
	count_gradient(compute, op);
	if (fault_hits(&compute->fault, FAULT_SKIP_OPTIMIZER, compute->rank, compute->step) &&
		op->unit == compute->schedule->n_units - 1)
		return true;
	for (int i = 0; i < unit->n_slices; i++)
		update_slice(&update, &unit->slices[i], first);
	return true;
}
