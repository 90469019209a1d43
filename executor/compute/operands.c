/* Finds the tensors of a leaf among the buffers that its operation uses. */
#include "executor/compute/leaf.h"

#include <string.h>

#include "kernels/kernels.h"
#include "schedule/plan/plan.h"

static void *missing(const struct leaf *leaf, const char *what)
{
	struct compute *compute = leaf->compute;

	error_set(&compute->error, EXIT_CODE_INTERNAL, "operation %d (%s of %s) has no %s",
		(int)(leaf->op - compute->program->ops), op_kind_name(leaf->op->kind),
		leaf_module(leaf)->name, what);
	return NULL;
}

const struct module *leaf_module(const struct leaf *leaf)
{
	return &leaf->compute->model->modules[leaf->module];
}

const struct siblings *leaf_siblings(const struct leaf *leaf)
{
	return &leaf->compute->siblings[leaf_module(leaf)->layer + 1];
}

int leaf_parameter(const struct leaf *leaf, int i)
{
	const struct module *module = leaf_module(leaf);

	if (i == 0 && module->tied_parameter >= 0)
		return module->tied_parameter;
	if (module->adapter >= 0 && module->first_parameter + i >= module->adapter)
		return -1;
	return i < module->n_parameters ? module->first_parameter + i : -1;
}

bool leaf_trains(const struct leaf *leaf, int parameter)
{
	return parameter >= 0 && leaf->compute->model->parameters[parameter].trainable;
}

/* Walks a slice of an operation's buffers by index. */
struct uses {
	const struct program *program;
	const int *list;
	int n;
};

static struct uses uses_of(const struct leaf *leaf, struct slice slice)
{
	const struct program *program = leaf->compute->program;

	return (struct uses){program, slice_of(program, slice), slice.count};
}

static const struct buffer *buffer_at(const struct uses *uses, int i)
{
	return &uses->program->buffers[uses->list[i]];
}

/* A set of roles is a word in which bit r stands for role r. */
_Static_assert(BUFFER_ROLE_COUNT <= 32, "bits of unsigned");
static unsigned set_of(enum buffer_role role)
{
	return 1u << role;
}

static int find_role(const struct uses *uses, unsigned roles, int unit)
{
	for (int i = 0; i < uses->n; i++) {
		const struct buffer *buffer = buffer_at(uses, i);

		if ((roles & set_of(buffer->role)) && (unit < 0 || buffer->unit == unit))
			return uses->list[i];
	}
	return -1;
}

static void *address(const struct leaf *leaf, int buffer, const char *what)
{
	void *found = buffer >= 0 ? buffers_address(leaf->compute->buffers, buffer) : NULL;

	return found != NULL ? found : missing(leaf, what);
}

static void *in_unit(const struct leaf *leaf, int parameter, unsigned roles, const char *what)
{
	const struct location *at = &leaf->compute->locations[parameter];
	struct uses uses = uses_of(leaf, leaf->op->uses);
	int buffer = find_role(&uses, roles, at->unit);
	void *base = address(leaf, buffer, what);

	return base != NULL ? element_at(uses.program->buffers[buffer].dtype, base, at->offset)
			    : NULL;
}

void *operand_parameter(const struct leaf *leaf, int parameter)
{
	static const char what[] = "parameter";
	unsigned roles = set_of(BUFFER_UNSHARDED) | set_of(BUFFER_PARAMETER_SHARD) |
			 set_of(BUFFER_COMPUTE_COPY);

	return in_unit(leaf, parameter, roles, what);
}

/* Under NO_SHARD the gradient of a unit is its gradient shard. */
void *operand_gradient(const struct leaf *leaf, int parameter)
{
	static const char what[] = "gradient";
	unsigned roles = set_of(BUFFER_GRADIENT) | set_of(BUFFER_GRADIENT_SHARD);

	return in_unit(leaf, parameter, roles, what);
}

void *operand_role(const struct leaf *leaf, enum buffer_role role)
{
	struct uses uses = uses_of(leaf, leaf->op->uses);

	return address(leaf, find_role(&uses, set_of(role), -1), buffer_role_name(role));
}

