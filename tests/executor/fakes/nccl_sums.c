/* The sums that collectives of the fake NCCL compute. */
#include <stdlib.h>
#include <string.h>

#include "executor/transports/comm.h"
#include "executor/transports/nccl_api.h"
#include "tests/executor/fakes/nccl.h"
#include "tests/kernels/reference/reference.h"

size_t fake_element_bytes(int type)
{
	return type == NCCL_FLOAT32 ? 4 : type == NCCL_INT64 ? 8 : type == NCCL_BFLOAT16 ? 2 : 1;
}

static void gather(const struct fake_part *const *parts, int members)
{
	size_t bytes = parts[0]->count * fake_element_bytes(parts[0]->type);

	for (int i = 0; i < members; i++)
		for (int j = 0; j < members; j++)
			memmove((char *)parts[i]->receive + (size_t)j * bytes, parts[j]->send,
				bytes);
}

/* to[0..count) = the sum of elements [first, first + count), floats in the declared tree. */
static void add_up(
	const struct fake_part *const *parts, int members, size_t first, size_t count, void *to)
{
	const void *sources[MOST_MEMBERS];

	for (int i = 0; i < members; i++)
		sources[i] =
			(const char *)parts[i]->send + first * fake_element_bytes(parts[i]->type);
	if (parts[0]->type != NCCL_INT64) {
		kernels_reference()->tree_reduce(NULL,
			parts[0]->type == NCCL_BFLOAT16 ? DTYPE_BF16 : DTYPE_FP32, to, sources,
			members, (int64_t)count);
		return;
	}
	for (size_t k = 0; k < count; k++) {
		int64_t sum = 0;

		for (int i = 0; i < members; i++)
			sum += ((const int64_t *)parts[i]->send)[first + k];
		((int64_t *)to)[k] = sum;
	}
}

static void reduce_all(const struct fake_part *const *parts, int members)
{
	size_t bytes = parts[0]->count * fake_element_bytes(parts[0]->type);
	void *sum = malloc(bytes);

	add_up(parts, members, 0, parts[0]->count, sum);
	for (int i = 0; i < members; i++)
		memcpy(parts[i]->receive, sum, bytes);
	free(sum);
}

void fake_nccl_compute(void **arguments, int members)
{
	const struct fake_part *parts[MOST_MEMBERS] = {NULL};

	for (int i = 0; i < members; i++)
		parts[((struct fake_part *)arguments[i])->index] = arguments[i];
	for (int i = 1; i < members; i++)
		if (parts[i]->kind != parts[0]->kind || parts[i]->count != parts[0]->count ||
			parts[i]->type != parts[0]->type) {
			fake_cuda_fault("members of a communicator issued different collectives");
			return;
		} else if (parts[i]->from != parts[0]->from || parts[i]->to != parts[0]->to) {
			fake_cuda_fault("a collective at different places of a window");
			return;
		}
	switch ((enum collective_kind)parts[0]->kind) {
	case COLLECTIVE_ALL_GATHER:
		gather(parts, members);
		break;
	case COLLECTIVE_REDUCE_SCATTER:
		for (int i = 0; i < members; i++)
			add_up(parts, members, (size_t)i * parts[0]->count, parts[0]->count,
				parts[i]->receive);
		break;
	case COLLECTIVE_ALL_REDUCE:
		reduce_all(parts, members);
		break;
	case COLLECTIVE_ALL_TO_ALL:
	case COLLECTIVE_SEND_RECV:
		fake_cuda_fault("a collective that no schedule has");
		break;
	}
}
