/* Collectives among the fake's GPUs: nodes that run when all members' streams have come to them. */
#include <stdlib.h>
#include <string.h>

#include "executor/comm.h"
#include "executor/nccl_api.h"
#include "fake_nccl.h"

struct fake_meeting {
	int members, joined;
	const struct fake_group *group;
	bool abandoned; /* its communicator was aborted: whoever comes goes on */
	struct fake_meeting *next;
	int64_t bytes; /* of the gathered size */
	struct fake_stream **streams;
	struct fake_node **nodes;
	void (*run)(void **arguments, int members);
};

/* All that have not run yet. */
static struct fake_meeting *meetings;

static struct fake_meeting *new_meeting(int members)
{
	struct fake_meeting *meeting = fake_calloc(sizeof(*meeting));

	meeting->members = members;
	meeting->streams = fake_calloc((size_t)members * sizeof(void *));
	meeting->nodes = fake_calloc((size_t)members * sizeof(void *));
	meeting->next = meetings;
	return meetings = meeting;
}

static void forget_meeting(struct fake_meeting *meeting)
{
	struct fake_meeting **at = &meetings;

	while (*at != meeting)
		at = &(*at)->next;
	*at = meeting->next;
	free(meeting->streams);
	free(meeting->nodes);
	free(meeting);
}

/* Nobody computes: the nodes of those that have come pass. */
static void abandon(struct fake_meeting *meeting)
{
	meeting->abandoned = true;
}

bool fake_meeting_is_complete(const struct fake_meeting *meeting)
{
	if (meeting->abandoned)
		return true;
	if (meeting->joined < meeting->members)
		return false;
	for (int i = 0; i < meeting->members; i++)
		if (meeting->streams[i]->head != meeting->nodes[i])
			return false;
	return true;
}

void fake_meeting_run(struct fake_stream *stream)
{
	struct fake_meeting *meeting = stream->head->meeting;

	if (meeting->abandoned) {
		fake_begin_node(stream);
		fake_end_node(stream);
		return;
	}
	void **arguments = calloc((size_t)meeting->members, sizeof(*arguments));

	for (int i = 0; i < meeting->members; i++) {
		fake_begin_node(meeting->streams[i]);
		arguments[i] = meeting->nodes[i]->arguments;
	}
	/* All start when the last has come. */
	for (int round = 0; round < 2; round++)
		for (int i = 1; i < meeting->members; i++)
			fake_join_clocks(meeting->streams[round == 0 ? 0 : i],
				meeting->streams[round == 0 ? i : 0]);
	for (int i = 0; i < meeting->members; i++)
		fake_check_node(meeting->streams[i]);
	fake_clock_meet(meeting->streams, meeting->members, meeting->bytes);
	if (fake_cuda_first_fault()[0] == '\0' && !fake_clock_is_dry())
		meeting->run(arguments, meeting->members);
	/* And end together. */
	for (int round = 0; round < 2; round++)
		for (int i = 1; i < meeting->members; i++)
			fake_join_clocks(meeting->streams[round == 0 ? 0 : i],
				meeting->streams[round == 0 ? i : 0]);
	for (int i = 0; i < meeting->members; i++)
		fake_end_node(meeting->streams[i]);
	fake_count_collective();
	free(arguments);
	forget_meeting(meeting);
}

/* --- NCCL's functions --- */

enum { MOST_MEMBERS = 16 };

struct fake_split {
	int arrived, colors[MOST_MEMBERS], keys[MOST_MEMBERS];
	struct fake_group *groups[MOST_MEMBERS]; /* of each caller */
	int indices[MOST_MEMBERS];
};

struct fake_group {
	int size, number;
	bool aborted;
	struct fake_meeting *meetings[1 << 12]; /* by number, modulo */
	struct fake_split splits[64];
	struct fake_group *next;
};

struct fake_comm {
	struct fake_group *group;
	int index, collectives, splits;
	int rank;  /* of the world */
	int error; /* of its own, which it says when it is asked */
};

static struct fake_group *groups;
static int n_groups;

static struct fake_group *new_group(int size)
{
	struct fake_group *group = calloc(1, sizeof(*group));

	group->size = size;
	group->number = ++n_groups;
	group->next = groups;
	return groups = group;
}

static int new_comm(struct fake_group *group, int index, int rank, void **comm)
{
	struct fake_comm *made = calloc(1, sizeof(*made));

	made->group = group;
	made->index = index;
	made->rank = rank;
	*comm = made;
	return 0;
}

static int get_version(int *version)
{
	const char *other = getenv("FAKE_NCCL_VERSION");

	*version = other != NULL ? atoi(other) : 22809;
	return 0;
}

static int get_id(struct nccl_id *id)
{
	fake_lock();
	memcpy(id->internal, &(int){n_groups + 1}, sizeof(int));
	new_group(0);
	fake_unlock();
	return 0;
}