void *operand_fp8_copies(const struct leaf *leaf, int64_t bytes)
{
	struct uses uses = uses_of(leaf, leaf->op->uses);

	for (int i = 0; i < uses.n; i++) {
		const struct buffer *buffer = buffer_at(&uses, i);

		if (buffer->role == BUFFER_KERNEL_WORKSPACE && buffer->dtype == DTYPE_FP8 &&
			buffer->bytes >= bytes)
			return address(leaf, uses.list[i], "copies in fp8");
	}
	return missing(leaf, "copies in fp8");
}

/* Returns the buffer that has the saved tensors of a leaf. */
static int find_saved(const struct uses *uses, const struct saved_tensors *saved, int module)
{
	unsigned again = set_of(BUFFER_RECOMPUTED) | set_of(BUFFER_FORWARD_WORK);
	unsigned roles = set_of(BUFFER_ACTIVATIONS) | again;

	if (saved->split)
		roles = saved->kept ? set_of(BUFFER_ACTIVATIONS) : again;

	for (int i = 0; i < uses->n; i++) {
		const struct buffer *buffer = buffer_at(uses, i);

		if ((roles & set_of(buffer->role)) && module >= buffer->first_module &&
			module < buffer->end_module)
			return uses->list[i];
	}
	return -1;
}

static void *at_tensor(const struct leaf *leaf, char *base, const struct tensor *tensors, int n,
	enum tensor_role role, int64_t start)
{
	for (int i = 0; i < n && base != NULL; i++)
		if (tensors[i].role == role)
			return base + start + tensors[i].offset;
	return missing(leaf, tensor_role_name(role));
}

void *operand_saved(const struct leaf *leaf, int module, enum tensor_role role)
{
	const struct compute *compute = leaf->compute;
	struct uses uses = uses_of(leaf, leaf->op->uses);
	int buffer = module >= 0 ? find_saved(&uses, &compute->saved[module], module) : -1;

	if (buffer < 0)
		return missing(leaf, tensor_role_name(role));
	const struct saved_tensors *saved = &compute->saved[module];
	int first = compute->program->buffers[buffer].first_module;
	return at_tensor(leaf, address(leaf, buffer, "saved tensors"), saved->tensors, saved->n,
		role, saved->starts[saved->kept] - compute->saved[first].starts[saved->kept]);
}

/* In a stage of a pipeline the gradient of the residual stream lies in the buffer of the message
 * that came, or that goes to the stage before. */
void *operand_work(const struct leaf *leaf, enum tensor_role role)
{
	const struct compute *compute = leaf->compute;
	struct uses uses = uses_of(leaf, leaf->op->uses);
	int message = find_role(&uses, set_of(BUFFER_RESIDUAL_GRADIENT), -1);

	if (role == TENSOR_D_RESIDUAL && message >= 0)
		return address(leaf, message, tensor_role_name(role));
	return at_tensor(leaf, operand_role(leaf, BUFFER_BACKWARD_WORK), compute->work,
		compute->n_work, role, 0);
}

static bool contains(const struct uses *uses, int buffer)
{
	for (int i = 0; i < uses->n; i++)
		if (uses->list[i] == buffer)
			return true;
	return false;
}

/* Returns the used buffer of that role after `behind` others like it. An operation writes the
 * buffers that it takes and reads the others, so `taken` tells output from input. */
static int find_taken(const struct leaf *leaf, enum buffer_role role, bool taken, int behind)
{
	struct uses uses = uses_of(leaf, leaf->op->uses), takes = uses_of(leaf, leaf->op->takes);

	for (int i = 0; i < uses.n; i++)
		if (buffer_at(&uses, i)->role == role && contains(&takes, uses.list[i]) == taken &&
			behind-- == 0)
			return uses.list[i];
	return -1;
}

static int find_residual(const struct leaf *leaf, bool taken)
{
	return find_taken(leaf, BUFFER_RESIDUAL, taken, 0);
}

static void *partial_sums(const struct leaf *leaf, bool taken, int behind)
{
	int buffer = find_taken(leaf, BUFFER_PARTIAL_SUMS, taken, behind);

	return buffer >= 0 ? buffers_address(leaf->compute->buffers, buffer) : NULL;
}

void *operand_sum(const struct leaf *leaf)
{
	return partial_sums(leaf, false, 0);
}

void *operand_sum_at(const struct leaf *leaf, int i)
{
	return partial_sums(leaf, false, i);
}

void *operand_part(const struct leaf *leaf)
{
	return partial_sums(leaf, true, 0);
}

