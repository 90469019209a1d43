/* Collectives among the fake's GPUs: nodes that run when all members' streams have come to them. */
#include <stdlib.h>
#include <string.h>

#include "fake_cuda_private.h"

struct fake_meeting {
	int members, joined;
	struct fake_stream **streams;
	struct node **nodes;
	void (*run)(void **arguments, int members);
};

bool fake_meeting_is_complete(const struct fake_meeting *meeting)
{
	if (meeting->joined < meeting->members)
		return false;
	for (int i = 0; i < meeting->members; i++)
		if (meeting->streams[i]->head != meeting->nodes[i])
			return false;
	return true;
}

void fake_meeting_run(struct fake_meeting *meeting)
{
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
	if (fake_cuda_first_fault()[0] == '\0')
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
	free(meeting->streams);
	free(meeting->nodes);
	free(meeting);
}
