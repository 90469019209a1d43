/* Ends a step: computes the gradient norm, clips, and updates the local shards. */
#include "executor/compute/leaf.h"

#include <math.h>

#include "executor/compute/random.h"
#include "kernels/kernels.h"

static int64_t floats_in(const struct compute *compute, int buffer)
{
	const struct buffer *b = &compute->program->buffers[buffer];

	return b->bytes / dtype_bytes(b->dtype);
}

static enum buffer_role role_of(const struct compute *compute, int buffer)
{
	return compute->program->buffers[buffer].role;
}

/* Returns the sums of squares where the processor that carries out the operation can work on them.
 * The host fetches what lies on a device, once it has waited for the operation that made it. */
static struct exact_sum *squares_for(
	struct compute *compute, const struct op *op, struct exact_sum *squares)
{
	if (compute->device == NULL || op->stream != STREAM_HOST)
		return squares;
	if (!compute->rehearsal)
		device_copy_now(compute->device, &compute->on_host, squares,
			sizeof(compute->on_host), &compute->error);
	return &compute->on_host;
}

/* Adds the squares of a gradient shard. What several ranks have alike must count once: a parameter
 * that all tensor ranks have counts on the first of them, one that all expert ranks have because
 * nothing is sharded counts on the first of those, and a table of two stages counts on the first
 * stage. */
static void add_squares(struct compute *c, struct exact_sum *squares, int buffer)
{
	const float *shard = buffers_address(c->buffers, buffer);
	const struct unit *unit = &c->program->units[c->program->buffers[buffer].unit];
	const struct plan *plan = &c->schedule->plan;
	int64_t first = unit_shard_place(unit, plan, c->rank) * unit->chunk;
	bool again = c->expert_place > 0 && !unit->of_experts && !strategy_shards(plan->strategy);

	if (again || model_parameter_is_copy(c->model, unit->slices[0].parameter))
		return;
	if (c->tensor_place == 0) {
		c->kernels->sum_squares(c->context, squares, shard, floats_in(c, buffer));
		return;
	}
	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		int64_t begin = max_i64(slice->offset - first, 0);
		int64_t end = min_i64(slice->offset + slice->elements - first, unit->chunk);

		if (begin < end && model_parameter_is_cut(c->model, slice->parameter))
			c->kernels->sum_squares(c->context, squares, shard + begin, end - begin);
	}
}

/* Sums the squares of all gradient shards exactly; padding is zero and adds nothing. The parts of
 * other ranks come with the all-reduce of the scalars. */
void compute_norm(struct compute *compute, const struct op *op)
{
	const int *uses = slice_of(compute->program, op->uses);
	int scalars = uses[op->uses.count - 1];
	struct exact_sum *squares;

	compute->scalars = buffers_address(compute->buffers, scalars);
	if (compute->rehearsal)
		return;
	squares = squares_for(compute, op, compute->scalars);
	/* The host's part is added to the device's. */
	if (op->takes.count > 0 && compute_on_device(compute, op))
		device_zero(
			compute->device, squares, sizeof(*squares), op->stream, &compute->error);
	else if (op->takes.count > 0)
		*squares = (struct exact_sum){0};
	if (compute->overflow) /* also tells the other ranks */
		exact_sum_add(squares, NAN);
	for (int i = 0; i < op->uses.count - 1 && compute_sums_exactly(compute); i++)
		gradient_round(compute, uses[i]);
	for (int i = 0; i < op->uses.count - 1; i++)
		add_squares(compute, squares, uses[i]);
	if (!compute_on_device(compute, op))
		exact_sum_normalise(squares);
	if (squares != compute->scalars)
		device_copy_now(compute->device, compute->scalars, squares, sizeof(*squares),
			&compute->error);
}

bool compute_norm_is_finite(const struct compute *compute, struct error *error)
{
	if (isfinite(compute->gradient_norm))
		return true;
	return error_set(error, EXIT_CODE_FAULT, "step %lld: the gradient norm is %f; %s",
		(long long)compute->step, compute->gradient_norm,
		compute->norm_on_device ? "the weights are no longer good" : "nothing was updated");
}

/* The first operation after the reduction of the scalars learns the norm. All ranks see the same
 * value, so all stop in the same step, before the update. A device goes on: the host looks at the
 * norm when the step has ended. */