void *operand_rows(const struct leaf *leaf, bool taken)
{
	return address(leaf, find_taken(leaf, BUFFER_ROWS, taken, 0), "rows");
}

void *operand_at(const struct leaf *leaf, int use)
{
	struct uses uses = uses_of(leaf, leaf->op->uses);

	return address(leaf, use < uses.n ? uses.list[use] : -1, "rows");
}

void *operand_residual_in(const struct leaf *leaf)
{
	return address(leaf, find_residual(leaf, false), "residual in");
}

void *operand_residual_out(const struct leaf *leaf)
{
	return address(leaf, find_residual(leaf, true), "residual out");
}

void *operand_residual_stream(const struct leaf *leaf)
{
	return find_residual(leaf, true) >= 0 ? operand_residual_out(leaf)
					      : operand_residual_in(leaf);
}

/* Returns the result of a norm for the rank's own tokens. */
static void *norm_result(const struct leaf *leaf)
{
	const struct siblings *s = leaf_siblings(leaf);
	enum module_kind kind = leaf_module(leaf)->kind;
	bool second = kind == MODULE_GATE || kind == MODULE_UP || kind == MODULE_ROUTER;

	return operand_saved(leaf, second ? s->second_norm : s->of[MODULE_NORM], TENSOR_NORM_OUT);
}

/* Returns the buffer of gathered tokens. A backward has two of them: first a gradient, last an
 * input. */
static int find_gathered(const struct leaf *leaf, bool last)
{
	struct uses uses = uses_of(leaf, leaf->op->uses);
	int found = -1;

	for (int i = 0; i < uses.n && (found < 0 || last); i++)
		if (buffer_at(&uses, i)->role == BUFFER_GATHERED_TOKENS)
			found = uses.list[i];
	return found;
}

void *operand_keys(const struct leaf *leaf)
{
	return address(leaf, find_gathered(leaf, true), "gathered keys");
}

void *operand_sent(const struct leaf *leaf)
{
	return address(leaf, find_gathered(leaf, false), "memory for what is sent");
}

static bool cuts_stream(const struct leaf *leaf)
{
	return leaf->compute->schedule->plan.sequence_parallel;
}

/* Returns the input of a column-parallel layer, for all tokens. */
static void *column_input(const struct leaf *leaf)
{
	return cuts_stream(leaf) ? address(leaf, find_gathered(leaf, true), "gathered input")
				 : norm_result(leaf);
}

void *operand_stream_gradient(const struct leaf *leaf)
{
	return cuts_stream(leaf) ? address(leaf, find_gathered(leaf, false), "gathered gradient")
				 : operand_work(leaf, TENSOR_D_RESIDUAL);
}

/* Returns the gradients of a norm or of a table of positions, whose parameters lie one behind the
 * other. */
static void *leaf_gradients(const struct leaf *leaf)
{
	return operand_gradient(leaf, leaf_parameter(leaf, 0));
}

void *operand_exchanged(struct compute *compute, int op)
{
	const struct op *o = &compute->program->ops[op];
	const struct leaf leaf = {.compute = compute, .op = o, .module = o->first_module};
	int first = slice_of(compute->program, o->uses)[0];

	switch ((int)compute->program->buffers[first].role) {
	case BUFFER_PARTIAL_SUMS:
		return buffers_address(compute->buffers, first);
	case BUFFER_GRADIENT:
	case BUFFER_GRADIENT_SHARD:
		return leaf_gradients(&leaf);
	case BUFFER_BACKWARD_WORK:
	case BUFFER_RESIDUAL_GRADIENT:
		return operand_work(&leaf, TENSOR_D_RESIDUAL);
	default:
		return norm_result(&leaf);
	}
}

