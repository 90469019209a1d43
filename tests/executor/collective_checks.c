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

bool check_exchange(const struct checked *m, struct comm_group group, int64_t chunk)
{
	fill(m, chunk * group.size);
	if (!run(m, COLLECTIVE_ALL_TO_ALL, group, chunk))
		return false;
	for (int k = 0; k < group.size; k++)
		for (int64_t i = 0; i < chunk; i++)
			if (m->output[k * chunk + i] !=
				value(comm_group_rank(&group, k), group.index * chunk + i))
				return false;
	return true;
}

/* How many the rank in one place has for that in another; none for some. */
static int64_t split_of(int from, int to, int64_t chunk)
{
	return (from + 2 * to) % 3 == 0 ? 0 : (3 * from + to) % (chunk + 1);
}

/* Checks an all-to-all with chunks of different sizes: what each rank has for this one comes one
 * behind the other. */
static bool check_splits(const struct checked *m, struct comm_group group, int64_t chunk)
{
	int64_t sends[MAX_RANKS], receives[MAX_RANKS], at = 0;

	fill(m, chunk * group.size);
	for (int k = 0; k < group.size; k++) {
		sends[k] = split_of(group.index, k, chunk);
		receives[k] = split_of(k, group.index, chunk);
	}
	if (!comm_run(m->comm, &(struct collective){.kind = COLLECTIVE_ALL_TO_ALL,
				       .element = COMM_FP32,
				       .group = group,
				       .count = chunk,
				       .sends = sends,
				       .receives = receives,
				       .input = m->input,
				       .output = m->output,
				       .op = -1,
				       .unit = -1}))
		return false;
	for (int k = 0; k < group.size; k++) {
		int64_t before = 0;

		for (int to = 0; to < group.index; to++)
			before += split_of(k, to, chunk);
		for (int64_t i = 0; i < receives[k]; i++, at++)
			if (m->output[at] != value(comm_group_rank(&group, k), before + i))
				return false;
	}
	return true;
}

bool check_rotation(const struct checked *m, struct comm_group group, int64_t count)
{
	int before = group.index == 0 ? group.size - 1 : group.index - 1;

	fill(m, count);
	if (!run(m, COLLECTIVE_SEND_RECV, group, count))
		return false;
	for (int64_t i = 0; i < count; i++)
		if (m->output[i] != value(comm_group_rank(&group, before), i))
			return false;
	return true;
}

static bool check_all(const struct checked *m, struct comm_group group, int64_t count)
{
	return check_gather(m, group, count) && check_scatter(m, group, count) &&
	       check_reduce(m, group, count) && check_exchange(m, group, count) &&
	       check_splits(m, group, count) && check_rotation(m, group, count);
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

/* --- messages --- */

enum { MESSAGES = 150, MESSAGE_FLOATS = 3000 };

static bool is_first(const struct checked *m)
{
	return m->comm->rank < m->comm->ranks / 2;
}

struct comm_message check_message(const struct checked *m, int n)
{
	int half = m->comm->ranks / 2, column = m->comm->rank % half;
	int64_t floats = 1 + n * 977 % MESSAGE_FLOATS;

	return (struct comm_message){
		.of = {.kind = COLLECTIVE_SEND_RECV,
			.element = COMM_BYTE,
			.group =
				{.first = column, .size = 2, .stride = half, .index = !is_first(m)},
			.count = floats * (int64_t)sizeof(float),
			.input = is_first(m) ? m->input + (int64_t)n * MESSAGE_FLOATS : NULL,
			.output = is_first(m) ? NULL : m->output,
			.op = -1,
			.unit = -1},
		.micro_batch = n};
}

/* Returns the same message, but from the second program to the first. */
static struct comm_message turned(const struct checked *m, int n)
{
	struct comm_message message = check_message(m, n);
	struct comm_group *group = &message.of.group;

	message.direction = DIRECTION_BACKWARD;
	*group = (struct comm_group){group->first + group->stride, 2, -group->stride, is_first(m)};
	message.of.input = is_first(m) ? NULL : m->input + (int64_t)n * MESSAGE_FLOATS;
	message.of.output = is_first(m) ? m->output : NULL;
	return message;
}

static bool came(const struct checked *m, const struct comm_message *message)
{
	int sender = comm_group_rank(&message->of.group, 0);

	for (int64_t i = 0; i < message->of.count / (int64_t)sizeof(float); i++)
		if (m->output[i] != value(sender, i + message->micro_batch))
			return false;
	return true;
}

/* What is sent lies there until it was taken. */
static bool send(const struct checked *m, const struct comm_message *message)
{
	float *data = (float *)message->of.input;

	for (int64_t i = 0; i < message->of.count / (int64_t)sizeof(float); i++)
		data[i] = value(m->comm->rank, i + message->micro_batch);
	return comm_send(m->comm, message);
}

static bool receive(const struct checked *m, const struct comm_message *message)
{
	return comm_receive(m->comm, message) && came(m, message);
}

/* The first program is some messages ahead; collectives of the program come between. */
static bool exchange(const struct checked *m, int n, int ahead)
{
	struct comm_message there = check_message(m, n), back = turned(m, n - ahead);
	const struct group program = {.size = m->comm->ranks / 2, .stride = 1};
	struct checked behind = {m->comm, m->output, m->output + MESSAGE_FLOATS};

	if (is_first(m) && n % 3 == 0 &&
		!check_gather(&behind, comm_group_of(&program, m->comm->rank), 5))
		return false;
	if (n < MESSAGES && !(is_first(m) ? send(m, &there) : receive(m, &there)))
		return false;
	return n < ahead || (is_first(m) ? receive(m, &back) : send(m, &back));
}

static bool has_all_gone(const struct checked *m)
{
	const struct transport *transport = m->comm->transport;
	enum direction direction = is_first(m) ? DIRECTION_FORWARD : DIRECTION_BACKWARD;

	while (transport->progress != NULL && transport->progress(m->comm, 1e-3))
		;
	return transport->taken(m->comm, direction) == MESSAGES;
}

bool check_messages(const struct checked *m)
{
	enum { AHEAD = 3 };
	const struct group world = {.size = m->comm->ranks, .stride = 1};
	struct checked behind = {m->comm, m->output, m->output + MESSAGE_FLOATS};

	m->comm->program_ranks = m->comm->ranks / 2;
	for (int n = 0; n < MESSAGES + AHEAD; n++)
		if (!exchange(m, n, AHEAD))
			return false;
	return check_reduce(&behind, comm_group_of(&world, m->comm->rank), 129) && has_all_gone(m);
}
