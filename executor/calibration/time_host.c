/* Times collectives over host memory by the host's clock. */
#include "executor/calibration/calibration.h"
#include "executor/calibration/timer.h"

static bool run_on_host(
	struct timer *t, const struct collective *c, double *seconds, struct error *error)
{
	double start = clock_now();

	(void)error; /* the transport has recorded it */
	bool ok = comm_run(&t->comm, c);
	*seconds = clock_now() - start;
	return ok;
}

static bool open_host(struct timer *t, struct arena *arena, struct error *error)
{
	bool quick = t->segment->header->job.quick;

	t->sizes = timer_host_sizes(quick);
	t->run = run_on_host;
	if (!timer_open(t, timer_window_bytes(quick, false), error))
		return false;
	int64_t largest = t->sizes.bytes[t->sizes.n - 1];
	t->whole = timer_take(t, largest, error);
	t->chunk = timer_take(t, largest, error);
	timer_choose_groups(t, false, arena);
	return t->whole != NULL && t->chunk != NULL;
}

bool rank_time_collectives(struct segment *segment, struct error *error)
{
	struct timer timer = {.segment = segment};
	struct arena arena = {0};

	if (segment_text(segment, TEXT_DEVICE) != NULL)
		return rank_time_gpu_collectives(segment, error);
	bool ok = open_host(&timer, &arena, error) && timer_run(&timer, error);
	timer_close(&timer, ok);
	arena_finish(&arena);
	return ok;
}
