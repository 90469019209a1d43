#include "executor/transports/nccl_buffers.h"

/* Windows begin and end at pages. */
enum { PAGE = 4096 };

void nccl_buffers_prepare(struct device_cuda *d, const struct nccl_api *api)
{
	if (api->ncclMemAlloc == NULL || api->ncclMemFree == NULL || api->ncclCommRegister == NULL)
		return;
	d->take_arena = api->ncclMemAlloc;
	d->give_arena = api->ncclMemFree;
}

/* --- the range --- */

static void cover(const struct device_cuda *d, int buffer, int64_t *first, int64_t *end)
{
	int64_t at = d->addresses.offsets[buffer], bytes = d->program->buffers[buffer].bytes;

	if (buffer_in_host(&d->program->buffers[buffer]))
		return;
	*first = min_i64(*first, at);
	*end = max_i64(*end, at + bytes);
}

struct nccl_memory nccl_buffers_of(const struct device_cuda *d)
{
	const struct program *program = d->program;
	int64_t first = INT64_MAX, end = 0;

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const int *uses = slice_of(program, op->uses);

		for (int k = 0;
			k < op->uses.count && op_kind_class(op->kind) == OP_CLASS_COLLECTIVE; k++)
			cover(d, uses[k], &first, &end);
	}
	if (end == 0)
		return (struct nccl_memory){.of_nccl = d->arena_is_given};
	first = first / PAGE * PAGE;
	return (struct nccl_memory){
		d->memory + first, round_up(end, PAGE) - first, d->arena_is_given};
}

/* --- whether --- */

static const char *obstacle(const struct nccl_api *api, const struct nccl_memory *memory)
{
	if (api->ncclMemAlloc == NULL || api->ncclCommRegister == NULL ||
		api->ncclCommDeregister == NULL)
		return "not registered: this NCCL has no ncclCommRegister (2.19)";
	if (!memory->of_nccl)
		return "not registered: ncclMemAlloc had no memory for it";
	return NULL;
}

/* Asks all ranks; `*all` is true if every one of them can. */
static bool all_can(struct comm *host, struct heap *heap, bool can, bool *all, struct arena *arena,
	struct error *error)
{
	int block = heap_take(heap, 1, error);
	char *answers = ARENA_ARRAY(arena, char, host->ranks);

	if (block < 0)
		return false;
	char *mine = heap_address(heap, block);
	*mine = (char)can;
	bool ok = comm_exchange(host, mine, answers, 1);
	heap_give(heap, block);
	*all = true;
	for (int r = 0; r < host->ranks; r++)
		*all = *all && answers[r] != 0;
	return ok;
}

/* --- registration --- */

/* Opens a window, which stays NULL where these GPUs have none; NCCL says so to all ranks alike. */
static bool open_window(const struct nccl_buffers *b, const struct nccl_world *world,
	struct nccl_registration *r, struct error *error)
{
	const struct nccl_api *api = b->api;

	return api->ncclCommWindowRegister == NULL || api->ncclCommWindowDeregister == NULL ||
	       nccl_world_settle(world, r->comm,
		       api->ncclCommWindowRegister(r->comm, b->memory.start,
			       (size_t)b->memory.bytes, &r->window, NCCL_WIN_COLL_SYMMETRIC),
		       "ncclCommWindowRegister (NCCL_WIN_ENABLE=0 trains without)", error);
}

static bool register_with(
	struct nccl_buffers *b, const struct nccl_world *world, void *comm, struct error *error)
{
	struct nccl_registration *r = &b->all[b->n];

	*r = (struct nccl_registration){.comm = comm};
	if (!open_window(b, world, r, error))
		return false;
	if (r->window == NULL &&
		!nccl_world_settle(world, comm,
			b->api->ncclCommRegister(
				comm, b->memory.start, (size_t)b->memory.bytes, &r->handle),
			"ncclCommRegister (NCCL_LOCAL_REGISTER=0 trains without)", error))
		return false;
	b->how = r->window != NULL ? "symmetric windows" : "registered";
	b->n++;
	return true;
}

bool nccl_buffers_open(struct nccl_buffers *b, const struct nccl_world *world,
	struct nccl_memory memory, struct comm *host, struct heap *heap, struct arena *arena,
	struct error *error)
{
	const char *why = obstacle(world->api, &memory);
	bool all;

	*b = (struct nccl_buffers){.api = world->api, .how = why, .memory = memory};
	if (!all_can(host, heap, why == NULL, &all, arena, error))
		return false;
	if (why == NULL && !all)
		b->how = "not registered: another rank cannot";
	if (b->how == NULL && memory.bytes == 0)
		b->how = "not registered: there is no collective";
	b->all = ARENA_ARRAY(arena, struct nccl_registration, world->n_groups + 1);
	for (int i = 0; i < world->n_groups && (b->how == NULL || b->n > 0); i++)
		if (world->comms[i] != NULL && !register_with(b, world, world->comms[i], error))
			return false;
	return true;
}

static void forget(const struct nccl_buffers *b, const struct nccl_world *world,
	const struct nccl_registration *r)
{
	struct error error = {0};

	if (r->window != NULL)
		nccl_world_settle(world, r->comm,
			b->api->ncclCommWindowDeregister(r->comm, r->window),
			"ncclCommWindowDeregister", &error);
	else
		nccl_world_settle(world, r->comm, b->api->ncclCommDeregister(r->comm, r->handle),
			"ncclCommDeregister", &error);
	nccl_world_regret(world, &error);
}

void nccl_buffers_close(struct nccl_buffers *b, const struct nccl_world *world)
{
	for (int i = 0; i < b->n; i++)
		forget(b, world, &b->all[i]);
	b->n = 0;
}
