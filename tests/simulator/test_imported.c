/* An imported log of nccl-tests becomes the simulated time of that collective. */
#include "sketch.h"

#include <math.h>
#include <string.h>

#include "simulator/costs/costs.h"
#include "topologies/import/import.h"

/* Size and microseconds; a machine twice as slow as the model's. */
static const struct {
	int64_t bytes;
	double us;
} rows[] = {{1 << 10, 60}, {1 << 14, 64}, {1 << 20, 140}, {1 << 22, 260}, {1 << 24, 600},
	{1 << 26, 1900}, {1 << 28, 7300}, {1 << 30, 29000}};

static const char *write_log(struct arena *arena)
{
	struct text text = {0};

	text_add(&text, "# Collective test starting: all_gather_perf\n# busbw\n");
	for (int i = 0; i < COUNT_OF(rows); i++) {
		double algbw = (double)rows[i].bytes / rows[i].us / 1e3;

		text_printf(&text, "%lld 1 float none -1 %.2f %.2f %.2f 0 %.2f %.2f %.2f 0\n",
			(long long)rows[i].bytes, rows[i].us, algbw, algbw * 15 / 16,
			rows[i].us * 1.5, algbw, algbw);
	}
	text_add(&text, "# Avg bus bandwidth    : 1\n");
	const char *copy = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return copy;
}

static struct topology *import_log_into(struct arena *arena, const struct topology *like)
{
	const struct topology_import_options options = {.like = like, .nodes = 2, .devices = 16};
	struct topology_import *import = topology_import_new(arena, &options);
	const char *log = write_log(arena);
	struct topology *topology = NULL;
	struct error error = {0};

	if (!topology_import_add(import, "log", log, strlen(log), &error) ||
		!topology_import_finish(import, "new", &topology, &error))
		fail_msg("%s", error.message);
	return topology;
}

static double seconds(
	const struct topology *topology, enum op_kind kind, int64_t ranks, int64_t bytes)
{
	struct group group = {GROUP_SHARD, ranks, 1, 0};

	return collective_seconds(
		topology, NULL, runtime_of(RUNTIME_PYTORCH_FSDP2), kind, &group, bytes);
}

static void test_imported_curve(void **state)
{
	struct arena arena = {0};
	struct topology *before, *after;
	struct error error = {0};
	int changed = 0;

	(void)state;
	if (!topology_load_name(&arena, "2xdgx-a100-80gb", &before, &error))
		fail_msg("%s", error.message);
	after = import_log_into(&arena, before);
	for (int i = 0; i < COUNT_OF(rows); i++) {
		double model = seconds(before, OP_ALL_GATHER, 16, rows[i].bytes);
		double said = seconds(after, OP_ALL_GATHER, 16, rows[i].bytes);
		double log = rows[i].us * 1e-6;

		if (!(fabs(said / log - 1) <= 0.011))
			fail_msg("%lld bytes: the log says %g s, the simulator %g s",
				(long long)rows[i].bytes, log, said);
		changed += fabs(model / log - 1) > 0.1;
	}
	/* The model alone says something else, or this test shows nothing. */
	assert_true(changed >= 4);
	/* What was not measured stays the model's. */
	assert_true(seconds(after, OP_REDUCE_SCATTER, 16, 1 << 26) ==
		    seconds(before, OP_REDUCE_SCATTER, 16, 1 << 26));
	assert_true(seconds(after, OP_ALL_GATHER, 8, 1 << 26) ==
		    seconds(before, OP_ALL_GATHER, 8, 1 << 26));
	arena_finish(&arena);
}

/* Between two rows the time is between theirs. */
static void test_between(void **state)
{
	struct arena arena = {0};
	struct topology *like, *after;

	(void)state;
	assert_true(topology_load_name(&arena, "2xdgx-a100-80gb", &like, NULL));
	after = import_log_into(&arena, like);
	for (int i = 0; i + 1 < COUNT_OF(rows); i++) {
		double middle =
			seconds(after, OP_ALL_GATHER, 16, (rows[i].bytes + rows[i + 1].bytes) / 2);

		assert_true(middle > 0.98e-6 * rows[i].us && middle < 1.02e-6 * rows[i + 1].us);
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_imported_curve),
		cmocka_unit_test(test_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
