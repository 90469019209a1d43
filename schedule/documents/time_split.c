/* Says which part of the step an operation's time is booked on. Both interpreters use this
 * table. */
#include <stddef.h>

#include "schedule/documents/prediction.h"

/* A kind of operation that is not listed counts as compute. */
static const struct booking {
	enum op_kind kind;
	size_t member;
} bookings[] = {
	{OP_ALL_GATHER, offsetof(struct time_split, all_gather)},
	{OP_REDUCE_SCATTER, offsetof(struct time_split, reduce_scatter)},
	{OP_ALL_REDUCE, offsetof(struct time_split, all_reduce)},
	{OP_GRADIENT_NORM, offsetof(struct time_split, optimizer)},
	{OP_CLIP_GRADIENTS, offsetof(struct time_split, optimizer)},
	{OP_OPTIMIZER, offsetof(struct time_split, optimizer)},
	{OP_COPY_H2D, offsetof(struct time_split, copy)},
	{OP_COPY_D2H, offsetof(struct time_split, copy)},
	{OP_ALL_TO_ALL, offsetof(struct time_split, all_to_all)},
	{OP_SEND_RECV, offsetof(struct time_split, messages)},
	{OP_SEND, offsetof(struct time_split, messages)},
	{OP_RECV, offsetof(struct time_split, messages)},
};

void time_split_add(struct time_split *split, enum op_kind kind, double seconds)
{
	size_t member = offsetof(struct time_split, compute);

	for (int i = 0; i < COUNT_OF(bookings); i++)
		if (bookings[i].kind == kind)
			member = bookings[i].member;
	*(double *)((char *)split + member) += seconds;
}
