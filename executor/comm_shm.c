/* The shm transport: ranks are processes of one machine that read in each other's windows.
 *
 * A collective is: post what one is about to do; wait until all members have posted; compare; fetch
 * (reduce-scatter and all-reduce: reduce the own slice from everybody's memory); say done; wait
 * until all are done, because only then may the own memory change. No copy is made for sending. */
#include <string.h>

#include "base/arena.h"
#include "executor/comm.h"
#include "executor/segment.h"
#include "kernels/exact_sum.h"

/* Progress counts 4 * sequence + phase, so one counter says both. */
enum phase { PHASE_POSTED = 1, PHASE_REDUCED = 2, PHASE_DONE = 3 };

enum { SLICE_ALIGNMENT = 16 }; /* elements: ranks do not write to one cache line */

struct shm {
	struct segment *segment;
	struct arena arena;
	char *window;
	uint32_t sequence; /* of the last collective */
	struct patience patience;
	const float **sources; /* [ranks], scratch */
};

static const struct post *peer_post(const struct shm *shm, int rank)
{
	return &segment_board(shm->segment, rank)->posts[shm->sequence % BOARD_POSTS];
}

static void say(struct comm *comm, enum phase phase)
{
	struct shm *shm = comm->state;

	event_set(&segment_board(shm->segment, comm->rank)->progress, 4 * shm->sequence + phase);
}

static bool timed_out(struct comm *comm, const struct collective *c, int peer)
{
	struct shm *shm = comm->state;
	const struct board *board = segment_board(shm->segment, peer);

	return segment_fault(shm->segment, EXIT_CODE_FAULT,
		"rank %d hangs: it did not come to %s %u (step %lld, operation %d, unit %d) within "
		"%.3g s of rank %d; it was last seen in step %d at operation %d",
		peer, collective_kind_names[c->kind], shm->sequence, (long long)c->step, c->op,
		c->unit, shm->patience.timeout, comm->rank, atomic_load(&board->step),
		atomic_load(&board->op));
}

/* Until every member of the group has reached that phase of this collective. */
static bool await(struct comm *comm, const struct collective *c, enum phase phase)
{
	struct shm *shm = comm->state;

	for (int i = 0; i < c->group.size; i++) {
		int peer = comm_group_rank(&c->group, i);
		struct event *progress = &segment_board(shm->segment, peer)->progress;

		if (peer == comm->rank)
			continue;
		switch (event_wait(progress, 4 * shm->sequence + phase, &shm->patience)) {
		case EVENT_REACHED:
			break;
		case EVENT_ABORTED:
			return false;
		case EVENT_TIMED_OUT:
			return timed_out(comm, c, peer);
		}
	}
	return true;
}

/* What others read in this collective. */
static const void *exposed(const struct collective *c)
{
	return c->kind == COLLECTIVE_ALL_REDUCE ? c->output : c->input;
}

static void post(struct comm *comm, const struct collective *c)
{
	struct shm *shm = comm->state;
	struct board *board = segment_board(shm->segment, comm->rank);
	struct post *post = &board->posts[++shm->sequence % BOARD_POSTS];

	*post = (struct post){.sequence = shm->sequence,
		.kind = (int32_t)c->kind,
		.element = (int32_t)c->element,
		.first = c->group.first,
		.size = c->group.size,
		.stride = c->group.stride,
		.count = c->count,
		.offset = (const char *)exposed(c) - shm->window,
		.step = (int32_t)c->step,
		.op = c->op,
		.unit = c->unit};
	if (fault_hits(&comm->fault, FAULT_MISMATCH, comm->rank, c->step))
		post->count++;
	say(comm, PHASE_POSTED);
}

static bool same_call(const struct post *a, const struct post *b)
{
	return a->sequence == b->sequence && a->kind == b->kind && a->element == b->element &&
	       a->first == b->first && a->size == b->size && a->stride == b->stride &&
	       a->count == b->count && a->op == b->op && a->step == b->step;
}

