/* "It got slower after enabling FSDP": traces of steps in which one thing goes wrong, written as
 * the PyTorch profiler writes them, read in pieces, and diagnosed against the plan that was meant.
 * The cause that was seeded must be named first; a step that goes as planned has none.
 * With the name of a cause: prints that trace. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/planner.h"
#include "schedule/resolve/resolve.h"
#include "schedule/traces/traces.h"
#include "simulator/simulator.h"

enum { PROFILED_STEPS = 3 };

/* What is changed in the activities of a step after it was simulated. */
typedef void spoil_fn(struct activities *activities);

struct seed {
	const char *id;            /* NULL: nothing is wrong */
	const char *planned, *ran; /* choices */
	double network;            /* bandwidth that there is, of what the plan assumes */
	spoil_fn *spoil;
};

struct scene {
	struct arena arena;
	struct plan_file file;
	struct topology *slower;
};

/* --- what runs --- */

static void choose(
	struct scene *s, const char *options, const struct topology *topology, struct plan *plan)
{
	struct question question = {.model = s->file.model, .topology = topology};
	struct error error = {0};
	char copy[512];

	snprintf(copy, sizeof(copy), "%s", options);
	for (char *save, *word = strtok_r(copy, " ", &save); word != NULL;
		word = strtok_r(NULL, " ", &save)) {
		char *equals = strchr(word, '=');
		*equals = '\0';
		if (!question_set_by_name(&question, word, word, equals + 1, &s->arena, &error))
			fail_msg("%s", error.message);
	}
	if (!plan_resolve(&question, &s->arena, plan, &error))
		fail_msg("%s: %s", options, error.message);
}

static void simulate_step(struct scene *s, const struct plan *plan, const struct topology *topology,
	struct activities *activities)
{
	const struct simulation_options options = {0};
	struct schedule *schedule;
	struct simulation simulation;
	struct error error = {0};

	if (!schedule_build(&s->arena, plan, s->file.model, topology, &schedule, &error) ||
		!simulate(schedule, &options, true, &s->arena, &simulation, &error))
		fail_msg("%s", error.message);
	activities_of_timeline(schedule, &simulation.timeline, activities);
}

/* --- what goes wrong --- */

/* Everything from `from` on comes `by` seconds later. */
static void delay(struct activities *a, double from, double by)
{
	for (int i = 0; i < a->n; i++) {
		if (a->of[i].start >= from) {
			a->of[i].start += by;
			a->of[i].end += by;
			a->of[i].launched += by;
		}
	}
	for (int i = 0; i < a->n_host; i++) {
		if (a->host[i].start >= from) {
			a->host[i].start += by;
			a->host[i].end += by;
		}
	}
	a->end += by;
}

/* Unit by unit backwards: its parameters come a second time before it computes. */
static void gather_again(struct activities *a)
{
	int n = a->n;
	double middle = a->end / 2;

	for (int i = 0; i < n; i++) {
		struct activity gather = a->of[i];
		if (gather.kind != ACTIVITY_ALL_GATHER || gather.start < middle)
			continue;
		delay(a, gather.end, gather.end - gather.start);
		double length = gather.end - gather.start;
		gather.start = gather.end;
		gather.end += length;
		activities_add(a, &gather);
	}
}

/* Every kernel is launched only when the device has run dry. */
static void launch_late(struct activities *a)
{
	double gap = 0.3 * a->end / a->n;

	for (int i = 0; i < a->n; i++) {
		if (a->of[i].kind != ACTIVITY_COMPUTE)
			continue;
		delay(a, a->of[i].start, gap);
		a->of[i].launched = a->of[i].start;
	}
}

static void add_gap(struct activities *a, double at, enum host_kind kind)
{
	double gap = 0.15 * a->end;

	delay(a, at, gap);
	activities_add_host(a, &(struct host_activity){kind, at, at + gap});
}

static void load_slowly(struct activities *a)
{
	add_gap(a, 0, HOST_DATA);
}

