#include "tests/planner/seeds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/resolve/resolve.h"
#include "simulator/simulator.h"

enum { PROFILED_STEPS = 3 };

/* --- what runs --- */

void scene_choose(
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

void scene_simulate(struct scene *s, const struct plan *plan, const struct topology *topology,
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
void delay(struct activities *a, double from, double by)
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
void launch_late(struct activities *a)
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

void ask_for_memory(struct activities *a)
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

/* One after the other, whatever ran beside it. */
static void serialise(struct activities *a)
{
	struct activity_summary ignored;
	double now = 0;

	activities_summarise(a, &ignored); /* sorts */
	for (int i = 0; i < a->n; i++) {
		double length = a->of[i].end - a->of[i].start;
		a->of[i].start = fmax(now, a->of[i].start);
		a->of[i].end = now = a->of[i].start + length;
		a->of[i].launched = a->of[i].start - 1e-3;
	}
	a->end = fmax(now, a->end);
}

void slow_kernels(struct activities *a)
{
	for (int i = 0; i < a->n; i++) {
		double longer = 0.7 * (a->of[i].end - a->of[i].start);
		if (a->of[i].kind != ACTIVITY_COMPUTE)
			continue;
		delay(a, a->of[i].end, longer);
		a->of[i].end += longer;
	}
}

const struct seed seeds[] = {
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
	{"more-compute", BASE NARROW, BASE NARROW, 1, slow_kernels},
	{"busy-machine", BASE NARROW, BASE NARROW, 1, slow_kernels, true},
	{"fp32-parameters", BASE, BASE "param_dtype=fp32", 1, NULL},
	{"eager-attention", BASE NARROW, BASE NARROW "attention=eager", 1, NULL},
	{"no-overlap", BASE NARROW, BASE NARROW, 1, serialise},
};
const int n_seeds = COUNT_OF(seeds);

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

void trace_event(struct text *text, const char *category, const char *name, double start,
	double end, const char *arguments)
{
	/* Times as Kineto has them: microseconds since 1970. */
	const double origin = 1682725897235145.0;

	text_printf(text,
		",\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 0, \"tid\": 7, "
		"\"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
		category, name, origin + 1e6 * start, 1e6 * (end - start), arguments);
}

/* What the trace of a plan tells beside times. */
struct words {
	bool wide_gathers, wide_reductions, eager;
};

static const char *kernel_name(const struct activity *a, const struct words *words, int64_t id)
{
	if (a->kind != ACTIVITY_COMPUTE)
		return kernel_names[a->kind];
	if (id % 16 == 1)
		return "void cunn_SoftMaxForward<8, float, float, LogSoftMaxForwardEpilogue>(...)";
	if (id % 2 == 0)
		return words->wide_gathers ? "ampere_sgemm_128x64_tn"
					   : kernel_names[ACTIVITY_COMPUTE];
	return words->eager ? "void softmax_warp_forward<c10::BFloat16, 10, false, true>(...)"
			    : "void pytorch_flash::flash_fwd_kernel<...>(...)";
}

static void write_activity(struct text *text, const struct activity *a, double shift,
	const struct words *words, int64_t id)
{
	bool collective = a->kind >= ACTIVITY_ALL_GATHER && a->kind <= ACTIVITY_OTHER_COLLECTIVE;
	bool reduces = a->kind == ACTIVITY_REDUCE_SCATTER || a->kind == ACTIVITY_ALL_REDUCE;
	int size = (reduces ? words->wide_reductions : words->wide_gathers) ? 4 : 2;
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
	trace_event(text,
		a->kind == ACTIVITY_COPY_IN || a->kind == ACTIVITY_COPY_OUT ? "gpu_memcpy"
									    : "kernel",
		kernel_name(a, words, id), a->start + shift, a->end + shift, arguments);
	snprintf(arguments, sizeof(arguments), "\"correlation\": %lld", (long long)id);
	trace_event(text, "cuda_runtime", "cudaLaunchKernel", a->launched + shift - 4e-6,
		a->launched + shift, arguments);
}

static void write_trace(const struct activities *a, const struct plan *ran, struct text *text)
{
	const struct words words = {ran->param_dtype == DTYPE_FP32, ran->reduce_dtype == DTYPE_FP32,
		!attention_is_flash(ran->attention)};
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
		trace_event(text, "user_annotation", name, shift, shift + a->end, "");
		for (int i = 0; i < a->n; i++)
			write_activity(text, &a->of[i], shift, &words, id++);
		for (int i = 0; i < a->n_host; i++)
			trace_event(text,
				a->host[i].kind == HOST_DATA ? "user_annotation" : "cuda_runtime",
				a->host[i].kind == HOST_DATA
					? "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__"
					  "next__"
					: "cudaMalloc",
				a->host[i].start + shift, a->host[i].end + shift, "");
	}
	text_add(text, "\n], \"traceName\": \"x.json\"}\n");
}

void trace_read(const struct text *text, struct kineto *kineto)
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

void scene_load(struct scene *s, double network)
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

/* Runs what the seed says, and writes down what a profiler would have. */
static void profile(const struct seed *seed, struct scene *s, struct text *text)
{
	struct activities step = {0};
	struct plan ran;

	scene_load(s, seed->network);
	scene_choose(s, seed->ran, s->slower, &ran);
	scene_simulate(s, &ran, s->slower, &step);
	if (seed->spoil != NULL)
		seed->spoil(&step);
	write_trace(&step, &ran, text);
	activities_finish(&step);
}

void seed_trace(const struct seed *seed, struct text *text)
{
	struct scene s;

	profile(seed, &s, text);
	arena_finish(&s.arena);
}

void seed_diagnose(const struct seed *seed, struct scene *s, struct diagnosis *diagnosis)
{
	struct text text = {0};
	struct kineto kineto;
	struct error error = {0};

	profile(seed, s, &text);
	scene_choose(s, seed->planned, s->file.topology, &s->file.plan);
	trace_read(&text, &kineto);
	struct diagnosed diagnosed = {.file = &s->file, .activities = &kineto.activities};
	kineto_facts(&kineto, &diagnosed.facts);
	if (seed->busy)
		trace_facts_of_steps(
			&diagnosed.facts, (const double[]){1, 1.4, 1.1, 1.6, 1, 1.3}, 6);
	if (!diagnose(&diagnosed, &s->arena, diagnosis, &error))
		fail_msg("%s", error.message);
	kineto_finish(&kineto);
	text_finish(&text);
}