/* The tensor that a leaf reads lies with the leaf that wrote it, or in the residual stream. */
void *operand_input(const struct leaf *leaf)
{
	const struct siblings *s = leaf_siblings(leaf);
	enum module_kind kind = leaf_module(leaf)->kind;

	switch ((int)kind) {
	case MODULE_NORM:
		return leaf->module == s->second_norm
			       ? operand_saved(leaf, s->of[MODULE_ATTENTION_OUTPUT],
					 TENSOR_RESIDUAL_MIDDLE)
			       : operand_residual_in(leaf);
	case MODULE_QUERY_NORM:
		return operand_saved(leaf, s->of[MODULE_QUERY], TENSOR_QUERY);
	case MODULE_KEY_NORM:
		return operand_saved(leaf, s->of[MODULE_KEY], TENSOR_KEY);
	case MODULE_ATTENTION_OUTPUT:
		return operand_saved(leaf, s->of[MODULE_ATTENTION_CORE], TENSOR_ATTENTION_OUT);
	case MODULE_DOWN:
		return operand_saved(leaf, s->of[MODULE_ACTIVATION], TENSOR_PRODUCT);
	case MODULE_EXPERTS_GATE:
	case MODULE_EXPERTS_UP:
		return operand_saved(leaf,
			s->of[leaf->compute->expert_ranks > 1 ? MODULE_EXPERTS_UP : MODULE_ROUTER],
			TENSOR_DISPATCHED);
	case MODULE_EXPERTS_DOWN:
		return operand_saved(leaf, s->of[MODULE_EXPERTS_ACTIVATION], TENSOR_PRODUCT);
	default: /* these are projections, and the head after the final norm */
		return column_input(leaf);
	}
}

/* --- tables, made once --- */

static void add_sibling(struct siblings *siblings, int module, enum module_kind kind)
{
	if (kind == MODULE_NORM && siblings->of[kind] >= 0)
		siblings->second_norm = module;
	else
		siblings->of[kind] = module;
}

static void find_siblings(struct compute *compute)
{
	const struct model *model = compute->model;
	int n = (int)model->architecture.layers + 1;

	compute->siblings = ARENA_ARRAY(&compute->arena, struct siblings, n);
	for (int i = 0; i < n; i++) {
		compute->siblings[i].second_norm = -1;
		for (int k = 0; k < MODULE_KIND_COUNT; k++)
			compute->siblings[i].of[k] = -1;
	}
	for (int m = 0; m < model->n_modules; m++) {
		const struct module *module = &model->modules[m];

		if (module_kind_is_leaf(module->kind))
			add_sibling(&compute->siblings[module->layer + 1], m, module->kind);
	}
}

static void find_saved_tensors(struct compute *compute)
{
	const struct plan *plan = &compute->schedule->plan;
	struct activation_rules rules =
		plan_activation_rules(plan, compute->schedule->topology->device.generation);
	const struct model *model = compute->model;
	int64_t starts[2] = {0, 0}, bytes;

	compute->saved = ARENA_ARRAY(&compute->arena, struct saved_tensors, model->n_modules);
	for (int m = 0; m < model->n_modules; m++) {
		struct saved_tensors *saved = &compute->saved[m];

		int layer = model->modules[m].layer;

		saved->split = layer >= 0 &&
			       plan_block_checkpointing(plan, layer) == CHECKPOINTING_SELECTIVE;
		saved->kept = !saved->split || plan_selective_keeps(plan, model, m);
		memcpy(saved->starts, starts, sizeof(starts));
		saved->n = model_saved_tensors(
			model, m, &rules, plan->micro_batch, plan->seq_len, saved->tensors, &bytes);
		starts[saved->kept] += bytes;
	}
	compute->n_work = model_backward_tensors(
		model, &rules, plan->micro_batch, plan->seq_len, compute->work, &bytes);
	compute->work_bytes = bytes;
}

static void find_homes(struct compute *compute)
{
	const struct program *program = compute->program;

	compute->locations =
		ARENA_ARRAY(&compute->arena, struct location, compute->model->n_parameters);
	for (int u = 0; u < program->n_units; u++)
		for (int i = 0; i < program->units[u].n_slices; i++) {
			const struct unit_slice *slice = &program->units[u].slices[i];

			compute->locations[slice->parameter] = (struct location){u, slice->offset};
		}
}

void operands_init(struct compute *compute)
{
	compute->gelu_done = -1;
	find_siblings(compute);
	find_saved_tensors(compute);
	find_homes(compute);
}

void *compute_at(const struct compute *compute, const void *activations, int64_t i)
{
	return activations != NULL ? (char *)activations + i * dtype_bytes(compute->dtype) : NULL;
}

void compute_move(struct compute *c, const struct op *op, void *to, const void *from, int64_t bytes)
{
	if (compute_on_device(c, op))
		device_copy(c->device, to, from, bytes, op->stream, &c->error);
	else
		memcpy(to, from, (size_t)bytes);
}