static void describe(struct text *text, int rank, const struct post *post)
{
	text_printf(text,
		"rank %d: %s %u of %lld elements (kind %d) in group {%d + i * %d, %d}, "
		"step %d, operation %d, unit %d",
		rank, collective_kind_names[post->kind], post->sequence, (long long)post->count,
		post->element, post->first, post->stride, post->size, post->step, post->op,
		post->unit);
}

static bool mismatch(
	struct comm *comm, int peer, const struct post *mine, const struct post *theirs)
{
	struct shm *shm = comm->state;
	struct text text = {0};

	text_add(&text, "ranks issued different collectives: ");
	describe(&text, comm->rank, mine);
	text_add(&text, "; ");
	describe(&text, peer, theirs);
	segment_fault(shm->segment, EXIT_CODE_FAULT, "%s", text_string(&text));
	text_finish(&text);
	return false;
}

/* Before data moves: every member is about to do the same. */
static bool agree(struct comm *comm, const struct collective *c)
{
	struct shm *shm = comm->state;
	const struct post *mine = peer_post(shm, comm->rank);

	for (int i = 0; i < c->group.size; i++) {
		int peer = comm_group_rank(&c->group, i);
		struct post theirs = *peer_post(shm, peer);

		if (!same_call(mine, &theirs))
			return mismatch(comm, peer, mine, &theirs);
	}
	return true;
}

static const char *peer_data(const struct comm *comm, const struct collective *c, int index)
{
	const struct shm *shm = comm->state;
	int rank = comm_group_rank(&c->group, index);

	return segment_window(shm->segment, rank) + peer_post(shm, rank)->offset;
}

static void fetch(struct comm *comm, void *to, const void *from, int64_t bytes, bool own)
{
	if (bytes > 0)
		memcpy(to, from, (size_t)bytes);
	if (!own)
		comm->counters.wire_bytes += bytes;
}

static bool is_operation(const struct collective *c)
{
	return c->op >= 0;
}

static void all_gather(struct comm *comm, const struct collective *c)
{
	int64_t size = comm_element_bytes(c->element), bytes = c->count * size, late = 0;

	if (is_operation(c) && c->step > 0 &&
		fault_hits(&comm->fault, FAULT_STALE_GATHER, comm->rank, c->step))
		return;
	if (is_operation(c) &&
		fault_hits(&comm->fault, FAULT_WRONG_SHARD_OFFSET, comm->rank, c->step))
		late = min_i64(size, bytes);
	/* Every rank starts at another peer, so that they do not all read one memory. */
	for (int i = 0; i < c->group.size; i++) {
		int index = (c->group.index + i) % c->group.size;

		fetch(comm, (char *)c->output + index * bytes, peer_data(comm, c, index) + late,
			bytes - late, i == 0);
	}
}

static void round_to_bf16(float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		bits = (bits + 0x8000u) & 0xFFFF0000u;
		memcpy(&x[i], &bits, sizeof(bits));
	}
}

static void add_in_rank_order(float *sum, const float *const *sources, int count, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		float total = sources[0][i];

		for (int k = 1; k < count; k++)
			total += sources[k][i];
		sum[i] = total;
	}
}

