/* Timing of collectives ends even where messages between ranks take longer than the timed
 * operation: on a busy machine, over a slow network. */
#include "support.h"

#include <stdlib.h>
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

/* --- over nodes --- */

enum { NODES = 2, PER_NODE = 2, ALL = NODES * PER_NODE };

/* Every second try takes so many times as long. */
static int unsteady = 1;

/* What the four ranks say: the first node began late and waited little. */
static bool skewed_exchange(struct comm *comm, const struct collective *c)
{
	static const double seconds[ALL] = {0.002, 0.003, 0.009, 0.008};
	static int calls;
	int times = calls++ % 4 < 2 ? 1 : unsteady; /* two calls a try */

	(void)comm;
	for (int r = 0; r < ALL; r++) {
		struct timer_try try = {.seconds = times * seconds[r], .since = 0.1};

		memcpy((char *)c->output + r * c->count, &try, (size_t)c->count);
	}
	return true;
}

/* Seconds of the first line of the report about a collective; `tries` of all three kinds. */
static double reported(struct group group, int *tries)
{
	static const char *const texts[TEXT_COUNT];
	static const struct transport transport = {.name = "skewed", .run = skewed_exchange};
	static const int64_t sizes[] = {4 << 20};
	const struct job job = {.kind = JOB_COLLECTIVES, .ranks = ALL, .quick = true};
	struct timer_try scratch, all[ALL];
	struct segment segment;
	struct error error = {0};

	*tries = 0;
	assert_true(segment_create(&segment, &job, texts, 0, 1 << 16, 0, &error));
	segment.rank = 1;
	struct timer timer = {.segment = &segment,
		.cluster = {.layout = {1, ALL, PER_NODE}},
		.comm = {.transport = &transport, .rank = 1, .ranks = ALL},
		.scratch = &scratch,
		.all = all,
		.groups = &group,
		.n_groups = 1,
		.sizes = {sizes, COUNT_OF(sizes), 0, 0.5},
		.run = instant,
		.device = tries};
	assert_true(timer_run(&timer, &error));
	const char *line = strchr(text_string(&timer.report), '\n') + 1;
	for (int comma = 0; comma < 4; comma++)
		line = strchr(line, ',') + 1;
	double seconds = strtod(line, NULL);
	text_finish(&timer.report);
	segment_finish(&segment);
	return seconds;
}

/* One node waits longer by what the other was late: neither is what a collective takes. */
static void nodes_that_start_apart_meet_in_the_middle(void **state)
{
	int tries;

	(void)state;
	unsteady = 1;
	assert_float_equal(reported((struct group){.size = ALL, .stride = 1}, &tries), 0.006, 1e-9);
	assert_float_equal(
		reported((struct group){.size = NODES, .stride = PER_NODE}, &tries), 0.006, 1e-9);
}

static void inside_a_node_the_slowest_rank_counts(void **state)
{
	int tries;

	(void)state;
	unsteady = 1;
	assert_float_equal(
		reported((struct group){.size = PER_NODE, .stride = 1}, &tries), 0.009, 1e-9);
}

static void an_unsteady_link_takes_more_tries(void **state)
{
	const struct group all = {.size = ALL, .stride = 1}, node = {.size = PER_NODE, .stride = 1};
	int steady, more, inside;

	(void)state;
	unsteady = 1;
	reported(all, &steady);
	unsteady = 2;
	reported(all, &more);
	reported(node, &inside);
	assert_true(more > 3 * steady);
	/* The mean of 0.006 and 0.012, not one of them. */
	assert_float_equal(reported(all, &more), 0.009, 0.0005);
	assert_int_equal(inside, steady);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(tries_are_bounded_by_all_that_goes_by),
		cmocka_unit_test(nodes_that_start_apart_meet_in_the_middle),
		cmocka_unit_test(inside_a_node_the_slowest_rank_counts),
		cmocka_unit_test(an_unsteady_link_takes_more_tries)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