static void ask_for_memory(struct activities *a)
{
	for (int i = 1; i < 4; i++)
		add_gap(a, a->end * i / 4, HOST_ALLOCATOR);
}

/* Most collectives last until a slow rank has come; some find it there. */
static void wait_for_others(struct activities *a)
{
	int n[ACTIVITY_KIND_COUNT] = {0};

	for (int i = 0; i < a->n; i++) {
		double length = a->of[i].end - a->of[i].start;
		if (a->of[i].kind == ACTIVITY_COMPUTE || n[a->of[i].kind]++ % 4 == 0)
			continue;
		delay(a, a->of[i].end, 3 * length);
		a->of[i].end += 3 * length;
	}
}

#define BASE    "runtime=pytorch-fsdp1 strategy=FULL_SHARD micro_batch=1 "
#define NARROW  "reduce_dtype=bf16 "
#define OF_FOUR "micro_batch=1 grad_accum=4 "

static const struct seed seeds[] = {
	{NULL, BASE, BASE, 1, NULL},
	{"no-wrap", BASE NARROW, BASE NARROW "wrap=model", 1, NULL},
	{"small-units", BASE NARROW, BASE NARROW "wrap=size:1000000", 1, NULL},
	{"gathered-again", BASE NARROW "activation_checkpointing=full",
		BASE NARROW "activation_checkpointing=full", 1, gather_again},
	{"gathered-again", "runtime=pytorch-fsdp1 strategy=SHARD_GRAD_OP micro_batch=1 " NARROW,
		BASE NARROW, 1, NULL},
	{"no-prefetch", BASE NARROW, BASE NARROW "prefetch=none", 1, NULL},
	{"reduced-each-micro-batch", BASE NARROW "grad_accum=4 sync_each_micro_batch=off",
		BASE NARROW "grad_accum=4 sync_each_micro_batch=on", 1, NULL},
	{"fp32-reduction", BASE NARROW, BASE "reduce_dtype=fp32", 1, NULL},
	{"host-bound", BASE NARROW, BASE NARROW, 1, launch_late},
	{"offload", BASE NARROW, BASE NARROW "cpu_offload=parameters", 1, NULL},
	{"data-bound", BASE NARROW, BASE NARROW, 1, load_slowly},
	{"allocator", BASE NARROW, BASE NARROW, 1, ask_for_memory},
	{"stragglers", BASE NARROW, BASE NARROW, 1, wait_for_others},
	{"slow-link", BASE NARROW, BASE NARROW, 0.4, NULL},
	{"more-compute", BASE NARROW, BASE NARROW "activation_checkpointing=full", 1, NULL},
};

/* --- the trace --- */

static const char *const kernel_names[ACTIVITY_KIND_COUNT] = {
	[ACTIVITY_COMPUTE] = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
	[ACTIVITY_ALL_GATHER] = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
	[ACTIVITY_REDUCE_SCATTER] = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)",
	[ACTIVITY_ALL_REDUCE] = "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(...)",
	[ACTIVITY_OTHER_COLLECTIVE] = "ncclDevKernel_Broadcast_RING_LL(...)",
	[ACTIVITY_COPY_IN] = "Memcpy HtoD (Pinned -> Device)",
	[ACTIVITY_COPY_OUT] = "Memcpy DtoH (Device -> Pinned)",
};

static void write_event(struct text *text, const char *category, const char *name, double start,
	double end, const char *arguments)
{
	/* Times as Kineto has them: microseconds since 1970. */
	const double origin = 1682725897235145.0;

	text_printf(text,
		",\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 0, \"tid\": 7, "
		"\"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
		category, name, origin + 1e6 * start, 1e6 * (end - start), arguments);
}

