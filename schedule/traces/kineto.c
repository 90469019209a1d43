#include "schedule/traces/kineto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

const char kineto_recipe[] =
	"    from torch.profiler import profile, schedule, ProfilerActivity\n"
	"    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],\n"
	"                 schedule=schedule(wait=5, warmup=2, active=3)) as profiler:\n"
	"        for step, batch in enumerate(loader):\n"
	"            train_step(batch)      # one optimizer step\n"
	"            profiler.step()        # once per optimizer step\n"
	"            if step == 10: break\n"
	"    profiler.export_chrome_trace(\"trace.json.gz\")";

static void copy_text(char *to, size_t room, const char *from)
{
	snprintf(to, room, "%s", from);
}

/* --- fields of an event --- */

/* What cannot be a count (negative, not finite, beyond the type) is taken as not known. */
static int64_t to_count(double number)
{
	return number > 0 && number < 0x1p63 ? (int64_t)number : 0;
}

static double to_number(const char *value)
{
	double number;
	return parse_number(value, &number) ? number : 0;
}

static void set_phase(struct kineto_event *e, const char *value)
{
	e->phase = value[0];
}
static void set_name(struct kineto_event *e, const char *value)
{
	copy_text(e->name, sizeof(e->name), value);
}
static void set_category(struct kineto_event *e, const char *value)
{
	copy_text(e->category, sizeof(e->category), value);
}
static void set_start(struct kineto_event *e, const char *value)
{
	e->start = to_number(value);
}
static void set_duration(struct kineto_event *e, const char *value)
{
	e->duration = to_number(value);
}
static void set_correlation(struct kineto_event *e, const char *value)
{
	e->correlation = to_count(to_number(value));
}
static void set_collective(struct kineto_event *e, const char *value)
{
	copy_text(e->collective, sizeof(e->collective), value);
}
static void set_in(struct kineto_event *e, const char *value)
{
	e->in_elements = to_number(value);
}
static void set_out(struct kineto_event *e, const char *value)
{
	e->out_elements = to_number(value);
}
static void set_bytes(struct kineto_event *e, const char *value)
{
	e->bytes = to_number(value);
}

static void set_dtype(struct kineto_event *e, const char *value)
{
	static const struct {
		const char *name;
		int bytes;
	} types[] = {{"Float", 4}, {"BFloat16", 2}, {"Half", 2}, {"Double", 8}, {"Int", 4},
		{"Long", 8}, {"Byte", 1}, {"Char", 1}, {"Bool", 1}};

	for (int i = 0; i < COUNT_OF(types); i++) {
		if (strcmp(types[i].name, value) == 0)
			e->element_bytes = types[i].bytes;
	}
	e->is_float = strcmp(value, "Float") == 0;
}

static const struct setter {
	const char *key;
	bool in_args;
	void (*set)(struct kineto_event *event, const char *value);
} setters[] = {
	{"ph", false, set_phase},
	{"name", false, set_name},
	{"cat", false, set_category},
	{"ts", false, set_start},
	{"dur", false, set_duration},
	{"correlation", true, set_correlation},
	{"Collective name", true, set_collective},
	{"In msg nelems", true, set_in},
	{"Out msg nelems", true, set_out},
	{"dtype", true, set_dtype},
	{"bytes", true, set_bytes},
};

/* --- what an event is --- */

static bool has(const char *text, const char *part)
{
	return strstr(text, part) != NULL;
}

/* The name is like "ncclDevKernel_AllGather_RING_LL" or "ncclKernel_AllReduce_...". Newer traces
 * have the collective in their metadata. */
static enum activity_kind collective_kind(const struct kineto_event *e)
{
	static const struct {
		const char *in_name, *in_metadata;
		enum activity_kind kind;
	} kinds[] = {
		{"AllGather", "allgather", ACTIVITY_ALL_GATHER},
		{"ReduceScatter", "reduce_scatter", ACTIVITY_REDUCE_SCATTER},
		{"AllReduce", "allreduce", ACTIVITY_ALL_REDUCE},
	};

