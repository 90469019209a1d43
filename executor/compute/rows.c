/* Exchanges rows between ranks that have different experts: a rank's tokens go to their experts,
 * results come back, and gradients go the other way round. Ranks first tell one another how many
 * rows they have for each expert, and remember it until backward. */
#include "executor/compute/routes.h"

#include "executor/ranks/ranks.h"

static int64_t pieces_of_source(const struct compute *c, const struct routes *r)
{
	return r->experts / c->expert_ranks * r->parts;
}

/* --- counts --- */

static void begin_counts(const struct leaf *leaf, const struct routes *r, struct row_exchange *x)
{
	int64_t *counts = operand_at(leaf, 1);

	x->input = counts;
	x->output = operand_at(leaf, 0);
	for (int64_t i = 0; i < r->experts * r->parts && counts != NULL; i++)
		counts[i] = r->first[i + 1] - r->first[i];
}

static void end_counts(const struct leaf *leaf, const struct routes *r, const int64_t *come)
{
	int64_t each = pieces_of_source(leaf->compute, r);

	for (int64_t s = 0; s < leaf->compute->expert_ranks; s++)
		for (int64_t i = 0; i < each; i++)
			routes_counts(leaf, s)[i] = (int32_t)come[s * each + i];
}

/* --- rows --- */

/* Counts the elements that this rank exchanges with each rank: its own rows for that rank's
 * experts, and the other's rows for the experts here. */
static void count_elements(
	const struct leaf *leaf, const struct routes *r, int64_t *own, int64_t *others)
{
	const struct compute *c = leaf->compute;
	int64_t each = pieces_of_source(c, r), width = c->model->architecture.hidden;
	const struct pieces p = routes_pieces(leaf, r);

	for (int s = 0; s < c->expert_ranks; s++) {
		own[s] = (r->first[(s + 1) * each] - r->first[s * each]) * width;
		others[s] = (p.first[(s + 1) * each] - p.first[s * each]) * width;
	}
}

static bool uses(const struct leaf *leaf, enum buffer_role role)
{
	return op_buffer(leaf->compute->program, leaf->op, role) >= 0;
}

static bool takes_rows(const struct leaf *leaf)
{
	const struct program *program = leaf->compute->program;
	const int *takes = slice_of(program, leaf->op->takes);

	for (int i = 0; i < leaf->op->takes.count; i++)
		if (program->buffers[takes[i]].role == BUFFER_ROWS)
			return true;
	return false;
}

/* On the way to the experts an operation takes two buffers: first what is sent, then what comes. */
static bool goes_to_experts(const struct leaf *leaf)
{
	return leaf->op->takes.count == 2;
}

/* Fills the rows to be sent with copies of tokens, in backward with gradients of results. */
static void fill_rows(const struct leaf *leaf, const struct routes *r, void *rows)
{
	const struct siblings *s = leaf_siblings(leaf);
	const struct leaf router = {leaf->compute, leaf->op, s->of[MODULE_ROUTER]};
	bool back = uses(leaf, BUFFER_BACKWARD_WORK) || uses(leaf, BUFFER_RESIDUAL_GRADIENT);
	const void *from = back ? operand_work(leaf, TENSOR_D_RESIDUAL) : operand_input(&router);
	const void *made =
		back ? operand_saved(leaf, s->of[MODULE_EXPERTS_DOWN], TENSOR_EXPERT_OUT) : NULL;

	if (from == NULL || rows == NULL || (back && made == NULL))
		return;
	if (back)
		routes_spread(leaf, r, rows, made, from);
	else
		routes_dispatch(leaf, r, rows, from);
}

/* Checks that the rows fit, where the plan says how many the fullest rank gets. */
static bool has_room(const struct leaf *leaf, const int64_t *elements)
{
	struct compute *c = leaf->compute;
	const struct plan *plan = &c->schedule->plan;
	int buffer = slice_of(c->program, leaf->op->uses)[1];
	int64_t width = c->model->architecture.hidden, rows = 0;
	int64_t room = c->program->buffers[buffer].bytes / width / dtype_bytes(c->dtype);
	int64_t mean = c->tokens * c->model->architecture.experts_per_token;

	for (int s = 0; s < c->expert_ranks; s++)
		rows += elements[s] / width;
	return rows <= room ||
	       error_set(&c->error, EXIT_CODE_FAULT,
		       "step %lld: rank %d gets %lld rows for its experts, "
		       "--expert-load %g has memory for %lld; "
		       "plan with %.3g or more, or without it for all that can come",
		       (long long)c->step, c->rank, (long long)rows, plan->expert_load,
		       (long long)room, (double)rows / (double)mean + 0.005);
}

static void begin_exchange(const struct leaf *leaf, const struct routes *r, struct row_exchange *x)
{
	int64_t *own = leaf->compute->row_splits, *others = own + leaf->compute->expert_ranks;

	count_elements(leaf, r, own, others);
	x->input = operand_at(leaf, 0);
	if (goes_to_experts(leaf)) {
		x->output = operand_at(leaf, 1);
		x->sends = own;
		x->receives = others;
		if (has_room(leaf, others))
			fill_rows(leaf, r, (void *)x->input);
		return;
	}
	x->output = takes_rows(leaf)
			    ? operand_rows(leaf, true)
			    : operand_saved(leaf, leaf_siblings(leaf)->of[MODULE_EXPERTS_DOWN],
				      TENSOR_EXPERT_OUT);
	x->sends = others;
	x->receives = own;
}

/* Ends forward: adds a token's results to the residual stream. */
static void add_results(const struct leaf *leaf, const struct routes *r, const void *rows)
{
	const void *middle = operand_saved(
		leaf, leaf_siblings(leaf)->of[MODULE_ATTENTION_OUTPUT], TENSOR_RESIDUAL_MIDDLE);

	if (middle != NULL)
		routes_combine(leaf, r, operand_residual_in(leaf), middle, rows);
}

/* --- around the exchange --- */

static bool tell(const struct compute *c, struct error *error)
{
	return c->error.message[0] == '\0' ||
	       error_set(error, c->error.code, "%s", c->error.message);
}

static struct leaf leaf_of(struct compute *c, int index)
{
	const struct op *op = &c->program->ops[index];

	return (struct leaf){.compute = c, .op = op, .module = op->first_module};
}

bool compute_begin_rows(void *data, int op, struct row_exchange *x, struct error *error)
{
	const struct leaf leaf = leaf_of(data, op);
	const struct routes *r = routes_find(&leaf);

	if (r != NULL && leaf.op->dtype == DTYPE_INT64)
		begin_counts(&leaf, r, x);
	else if (r != NULL)
		begin_exchange(&leaf, r, x);
	return tell(data, error);
}

bool compute_end_rows(void *data, int op, const struct row_exchange *x, struct error *error)
{
	const struct leaf leaf = leaf_of(data, op);
	const struct routes *r = &leaf.compute->routes[1];

	if (routes_are_idle(leaf.compute))
		return true;
	if (leaf.op->dtype == DTYPE_INT64)
		end_counts(&leaf, r, x->output);
	else if (uses(&leaf, BUFFER_RESIDUAL))
		add_results(&leaf, r, x->output);
	return tell(data, error);
}
