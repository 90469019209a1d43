/* "It got slower after enabling FSDP": traces of steps in which one thing goes wrong, written as
 * the PyTorch profiler writes them, read in pieces, and diagnosed against the plan that was meant.
 * The cause that was seeded must be named first; a step that goes as planned has none.
 * With the name of a cause: prints that trace. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/planner/seeds.h"

static void seeded_causes_are_named_first(void **state)
{
	(void)state;
	for (int i = 0; i < n_seeds; i++) {
		struct scene scene;
		struct diagnosis d;
		seed_diagnose(&seeds[i], &scene, &d);
		const char *first = d.n_causes > 0 ? d.causes[0].id : "nothing";
		/* What the plan itself could do better is no departure from it. */
		if (seeds[i].id == NULL && strcmp(first, "narrower-reduction") == 0)
			first = d.n_causes > 1 ? d.causes[1].id : "nothing";
		if (strcmp(first, seeds[i].id != NULL ? seeds[i].id : "nothing") != 0)
			fail_msg("%s: \"%s\" instead, step %.3f s, planned %.3f s (%s)",
				seeds[i].id != NULL ? seeds[i].id : "nothing", first,
				d.measured.step_time, d.expected.step_time, seeds[i].ran);
		if (seeds[i].id != NULL)
			assert_true(d.causes[0].seconds > 0 || d.causes[0].gain > 0);
		if (seeds[i].spoil == launch_late)
			assert_string_equal(
				d.causes[0].title, "the device waits for the host to launch work");
		arena_finish(&scene.arena);
	}
}

static bool names(const struct diagnosis *d, const char *id)
{
	for (int i = 0; i < d->n_causes; i++)
		if (strcmp(d->causes[i].id, id) == 0)
			return true;
	return false;
}

/* The other seeds are the controls. */
static void causes_are_not_named_elsewhere(void **state)
{
	static const char *const ids[] = {"fp32-parameters", "eager-attention", "no-overlap",
		"offload", "data-bound", "busy-machine"};

	(void)state;
	for (int i = 0; i < n_seeds; i++) {
		struct scene scene;
		struct diagnosis d;
		seed_diagnose(&seeds[i], &scene, &d);
		for (int j = 0; j < COUNT_OF(ids); j++) {
			bool seeded = seeds[i].id != NULL && strcmp(seeds[i].id, ids[j]) == 0;
			if (!seeded && names(&d, ids[j]))
				fail_msg("%s is named in %s", ids[j],
					seeds[i].id != NULL ? seeds[i].id : "a step as planned");
		}
		arena_finish(&scene.arena);
	}
}

/* Parts are the step, the longest first; the loss is the part that grew most. */
static void the_head_names_the_largest_loss(void **state)
{
	static const char *const losses[][2] = {{"slow-link", "exposed communication"},
		{"data-bound", "waiting for data"}, {"host-bound", "waiting for the host"},
		{"busy-machine", "compute"}};

	(void)state;
	for (int i = 0; i < n_seeds; i++) {
		struct scene scene;
		struct diagnosis d;
		double sum = 0;
		seed_diagnose(&seeds[i], &scene, &d);
		for (int j = 0; j < DIAGNOSIS_PARTS; j++)
			sum += d.parts[j].measured;
		assert_float_equal(sum, d.measured.step_time, 1e-6 * sum);
		assert_true(d.parts[0].measured >= d.parts[1].measured);
		assert_float_equal(
			d.mfu * d.measured.step_time, d.expected_mfu * d.expected.step_time, 1e-9);
		for (int j = 0; j < COUNT_OF(losses); j++)
			if (seeds[i].id != NULL && strcmp(seeds[i].id, losses[j][0]) == 0)
				assert_string_equal(d.loss->name, losses[j][1]);
		arena_finish(&scene.arena);
	}
}

