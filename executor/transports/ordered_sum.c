/* Computes sums over ranks, for every transport. */
#include <string.h>

#include "executor/transports/node.h"
#include "kernels/kernels.h"

static void round_to_bf16(float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		bits = (bits + 0x8000u) & 0xFFFF0000u;
		memcpy(&x[i], &bits, sizeof(bits));
	}
}

static void add_in_rank_order(
	enum dtype dtype, void *sum, const void *const *sources, int count, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		float total = element_get(dtype, sources[0], i);

		for (int k = 1; k < count; k++)
			total += element_get(dtype, sources[k], i);
		element_put(dtype, sum, i, total);
	}
}

static void sum_floats(struct comm *comm, const struct collective *c, void *sum,
	const void *const *sources, int count, int64_t n)
{
	const struct fault *fault = &comm->fault;
	enum dtype dtype = comm_element_dtype(c->element);

	if (fault_hits(fault, FAULT_REDUCE_ORDER, comm->rank, c->step))
		add_in_rank_order(dtype, sum, sources, count, n);
	else
		comm->kernels->tree_reduce(comm->context, dtype, sum, sources, count, n);
	if (dtype == DTYPE_FP32 && fault_hits(fault, FAULT_BF16_REDUCE, comm->rank, c->step))
		round_to_bf16(sum, n);
}

static void sum_integers(int64_t *sum, const int64_t *const *sources, int count, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		int64_t total = 0;

		for (int k = 0; k < count; k++)
			total += sources[k][i];
		sum[i] = total;
	}
}

void comm_sum(struct comm *comm, const struct collective *c, void *to, const void *const *sources,
	int count, int64_t n)
{
	if (n <= 0)
		return;
	if (comm_element_is_float(c->element))
		sum_floats(comm, c, to, sources, count, n);
	else
		sum_integers(to, (const int64_t *const *)sources, count, n);
}
