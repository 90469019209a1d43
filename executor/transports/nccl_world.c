#include "executor/transports/nccl_world.h"

/* Sets the error and always returns false. */
static bool fail(
	const struct nccl_world *w, void *comm, int result, const char *what, struct error *error)
{
	return error_set(error, EXIT_CODE_FAULT, "rank %d: nccl: %s: %s (%s)", w->rank, what,
		w->api->ncclGetErrorString(result), w->api->ncclGetLastError(comm));
}

bool nccl_world_settle(
	const struct nccl_world *w, void *comm, int result, const char *what, struct error *error)
{
	double since = clock_now(), waited = 0;

	while (result == NCCL_IN_PROGRESS) {
		if (segment_aborted(w->segment))
			return false;
		waited = clock_now() - since;
		if (w->patience->timeout > 0 && waited > w->patience->timeout)
			return error_set(error, EXIT_CODE_FAULT,
				"rank %d: nccl: %s has not ended for %.0f s: "
				"a rank that does not come, or a network that does not answer",
				w->rank, what, w->patience->timeout);
		clock_nap(waited);
		if (w->api->ncclCommGetAsyncError(comm, &result) != 0)
			return fail(w, comm, result, what, error);
	}
	return result == 0 || fail(w, comm, result, what, error);
}

/* --- making them --- */

/* Gives all ranks the first one's identifier; `mine` lies where the host's transport can read
 * it. */
static bool agree_on_id(const struct nccl_world *w, struct comm *host, struct nccl_id *mine,
	struct nccl_id *id, struct arena *arena, struct error *error)
{
	struct nccl_id *all = ARENA_ARRAY(arena, struct nccl_id, host->ranks);

	*mine = (struct nccl_id){{0}};
	if (w->rank == 0) {
		int result = w->api->ncclGetUniqueId(mine);

		if (result != 0)
			return fail(w, NULL, result, "ncclGetUniqueId", error);
	}
	if (!comm_exchange(host, mine, all, sizeof(*all)))
		return false;
	*id = all[0];
	return true;
}

static bool meet(struct nccl_world *w, struct comm *host, struct heap *heap, struct arena *arena,
	struct error *error)
{
	int block = heap_take(heap, sizeof(struct nccl_id), error);
	struct nccl_id id;

	if (block < 0)
		return false;
	bool ok = agree_on_id(w, host, heap_address(heap, block), &id, arena, error);
	heap_give(heap, block);
	if (!ok)
		return false;
	int result = w->api->ncclCommInitRankConfig(&w->all, host->ranks, id, w->rank, &w->config);
	return nccl_world_settle(w, w->all, result, "ncclCommInitRankConfig", error);
}

/* Splits off one group: its members have the number of its first rank as their colour. */
static bool split_once(
	struct nccl_world *w, const struct comm_group *group, void **comm, struct error *error)
{
	int result = w->api->ncclCommSplit(w->all, group->first, group->index, comm, &w->config);

	return nccl_world_settle(w, w->all, result, "ncclCommSplit", error) &&
	       (*comm == NULL ||
		       nccl_world_settle(w, *comm, NCCL_IN_PROGRESS, "ncclCommSplit", error));
}

/* Returns the first group with the same members in one engine, whose communicator this group
 * uses. */
static int owner_of(const struct nccl_world *w, int index)
{
	const struct group *group = &w->groups[index];

	for (int g = 0; g < index; g++)
		if (w->groups[g].size == group->size && w->groups[g].stride == group->stride &&
			w->groups[g].engine == group->engine)
			return g;
	return index;
}

/* All ranks split for all groups in one order, as NCCL demands; a group of one needs no
 * communicator. */
static bool split(struct nccl_world *w, struct error *error)
{
	for (int g = 0; g < w->n_groups; g++) {
		struct comm_group group = comm_group_of(&w->groups[g], w->rank);

		if (group.size > 1 && owner_of(w, g) == g &&
			!split_once(w, &group, &w->comms[g], error))
			return false;
	}
	return true;
}

