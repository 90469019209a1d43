/* NCCL's functions: communicators, and calls that let members meet on their streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/ranks/event.h"
#include "executor/transports/comm.h"
#include "executor/transports/nccl_api.h"
#include "tests/executor/fakes/nccl.h"

struct fake_comm {
	struct fake_group *group;
	int index, collectives, splits, calls;
	int rank;  /* of the world */
	int error; /* of its own, which it says when it is asked */
	bool later;
	double late; /* s until its call has ended */
	/* For processes: what a rank waits for, the number of that, and what will be made then. */
	const char *waits;
	int number;
	void **made;
};

static struct fake_group *groups;
static int n_groups;
static struct fake_comm *worlds[MOST_MEMBERS]; /* of each rank of this process */

static struct fake_group *new_group(int size)
{
	struct fake_group *group = calloc(1, sizeof(*group));

	group->size = size;
	group->number = ++n_groups;
	group->next = groups;
	return groups = group;
}

/* A call that goes on behind its caller's back. */
static int take_long(struct fake_comm *comm)
{
	comm->late = fake_nccl_late(comm->rank);
	if (comm->late > 0)
		comm->error = NCCL_IN_PROGRESS;
	return comm->error;
}

static int new_comm(struct fake_group *group, int index, int rank, void **comm)
{
	struct fake_comm *made = calloc(1, sizeof(*made));

	made->group = group;
	made->index = index;
	made->rank = rank;
	*comm = made;
	return take_long(made);
}

int fake_nccl_version(void)
{
	const char *other = getenv("FAKE_NCCL_VERSION");

	return other != NULL ? atoi(other) : 22809;
}

static int get_version(int *version)
{
	*version = fake_nccl_version();
	return 0;
}

static int get_id(struct nccl_id *id)
{
	fake_lock();
	memcpy(id->internal, &(int){n_groups + 1}, sizeof(int));
	if (fake_party_folder() != NULL)
		fake_party_id(id->internal, sizeof(id->internal));
	else
		new_group(0);
	fake_unlock();
	return 0;
}

/* The calls that follow ask for it until all have come. */
static int wait_for_others(struct fake_comm *comm, const char *what, int number)
{
	comm->waits = what;
	comm->number = number;
	comm->error = NCCL_IN_PROGRESS;
	return NCCL_IN_PROGRESS;
}

/* Is the configuration of the version's length, and neither blocking nor sharing? */
static bool is_good(const struct nccl_config *config)
{
	int version = fake_nccl_version();
	size_t bytes = version >= 22800 ? 80 : version >= 22700 ? 72 : 48;

	return config->size == bytes && config->magic == (unsigned)NCCL_CONFIG_MAGIC &&
	       (int)config->version <= version && config->blocking == 0 && config->split_share == 0;
}

static int init_process(void **comm, int ranks, const char *name, int rank)
{
	struct fake_group *group = new_group(ranks);

	snprintf(group->name, sizeof(group->name), "%s", name);
	new_comm(group, rank, rank, comm);
	fake_party_come(group->name, "init", 0, rank, "%d", fake_thread.gpu);
	return wait_for_others(*comm, "init", 0);
}