static bool learn_norm(struct compute *compute, const struct op *op, struct error *error)
{
	struct exact_sum *squares = compute->scalars;

	if (squares == NULL || compute->rehearsal)
		return true;
	compute->scalars = NULL;
	if (compute_on_device(compute, op)) {
		compute->norm_on_device = true;
		return device_copy(compute->device, &compute->device->scalars->squares, squares,
			sizeof(*squares), op->stream, error);
	}
	compute->gradient_norm = sqrt(exact_sum_value(squares_for(compute, op, squares)));
	return compute_norm_is_finite(compute, error);
}

void compute_clip(struct compute *compute, const struct op *op)
{
	const int *uses = slice_of(compute->program, op->uses);
	int scalars = op_buffer(compute->program, op, BUFFER_NORM_SCALARS);

	if (!learn_norm(compute, op, &compute->error))
		return;
	const struct exact_sum *squares =
		squares_for(compute, op, buffers_address(compute->buffers, scalars));
	/* A device leaves the gradients as they are, because its update multiplies by the scale. */
	if (compute->kernels->device != NULL) {
		struct device_scalars *there = compute->device->scalars;

		compute->kernels->device->clip_scale(compute->context, squares,
			compute->schedule->plan.clip, &there->norm, &there->clip);
		return;
	}
	for (int i = 0; i < op->uses.count && !compute->rehearsal; i++)
		if (role_of(compute, uses[i]) != BUFFER_NORM_SCALARS)
			compute->kernels->clip(compute->context,
				buffers_address(compute->buffers, uses[i]),
				floats_in(compute, uses[i]), squares, compute->schedule->plan.clip);
}

/* One update: where the shards are, and which run of them belongs to one parameter. */
struct update {
	struct compute *compute;
	void *w, *state;
	float *g;
	enum dtype dtype; /* of w and state */
	int64_t chunk;
	int64_t at, n; /* the run, in elements of the shard */
	const struct parameter *parameter;
	struct rounding rounding; /* used when the weights are bf16 */
};

static double learning_rate(const struct compute *compute)
{
	return training_learning_rate(&compute->training, compute->step);
}

/* Returns the part of the rounding that all parameters of a step have in common. */
static struct rounding rounding_of_step(const struct compute *c)
{
	return random_rounding(c->training.seed, 0, c->step, 0);
}

struct adamw optimizer_adamw(const struct training *training, int64_t step)
{
	double steps = (double)(step + 1);

	return (struct adamw){.lr = training_learning_rate(training, step),
		.beta1 = training->beta1,
		.beta2 = training->beta2,
		.epsilon = training->epsilon,
		.weight_decay = training->weight_decay,
		.bias_correction1 = 1 - pow(training->beta1, steps),
		.bias_correction2 = 1 - pow(training->beta2, steps),
		.gradient_scale = 1};
}

static struct adamw adamw_of(const struct compute *c, bool decay)
{
	struct adamw adamw = optimizer_adamw(&c->training, c->step);

	adamw.weight_decay = decay ? adamw.weight_decay : 0;
	adamw.rounding = rounding_of_step(c);
	return adamw;
}

static struct sgd_factors sgd_of(const struct compute *c, bool decay)
{
	return (struct sgd_factors){(float)learning_rate(c),
		decay ? (float)c->training.weight_decay : 0, rounding_of_step(c).stream[1]};
}

void compute_factors(const struct compute *c, struct device_scalars *scalars)
{
	for (int decay = 0; decay < 2; decay++) {
		const struct adamw adamw = adamw_of(c, decay);

		scalars->adamw[decay] = adamw_factors(&adamw);
		scalars->sgd[decay] = sgd_of(c, decay);
	}
}

/* Returns the scale by which the device's update multiplies gradients; NULL when the plan does not
 * clip. */
static const float *clip_of(const struct compute *c)
{
	return c->schedule->plan.clip > 0 ? &c->device->scalars->clip : NULL;
}

static void run_adamw(const struct update *u)
{
	const struct compute *c = u->compute;
	const struct device_kernels *device = c->kernels->device;
	bool decay = u->parameter->decay;
	struct adamw adamw = adamw_of(c, decay);

	adamw.n = u->n;
	adamw.w = element_at(u->dtype, u->w, u->at);
	adamw.m = element_at(u->dtype, u->state, u->at);
	adamw.v = element_at(u->dtype, u->state, u->chunk + u->at);
	adamw.g = u->g + u->at;
	adamw.dtype = u->dtype;
	adamw.rounding = u->rounding;
	if (device != NULL)
		device->adamw(
			c->context, &adamw, NULL, &c->device->scalars->adamw[decay], clip_of(c));
	else
		c->kernels->adamw(c->context, &adamw);
}