static void sum_floats(struct comm *comm, const struct collective *c, float *sum, int64_t n)
{
	struct shm *shm = comm->state;
	const struct fault *fault = &comm->fault;

	if (fault_hits(fault, FAULT_SKIP_REDUCE, comm->rank, c->step)) {
		if (sum != shm->sources[c->group.index])
			memcpy(sum, shm->sources[c->group.index], (size_t)n * sizeof(*sum));
		return;
	}
	if (fault_hits(fault, FAULT_REDUCE_ORDER, comm->rank, c->step))
		add_in_rank_order(sum, shm->sources, c->group.size, n);
	else
		comm->kernels->tree_reduce(comm->context, sum, shm->sources, c->group.size, n);
	if (fault_hits(fault, FAULT_BF16_REDUCE, comm->rank, c->step))
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

/* to[0..n) = the sum over the group of elements [first, first + n) of what each exposed. */
static void reduce(
	struct comm *comm, const struct collective *c, void *to, int64_t first, int64_t n)
{
	struct shm *shm = comm->state;
	int64_t size = comm_element_bytes(c->element);

	if (n <= 0)
		return;
	for (int i = 0; i < c->group.size; i++)
		shm->sources[i] = (const float *)(peer_data(comm, c, i) + first * size);
	if (c->element == COMM_FP32)
		sum_floats(comm, c, to, n);
	else
		sum_integers(to, (const int64_t *const *)shm->sources, c->group.size, n);
	comm->counters.wire_bytes += (c->group.size - 1) * n * size;
}

static void reduce_scatter(struct comm *comm, const struct collective *c)
{
	reduce(comm, c, c->output, c->group.index * c->count, c->count);
}

struct range {
	int64_t first, count;
};

static struct range slice_of_member(const struct collective *c, int index)
{
	int64_t per = round_up(ceil_div(c->count, c->group.size), SLICE_ALIGNMENT);
	int64_t first = min_i64(index * per, c->count);

	return (struct range){first, min_i64(per, c->count - first)};
}

/* In place. Each member reduces its slice, which no other member reads before PHASE_REDUCED, and
 * then fetches the other slices from those who reduced them. */
static bool all_reduce(struct comm *comm, const struct collective *c)
{
	int64_t size = comm_element_bytes(c->element);
	struct range own = slice_of_member(c, c->group.index);

	if (c->group.stride > 1 && c->element == COMM_FP32 &&
		fault_hits(&comm->fault, FAULT_SKIP_REPLICATE, comm->rank, c->step))
		return true;
	reduce(comm, c, (char *)c->output + own.first * size, own.first, own.count);
	say(comm, PHASE_REDUCED);
	if (!await(comm, c, PHASE_REDUCED))
		return false;
	for (int i = 1; i < c->group.size; i++) {
		int index = (c->group.index + i) % c->group.size;
		struct range slice = slice_of_member(c, index);

		fetch(comm, (char *)c->output + slice.first * size,
			peer_data(comm, c, index) + slice.first * size, slice.count * size, false);
	}
	return true;
}

static bool move(struct comm *comm, const struct collective *c)
{
	switch (c->kind) {
	case COLLECTIVE_ALL_GATHER:
		all_gather(comm, c);
		return true;
	case COLLECTIVE_REDUCE_SCATTER:
		reduce_scatter(comm, c);
		return true;
	case COLLECTIVE_ALL_REDUCE:
		return all_reduce(comm, c);
	}
	return false;
}

static bool shm_run(struct comm *comm, const struct collective *c)
{
	post(comm, c);
	if (!await(comm, c, PHASE_POSTED) || !agree(comm, c) || !move(comm, c))
		return false;
	say(comm, PHASE_DONE);
	return await(comm, c, PHASE_DONE);
}

static void shm_finish(struct comm *comm)
{
	struct shm *shm = comm->state;
	struct arena arena = shm->arena;

	arena_finish(&arena);
}

static const struct transport transport_shm = {.name = "shm", .run = shm_run, .finish = shm_finish};

bool comm_open_shm(struct comm *comm, struct segment *segment, const struct kernels *kernels,
	struct kernel_context *context, struct error *error)
{
	const struct job *job = &segment->header->job;
	struct arena arena = {0};
	struct shm *shm;

	if (job->ranks > KERNELS_TREE_SOURCES)
		return error_set(error, EXIT_CODE_USAGE, "%d ranks on one machine, at most %d",
			job->ranks, KERNELS_TREE_SOURCES);
	shm = ARENA_NEW(&arena, struct shm);
	shm->segment = segment;
	shm->window = segment_window(segment, segment->rank);
	shm->sources = ARENA_ARRAY(&arena, const float *, job->ranks);
	shm->patience = (struct patience){
		.abort = &segment->header->abort, .timeout = job->collective_timeout};
	shm->arena = arena;
	*comm = (struct comm){.transport = &transport_shm,
		.rank = segment->rank,
		.ranks = job->ranks,
		.kernels = kernels,
		.context = context,
		.fault = {.rank = -1, .step = -1},
		.state = shm};
	return true;
}
