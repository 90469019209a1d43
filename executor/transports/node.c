/* Ranks of one machine say what is to be done, wait for each other, and compare. */
#include "executor/transports/node.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* A rank that waits for another one looks after so many seconds whether that still lives. */
#define LOOK 1.0

enum { SLICE_ALIGNMENT = 16 }; /* elements: ranks do not write to one cache line */

struct board *node_board(const struct node_link *link, int rank)
{
	return segment_board(link->segment, rank - link->first_rank);
}

void node_link_open(struct node_link *link, struct segment *shared, struct segment *control,
	int rank, int ranks, int first_rank, struct arena *arena)
{
	*link = (struct node_link){.segment = shared,
		.control = control,
		.first_rank = first_rank,
		.window = segment_window(shared, rank - first_rank),
		.window_bytes = shared->header->window_bytes,
		.patience = {.abort = &shared->header->abort,
			.timeout = control->header->job.collective_timeout},
		.sources = ARENA_ARRAY(arena, const void *, ranks)};
	atomic_store(&node_board(link, rank)->pid, (int32_t)getpid());
}

const struct post *node_peer_post(const struct node_link *link, int rank)
{
	return &node_board(link, rank)->lanes[link->lane].posts[link->sequence % BOARD_POSTS];
}

void node_say(const struct comm *comm, struct node_link *link, enum phase phase)
{
	event_set(&node_board(link, comm->rank)->lanes[link->lane].progress,
		PHASES * link->sequence + phase);
}

struct patience node_patience(const struct node_link *link, const struct collective *c)
{
	struct patience patience = link->patience;

	if (c->patience > 0)
		patience.timeout = c->patience;
	return patience;
}

/* Writes "all-gather 17 of block 3 (step 5, operation 40)". */
static void tell_collective(const struct comm *comm, const struct node_link *link,
	const struct collective *c, struct text *text)
{
	/* Here a message has only an input or only an output. */
	if (c->kind == COLLECTIVE_SEND_RECV && (c->input == NULL || c->output == NULL))
		text_printf(text, "its message to rank %d", comm->rank);
	else
		text_printf(text, "%s %u", collective_kind_names[c->kind], link->sequence);
	comm_tell_unit(comm, comm->rank, c->unit, text);
	if (c->op >= 0)
		text_printf(text, " (step %lld, operation %d)", (long long)c->step, c->op);
	else
		text_add(text, " (between steps)");
}

bool node_hangs(struct comm *comm, struct node_link *link, const struct collective *c, int peer,
	const char *last_seen)
{
	struct text text = {0};

	text_printf(&text, "rank %d hangs: it did not come to ", peer);
	tell_collective(comm, link, c, &text);
	text_printf(&text, " within %.3g s of rank %d%s", node_patience(link, c).timeout,
		comm->rank, last_seen);
	segment_fault(link->control, EXIT_CODE_FAULT, "%s", text_string(&text));
	text_finish(&text);
	return false;
}

static bool peer_hangs(
	struct comm *comm, struct node_link *link, const struct collective *c, int peer)
{
	const struct board *board = node_board(link, peer);
	struct text last_seen = {0};

	if (atomic_load(&board->op) >= 0) {
		text_printf(
			&last_seen, "; it was last seen in step %d at ", atomic_load(&board->step));
		comm_tell_operation(comm, peer, atomic_load(&board->op), &last_seen);
	}
	node_hangs(comm, link, c, peer, text_string(&last_seen));
	text_finish(&last_seen);
	return false;
}

/* The launcher of this rank notices when one of its own ranks ends. Ranks of other launchers have
 * nobody here who would, so the waiting rank looks itself. */
