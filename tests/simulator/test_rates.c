/* Rates that a calibration may state for a device and its host: stating a default changes nothing,
 * and the issuing thread follows its runtime's figures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "simulator/costs/costs.h"

static double step_of(const char *model, const struct topology *topology, const char *choices)
{
	const struct simulation_options options = {0};
	struct case_ c;

	case_load(&c, model, "dgx-a100-80gb");
	*c.topology = *topology;
	case_plan(&c, choices);
	double seconds = case_simulate(&c, &options, false)->step_time;
	case_finish(&c);
	return seconds;
}

/* Every machine of the catalogue, in 16 bits and, where it has them, in 32. */
static void stated_rates_change_no_prediction(void **state)
{
	static const char *const choices[] = {"strategy=FULL_SHARD seq_len=1024 micro_batch=8",
		"strategy=FULL_SHARD seq_len=1024 micro_batch=8 param_dtype=fp32"};

	int longer = 0;

	(void)state;
	for (int i = 0; i < n_topology_catalogue; i++) {
		struct arena arena = {0};
		struct topology *topology, stated;
		struct error error = {0};

		assert_true(
			topology_load_name(&arena, topology_catalogue[i].name, &topology, &error));
		stated = *topology;
		state_rates(&stated);
		assert_true(stated.calibration.sustained_clock > 0);
		for (int k = 0; k < 1 + (topology->device.fp32_flops > 0); k++) {
			double as_it_is = step_of("gpt2-124m", topology, choices[k]);

			if (fabs(step_of("gpt2-124m", &stated, choices[k]) / as_it_is - 1) > 1e-12)
				fail_msg("%s, %s", topology_catalogue[i].name, choices[k]);
			stated.calibration.memory_bandwidth /= 2;
			longer += step_of("gpt2-124m", &stated, choices[k]) > as_it_is;
			stated.calibration.memory_bandwidth *= 2;
		}
		arena_finish(&arena);
	}
	/* They are what is taken: all but those that wait for launches are longer with half. */
	assert_true(longer > n_topology_catalogue);
}

/* Where launches decide a step, it is as long as they are; where kernels do, hosts do not matter.
 */
static void the_host_takes_as_much_more(void **state)
{
	static const struct {
		const char *model, *choices;
		double least, most; /* of the step with a host that takes twice as long */
	} cases[] = {
		{"gpt2-124m", "strategy=FULL_SHARD seq_len=64 micro_batch=1", 1.8, 2.0001},
		{"llama-2-7b", "strategy=FULL_SHARD seq_len=4096 activation_checkpointing=full", 1,
			1.01},
	};
	struct arena arena = {0};
	struct topology *topology, slower;
	struct error error = {0};

	(void)state;
	assert_true(topology_load_name(&arena, "dgx-a100-80gb", &topology, &error));
	slower = *topology;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		double once = step_of(cases[i].model, topology, cases[i].choices);

		slower.calibration.host_factor = 1;
		assert_true(step_of(cases[i].model, &slower, cases[i].choices) == once);
		slower.calibration.host_factor = 2;
		double ratio = step_of(cases[i].model, &slower, cases[i].choices) / once;
		if (!(ratio >= cases[i].least && ratio <= cases[i].most))
			fail_msg("%s: %.4f", cases[i].model, ratio);
	}
	arena_finish(&arena);
}

/* A device with published steps, one with a datasheet, one that was measured. */
static void doubts_are_those_of_intervals(void **state)
{
	struct arena arena = {0};
	struct topology *published, *datasheet;
	struct error error = {0};

	(void)state;
	assert_true(topology_load_name(&arena, "dgx-a100-80gb", &published, &error) &&
		    topology_load_name(&arena, "l40s-8x", &datasheet, &error));
	struct time_doubt p = time_doubt(published), d = time_doubt(datasheet);
	assert_true(p.compute > 0.02 && p.compute < d.compute && d.compute <= 0.20);
	assert_true(p.collective < d.collective && p.host < d.host && p.rest < d.rest);
	published->calibration.measured = true;
	assert_true(time_doubt(published).host < p.host);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stated_rates_change_no_prediction),
		cmocka_unit_test(the_host_takes_as_much_more),
		cmocka_unit_test(doubts_are_those_of_intervals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
