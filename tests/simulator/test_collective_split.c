/* The published collectives that may be fitted to, by the rule of bench/collectives. */
#include "sketch.h"

#include "bench/collectives/collectives.h"

static struct published row(const char *source, enum collective_kind kind, bool later)
{
	return (struct published){.source = source, .collective = kind, .found_later = later};
}

/* Sources take turns by name whatever stands where; the batch for itself, by kind, messages apart;
 * what else was found later stays out, and moves no other. */
static void test_sources_take_turns(void **state)
{
	struct published of[] = {
		row("delta", COLLECTIVE_ALL_GATHER, false),
		row("alpha", COLLECTIVE_ALL_REDUCE, false),
		row("alpha", COLLECTIVE_ALL_GATHER, false),
		row("charlie", COLLECTIVE_REDUCE_SCATTER, false),
		row("bravo", COLLECTIVE_ALL_GATHER, false),
		row("bravo-2", COLLECTIVE_ALL_GATHER, true),
		row("torchtitan-gb300", COLLECTIVE_REDUCE_SCATTER, true),
		row("torchtitan-gb300", COLLECTIVE_ALL_GATHER, true),
		row("oci-gb300", COLLECTIVE_ALL_REDUCE, true),
		row("datacrunch-gb300", COLLECTIVE_ALL_REDUCE, true),
		row("datacrunch-gb300", COLLECTIVE_ALL_GATHER, true),
		row("orcd-b200-rocky", COLLECTIVE_ALL_TO_ALL, true),
		row("aicr-b200-sweep", COLLECTIVE_SEND_RECV, true),
		row("aicr-b200-sweep", COLLECTIVE_ALL_GATHER, true),
		row("bravo-2", COLLECTIVE_SEND_RECV, true),
	};
	static const int parts[] = {PART_CALIBRATION, PART_TEST, PART_TEST, PART_TEST,
		PART_CALIBRATION, PART_LATER, PART_CALIBRATION, PART_CALIBRATION, PART_CALIBRATION,
		PART_TEST, PART_TEST, PART_CALIBRATION, PART_TEST, PART_LATER, PART_LATER};
	struct published_set rows = {.n = COUNT_OF(of), .of = of};

	(void)state;
	measurements_split(&rows);
	for (int i = 0; i < rows.n; i++) {
		if (of[i].part != parts[i])
			fail_msg("row %d, %s: part %d", i, of[i].source, of[i].part);
		assert_int_equal(of[i].handed, of[i].found_later && of[i].part != PART_LATER);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sources_take_turns),
	};
	return cmocka_run_group_tests_name("simulator collective split", tests, NULL, NULL);
}