/* A wait of our own data loader has no name in the gaps of a timeline. */
static void a_slow_loader_of_train_is_named(void **state)
{
	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		struct scene s;
		struct activities step = {0};
		struct diagnosis d;
		struct error error = {0};
		scene_load(&s, 1);
		scene_choose(&s, BASE NARROW, s.file.topology, &s.file.plan);
		scene_simulate(&s, &s.file.plan, s.file.topology, &step);
		delay(&step, 0, 0.3);
		for (int i = 0; i < step.n; i++)
			step.of[i].launched = step.of[i].start;
		struct diagnosed diagnosed = {&s.file, &step, trace_facts_unknown};
		diagnosed.facts.data_wait = slow ? 0.3 : 0;
		assert_true(diagnose(&diagnosed, &s.arena, &d, &error));
		assert_int_equal(names(&d, "data-bound"), slow);
		assert_int_equal(names(&d, "host-bound"), !slow);
		/* One gap, not one before every kernel. */
		if (!slow)
			assert_string_equal(
				d.causes[0].title, "the device stands still once a step");
		activities_finish(&step);
		arena_finish(&s.arena);
	}
}

/* Whatever the steps do: others wanted the cores. Kernels that are as fast as planned are not
 * slowed by them. */
static void a_loaded_machine_is_named(void **state)
{
	(void)state;
	for (int loaded = 0; loaded < 2; loaded++) {
		for (int slow = 0; slow < 2; slow++) {
			struct scene s;
			struct activities step = {0};
			struct diagnosis d;
			struct error error = {0};
			scene_load(&s, 1);
			scene_choose(&s, BASE NARROW, s.file.topology, &s.file.plan);
			scene_simulate(&s, &s.file.plan, s.file.topology, &step);
			if (slow)
				slow_kernels(&step);
			struct diagnosed diagnosed = {&s.file, &step, trace_facts_unknown};
			diagnosed.facts.other_load = loaded ? 1.5 : 0;
			assert_true(diagnose(&diagnosed, &s.arena, &d, &error));
			assert_int_equal(names(&d, "busy-machine"), loaded && slow);
			assert_int_equal(names(&d, "more-compute"), !loaded && slow);
			activities_finish(&step);
			arena_finish(&s.arena);
		}
	}
}

/* A trace of the simulated step sums up to what the timeline itself does. */
static void a_trace_tells_what_the_timeline_tells(void **state)
{
	struct scene scene;
	struct diagnosis d;

	(void)state;
	seed_diagnose(&seeds[0], &scene, &d);
	assert_float_equal(d.measured.step_time, d.expected.step_time, 1e-5);
	for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++) {
		assert_float_equal(d.measured.count[kind], d.expected.count[kind], 1);
		assert_float_equal(d.measured.exposed[kind], d.expected.exposed[kind],
			0.01 * d.expected.step_time);
		assert_float_equal(d.measured.bytes[kind], d.expected.bytes[kind],
			0.01 * d.expected.bytes[kind] + 1);
	}
	arena_finish(&scene.arena);
}

/* Every moment of the step is counted once. */
static void moments_add_up(void **state)
{
	(void)state;
	for (int i = 0; i < n_seeds; i++) {
		struct scene scene;
		struct diagnosis d;
		seed_diagnose(&seeds[i], &scene, &d);
		const struct activity_summary *m = &d.measured;
		double sum =
			m->waiting_host + m->waiting_data + m->waiting_allocator + m->waiting_other;
		for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++)
			sum += m->exposed[kind];
		assert_float_equal(sum, m->step_time, 1e-6 * m->step_time);
		arena_finish(&scene.arena);
	}
}

/* A plan that is tight expects the gaps that its retries make, and says so beside measured ones. */
static void test_tight_plan(void **state)
{
	struct scene s;
	struct activities step = {0};
	struct diagnosis d;
	struct error error = {0};
	(void)state;
	scene_load(&s, 1);
	s.file.topology->device.memory_bytes = 24LL << 30;
	scene_choose(&s,
		"runtime=pytorch-fsdp1 micro_batch=8 seq_len=2048 limit_all_gathers=off "
		"activation_checkpointing=full",
		s.file.topology, &s.file.plan);
	scene_simulate(&s, &s.file.plan, s.file.topology, &step);
	ask_for_memory(&step);
	const struct diagnosed diagnosed = {&s.file, &step, trace_facts_unknown};
	assert_true(diagnose(&diagnosed, &s.arena, &d, &error));
	assert_true(d.expected.waiting_allocator > 0.01 * d.expected.step_time);
	assert_true(names(&d, "allocator"));
	bool said = false;
	for (int i = 0; i < d.n_causes; i++)
		said |= strstr(d.causes[i].evidence, "the plan itself is tight") != NULL;
	assert_true(said);
	activities_finish(&step);
	arena_finish(&s.arena);
}

