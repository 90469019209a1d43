/* Which kernels the executor runs for a leaf on a GPU (executor/compute/forward.c, backward.c), and
 * the measured time of each. */
#include "simulator/costs/executor_kernels.h"

#include "models/models.h"
#include "simulator/costs/attention.h"

#include <math.h>

/* The number of blocks (128 queries of one head) assumed for measured attention: enough to fill any
 * device. */
static const double attention_blocks = 4096, block_tokens = 128;

bool own_kernels(const struct machine *machine, const struct schedule *schedule)
{
	const struct calibration *c = &machine->topology->calibration;

	if (!machine->gpu || schedule->plan.runtime != RUNTIME_SHARDPLAN)
		return false;
	for (int i = 0; i < c->n_kernels; i++)
		if (c->kernels[i].dtype == machine->dtype)
			return true;
	return false;
}

/* --- rates of shapes that were not measured -----------------------------------------------------
 */

/* Measured figures around a size: logarithms, in a straight line between two of them. */
struct line {
	int64_t below, above; /* sizes; 0 = none */
	double rate_below, rate_above;
};

static void put(struct line *line, int64_t size, int64_t wanted, double rate)
{
	if (size <= wanted && (line->rate_below <= 0 || size >= line->below)) {
		line->below = size;
		line->rate_below = rate;
	}
	if (size >= wanted && (line->rate_above <= 0 || size <= line->above)) {
		line->above = size;
		line->rate_above = rate;
	}
}

/* Sizes beyond the smallest or the largest measured one get its figure. 0: nothing was measured. */
static double read_off(const struct line *line, int64_t wanted)
{
	double part;

	if (line->rate_below <= 0 || line->rate_above <= 0)
		return fmax(line->rate_below, line->rate_above);
	if (line->above <= line->below)
		return line->rate_below;
	part = log((double)wanted / (double)line->below) /
	       log((double)line->above / (double)line->below);
	return exp((1 - part) * log(line->rate_below) + part * log(line->rate_above));
}

static double rate_by_length(const struct machine *machine, enum calibration_kernel_kind kind,
	int64_t width, int64_t length)
{
	const struct calibration *c = &machine->topology->calibration;
	struct line line = {0};

	for (int i = 0; i < c->n_kernels; i++) {
		const struct calibration_kernel *k = &c->kernels[i];

		if (k->kernel == kind && k->dtype == machine->dtype && k->width == width)
			put(&line, k->length, length, k->rate);
	}
	return read_off(&line, length);
}

static double rate_of(const struct machine *machine, enum calibration_kernel_kind kind,
	int64_t width, int64_t length)
{
	const struct calibration *c = &machine->topology->calibration;
	struct line line = {0};

	for (int i = 0; i < c->n_kernels; i++) {
		const struct calibration_kernel *k = &c->kernels[i];

		if (k->kernel == kind && k->dtype == machine->dtype)
			put(&line, k->width, width,
				rate_by_length(machine, kind, k->width, length));
	}
	return read_off(&line, width);
}

/* --- leaves ----------------------------------------------------------------------------------- */

/* One kernel over so many elements of rows of that width; `passes` over memory where it was not
 * measured. */
static void add_kernel(const struct machine *machine, enum calibration_kernel_kind kind,
	double elements, int64_t width, double passes, struct own_work *work)
{
	double rate = rate_of(machine, kind, width, 0);

	work->kernels++;
	work->memory += rate > 0 ? elements / rate
				 : elements * passes * dtype_bytes(machine->dtype) /
					   machine->memory_bandwidth;
}

static void add_passes(
	const struct machine *machine, double elements, double passes, struct own_work *work)
{
	work->memory += elements * passes * dtype_bytes(machine->dtype) / machine->memory_bandwidth;
}

/* The leaf whose kernels are counted. */
struct place {
	const struct machine *machine;
	const struct plan *plan;
	const struct model *model;
	const struct architecture *a;
	const struct module *module;
	double tokens;
	bool forward;
};