	for (int i = 0; i < COUNT_OF(kinds); i++) {
		if (has(e->name, kinds[i].in_name) || has(e->collective, kinds[i].in_metadata))
			return kinds[i].kind;
	}
	return ACTIVITY_OTHER_COLLECTIVE;
}

/* Returns false for what is no work of a device. */
static bool device_kind(const struct kineto_event *e, enum activity_kind *kind)
{
	if (strcmp(e->category, "kernel") == 0) {
		bool communicates = strncmp(e->name, "nccl", 4) == 0 || has(e->name, "ncclKernel");
		*kind = communicates ? collective_kind(e) : ACTIVITY_COMPUTE;
		return true;
	}
	if (strcmp(e->category, "gpu_memset") == 0) {
		*kind = ACTIVITY_COMPUTE;
		return true;
	}
	if (strcmp(e->category, "gpu_memcpy") != 0)
		return false;
	*kind = has(e->name, "HtoD")   ? ACTIVITY_COPY_IN
		: has(e->name, "DtoH") ? ACTIVITY_COPY_OUT
				       : ACTIVITY_COMPUTE;
	return true;
}

/* Returns the gathered size: what comes out of a gather, or what goes into a reduction. */
static int64_t bytes_of(const struct kineto_event *e, enum activity_kind kind)
{
	if (kind == ACTIVITY_COPY_IN || kind == ACTIVITY_COPY_OUT)
		return to_count(e->bytes);
	return to_count(fmax(e->in_elements, e->out_elements) * e->element_bytes);
}

static bool has_any(const char *name, const char *const *parts)
{
	while (*parts != NULL && !has(name, *parts))
		parts++;
	return *parts != NULL;
}

/* Libraries write into a kernel's name what it computes and in which type: "ampere_sgemm_...",
 * "cutlass_80_tensorop_s1688gemm_..." (TF32; the one with f16 is Turing's), "sm90_xmma_gemm_f32f32_
 * tf32f32_f32_...". A softmax that takes logarithms belongs to the loss. */
static void note_kernel(struct kineto *k)
{
	static const char *const product[] = {"gemm", "nvjet", NULL};
	static const char *const fp32[] = {
		"sgemm", "tensorop_s1688gemm", "f32f32_f32f32_f32", "tf32f32", NULL};
	static const char *const fused[] = {"flash", "fmha", "fused_attention", "_sdpa_", NULL};
	static const char *const softmax[] = {"softmax", "SoftMax", "Softmax", NULL};
	static const char *const loss[] = {"LogSoft", "log_softmax", "nll", "cross_entropy", NULL};
	const struct kineto_event *e = &k->event;

	if (has_any(e->name, fused)) {
		k->n_fused_attention++;
	} else if (has_any(e->name, product)) {
		bool is_half = has(e->name, "f16");
		k->products += e->duration;
		k->fp32_products += has_any(e->name, fp32) && !is_half ? e->duration : 0;
	} else if (has_any(e->name, softmax) && !has_any(e->name, loss)) {
		k->n_softmax++;
	}
}

static void note_collective(struct kineto *k, enum activity_kind kind, double bytes)
{
	double fp32 = k->event.is_float ? bytes : 0;

	if (kind == ACTIVITY_ALL_GATHER) {
		k->gathered += bytes;
		k->fp32_gathered += fp32;
	} else if (kind == ACTIVITY_REDUCE_SCATTER || kind == ACTIVITY_ALL_REDUCE) {
		k->reduced += bytes;
		k->fp32_reduced += fp32;
	}
}

static void add_device_event(struct kineto *k, enum activity_kind kind)
{
	const struct kineto_event *e = &k->event;
	const struct activity activity = {.kind = kind,
		.start = e->start,
		.end = e->start + e->duration,
		.launched = NAN,
		.bytes = bytes_of(e, kind)};

	k->correlations = array_grow(k->correlations, &k->correlation_capacity, k->activities.n + 1,
		sizeof(*k->correlations));
	k->correlations[k->activities.n] = e->correlation;
	activities_add(&k->activities, &activity);
	if (kind == ACTIVITY_COMPUTE)
		note_kernel(k);
	else
		note_collective(k, kind, (double)activity.bytes);
}

