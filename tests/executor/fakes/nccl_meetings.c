/* Collectives among the fake's GPUs: nodes that run when all members' streams have come to them. */
#include <stdlib.h>
#include <string.h>

#include "tests/executor/fakes/nccl.h"

/* All that have not run yet. */
static struct fake_meeting *meetings;

struct fake_meeting *fake_meeting_new(int members)
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

void fake_meetings_abandon(const struct fake_group *group)
{
	for (struct fake_meeting *m = meetings; m != NULL; m = m->next)
		if (m->group == group)
			m->abandoned = true;
}

/* --- room on the GPUs --- */

/* FAKE_NCCL_ROOM kernels of collectives at a time have room on each GPU; without it, all. */
static int room(void)
{
	const char *wanted = getenv("FAKE_NCCL_ROOM");

	return wanted != NULL ? atoi(wanted) : 0;
}

/* They start as they were given (2.26). */
static bool are_ordered(void)
{
	const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");

	return order != NULL && order[0] == '1' && fake_nccl_version() >= 22600;
}

static bool waits_for_room(const struct fake_node *node)
{
	return node != NULL && node->kind == NODE_MEET && !node->started;
}

static int running_on(int gpu)
{
	int n = 0;

	for (struct fake_stream *s = fake_machine.streams; s != NULL; s = s->next)
		n += s->head != NULL && s->head->started && s->head->gpu == gpu;
	return n;
}

/* An earlier one of that GPU, wherever it lies in its stream. */
static bool is_behind_another(const struct fake_node *node)
{
	for (struct fake_stream *s = fake_machine.streams; s != NULL; s = s->next)
		for (const struct fake_node *n = s->head; n != NULL; n = n->next)
			if (waits_for_room(n) && n->gpu == node->gpu && n->number < node->number)
				return true;
	return false;
}

/* As unlike on neighbours as can be: one takes what came first, the next one what came last. */
static struct fake_node *next_on(int gpu)
{
	struct fake_node *next = NULL;

	for (struct fake_stream *s = fake_machine.streams; s != NULL; s = s->next) {
		struct fake_node *node = s->head;

		if (!waits_for_room(node) || node->gpu != gpu ||
			(are_ordered() && is_behind_another(node)))
			continue;
		if (next == NULL || (gpu % 2 == 0) == (node->number < next->number))
			next = node;
	}
	return next;
}

void fake_meetings_start(void)
{
	struct fake_node *node;

	for (int gpu = 0; gpu < fake_machine.gpus && room() > 0; gpu++)
		while (running_on(gpu) < room() && (node = next_on(gpu)) != NULL)
			node->started = true;
}

/* What this process brings can be read from now on. */
static bool others_have_come(struct fake_meeting *meeting)
{
	const struct fake_group *group = meeting->group;

	if (!meeting->shown)
		fake_party_show(group->name, meeting->number, meeting->index, group->size,
			meeting->nodes[0]->arguments);
	meeting->shown = true;
	return fake_party_has_come(group->name, "do", meeting->number, group->size);
}

bool fake_meeting_is_complete(struct fake_meeting *meeting)
{
	if (meeting->abandoned)
		return true;
	if (meeting->joined < meeting->members)
		return false;
	for (int i = 0; i < meeting->members; i++)
		if (meeting->streams[i]->head != meeting->nodes[i] ||
			(room() > 0 && !meeting->nodes[i]->started))
			return false;
	return meeting->group->name[0] == '\0' || others_have_come(meeting);
}

static void compute(const struct fake_meeting *meeting, void **arguments)
{
	const struct fake_group *group = meeting->group;

	if (fake_cuda_first_fault()[0] != '\0' || fake_clock_is_dry())
		return;
	if (group->name[0] != '\0')
		fake_party_compute(
			group->name, meeting->number, meeting->index, group->size, arguments[0]);
	else
		fake_nccl_compute(arguments, meeting->members);
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
	compute(meeting, arguments);
	/* And end together. */
	for (int round = 0; round < 2; round++)
		for (int i = 1; i < meeting->members; i++)
			fake_join_clocks(meeting->streams[round == 0 ? 0 : i],
				meeting->streams[round == 0 ? i : 0]);
	for (int i = 0; i < meeting->members; i++)
		fake_end_node(meeting->streams[i]);
	meeting->group->out[meeting->launched] -= meeting->members;
	free(arguments);
	forget_meeting(meeting);
}
