/* "It is slower than promised": a step time, an MFU or a log, without a trace. What could explain
 * it is named, and logs of many programs are read. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/planner/seeds.h"

static const struct figure_candidate *candidate(const struct figures_diagnosis *d, const char *id)
{
	for (int i = 0; i < d->n_candidates; i++)
		if (strcmp(d->candidates[i].id, id) == 0)
			return &d->candidates[i];
	return NULL;
}

static double step_of(struct scene *s, const char *choices)
{
	struct activities step = {0};
	struct plan ran;

	scene_choose(s, choices, s->file.topology, &ran);
	scene_simulate(s, &ran, s->file.topology, &step);
	double seconds = step.end;
	activities_finish(&step);
	return seconds;
}

/* A step time as of a run with one fault: that fault alone explains it, to the percent. */
static void figures_name_what_explains_them(void **state)
{
	static const char *const faults[][2] = {{"eager-attention", "attention=eager"},
		{"fp32-parameters", "param_dtype=fp32"}, {"offload", "cpu_offload=parameters"},
		{"more-compute", "activation_checkpointing=full"}, {"no-wrap", "wrap=model"},
		{"no-prefetch", "prefetch=none"}};
	struct scene s;

	(void)state;
	scene_load(&s, 1);
	scene_choose(&s, BASE NARROW, s.file.topology, &s.file.plan);
	for (int i = 0; i < COUNT_OF(faults); i++) {
		struct figures_diagnosis d;
		struct error error = {0};
		char choices[256];
		snprintf(choices, sizeof(choices), "%s%s", BASE NARROW, faults[i][1]);
		const struct diagnosed_figures figures = {
			.file = &s.file, .step_time = step_of(&s, choices), .spread = NAN};
		assert_true(diagnose_figures(&figures, &s.arena, &d, &error));
		const struct figure_candidate *found = candidate(&d, faults[i][0]);
		assert_non_null(found);
		assert_float_equal(
			found->effect, d.step_time - d.prediction->step_time, 0.01 * d.step_time);
		for (int j = 1; j < d.n_candidates; j++)
			assert_true(!d.candidates[j].fits || d.candidates[j - 1].fits);
	}
	arena_finish(&s.arena);
}

/* What the plan has already is no candidate, and a step as predicted has nothing to explain. */
static void figures_of_a_good_run_explain_nothing(void **state)
{
	struct scene s;
	struct figures_diagnosis d;
	struct error error = {0};

	(void)state;
	scene_load(&s, 1);
	scene_choose(&s, BASE NARROW "attention=eager activation_checkpointing=full",
		s.file.topology, &s.file.plan);
	const struct diagnosed_figures figures = {.file = &s.file,
		.step_time =
			step_of(&s, BASE NARROW "attention=eager activation_checkpointing=full"),
		.spread = NAN};
	assert_true(diagnose_figures(&figures, &s.arena, &d, &error));
	assert_null(candidate(&d, "eager-attention"));
	assert_null(candidate(&d, "more-compute"));
	assert_float_equal(d.step_time, d.prediction->step_time, 0.01 * d.step_time);
	arena_finish(&s.arena);
}

/* The MFU of a log is one of four; a step time follows from it alone. */
static void an_mfu_is_told_by_its_convention(void **state)
{
	struct scene s;
	struct figures_diagnosis d;
	struct error error = {0};

	(void)state;
	scene_load(&s, 1);
	scene_choose(&s, BASE NARROW, s.file.topology, &s.file.plan);
	struct diagnosed_figures figures = {.file = &s.file, .mfu = 0.31, .spread = NAN};
	assert_true(diagnose_figures(&figures, &s.arena, &d, &error));
	assert_float_equal(d.step_time * 0.31, d.prediction->step_time * d.prediction->mfu, 1e-9);
	assert_ptr_equal(d.convention, &d.conventions[0]);
	figures.step_time = d.step_time;
	figures.mfu = d.conventions[2].measured;
	assert_true(diagnose_figures(&figures, &s.arena, &d, &error));
	assert_ptr_equal(d.convention, &d.conventions[2]);
	figures.mfu = 2 * d.conventions[0].measured;
	assert_true(diagnose_figures(&figures, &s.arena, &d, &error));
	assert_null(d.convention);
	arena_finish(&s.arena);
}

static void logs_are_read(void **state)
{
	static const struct {
		const char *text;
		int n;
		double step_time, mfu, tokens;
	} logs[] = {
		{"step: 10  loss: 8.1  memory: 61.2GiB(77%)  \x1b[34mtps: 2,345  \x1b[36mtflops: "
		 "126.10  \x1b[35mmfu: 31.86%\x1b[39m\n",
			1, 0, 0.3186, 2345},
		{" iteration       10/  50000 | consumed samples:       640 | elapsed time per "
		 "iteration (ms): 13105.3 | throughput per GPU (TFLOP/s/GPU): 80.2 |\n",
			1, 13.1053, 0, 0},
		{"{'train_runtime': 290.1, 'train_steps_per_second': 0.345}", 1, 1 / 0.345, 0, 0},
		{" 12%|##   | 12/100 [00:34<04:15,  2.90s/it]\r 13%| | 13/100 [1:0, 2.50it/s]", 2,
			1.65, 0, 0},
		{"{\"step_time\": 2.9, \"mfu\": 0.31}", 1, 2.9, 0.31, 0},
		{"step time 850ms\nstep_time_s=9e-1\nstep_time: 0.9", 3, 0.9, 0, 0},
		{"step_time=50\nstep_time=1\nstep_time=1\nstep_time=2", 4, 1, 0, 0},
	};
	static const char *const none[] = {"", "{}", "loss: 3.1", "timestep times 4", "mfu",
		"step_time: fast", "step_time: 0"};

	(void)state;
	for (int i = 0; i < COUNT_OF(logs); i++) {
		struct log_figures f;
		if (!log_read(logs[i].text, &f))
			fail_msg("%s", logs[i].text);
		assert_int_equal(f.n_steps, logs[i].n);
		assert_float_equal(f.step_time, logs[i].step_time, 1e-6);
		assert_float_equal(f.mfu, logs[i].mfu, 1e-6);
		assert_float_equal(f.tokens_per_s_per_gpu, logs[i].tokens, 1e-6);
	}
	for (int i = 0; i < COUNT_OF(none); i++) {
		struct log_figures f;
		if (log_read(none[i], &f))
			fail_msg("%s", none[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_name_what_explains_them),
		cmocka_unit_test(figures_of_a_good_run_explain_nothing),
		cmocka_unit_test(an_mfu_is_told_by_its_convention),
		cmocka_unit_test(logs_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