static void add_step(struct kineto *k)
{
	const struct kineto_event *e = &k->event;

	if (k->n_steps == 0 || e->start < k->first_step)
		k->first_step = e->start;
	if (k->n_steps == 0 || e->start + e->duration > k->last_step)
		k->last_step = e->start + e->duration;
	if (k->n_steps < COUNT_OF(k->step_starts))
		k->step_starts[k->n_steps] = e->start;
	k->n_steps++;
}

static void add_host(struct kineto *k, enum host_kind kind)
{
	const struct kineto_event *e = &k->event;

	activities_add_host(
		&k->activities, &(struct host_activity){kind, e->start, e->start + e->duration});
}

static void add_runtime(struct kineto *k)
{
	const struct kineto_event *e = &k->event;

	if (strncmp(e->name, "cudaMalloc", 10) == 0 || strcmp(e->name, "cudaFree") == 0)
		add_host(k, HOST_ALLOCATOR);
	if (e->correlation == 0)
		return;
	k->launches = array_grow(
		k->launches, &k->launch_capacity, k->n_launches + 1, sizeof(*k->launches));
	k->launches[k->n_launches++] =
		(struct kineto_launch){e->correlation, e->start + e->duration};
}

static void add_event(struct kineto *k)
{
	const struct kineto_event *e = &k->event;
	enum activity_kind kind;

	if (e->phase != 'X')
		return;
	if (device_kind(e, &kind))
		add_device_event(k, kind);
	else if (strncmp(e->category, "cuda_", 5) == 0)
		add_runtime(k);
	else if (strcmp(e->category, "user_annotation") == 0 &&
		 strncmp(e->name, "ProfilerStep", 12) == 0)
		add_step(k);
	else if (has(e->name, "DataLoader") && has(e->name, "__next__"))
		add_host(k, HOST_DATA);
}

/* --- the document --- */

static void set_field(struct kineto *k, const char *key, const char *value)
{
	for (int i = 0; i < COUNT_OF(setters); i++) {
		if (setters[i].in_args == k->in_args && strcmp(setters[i].key, key) == 0) {
			setters[i].set(&k->event, value);
			return;
		}
	}
}

static void set_metadata(struct kineto *k, const char *key, const char *value)
{
	if (k->in_distributed && strcmp(key, "world_size") == 0)
		k->world_size = to_count(to_number(value));
}

static bool begins(struct kineto *k, enum json_event kind, int depth, const char *key)
{
	if (depth == 1 && key != NULL) {
		k->in_events = kind == JSON_LIST && strcmp(key, "traceEvents") == 0;
		k->in_distributed = strcmp(key, "distributedInfo") == 0;
	}
	if (k->in_events && depth == 2)
		k->event = (struct kineto_event){.phase = ' '};
	if (k->in_events && depth == 3 && key != NULL)
		k->in_args = strcmp(key, "args") == 0;
	return true;
}

static bool on_event(void *data, enum json_event kind, int depth, const char *key,
	const char *value, bool quoted, struct error *error)
{
	struct kineto *k = data;

	(void)quoted;
	if (depth == 0 && kind == JSON_SCALAR)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: expected a profiler trace with \"traceEvents\"", k->stream.name);
	if (kind == JSON_MAP || kind == JSON_LIST)
		return begins(k, kind, depth, key);
	if (kind == JSON_END) {
		if (k->in_events && depth == 2)
			add_event(k);
		if (depth == 3)
			k->in_args = false;
		if (depth == 1)
			k->in_events = k->in_distributed = false;
		return true;
	}
	if (k->in_events && key != NULL && depth == 3 + k->in_args)
		set_field(k, key, value);
	else if (key != NULL)
		set_metadata(k, key, value);
	return true;
}

void kineto_init(struct kineto *kineto, const char *name)
{
	*kineto = (struct kineto){0};
	json_stream_init(&kineto->stream, name, on_event, kineto);
}

bool kineto_feed(struct kineto *kineto, const char *bytes, size_t length, struct error *error)
{
	return json_stream_feed(&kineto->stream, bytes, length, error);
}