bool nccl_world_open(struct nccl_world *w, struct segment *segment, struct comm *host,
	struct heap *heap, const struct group *groups, int n_groups,
	const struct patience *patience, struct arena *arena, struct error *error)
{
	*w = (struct nccl_world){.api = nccl_api(error),
		.segment = segment,
		.patience = patience,
		.rank = host->rank,
		.n_groups = n_groups,
		.groups = groups,
		.comms = ARENA_ARRAY(arena, void *, n_groups + 1)};
	return w->api != NULL &&
	       nccl_config_make(w->api, &segment->header->job.nccl, &w->config, error) &&
	       meet(w, host, heap, arena, error) && split(w, error);
}

/* --- collectives --- */

static int type_of(enum comm_element element)
{
	static const int types[] = {[COMM_FP32] = NCCL_FLOAT32,
		[COMM_INT64] = NCCL_INT64,
		[COMM_BYTE] = NCCL_UINT8,
		[COMM_BF16] = NCCL_BFLOAT16};

	return types[element];
}

static int issue(const struct nccl_api *api, const struct collective *c, void *comm)
{
	size_t count = (size_t)c->count;
	int type = type_of(c->element);

	switch (c->kind) {
	case COLLECTIVE_ALL_GATHER:
		return api->ncclAllGather(c->input, c->output, count, type, comm, c->stream);
	case COLLECTIVE_REDUCE_SCATTER:
		return api->ncclReduceScatter(
			c->input, c->output, count, type, NCCL_SUM, comm, c->stream);
	case COLLECTIVE_ALL_REDUCE:
		return api->ncclAllReduce(
			c->output, c->output, count, type, NCCL_SUM, comm, c->stream);
	case COLLECTIVE_ALL_TO_ALL:
	case COLLECTIVE_SEND_RECV:
		break;
	}
	return NCCL_INVALID_USAGE;
}

bool nccl_world_run(const struct nccl_world *w, const struct collective *c, struct error *error)
{
	void *comm = w->comms[owner_of(w, c->group_index)];

	return nccl_world_settle(w, comm, issue(w->api, c, comm), "a collective", error);
}

/* --- failure, and the end --- */

/* Returns the i-th communicator; the one over all ranks comes behind those of the groups. */
static void *comm_at(const struct nccl_world *w, int i)
{
	return i < w->n_groups ? w->comms[i] : w->all;
}

static void abort_all(struct nccl_world *w)
{
	if (w->aborted)
		return;
	w->aborted = true;
	for (int i = 0; i <= w->n_groups; i++)
		if (comm_at(w, i) != NULL)
			w->api->ncclCommAbort(comm_at(w, i));
}

bool nccl_world_healthy(struct nccl_world *w, struct error *error)
{
	for (int i = 0; i <= w->n_groups; i++) {
		void *comm = comm_at(w, i);
		int result = 0;

		if (comm == NULL || w->api->ncclCommGetAsyncError(comm, &result) != 0)
			continue;
		if (result != 0 && result != NCCL_IN_PROGRESS) {
			fail(w, comm, result, "a collective failed", error);
			abort_all(w);
			return false;
		}
	}
	return true;
}

void nccl_world_regret(const struct nccl_world *w, const struct error *error)
{
	struct text line = {0};

	if (error->message[0] == '\0')
		return;
	text_printf(&line, "%s (behind the last step)\n", error->message);
	segment_leave_notes(w->segment, &line);
	text_finish(&line);
}

static void leave(const struct nccl_world *w, void *comm)
{
	struct error error = {0};
	int result;

	if (nccl_world_settle(
		    w, comm, w->api->ncclCommFinalize(comm), "ncclCommFinalize", &error) &&
		(result = w->api->ncclCommDestroy(comm)) != 0)
		fail(w, NULL, result, "ncclCommDestroy", &error);
	else if (error.message[0] != '\0')
		w->api->ncclCommAbort(comm);
	nccl_world_regret(w, &error);
}

void nccl_world_close(struct nccl_world *w)
{
	if (w->api == NULL)
		return;
	if (segment_aborted(w->segment))
		abort_all(w);
	for (int i = 0; i <= w->n_groups && !w->aborted; i++)
		if (comm_at(w, i) != NULL)
			leave(w, comm_at(w, i));
	*w = (struct nccl_world){0};
}