static void expect_refusal(const char *text, const char *message)
{
	struct kineto kineto;
	struct error error = {0};

	kineto_init(&kineto, "trace.json");
	if (kineto_feed(&kineto, text, strlen(text), &error))
		kineto_end(&kineto, &error);
	if (strstr(error.message, message) == NULL)
		fail_msg("%s: expected \"%s\", got \"%s\"", text, message, error.message);
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	kineto_finish(&kineto);
}

static void bad_traces_are_refused(void **state)
{
	char deep[200];

	(void)state;
	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	expect_refusal("", "expected a JSON value, got the end of the text");
	expect_refusal("3", "expected a profiler trace");
	expect_refusal("{}", "without a kernel of a device");
	expect_refusal("{\"traceEvents\": [", "got the end of the text");
	expect_refusal("{\"traceEvents\": [{]", "trace.json:1:19:");
	expect_refusal("{\"traceEvents\":\n [{\"ph\" \"X\"}]}", "trace.json:2:9: expected ':'");
	expect_refusal("{\"a\": \"\\x\"}", "after \\, got 'x'");
	expect_refusal("{\"a\": nul}", "expected a JSON value, got nul");
	expect_refusal("{\"a\": \"\n\"}", "control character in a string");
	expect_refusal("{\"traceEvents\": []} x", "expected the end of the text");
	expect_refusal(deep, "nested too deeply");
}

/* What no count of bytes can hold is not known. */
static void a_count_beyond_all_bytes_is_not_known(void **state)
{
	struct text text = {0};
	struct kineto kineto;

	(void)state;
	text_add(&text, "{\"traceEvents\": [{\"ph\": \"M\"}");
	trace_event(&text, "kernel", "ncclDevKernel_AllGather_RING_LL", 1, 2,
		"\"dtype\": \"Float\", \"In msg nelems\": 1, "
		"\"Out msg nelems\": 18446744073709551616");
	trace_event(&text, "gpu_memcpy", "Memcpy HtoD", 3, 4, "\"bytes\": 1e300");
	text_add(&text, "]}");
	trace_read(&text, &kineto);
	assert_int_equal(kineto.activities.n, 2);
	assert_int_equal(kineto.activities.of[0].bytes, 0);
	assert_int_equal(kineto.activities.of[1].bytes, 0);
	kineto_finish(&kineto);
	text_finish(&text);
}

/* The trace of a seed on stdout, for docs/diagnose.md. */
static int print_trace(const char *id)
{
	for (int i = 0; i < n_seeds; i++) {
		struct text text = {0};
		if (seeds[i].id == NULL || strcmp(seeds[i].id, id) != 0)
			continue;
		seed_trace(&seeds[i], &text);
		fputs(text_string(&text), stdout);
		text_finish(&text);
		return 0;
	}
	return 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeded_causes_are_named_first),
		cmocka_unit_test(causes_are_not_named_elsewhere),
		cmocka_unit_test(the_head_names_the_largest_loss),
		cmocka_unit_test(a_slow_loader_of_train_is_named),
		cmocka_unit_test(a_loaded_machine_is_named),
		cmocka_unit_test(a_trace_tells_what_the_timeline_tells),
		cmocka_unit_test(moments_add_up),
		cmocka_unit_test(test_tight_plan),
		cmocka_unit_test(bad_traces_are_refused),
		cmocka_unit_test(a_count_beyond_all_bytes_is_not_known),
	};

	if (argc > 1)
		return print_trace(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