void kineto_finish(struct kineto *kineto)
{
	json_stream_finish(&kineto->stream);
	activities_finish(&kineto->activities);
	free(kineto->correlations);
	free(kineto->launches);
	kineto->correlations = NULL;
	kineto->launches = NULL;
}

/* --- putting together --- */

static int by_correlation(const void *left, const void *right)
{
	const struct kineto_launch *a = left, *b = right;
	return (a->correlation > b->correlation) - (a->correlation < b->correlation);
}

static void join_launches(struct kineto *k)
{
	if (k->n_launches == 0)
		return;
	qsort(k->launches, (size_t)k->n_launches, sizeof(*k->launches), by_correlation);
	for (int i = 0; i < k->activities.n; i++) {
		const struct kineto_launch wanted = {.correlation = k->correlations[i]};
		const struct kineto_launch *launch = bsearch(&wanted, k->launches,
			(size_t)k->n_launches, sizeof(*k->launches), by_correlation);
		if (launch != NULL)
			k->activities.of[i].launched = launch->time;
	}
}

/* The window has whole steps. The device runs behind the host by about as much at both ends. */
static void choose_window(struct kineto *k)
{
	struct activities *a = &k->activities;
	int known = k->n_steps < COUNT_OF(k->step_starts) ? k->n_steps : COUNT_OF(k->step_starts);

	a->steps = k->n_steps;
	a->start = k->first_step;
	a->end = k->last_step;
	if (k->n_steps == 0) {
		a->steps = 1;
		a->start = INFINITY;
		a->end = -INFINITY;
		for (int i = 0; i < a->n; i++) {
			a->start = fmin(a->start, a->of[i].start);
			a->end = fmax(a->end, a->of[i].end);
		}
	} else if (k->n_steps >= 3 && known == k->n_steps) {
		sort_numbers(k->step_starts, known);
		a->start = k->step_starts[1];
		a->steps--;
	}
}

static void to_seconds(struct activities *a)
{
	const double us = 1e-6;
	double origin = a->start;

	for (int i = 0; i < a->n; i++) {
		a->of[i].start = (a->of[i].start - origin) * us;
		a->of[i].end = (a->of[i].end - origin) * us;
		a->of[i].launched = (a->of[i].launched - origin) * us;
	}
	for (int i = 0; i < a->n_host; i++) {
		a->host[i].start = (a->host[i].start - origin) * us;
		a->host[i].end = (a->host[i].end - origin) * us;
	}
	a->end = (a->end - origin) * us;
	a->start = 0;
}

bool kineto_end(struct kineto *kineto, struct error *error)
{
	if (!json_stream_end(&kineto->stream, error))
		return false;
	if (kineto->activities.n == 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: a trace without a kernel of a device; "
			"record one with ProfilerActivity.CUDA:",
			kineto->stream.name);
	join_launches(kineto);
	choose_window(kineto);
	to_seconds(&kineto->activities);
	return true;
}

/* Takes the times between starts of steps. The first step is left out, because it warms up. */
static void step_times(const struct kineto *k, struct trace_facts *facts)
{
	double times[COUNT_OF(k->step_starts)];
	int n = 0;

	if (k->n_steps > COUNT_OF(k->step_starts) || k->n_steps < 3)
		return;
	for (int i = 1; i + 1 < k->n_steps; i++)
		times[n++] = 1e-6 * (k->step_starts[i + 1] - k->step_starts[i]);
	trace_facts_of_steps(facts, times, n);
}

void kineto_facts(const struct kineto *k, struct trace_facts *facts)
{
	double steps = k->n_steps > 0 ? k->n_steps : 1;

	*facts = trace_facts_unknown;
	facts->fp32_reduced = k->reduced > 0 ? k->fp32_reduced / k->reduced : NAN;
	facts->fp32_gathered = k->gathered > 0 ? k->fp32_gathered / k->gathered : NAN;
	facts->fp32_products = k->products > 0 ? k->fp32_products / k->products : NAN;
	facts->softmax_kernels = k->n_fused_attention > 0 ? 0 : k->n_softmax / steps;
	step_times(k, facts);
}
