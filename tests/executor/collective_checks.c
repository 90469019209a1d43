#include "collective_checks.h"

#include <string.h>

#include "base/base.h"

/* Values whose sum depends on its order. */
static float value(int rank, int64_t i)
{
	uint32_t bits = (uint32_t)(rank * 2654435761u) ^ (uint32_t)(i * 40503u + 12345u);

	bits = (bits ^ bits >> 15) * 2246822519u;
	return ((float)(bits >> 8) / (1 << 24) - 0.5f) * (float)(1 + (bits & 63));
}

static float tree(const int *ranks, int n, int64_t i)
{
	int left = 1;

	if (n == 1)
		return value(ranks[0], i);
	while (2 * left < n)
		left *= 2;
	return tree(ranks, left, i) + tree(ranks + left, n - left, i);
}

static float tree_of_group(const struct comm_group *group, int64_t i)
{
	int ranks[MAX_RANKS];

	for (int k = 0; k < group->size; k++)
		ranks[k] = comm_group_rank(group, k);
	return tree(ranks, group->size, i);
}

static void fill(const struct checked *m, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		m->input[i] = value(m->comm->rank, i);
}

static bool run(
	const struct checked *m, enum collective_kind kind, struct comm_group group, int64_t count)
{
	bool in_place = kind == COLLECTIVE_ALL_REDUCE;

	return comm_run(m->comm, &(struct collective){.kind = kind,
					 .element = COMM_FP32,
					 .group = group,
					 .count = count,
					 .input = m->input,
					 .output = in_place ? m->input : m->output,
					 .op = -1,
					 .unit = -1});
}

bool check_gather(const struct checked *m, struct comm_group group, int64_t chunk)
{
	fill(m, chunk);
	if (!run(m, COLLECTIVE_ALL_GATHER, group, chunk))
		return false;
	for (int k = 0; k < group.size; k++)
		for (int64_t i = 0; i < chunk; i++)
			if (m->output[k * chunk + i] != value(comm_group_rank(&group, k), i))
				return false;
	return true;
}

bool check_scatter(const struct checked *m, struct comm_group group, int64_t chunk)
{
	fill(m, chunk * group.size);
	if (!run(m, COLLECTIVE_REDUCE_SCATTER, group, chunk))
		return false;
	for (int64_t i = 0; i < chunk; i++)
		if (m->output[i] != tree_of_group(&group, group.index * chunk + i))
			return false;
	return true;
}

bool check_reduce(const struct checked *m, struct comm_group group, int64_t count)
{
	fill(m, count);
	if (!run(m, COLLECTIVE_ALL_REDUCE, group, count))
		return false;
	for (int64_t i = 0; i < count; i++)
		if (m->input[i] != tree_of_group(&group, i))
			return false;
	return true;
}

static bool check_all(const struct checked *m, struct comm_group group, int64_t count)
{
	return check_gather(m, group, count) && check_scatter(m, group, count) &&
	       check_reduce(m, group, count);
}

bool check_every_group(const struct checked *m, const int64_t *counts, int n_counts)
{
	int ranks = m->comm->ranks;

	for (int size = 1; size <= ranks; size++) {
		if (ranks % size != 0)
			continue;
		const struct group shard = {.size = size, .stride = 1};
		const struct group replicate = {.size = ranks / size, .stride = size};
		for (int c = 0; c < n_counts; c++)
			if (!check_all(m, comm_group_of(&shard, m->comm->rank), counts[c]) ||
				!check_all(m, comm_group_of(&replicate, m->comm->rank), counts[c]))
				return false;
	}
	return true;
}

bool check_hybrid(const struct checked *m, int shard)
{
	enum { CHUNK = 600 };
	const struct group inside = {.size = shard, .stride = 1};
	const struct group across = {.size = m->comm->ranks / shard, .stride = shard};
	struct comm_group inner = comm_group_of(&inside, m->comm->rank);
	const struct comm_group world = {.size = m->comm->ranks, .stride = 1};

	if (!check_scatter(m, inner, CHUNK))
		return false;
	memcpy(m->input, m->output, CHUNK * sizeof(float));
	if (!run(m, COLLECTIVE_ALL_REDUCE, comm_group_of(&across, m->comm->rank), CHUNK))
		return false;
	for (int64_t i = 0; i < CHUNK; i++)
		if (m->input[i] != tree_of_group(&world, inner.index * CHUNK + i))
			return false;
	return true;
}