static int init_rank(
	void **comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config)
{
	struct fake_group *group = groups;
	int number;

	memcpy(&number, id.internal, sizeof(number));
	fake_lock();
	while (group != NULL && group->number != number)
		group = group->next;
	if (group == NULL || config->size != sizeof(*config) || config->blocking != 0)
		fake_cuda_fault("ncclCommInitRankConfig without an identifier, or blocking");
	else
		group->size = ranks;
	fake_unlock();
	if (group == NULL)
		return 5;
	new_comm(group, rank, rank, comm);
	if (!fake_nccl_fails("start", rank))
		return 0;
	((struct fake_comm *)*comm)->error = NCCL_IN_PROGRESS;
	return NCCL_IN_PROGRESS;
}

/* The last to come forms the groups: one a colour, by key. */
static void form_groups(struct fake_group *parent, struct fake_split *split)
{
	for (int i = 0; i < parent->size; i++) {
		int size = 0, first = i;

		for (int j = 0; j < parent->size; j++)
			if (split->colors[j] == split->colors[i]) {
				size++;
				first = j < first ? j : first;
				split->indices[i] += split->keys[j] < split->keys[i];
			}
		split->groups[i] = first == i ? new_group(size) : split->groups[first];
	}
}

static int comm_split(void *comm, int color, int key, void **made, struct nccl_config *config)
{
	struct fake_comm *c = comm;
	struct fake_split *split = &c->group->splits[c->splits++ % 64];

	fake_lock();
	if (config->split_share != 0 || config->blocking != 0)
		fake_cuda_fault("ncclCommSplit shares or blocks");
	split->colors[c->index] = color;
	split->keys[c->index] = key;
	if (++split->arrived == c->group->size) {
		form_groups(c->group, split);
		fake_wake();
	}
	while (split->arrived < c->group->size && fake_cuda_first_fault()[0] == '\0')
		fake_wait();
	fake_unlock();
	return new_comm(split->groups[c->index], split->indices[c->index], c->rank, made);
}

static int finalize(void *comm)
{
	(void)comm;
	return 0;
}

static int destroy(void *comm)
{
	fake_lock();
	fake_trace("destroy %d 0 0", fake_thread.actor);
	fake_nccl_check_destroy(comm);
	fake_nccl_forget(comm);
	fake_unlock();
	free(comm);
	return fake_outcome();
}

/* What waits for its members on the GPUs ends. */
static int abort_comm(void *comm)
{
	struct fake_comm *c = comm;

	fake_lock();
	fake_trace("abort %d 0 %d", fake_thread.actor, c->rank);
	c->group->aborted = true;
	for (struct fake_meeting *m = meetings; m != NULL; m = m->next)
		if (m->group == c->group)
			abandon(m);
	fake_nccl_forget(c);
	fake_wake();
	fake_unlock();
	free(comm);
	return 0;
}

static int async_error(void *comm, int *result)
{
	fake_lock();
	*result = ((struct fake_comm *)comm)->error;
	fake_unlock();
	return 0;
}

/* One member's call. */
struct part {
	int kind; /* enum collective_kind */
	const void *send;
	void *receive;
	size_t count;
	int type, index;
	int64_t from, to; /* places in the window; -1 without one */
};

static size_t element_bytes(int type)
{
	return type == NCCL_FLOAT32 ? 4 : type == NCCL_INT64 ? 8 : type == NCCL_BFLOAT16 ? 2 : 1;
}

static void gather(const struct part *const *parts, int members)
{
	size_t bytes = parts[0]->count * element_bytes(parts[0]->type);

	for (int i = 0; i < members; i++)
		for (int j = 0; j < members; j++)
			memmove((char *)parts[i]->receive + (size_t)j * bytes, parts[j]->send,
				bytes);
}

/* to[0..count) = the sum of elements [first, first + count), floats in the declared tree. */
static void add_up(
	const struct part *const *parts, int members, size_t first, size_t count, void *to)
{
	const void *sources[MOST_MEMBERS];

	for (int i = 0; i < members; i++)
		sources[i] = (const char *)parts[i]->send + first * element_bytes(parts[i]->type);
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

static void reduce_all(const struct part *const *parts, int members)
{
	size_t bytes = parts[0]->count * element_bytes(parts[0]->type);
	void *sum = malloc(bytes);

	add_up(parts, members, 0, parts[0]->count, sum);
	for (int i = 0; i < members; i++)
		memcpy(parts[i]->receive, sum, bytes);
	free(sum);
}

static void run_together(void **arguments, int members)
{
	const struct part *parts[MOST_MEMBERS] = {NULL};

	for (int i = 0; i < members; i++)
		parts[((struct part *)arguments[i])->index] = arguments[i];
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
	}
}

struct call {
	struct fake_comm *comm;
	struct part part;
	int sent, received; /* times the part's bytes */
};

