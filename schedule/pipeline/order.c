/* Says which order a schedule has, and which stage a chunk is. */
#include "schedule/pipeline/slots.h"

static const struct {
	order_function *order;
	bool is_v; /* stages are laid as a V, otherwise in a loop */
	bool splits;
} schedules[PIPELINE_SCHEDULE_COUNT] = {
	[PIPELINE_GPIPE] = {order_gpipe, false, false},
	[PIPELINE_1F1B] = {order_1f1b, false, false},
	[PIPELINE_INTERLEAVED] = {order_interleaved, false, false},
	[PIPELINE_ZB_H1] = {order_zb_h1, false, true},
	[PIPELINE_ZBV] = {order_zbv, true, true},
	[PIPELINE_DUALPIPEV] = {order_dualpipev, true, true},
};

bool pipeline_splits_backward(enum pipeline_schedule schedule)
{
	return schedules[schedule].splits;
}

int pipeline_stage(const struct pipeline *pipeline, int rank, int chunk)
{
	bool back = schedules[pipeline->schedule].is_v && chunk % 2 == 1;

	return chunk * pipeline->ranks + (back ? pipeline->ranks - 1 - rank : rank);
}

void pipeline_place(const struct pipeline *pipeline, int stage, int *rank, int *chunk)
{
	int place = stage % pipeline->ranks;

	*chunk = stage / pipeline->ranks;
	*rank = schedules[pipeline->schedule].is_v && *chunk % 2 == 1 ? pipeline->ranks - 1 - place
								      : place;
}

int pipeline_order(const struct pipeline *pipeline, int rank, struct arena *arena,
	struct pipeline_slot **slots)
{
	size_t most = 3 * (size_t)pipeline->chunks * (size_t)pipeline->micro_batches;
	struct slots list = {.of = ARENA_ARRAY(arena, struct pipeline_slot, most)};

	schedules[pipeline->schedule].order(pipeline, rank, &list);
	*slots = list.of;
	return list.n;
}
