/* The fake machine's time: the duration of each kernel and copy, and kernels that occupy a
 * stream. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "executor/ranks/event.h"
#include "tests/executor/fakes/cuda_private.h"

/* Not 0: a time that was never written shows. */
#define BEGINNING 1000.0

const struct fake_rates fake_some_rates = {.kernel = 1e-6,
	.issue = 0.5e-6,
	.call = 70e-6,
	.memory = 3e12,
	.to_device = 50e9,
	.from = 40e9,
	.gemm = 700e12,
	.half_k = 64,
	.attention = 400e12,
	.attention_backward = 300e12,
	.link_latency = 20e-6,
	.link = 100e9,
	.dry = true};

static struct fake_rates rates;
static bool runs;
static double now;                /* of the stream whose node runs */
static double begun[FAKE_ACTORS]; /* [queue]: when the last of it began */

bool fake_clock_is_dry(void)
{
	return rates.dry;
}

static double real_time(void)
{
	struct timespec real;

	clock_gettime(CLOCK_MONOTONIC, &real);
	return (double)real.tv_sec + (double)real.tv_nsec / 1e9;
}

static double thread_time(void)
{
	return fmax(fake_thread.time, BEGINNING);
}

/* A thread that asks nothing of the machine, yet or any more, as one that starts ranks and waits
 * for them, would wait for ever by the machine's time. */
static double time_of_host(void)
{
	return fake_thread.time > 0 ? thread_time() : real_time();
}

void fake_clock_start(const struct fake_rates *wanted)
{
	rates = *wanted;
	runs = true;
	clock_use(time_of_host);
}

void fake_clock_issue(struct fake_node *node)
{
	fake_thread.time = thread_time() + rates.issue;
	node->issued = fake_thread.time;
}

void fake_clock_call(void)
{
	if (rates.call > 0)
		fake_thread.time = thread_time() + rates.call;
}

void fake_clock_wait(double time)
{
	fake_thread.time = fmax(thread_time(), time);
}

double fake_clock_of(const struct fake_stream *stream)
{
	return runs ? stream->time : real_time();
}

/* --- what takes how long --- */

static double share(double amount, double rate)
{
	return rate > 0 ? amount / rate : 0;
}

/* How hot products have made the machine, in seconds of them; a pause cools it down. */
#define PAUSE 5e-3
static double heat, cooling_since;

static double cost_gemm(const void *arguments)
{
	const struct gemm *g = arguments;
	double seconds = share(2.0 * (double)g->m * (double)g->n * ((double)g->k + rates.half_k),
		rates.gemm * fake_gemm_speed(g));

	heat = now - cooling_since > PAUSE ? 0 : heat;
	if (rates.hot > 0 && heat > rates.hot_after)
		seconds /= rates.hot;
	heat += seconds;
	cooling_since = now + seconds;
	return seconds;
}

static double attention_flops(const struct attention *a)
{
	return 2.0 * (double)(a->sequences * a->length) * (double)a->length *
	       (double)(a->heads * a->head_dim);
}

static double cost_attention(const void *arguments)
{
	return share(attention_flops(arguments),
		rates.attention * fake_attention_speed(ATTENTION_FORWARD, arguments));
}

static double cost_attention_backward(const void *arguments)
{
	const struct attention_backward *b = arguments;

	return share(2.5 * attention_flops(&b->forward),
		rates.attention_backward * fake_attention_speed(ATTENTION_BACKWARD, &b->forward));
}

static double cost_of_touches(const struct fake_node *node)
{
	double bytes = 0;

	for (int i = 0; i < node->n_touches; i++)
		bytes += (double)node->touches[i].bytes;
	return share(bytes, rates.memory);
}

static bool is_on_host(const struct fake_touch *touch)
{
	const struct allocation *a = fake_find_allocation(touch->address);

	return a == NULL || a->pinned;
}

/* First what is written, then what is read; ordinary memory of the host is not among them. */
static double cost_copy(const struct fake_node *node)
{
	const struct fake_touch *t = node->touches;
	bool writes = node->n_touches > 0 && t[0].write && !is_on_host(&t[0]);
	bool reads = node->n_touches > 0 && !t[node->n_touches - 1].write &&
		     !is_on_host(&t[node->n_touches - 1]);
	double bytes = node->n_touches > 0 ? (double)t[0].bytes : 0;

	if (writes && reads)
		return cost_of_touches(node);
	return share(bytes, writes ? rates.to_device : rates.from);
}

static double cost_of(const struct fake_node *node)
{
	static const struct {
		const char *name;
		double (*cost)(const void *arguments);
	} kernels[] = {{"gemm", cost_gemm}, {"gemm_epilogue", cost_gemm},
		{"attention", cost_attention}, {"attention_backward", cost_attention_backward}};

	if (node->kind != NODE_CALL || strncmp(node->name, "pace_", 5) == 0)
		return 0;
	if (strcmp(node->name, "a copy") == 0)
		return cost_copy(node);
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (strcmp(node->name, kernels[i].name) == 0)
			return rates.kernel + kernels[i].cost(node->arguments);
	return rates.kernel + cost_of_touches(node);
}

/* --- streams --- */

static double ready_at(const struct fake_stream *stream)
{
	const struct fake_node *node = stream->head;
	double time = fmax(stream->time, node->issued);

	if (stream->queue >= 0)
		time = fmax(time, begun[stream->queue]);
	return node->kind == NODE_WAIT ? fmax(time, node->mark->time) : time;
}

void fake_clock_begin(struct fake_stream *stream)
{
	now = ready_at(stream);
	if (stream->queue >= 0)
		begun[stream->queue] = now;
}

void fake_clock_end(struct fake_stream *stream)
{
	stream->time = now + cost_of(stream->head);
}

void fake_clock_meet(struct fake_stream **streams, int n, int64_t bytes)
{
	double time = 0;

	for (int i = 0; i < n; i++)
		time = fmax(time, ready_at(streams[i]));
	for (int i = 0; i < n; i++)
		streams[i]->time = time + rates.link_latency + share((double)bytes, rates.link);
}

/* --- kernels/cuda/device/pace.cuh --- */

struct pace {
	uint64_t *clock, nanoseconds;
};

static uint64_t device_time(void)
{
	if (!runs)
		fake_cuda_fault("a stream is held and the fake has no clock");
	return (uint64_t)llround(1e9 * now);
}

static void run_pace_begin(void *arguments)
{
	const struct pace *pace = arguments;

	*pace->clock = device_time();
}

static void run_pace_end(void *arguments)
{
	const struct pace *pace = arguments;
	uint64_t start = *pace->clock, passed = device_time() - start;

	*pace->clock = passed > pace->nanoseconds ? passed - pace->nanoseconds : 0;
	now = fmax(now, 1e-9 * (double)(start + pace->nanoseconds));
}

void fake_launch_pace_begin(void *stream, void **arguments)
{
	const struct pace pace = {*(uint64_t **)arguments[0], 0};
	const struct fake_touch touch = {pace.clock, sizeof(uint64_t), true};

	fake_cuda_call(stream, "pace_begin", run_pace_begin, &pace, sizeof(pace), &touch, 1);
}

void fake_launch_pace_end(void *stream, void **arguments)
{
	const struct pace pace = {*(uint64_t **)arguments[0], *(uint64_t *)arguments[1]};
	const struct fake_touch touch = {pace.clock, sizeof(uint64_t), true};

	fake_cuda_call(stream, "pace_end", run_pace_end, &pace, sizeof(pace), &touch, 1);
}