/* A seeded fault: a meeting of its own, to which no other member comes; else NULL. */
static struct fake_meeting *nobody_comes(struct fake_comm *comm)
{
	bool hang = fake_nccl_fails("hang", comm->rank),
	     error = fake_nccl_fails("error", comm->rank);

	if ((!hang && !error) || fake_nccl_count(comm->rank) != 0)
		return NULL;
	comm->error = error ? 6 : 0;
	return new_meeting(comm->group->size + 1);
}

/* Now, or with every launch of a graph. */
static void join_meeting(void *arguments, struct fake_stream *stream)
{
	const struct call *call = arguments;
	struct fake_group *group = call->comm->group;
	struct part with_places = call->part, *part = &with_places;
	struct fake_meeting **at = &group->meetings[call->comm->collectives++ % (1 << 12)];
	struct fake_meeting *never = nobody_comes(call->comm);
	int64_t bytes = (int64_t)(part->count * element_bytes(part->type));
	const struct fake_touch touches[] = {{part->send, bytes * call->sent, false},
		{part->receive, bytes * call->received, true}};

	part->from = fake_nccl_place(call->comm, part->send, bytes * call->sent);
	part->to = fake_nccl_place(call->comm, part->receive, bytes * call->received);
	if (never != NULL)
		at = &never;
	if (*at == NULL)
		*at = new_meeting(group->size);
	(*at)->group = group;
	(*at)->abandoned |= group->aborted;
	(*at)->bytes = bytes * (call->sent > call->received ? call->sent : call->received);
	(*at)->run = run_together;
	struct fake_node *node =
		fake_enqueue(stream, NODE_MEET, "a collective", part, sizeof(*part), touches, 2);
	node->meeting = *at;
	(*at)->streams[(*at)->joined] = stream;
	(*at)->nodes[(*at)->joined] = node;
	if (++(*at)->joined == group->size && never == NULL)
		*at = NULL; /* frees itself when it has run */
}

static void trace_call(const struct call *call, const struct fake_stream *stream)
{
	const struct part *part = &call->part;
	int64_t bytes = (int64_t)(part->count * element_bytes(part->type));
	const struct fake_touch touches[] = {{part->send, bytes * call->sent, false},
		{part->receive, bytes * call->received, true}};
	int most = call->sent > call->received ? call->sent : call->received;

	fake_trace_touches("collective", stream, call->comm->group->size, bytes * most, touches, 2);
}

static int enqueue(struct fake_comm *c, struct part part, void *stream, int sent, int received)
{
	struct call call = {c, part, sent, received};
	struct fake_stream *s = stream;

	call.part.index = c->index;
	fake_lock();
	if (fake_nccl_fails("refuse", c->rank) && fake_nccl_count(c->rank) == 0) {
		fake_unlock();
		return 5;
	}
	trace_call(&call, s);
	if (s->capture != NULL)
		fake_capture_again(s, join_meeting, &call, sizeof(call));
	else
		join_meeting(&call, s);
	fake_unlock();
	return 0;
}

static int all_gather(
	const void *send, void *receive, size_t count, int type, void *comm, void *stream)
{
	struct fake_comm *c = comm;

	return enqueue(c,
		(struct part){COLLECTIVE_ALL_GATHER, send, receive, count, type, 0, -1, -1}, stream,
		1, c->group->size);
}

static int reduce_scatter(
	const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream)
{
	struct fake_comm *c = comm;

	if (op != NCCL_SUM)
		fake_cuda_fault("a reduction that is no sum");
	return enqueue(c,
		(struct part){COLLECTIVE_REDUCE_SCATTER, send, receive, count, type, 0, -1, -1},
		stream, c->group->size, 1);
}

static int all_reduce(
	const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream)
{
	if (op != NCCL_SUM || send != receive)
		fake_cuda_fault("a reduction that is no sum, or not in place");
	return enqueue(comm,
		(struct part){COLLECTIVE_ALL_REDUCE, send, receive, count, type, 0, -1, -1}, stream,
		1, 1);
}

static const char *error_string(int result)
{
	return result == 0 ? "no error" : "an error of the fake";
}

static const char *last_error(void *comm)
{
	(void)comm;
	return fake_cuda_first_fault();
}

void fake_nccl_install(void)
{
	static struct nccl_api api = {.ncclGetVersion = get_version,
		.ncclGetUniqueId = get_id,
		.ncclCommInitRankConfig = init_rank,
		.ncclCommSplit = comm_split,
		.ncclCommFinalize = finalize,
		.ncclCommDestroy = destroy,
		.ncclCommAbort = abort_comm,
		.ncclCommGetAsyncError = async_error,
		.ncclAllGather = all_gather,
		.ncclReduceScatter = reduce_scatter,
		.ncclAllReduce = all_reduce,
		.ncclGetErrorString = error_string,
		.ncclGetLastError = last_error};

	int version;

	get_version(&version);
	fake_nccl_memory_install(&api, version);
	nccl_api_use(&api);
}