static enum calibration_kernel_kind of_pass(
	const struct place *p, enum calibration_kernel_kind forward)
{
	/* In the enum each kernel's backward follows its forward. */
	return p->forward ? forward : (enum calibration_kernel_kind)(forward + 1);
}

/* The gradient sorts by id, 9 bits at a time in two kernels each, and sums up in two more. */
static void add_embedding(const struct place *p, struct own_work *work)
{
	double elements = p->tokens * (double)p->a->hidden;

	add_kernel(p->machine, of_pass(p, KERNEL_EMBEDDING), elements, p->a->hidden,
		p->forward ? 2 : 3, work);
	if (p->forward)
		return;
	for (int64_t rest = p->a->vocab; rest > 0; rest >>= 9)
		work->kernels += 2;
	work->kernels++;
}

/* Positions stay in the cache; their gradient is one pass over that of the tokens, in two kernels.
 */
static void add_positions(const struct place *p, struct own_work *work)
{
	add_passes(p->machine, p->tokens * (double)p->a->hidden, p->forward ? 2 : 1, work);
	work->kernels += p->forward ? 1 : 2;
}

static void add_norm(const struct place *p, struct own_work *work)
{
	bool centred = p->a->norm != NORM_RMSNORM;

	add_kernel(p->machine, of_pass(p, centred ? KERNEL_LAYERNORM : KERNEL_RMSNORM),
		p->tokens * (double)p->a->hidden, p->a->hidden, p->forward ? 2 : 4, work);
	work->kernels += p->forward ? 0 : 2;
}

static void add_head_norm(const struct place *p, struct own_work *work)
{
	int64_t heads = p->module->kind == MODULE_QUERY_NORM ? p->a->heads : p->a->kv_heads;

	add_kernel(p->machine, of_pass(p, KERNEL_RMSNORM),
		p->tokens * (double)(heads * p->a->head_dim), p->a->head_dim, p->forward ? 2 : 3,
		work);
	work->kernels += p->forward ? 0 : 1;
}

static void add_rope(const struct place *p, int64_t heads, struct own_work *work)
{
	add_kernel(p->machine, KERNEL_ROPE, p->tokens * (double)(heads * p->a->head_dim),
		p->a->head_dim, 2, work);
}

/* The measured rate of backward is cuDNN's where it was chosen; a group of heads that its workspace
 * does not hold is our kernel's. */
static double kernel_of_ours(const struct place *p)
{
	const struct calibration_attention *chosen = calibration_attention_backward(
		&p->machine->topology->calibration, p->a->head_dim, p->plan->seq_len);

	return p->forward || chosen == NULL || chosen->gain <= 0 ||
			       calibration_attention_workspace(
				       chosen, 1, p->a->heads, p->a->kv_heads) > 0
		       ? 1
		       : 1 / chosen->gain;
}

static void add_attention(const struct place *p, struct own_work *work)
{
	const struct plan *plan = p->plan;
	const struct attention_shape shape = {p->a, plan->micro_batch, plan->seq_len,
		plan_attention(plan, p->model, p->machine->topology->device.generation),
		p->forward ? PASS_FORWARD : PASS_BACKWARD};
	double square =
		2 * p->tokens * (double)plan->seq_len * (double)(p->a->heads * p->a->head_dim);
	double blocks = p->tokens / block_tokens * (double)p->a->heads;
	double most = attention_blocks / (attention_blocks + p->machine->multiprocessors);
	double rate =
		rate_of(p->machine, of_pass(p, KERNEL_ATTENTION), p->a->head_dim, plan->seq_len) *
		fmin(1, blocks / (blocks + p->machine->multiprocessors) / most) * kernel_of_ours(p);

	if (p->a->positions == POSITIONS_ROPE) {
		add_rope(p, p->a->heads, work);
		add_rope(p, p->a->kv_heads, work);
	}
	if (rate <= 0)
		rate = attention_rate(p->machine, &shape);
	if (p->machine->peak_flops > 0)
		rate = fmin(rate, p->machine->peak_flops);
	work->arithmetic += square * (p->forward ? 1 : 2.5) / rate;
	work->kernels += p->forward ? 1 : 3;
}