static int init_rank(
	void **comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config)
{
	struct fake_group *group = groups;
	int number, result;

	if (fake_party_folder() != NULL) {
		fake_lock();
		result = init_process(comm, ranks, id.internal, rank);
		fake_unlock();
		return result;
	}
	memcpy(&number, id.internal, sizeof(number));
	fake_lock();
	while (group != NULL && group->number != number)
		group = group->next;
	if (group == NULL || !is_good(config))
		fake_cuda_fault("ncclCommInitRankConfig without an identifier, or blocking");
	else
		group->size = ranks;
	fake_unlock();
	if (group == NULL)
		return 5;
	result = new_comm(group, rank, rank, comm);
	worlds[rank] = *comm;
	if (!fake_nccl_fails("start", rank))
		return result;
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

/* All have come: this process's group among them. */
static void form_process_group(struct fake_comm *parent, int number)
{
	const struct fake_group *all = parent->group;
	int colors[MOST_MEMBERS], keys[MOST_MEMBERS], size = 0, index = 0, own = parent->index;

	for (int i = 0; i < all->size; i++)
		fake_party_said(all->name, "split", number, i, &colors[i], &keys[i]);
	for (int i = 0; i < all->size; i++) {
		size += colors[i] == colors[own];
		index += colors[i] == colors[own] && keys[i] < keys[own];
	}
	struct fake_group *group = new_group(size);
	snprintf(group->name, sizeof(group->name), "%.130s-%d-%d", all->name, number, colors[own]);
	new_comm(group, index, parent->rank, parent->made);
}

static int comm_split(void *comm, int color, int key, void **made, struct nccl_config *config)
{
	struct fake_comm *c = comm;
	struct fake_split *split = &c->group->splits[c->splits++ % 64];

	fake_lock();
	if (!is_good(config))
		fake_cuda_fault("ncclCommSplit shares or blocks");
	if (c->group->name[0] != '\0') {
		*made = NULL;
		c->made = made;
		fake_party_come(c->group->name, "split", c->splits, c->index, "%d %d", color, key);
		fake_unlock();
		return wait_for_others(c, "split", c->splits);
	}
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

int fake_nccl_later(void *comm)
{
	struct fake_comm *c = comm;

	c->error = c->error != 0 ? c->error : NCCL_IN_PROGRESS;
	c->later = true;
	return fake_outcome() != 0 ? fake_outcome() : NCCL_IN_PROGRESS;
}

static void check_idle(const struct fake_comm *c)
{
	if (c->later)
		fake_cuda_fault("a communicator is used before its last call has ended");
}

static int finalize(void *comm)
{
	fake_lock();
	check_idle(comm);
	fake_unlock();
	if (fake_nccl_fails("finalize", ((struct fake_comm *)comm)->rank))
		return 3;
	return fake_nccl_later(comm);
}

static int destroy(void *comm)
{
	fake_lock();
	fake_trace("destroy %d 0 0", fake_thread.actor);
	check_idle(comm);
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
	fake_trace_flush();
	c->group->aborted = true;
	fake_meetings_abandon(c->group);
	fake_nccl_forget(c);
	fake_wake();
	fake_unlock();
	free(comm);
	return 0;
}

static int async_error(void *comm, int *result)
{
	struct fake_comm *c = comm;

	fake_lock();
	if (c->waits != NULL &&
		fake_party_has_come(c->group->name, c->waits, c->number, c->group->size)) {
		if (c->made != NULL)
			form_process_group(c, c->number);
		c->waits = NULL;
		c->made = NULL;
		c->error = 0;
	}
	if (c->late > 0) {
		fake_clock_wait(clock_now() + 1);
		c->late -= 1;
		c->error = c->late > 0 ? NCCL_IN_PROGRESS : 0;
	}
	if (c->later && c->error == NCCL_IN_PROGRESS)
		c->error = 0;
	c->later = false;
	*result = c->error;
	fake_unlock();
	return 0;
}

struct call {
	struct fake_comm *comm;
	struct fake_part part;
	int sent, received; /* times the part's bytes */
};

/* A seeded fault: a meeting of its own, to which no other member comes; else NULL. */
static struct fake_meeting *nobody_comes(struct fake_comm *comm)
{
	bool hang = fake_nccl_fails("hang", comm->rank),
	     error = fake_nccl_fails("error", comm->rank), all = fake_nccl_fails("all", comm->rank);

	if ((!hang && !error && !all) || fake_nccl_count(comm->rank) != 0)
		return NULL;
	comm->error = error ? 6 : 0;
	if (all)
		worlds[comm->rank]->error = 6;
	return fake_meeting_new(comm->group->size + 1);
}

/* What NCCL_GRAPH_MIXING_SUPPORT=0 promises. */
static void check_mixing(struct fake_group *group, bool launched)
{
	const char *mixes = getenv("NCCL_GRAPH_MIXING_SUPPORT");

	if (mixes != NULL && mixes[0] == '0' && group->out[!launched] > 0)
		fake_cuda_fault("a communicator is used by a graph and outside of it at once");
	group->out[launched]++;
}

static void join_meeting(const struct call *call, struct fake_stream *stream, bool launched)
{
	struct fake_group *group = call->comm->group;
	struct fake_part with_places = call->part, *part = &with_places;
	int number = call->comm->collectives++;
	struct fake_meeting **at = &group->meetings[number % (1 << 12)];
	struct fake_meeting *never = nobody_comes(call->comm), *own;
	int64_t bytes = (int64_t)(part->count * fake_element_bytes(part->type));
	const struct fake_touch touches[] = {{part->send, bytes * call->sent, false},
		{part->receive, bytes * call->received, true}};

	part->from = fake_nccl_place(call->comm, part->send, bytes * call->sent);
	part->to = fake_nccl_place(call->comm, part->receive, bytes * call->received);
	if (never != NULL)
		at = &never;
	if (never == NULL && group->name[0] != '\0') {
		own = fake_meeting_new(1);
		at = &own;
	}
	if (*at == NULL)
		*at = fake_meeting_new(group->size);
	check_mixing(group, launched);
	(*at)->group = group;
	(*at)->launched = launched;
	(*at)->number = number;
	(*at)->index = call->comm->index;
	(*at)->abandoned |= group->aborted;
	(*at)->bytes = bytes * (call->sent > call->received ? call->sent : call->received);
	struct fake_node *node =
		fake_enqueue(stream, NODE_MEET, "a collective", part, sizeof(*part), touches, 2);
	node->meeting = *at;
	node->gpu = fake_thread.gpu;
	(*at)->streams[(*at)->joined] = stream;
	(*at)->nodes[(*at)->joined] = node;
	if (++(*at)->joined == (*at)->members)
		*at = NULL; /* frees itself when it has run */
}

static void join_launched(void *arguments, struct fake_stream *stream)
{
	join_meeting(arguments, stream, true);
}

static void trace_call(const struct call *call, const struct fake_stream *stream)
{
	const struct fake_part *part = &call->part;
	int64_t bytes = (int64_t)(part->count * fake_element_bytes(part->type));
	const struct fake_touch touches[] = {{part->send, bytes * call->sent, false},
		{part->receive, bytes * call->received, true}};
	int most = call->sent > call->received ? call->sent : call->received;

	fake_trace_touches("collective", stream, call->comm->group->size, bytes * most, touches, 2);
}

static int enqueue(struct fake_comm *c, struct fake_part part, void *stream, int sent, int received)
{
	struct call call = {c, part, sent, received};
	struct fake_stream *s = stream;

	call.part.index = c->index;
	fake_lock();
	check_idle(c);
	fake_clock_call();
	if (fake_nccl_fails("refuse", c->rank) && fake_nccl_count(c->rank) == 0) {
		fake_unlock();
		return 5;
	}
	trace_call(&call, s);
	if (s->capture != NULL)
		fake_capture_again(s, join_launched, &call, sizeof(call));
	else
		join_meeting(&call, s, false);
	int result = c->calls++ == 0 ? take_long(c) : 0;
	fake_unlock();
	return result;
}

static int all_gather(
	const void *send, void *receive, size_t count, int type, void *comm, void *stream)
{
	struct fake_comm *c = comm;

	return enqueue(c,
		(struct fake_part){COLLECTIVE_ALL_GATHER, send, receive, count, type, 0, -1, -1},
		stream, 1, c->group->size);
}

static int reduce_scatter(
	const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream)
{
	struct fake_comm *c = comm;

	if (op != NCCL_SUM)
		fake_cuda_fault("a reduction that is no sum");
	return enqueue(c,
		(struct fake_part){
			COLLECTIVE_REDUCE_SCATTER, send, receive, count, type, 0, -1, -1},
		stream, c->group->size, 1);
}

static int all_reduce(
	const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream)
{
	if (op != NCCL_SUM || send != receive)
		fake_cuda_fault("a reduction that is no sum, or not in place");
	return enqueue(comm,
		(struct fake_part){COLLECTIVE_ALL_REDUCE, send, receive, count, type, 0, -1, -1},
		stream, 1, 1);
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

	fake_nccl_memory_install(&api, fake_nccl_version());
	nccl_api_use(&api);
}
