/* Computes the head together with its loss, chunk by chunk of rows: logits, losses, and both
 * gradients while the logits exist. There is never more than one chunk of logits.
 *
 * Losses are summed exactly, and rows of logits and of dx depend on no other row. On CPUs chunks
 * end where a product over all rows stores its sums, so dW has the same terms in the same order,
 * and every bit is that of the head in one piece. */
#include "executor/compute/leaf.h"

#include "schedule/plan/plan.h"

/* Holds what all chunks share. */
struct head {
	void *logits;
	float *losses;
	const void *x;
	void *dx, *dweight; /* NULL if frozen */
	bool more;          /* whether terms lie in dweight already */
};

static enum device_kind device_of(const struct compute *c)
{
	return c->schedule->topology->device.kind;
}

static bool find_head(const struct leaf *leaf, struct head *head)
{
	const struct compute *c = leaf->compute;
	int64_t rows = plan_head_chunk_rows(&c->schedule->plan, device_of(c), c->tokens);

	head->logits = operand_role(leaf, BUFFER_LOGITS);
	head->losses = compute_at(c, head->logits, rows * c->logits_stride);
	head->x = operand_input(leaf);
	head->dx = operand_work(leaf, TENSOR_D_NORM);
	return head->logits != NULL && head->x != NULL && head->dx != NULL;
}

static void make_logits(
	const struct leaf *leaf, const struct head *head, int64_t first, int64_t rows)
{
	const struct compute *c = leaf->compute;
	struct gemm product = leaf_product(leaf, head->logits);

	product.m = rows;
	product.a = compute_at(c, head->x, first * product.lda);
	c->kernels->gemm(c->context, &product);
}

static void make_input_gradient(
	const struct leaf *leaf, const struct head *head, int64_t first, int64_t rows)
{
	const struct compute *c = leaf->compute;
	struct gemm product = leaf_input_gradient(leaf, head->logits, head->dx);

	product.m = rows;
	product.c = compute_at(c, head->dx, first * product.ldc);
	c->kernels->gemm(c->context, &product);
}

static void add_weight_gradient(
	const struct leaf *leaf, struct head *head, int64_t first, int64_t rows)
{
	const struct compute *c = leaf->compute;
	struct gemm product = leaf_weight_gradient(leaf, head->logits, head->x, rows);

	if (head->dweight == NULL)
		return;
	product.b = compute_at(c, head->x, first * product.ldb);
	product.c = head->dweight;
	product.accumulate = head->more;
	c->kernels->gemm(c->context, &product);
	head->more = true;
}

/* Works on rows [first, end) of the micro-batch, whose gradient of the weight is one term. */
static void run_part(const struct leaf *leaf, struct head *head, int64_t first, int64_t end)
{
	const struct compute *c = leaf->compute;
	const struct plan *plan = &c->schedule->plan;
	int64_t n = end - first, chunks = plan_head_chunks(plan, device_of(c), n);
	int weight = leaf_parameter(leaf, 0);
	bool trains = leaf_trains(leaf, weight);

	head->dweight = trains ? gradient_begin(leaf, weight, &head->more) : NULL;
	for (int64_t i = 0; i < chunks; i++) {
		int64_t at = first + plan_head_chunk_at(plan, n, chunks, i);
		int64_t rows = first + plan_head_chunk_at(plan, n, chunks, i + 1) - at;

		make_logits(leaf, head, at, rows);
		leaf_loss(leaf, head->logits, head->losses, at, rows);
		add_weight_gradient(leaf, head, at, rows);
		make_input_gradient(leaf, head, at, rows);
	}
	if (trains)
		gradient_end(leaf, weight);
}

void backward_chunked_head(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	int64_t parts = gradient_parts(c), rows = c->tokens / parts;
	struct head head;

	for (int64_t i = 0; find_head(leaf, &head) && i < parts; i++)
		run_part(leaf, &head, i * rows, (i + 1) * rows);
}