/* Updates without momentum, as torch.optim.SGD does by default. */
static void run_sgd(const struct update *u)
{
	const struct compute *c = u->compute;
	const struct device_kernels *device = c->kernels->device;
	bool decay = u->parameter->decay;
	const struct sgd_factors factors = sgd_of(c, decay);
	const struct sgd sgd = {.n = u->n,
		.w = element_at(u->dtype, u->w, u->at),
		.g = u->g + u->at,
		.lr = factors.rate,
		.weight_decay = factors.decay,
		.gradient_scale = 1,
		.dtype = u->dtype,
		.rounding = u->rounding};

	if (device != NULL)
		device->sgd(c->context, &sgd, &c->device->scalars->sgd[decay], clip_of(c));
	else
		c->kernels->sgd(c->context, &sgd);
}

/* Returns which element of the whole parameter is the first of an expert rank's part. */
static int64_t expert_element(const struct compute *c, int parameter)
{
	bool cut = c->expert_ranks > 1 && model_parameter_is_cut(c->model, parameter);

	return cut ? c->expert_place * c->model->parameters[parameter].elements : 0;
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
	if (fault_hits(&c->fault, FAULT_ROUND_BY_SHARD, c->rank, c->step))
		begin = slice->offset + u->at;
	u->rounding =
		random_rounding(c->training.seed, model_whole_parameter(c->model, slice->parameter),
			c->step, begin - slice->offset + expert_element(c, slice->parameter));
	if (u->state != NULL)
		run_adamw(u);
	else
		run_sgd(u);
}

static void *use_of(const struct compute *compute, const struct op *op, enum buffer_role role)
{
	int buffer = op_buffer(compute->program, op, role);

	return buffer >= 0 ? buffers_address(compute->buffers, buffer) : NULL;
}

/* Returns what is updated: the shard, or the host's master copy if the device keeps only a copy in
 * the compute dtype. */
static void *weights_of(const struct compute *compute, const struct op *op)
{
	void *master = use_of(compute, op, BUFFER_MASTER_SHARD);

	return master != NULL ? master : use_of(compute, op, BUFFER_PARAMETER_SHARD);
}

/* Counts gradient shards that lie on the device, which `model_states_bytes` counts too. */
static void count_gradient(struct compute *compute, const struct op *op)
{
	int buffer = op_buffer(compute->program, op, BUFFER_GRADIENT_SHARD);

	if (!buffer_in_host(&compute->program->buffers[buffer]))
		compute->gradient_bytes += buffers_bytes(compute->buffers, buffer);
}

/* Writes the host's copy in the compute dtype, which is then copied to the device. */
static void round_weights(const struct update *u, const struct op *op)
{
	const struct compute *c = u->compute;
	void *copy = use_of(c, op, BUFFER_LOW_PRECISION_SHARD);

	if (copy != NULL)
		c->kernels->convert(c->context, c->dtype, copy, u->dtype, u->w, u->chunk);
}

void compute_update(struct compute *compute, const struct op *op)
{
	const struct unit *unit = &compute->program->units[op->unit];
	struct update update = {.compute = compute,
		.w = weights_of(compute, op),
		.dtype = compute->schedule->plan.master_dtype,
		.state = use_of(compute, op, BUFFER_OPTIMIZER_STATE),
		.g = use_of(compute, op, BUFFER_GRADIENT_SHARD),
		.chunk = unit->chunk};
	int64_t first =
		unit_shard_place(unit, &compute->schedule->plan, compute->rank) * unit->chunk;

	if (!learn_norm(compute, op, &compute->error))
		return;
	bool stateless = compute->schedule->plan.optimizer == OPTIMIZER_SGD;
	if (update.w == NULL || (update.state == NULL) != stateless || update.g == NULL) {
		error_set(&compute->error, EXIT_CODE_INTERNAL, "optimizer of %s lacks operands",
			unit->name);
		return;
	}
	count_gradient(compute, op);
	if (fault_hits(&compute->fault, FAULT_SKIP_OPTIMIZER, compute->rank, compute->step) &&
		op->unit == compute->program->n_units - 1)
		return;
	for (int i = 0; i < unit->n_slices; i++)
		update_slice(&update, &unit->slices[i], first);
	round_weights(&update, op);
}
