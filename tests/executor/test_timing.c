/* Timing collectives ends in time where the ranks' words to each other take longer than what is
 * timed: on a busy machine, over a slow network. */
#include "support.h"

#include <unistd.h>

#include "executor/calibration/timer.h"

enum { RANKS = 2, EXCHANGE_US = 20000 };

/* All ranks say what this one does, after a while. */
static bool slow_exchange(struct comm *comm, const struct collective *c)
{
	usleep(EXCHANGE_US);
	for (int r = 0; r < comm->ranks; r++)
		memcpy((char *)c->output + r * c->count, c->input, (size_t)c->count);
	return true;
}

static bool instant(struct timer *timer, const struct collective *collective, double *seconds,
	struct error *error)
{
	(void)collective, (void)error;
	(*(int *)timer->device)++;
	*seconds = 1e-6;
	return true;
}

static void tries_are_bounded_by_all_that_goes_by(void **state)
{
	static const char *const texts[TEXT_COUNT];
	static const struct transport transport = {.name = "slow", .run = slow_exchange};
	static const int64_t sizes[] = {4096};
	const struct job job = {.kind = JOB_COLLECTIVES, .ranks = RANKS, .quick = true};
	struct group group = {.size = RANKS, .stride = 1};
	struct timer_try scratch, all[RANKS];
	struct segment segment;
	struct error error = {0};
	int tries = 0;

	(void)state;
	assert_true(segment_create(&segment, &job, texts, 0, 1 << 16, 0, &error));
	segment.rank = 1; /* has nothing to report */
	struct timer timer = {.segment = &segment,
		.cluster = {.layout = {1, RANKS, RANKS}},
		.comm = {.transport = &transport, .rank = 1, .ranks = RANKS},
		.scratch = &scratch,
		.all = all,
		.groups = &group,
		.n_groups = 1,
		.sizes = {sizes, COUNT_OF(sizes), 0, 0.5},
		.run = instant,
		.device = &tries};
	double started = clock_now();
	assert_true(timer_run(&timer, &error));
	/* Three kinds of collective for half a second each; 200 tries would be 24 s. */
	assert_true(clock_now() - started < 6);
	assert_in_range(tries, 3 * 4, 3 * (1 + 25));
	text_finish(&timer.report);
	segment_finish(&segment);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(tries_are_bounded_by_all_that_goes_by)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