static bool has_gone(const struct node_link *link, int peer)
{
	int pid = atomic_load(&node_board(link, peer)->pid);

	return link->segment != link->control && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

static bool peer_has_gone(
	struct comm *comm, struct node_link *link, const struct collective *c, int peer)
{
	struct text text = {0};

	/* The peer gave up for a reason that has been recorded. */
	if (atomic_load(link->patience.abort) != 0)
		return false;
	text_printf(&text, "rank %d has gone: its process ended before it had come to ", peer);
	tell_collective(comm, link, c, &text);
	segment_fault(link->control, EXIT_CODE_FAULT, "%s", text_string(&text));
	text_finish(&text);
	return false;
}

/* Waits for a peer, which is called hung when it does nothing for too long. A peer that itself
 * waits for another machine or another program, or for a rank that does, is not to blame: it counts
 * `beats` while it waits, and each beat starts the time anew. The rank at fault is then named by
 * those who wait for it. Ranks cannot excuse one another in a circle: progress only grows, and a
 * rank waits only for ranks that are behind it. */
bool node_await_event(struct comm *comm, struct node_link *link, const struct collective *c,
	int peer, struct event *event, uint32_t target)
{
	const struct board *board = node_board(link, peer);
	struct patience look = node_patience(link, c);
	double most = look.timeout, since = clock_now();
	uint32_t beats = atomic_load(&board->beats);

	bool others = comm_joins_programs(comm, &c->group);
	look.timeout = most > 0 && most < LOOK ? most : LOOK;
	while (true) {
		switch (event_wait(event, target, &look)) {
		case EVENT_REACHED:
			return true;
		case EVENT_ABORTED:
			return false;
		case EVENT_TIMED_OUT:
			break;
		}
		if (has_gone(link, peer))
			return peer_has_gone(comm, link, c, peer);
		if (atomic_load(&board->beats) != beats) {
			beats = atomic_load(&board->beats);
			since = clock_now();
			atomic_fetch_add(&node_board(link, comm->rank)->beats, 1);
		}
		if (others)
			atomic_fetch_add(&node_board(link, comm->rank)->beats, 1);
		if (most > 0 && clock_now() - since >= most)
			return peer_hangs(comm, link, c, peer);
	}
}

static bool await_one(struct comm *comm, struct node_link *link, const struct collective *c,
	int peer, enum phase phase)
{
	return node_await_event(comm, link, c, peer,
		&node_board(link, peer)->lanes[link->lane].progress,
		PHASES * link->sequence + phase);
}

bool node_await(struct comm *comm, struct node_link *link, const struct collective *c,
	struct members members, enum phase phase)
{
	for (int i = members.first; i < members.end; i++) {
		int peer = comm_group_rank(&c->group, i);

		if (peer != comm->rank && !await_one(comm, link, c, peer, phase))
			return false;
	}
	return true;
}

/* Returns the buffer of this rank that others read in a collective. */
static const void *exposed(const struct collective *c)
{
	return c->kind == COLLECTIVE_ALL_REDUCE ? c->output : c->input;
}

static enum lane lane_of(const struct comm *comm, const struct comm_group *group)
{
	if (!comm_joins_programs(comm, group))
		return LANE_PROGRAM;
	return group->size < comm->ranks / comm->program_ranks ? LANE_ENDS : LANE_ALL;
}

void node_post(struct comm *comm, struct node_link *link, const struct collective *c)
{
	struct board *board = node_board(link, comm->rank);

	link->lane = lane_of(comm, &c->group);
	link->sequence = ++link->last[link->lane];
	struct post *post = &board->lanes[link->lane].posts[link->sequence % BOARD_POSTS];

	if (link->segment != link->control) {
		atomic_store(&board->step, (int32_t)c->step);
		atomic_store(&board->op, c->op);
	}
	*post = (struct post){.sequence = link->sequence,
		.kind = (int32_t)c->kind,
		.element = (int32_t)c->element,
		.first = c->group.first,
		.size = c->group.size,
		.stride = c->group.stride,
		.count = c->count,
		.offset = (const char *)exposed(c) - link->window,
		.result = (const char *)c->output - link->window,
		.step = (int32_t)c->step,
		.op = c->op,
		.unit = c->unit};
	for (int i = 0; i < c->group.size && c->sends != NULL; i++)
		board->splits[i + 1] = board->splits[i] + c->sends[i];
	if (fault_hits(&comm->fault, FAULT_MISMATCH, comm->rank, c->step))
		post->count++;
	node_say(comm, link, PHASE_POSTED);
}

/* Compares two posts. Operations have the same number only within one program. */
static bool same_call(const struct node_link *link, const struct post *a, const struct post *b)
{
	return a->sequence == b->sequence && a->kind == b->kind && a->element == b->element &&
	       a->first == b->first && a->size == b->size && a->stride == b->stride &&
	       a->count == b->count && a->step == b->step &&
	       (link->lane != LANE_PROGRAM || a->op == b->op);
}

static void describe(const struct comm *comm, struct text *text, int rank, const struct post *post)
{
	text_printf(
		text, "rank %d: %s %u", rank, collective_kind_names[post->kind], post->sequence);
	comm_tell_unit(comm, rank, post->unit, text);
	text_printf(text,
		", %lld elements (kind %d) in group {%d + i * %d, %d}, step %d, operation %d",
		(long long)post->count, post->element, post->first, post->stride, post->size,
		post->step, post->op);
}

bool node_same(struct comm *comm, struct node_link *link, int peer, const struct post *theirs)
{
	const struct post *mine = node_peer_post(link, comm->rank);
	struct text text = {0};

	if (same_call(link, mine, theirs))
		return true;
	text_add(&text, "ranks issued different collectives: ");
	describe(comm, &text, comm->rank, mine);
	text_add(&text, "; ");
	describe(comm, &text, peer, theirs);
	segment_fault(link->control, EXIT_CODE_FAULT, "%s", text_string(&text));
	text_finish(&text);
	return false;
}

bool node_agree(struct comm *comm, struct node_link *link, const struct collective *c,
	struct members members)
{
	for (int i = members.first; i < members.end; i++) {
		int peer = comm_group_rank(&c->group, i);
		struct post theirs = *node_peer_post(link, peer);

		if (!node_same(comm, link, peer, &theirs))
			return false;
	}
	return true;
}

const char *node_input(const struct node_link *link, const struct collective *c, int index)
{
	int rank = comm_group_rank(&c->group, index);

	return segment_window(link->segment, rank - link->first_rank) +
	       node_peer_post(link, rank)->offset;
}

const char *node_output(const struct node_link *link, const struct collective *c, int index)
{
	int rank = comm_group_rank(&c->group, index);

	return segment_window(link->segment, rank - link->first_rank) +
	       node_peer_post(link, rank)->result;
}

bool node_given(struct comm *comm, struct node_link *link, const struct collective *c, int index,
	const char **data)
{
	int rank = comm_group_rank(&c->group, index), own = c->group.index;
	int64_t size = comm_element_bytes(c->element);
	const int64_t *splits = node_board(link, rank)->splits;

	*data = node_input(link, c, index);
	if (c->receives == NULL) {
		*data += own * c->count * size;
		return true;
	}
	*data += splits[own] * size;
	if (splits[own + 1] - splits[own] == c->receives[index])
		return true;
	return segment_fault(link->control, EXIT_CODE_FAULT,
		"rank %d has %lld elements for rank %d, "
		"which expects %lld (step %lld, operation %d)",
		rank, (long long)(splits[own + 1] - splits[own]), comm->rank,
		(long long)c->receives[index], (long long)c->step, c->op);
}

bool node_reaches(const struct node_link *link, const void *address, int64_t bytes)
{
	const char *byte = address;

	return byte >= link->window && byte + bytes <= link->window + link->window_bytes;
}

void node_fetch(struct comm *comm, void *to, const void *from, int64_t bytes, bool own)
{
	if (bytes > 0 && to != from)
		memcpy(to, from, (size_t)bytes);
	if (!own)
		comm->counters.wire_bytes += bytes;
}

struct slice_range node_slice(const struct collective *c, int index)
{
	int64_t per = round_up(ceil_div(c->count, c->group.size), SLICE_ALIGNMENT);
	int64_t first = min_i64(index * per, c->count);

	return (struct slice_range){first, min_i64(per, c->count - first)};
}