/* The product before it has in registers what GELU would read; forward it stores both, backward it
 * reads GELU's argument: what is left is one pass. */
static void add_gelu_in_product(const struct place *p, struct own_work *work)
{
	struct own_work alone = {0};

	add_kernel(p->machine, of_pass(p, KERNEL_GELU), p->tokens * (double)p->a->ffn, 0,
		p->forward ? 2 : 3, &alone);
	work->memory += alone.memory / (p->forward ? 2 : 3);
}

static void add_activation(const struct place *p, struct own_work *work)
{
	bool gated = architecture_is_gated(p->a);
	double passes = gated ? (p->forward ? 3 : 5) : (p->forward ? 2 : 3);

	/* The tanh's: cuBLASLt has no other, and none beside a product in fp8. */
	if (p->plan->fp8 == FP8_OFF && p->plan->gelu == GELU_IN_PRODUCT && !gated &&
		p->a->gelu_tanh) {
		add_gelu_in_product(p, work);
		return;
	}
	add_kernel(p->machine, of_pass(p, gated ? KERNEL_SWIGLU : KERNEL_GELU),
		p->tokens * (double)p->a->ffn, 0, passes, work);
}

/* The product adds what it finds in the residual stream, in fp8 where that has been copied to;
 * backward adds with the norm's kernel. */
static void add_residual(const struct place *p, struct own_work *work)
{
	if (p->forward)
		add_passes(p->machine, p->tokens * (double)p->a->hidden,
			p->plan->fp8 == FP8_OFF ? 1 : 3, work);
}

static void (*const leaves[MODULE_KIND_COUNT])(const struct place *, struct own_work *) = {
	[MODULE_EMBEDDING] = add_embedding,
	[MODULE_POSITION_EMBEDDING] = add_positions,
	[MODULE_NORM] = add_norm,
	[MODULE_QUERY_NORM] = add_head_norm,
	[MODULE_KEY_NORM] = add_head_norm,
	[MODULE_ATTENTION_CORE] = add_attention,
	[MODULE_ACTIVATION] = add_activation,
	[MODULE_ATTENTION_OUTPUT] = add_residual,
	[MODULE_DOWN] = add_residual,
};

struct own_work own_leaf(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass)
{
	const struct place place = {machine, plan, model, &model->architecture,
		&model->modules[module], (double)plan->micro_batch * (double)plan->seq_len,
		pass == PASS_FORWARD};
	enum module_kind kind = place.module->kind;
	struct own_work work = {0};
	int64_t out, in;

	if (!place.forward && !model_goes_back(model, module))
		return work;
	if (leaves[kind] != NULL)
		leaves[kind](&place, &work);
	/* A bias is added by its product, but in fp8; its gradient is a sum of its own. */
	if (!module_trains_bias(model, place.module) ||
		!module_linear_shape(place.a, kind, &out, &in))
		return work;
	if (!place.forward) {
		add_kernel(
			machine, KERNEL_BIAS_BACKWARD, place.tokens * (double)out, out, 1, &work);
		work.kernels++;
	} else if (fp8_converts(plan, model, module)) {
		add_passes(machine, place.tokens * (double)out, 2, &work);
		work.kernels++;
	}
	return work;
}

double own_loss(const struct machine *machine, const struct schedule *schedule)
{
	const struct plan *plan = &schedule->plan;
	int64_t vocabulary = schedule->model->architecture.vocab;
	struct own_work work = {0};

	add_kernel(machine, KERNEL_CROSS_ENTROPY,
		(double)plan->micro_batch * (double)plan->seq_len * (double)vocabulary, vocabulary,
		4, &work);
	return work.memory;
}