static void write_activity(
	struct text *text, const struct activity *a, double shift, bool wide, int64_t id)
{
	bool collective = a->kind >= ACTIVITY_ALL_GATHER && a->kind <= ACTIVITY_OTHER_COLLECTIVE;
	bool reduces = a->kind == ACTIVITY_REDUCE_SCATTER || a->kind == ACTIVITY_ALL_REDUCE;
	int size = reduces && wide ? 4 : 2;
	char arguments[256] = "";
	int length = snprintf(arguments, sizeof(arguments),
		"\"device\": 0, \"stream\": 7, \"correlation\": %lld", (long long)id);

	if (collective)
		snprintf(arguments + length, sizeof(arguments) - (size_t)length,
			", \"dtype\": \"%s\", \"In msg nelems\": %lld, \"Out msg nelems\": %lld",
			size == 4 ? "Float" : "BFloat16",
			(long long)(a->bytes / size / (reduces ? 1 : 16)),
			(long long)(a->bytes / size / (reduces ? 16 : 1)));
	else if (a->kind != ACTIVITY_COMPUTE)
		snprintf(arguments + length, sizeof(arguments) - (size_t)length,
			", \"bytes\": %lld", (long long)a->bytes);
	write_event(text,
		a->kind == ACTIVITY_COPY_IN || a->kind == ACTIVITY_COPY_OUT ? "gpu_memcpy"
									    : "kernel",
		kernel_names[a->kind], a->start + shift, a->end + shift, arguments);
	snprintf(arguments, sizeof(arguments), "\"correlation\": %lld", (long long)id);
	write_event(text, "cuda_runtime", "cudaLaunchKernel", a->launched + shift - 4e-6,
		a->launched + shift, arguments);
}

static void write_trace(const struct activities *a, bool wide, struct text *text)
{
	int64_t id = 1;

	text_add(text, "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": "
		       "\"NVIDIA A100-SXM4-80GB\"}], \"distributedInfo\": {\"backend\": \"nccl\", "
		       "\"rank\": 0, \"world_size\": 32}, \"traceEvents\": [\n{\"ph\": \"M\", "
		       "\"name\": \"process_name\", \"pid\": 0, \"args\": {\"name\": "
		       "\"python \\u00e9 \\\"x\\\"\"}}");
	for (int step = 0; step < PROFILED_STEPS; step++) {
		double shift = step * a->end;
		char name[32];
		snprintf(name, sizeof(name), "ProfilerStep#%d", step + 10);
		write_event(text, "user_annotation", name, shift, shift + a->end, "");
		for (int i = 0; i < a->n; i++)
			write_activity(text, &a->of[i], shift, wide, id++);
		for (int i = 0; i < a->n_host; i++)
			write_event(text,
				a->host[i].kind == HOST_DATA ? "user_annotation" : "cuda_runtime",
				a->host[i].kind == HOST_DATA
					? "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__"
					  "next__"
					: "cudaMalloc",
				a->host[i].start + shift, a->host[i].end + shift, "");
	}
	text_add(text, "\n], \"traceName\": \"x.json\"}\n");
}

static void read_trace(const struct text *text, struct kineto *kineto)
{
	struct error error = {0};
	const char *bytes = text_string(text);

	kineto_init(kineto, "trace.json");
	for (size_t at = 0, piece = 1; at < text->length; at += piece) {
		piece = piece * 7 % 4093 + 1;
		if (piece > text->length - at)
			piece = text->length - at;
		if (!kineto_feed(kineto, bytes + at, piece, &error))
			fail_msg("%s", error.message);
	}
	if (!kineto_end(kineto, &error))
		fail_msg("%s", error.message);
}

/* --- tests --- */

static void load(struct scene *s, double network)
{
	struct error error = {0};

	*s = (struct scene){0};
	assert_true(model_load_preset(&s->arena, "llama-2-7b", &s->file.model, &error));
	assert_true(topology_load_name(&s->arena, "4xp4d.24xlarge", &s->file.topology, &error));
	assert_true(topology_load_name(&s->arena, "4xp4d.24xlarge", &s->slower, &error));
	/* 40 GB would not hold all of these. */
	s->file.topology->device.memory_bytes = s->slower->device.memory_bytes = 80LL << 30;
	s->slower->network.nic_bandwidth *= network;
}

static void diagnose_seed(const struct seed *seed, struct scene *s, struct diagnosis *diagnosis)
{
	struct activities step = {0};
	struct plan ran;
	struct text text = {0};
	struct kineto kineto;
	struct error error = {0};

	load(s, seed->network);
	choose(s, seed->planned, s->file.topology, &s->file.plan);
	choose(s, seed->ran, s->slower, &ran);
	simulate_step(s, &ran, s->slower, &step);
	if (seed->spoil != NULL)
		seed->spoil(&step);
	write_trace(&step, ran.reduce_dtype == DTYPE_FP32, &text);
	read_trace(&text, &kineto);
	const struct diagnosed diagnosed = {&s->file, &kineto.activities,
		kineto.reduced > 0 ? kineto.fp32_reduced / kineto.reduced : NAN};
	if (!diagnose(&diagnosed, &s->arena, diagnosis, &error))
		fail_msg("%s", error.message);
	kineto_finish(&kineto);
	activities_finish(&step);
	text_finish(&text);
}

static void seeded_causes_are_named_first(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(seeds); i++) {
		struct scene scene;
		struct diagnosis d;
		diagnose_seed(&seeds[i], &scene, &d);
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
		arena_finish(&scene.arena);
	}
}

/* A trace of the simulated step sums up to what the timeline itself does. */
static void a_trace_tells_what_the_timeline_tells(void **state)
{
	struct scene scene;
	struct diagnosis d;

	(void)state;
	diagnose_seed(&seeds[0], &scene, &d);
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
	for (int i = 0; i < COUNT_OF(seeds); i++) {
		struct scene scene;
		struct diagnosis d;
		diagnose_seed(&seeds[i], &scene, &d);
		const struct activity_summary *m = &d.measured;
		double sum =
			m->waiting_host + m->waiting_data + m->waiting_allocator + m->waiting_other;
		for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++)
			sum += m->exposed[kind];
		assert_float_equal(sum, m->step_time, 1e-6 * m->step_time);
		arena_finish(&scene.arena);
	}
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
	expect_refusal("{}", "no kernel of a device");
	expect_refusal("{\"traceEvents\": [", "got the end of the text");
	expect_refusal("{\"traceEvents\": [{]", "trace.json:1:19:");
	expect_refusal("{\"traceEvents\":\n [{\"ph\" \"X\"}]}", "trace.json:2:9: expected ':'");
	expect_refusal("{\"a\": \"\\x\"}", "after \\, got 'x'");
	expect_refusal("{\"a\": nul}", "expected a JSON value, got nul");
	expect_refusal("{\"a\": \"\n\"}", "control character in a string");
	expect_refusal("{\"traceEvents\": []} x", "expected the end of the text");
	expect_refusal(deep, "nested too deeply");
}

/* The trace of a seed on stdout, for docs/diagnose.md. */
static int print_trace(const char *id)
{
	for (int i = 0; i < COUNT_OF(seeds); i++) {
		struct scene s;
		struct activities step = {0};
		struct plan ran;
		struct text text = {0};
		if (seeds[i].id == NULL || strcmp(seeds[i].id, id) != 0)
			continue;
		load(&s, seeds[i].network);
		choose(&s, seeds[i].ran, s.slower, &ran);
		simulate_step(&s, &ran, s.slower, &step);
		if (seeds[i].spoil != NULL)
			seeds[i].spoil(&step);
		write_trace(&step, ran.reduce_dtype == DTYPE_FP32, &text);
		fputs(text_string(&text), stdout);
		return 0;
	}
	return 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeded_causes_are_named_first),
		cmocka_unit_test(a_trace_tells_what_the_timeline_tells),
		cmocka_unit_test(moments_add_up),
		cmocka_unit_test(bad_traces_are_refused),
	};

	if (argc > 1)
		return print_trace(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
