/* Physical laws over many real schedules. Failures print the choices that broke the law. */
#include "cases.h"
#include "sketch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const runtimes[] = {
	"pytorch-fsdp1", "pytorch-fsdp2", "pytorch-ddp", "shardplan"};
static const char *const strategies[] = {
	"NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
static const char *const others[] = {"", " activation_checkpointing=full",
	" grad_accum=2 micro_batch=2", " grad_accum=2 sync_each_micro_batch=on", " prefetch=post",
	" prefetch=none limit_all_gathers=off", " clip=1 wrap=blocks:3",
	" wrap=size:5000000 attention=eager", " compile=on reduce_dtype=bf16",
	" master_dtype=bf16"};
static const char *const topologies[] = {
	"2xdgx-a100-80gb", "dgx-h100", "4xp4d.24xlarge", "rtx4090-8x"};

/* Calls `law` for every combination that its runtime has; returns how many there were. */
static int for_all(const char *model, void (*law)(struct case_ *c, const char *choices))
{
	int n = 0;

	for (int i = 0; i < COUNT_OF(topologies) * COUNT_OF(runtimes) * COUNT_OF(strategies); i++) {
		const char *topology = topologies[i % COUNT_OF(topologies)];
		const char *runtime = runtimes[i / COUNT_OF(topologies) % COUNT_OF(runtimes)];
		const char *strategy = strategies[i / COUNT_OF(topologies) / COUNT_OF(runtimes)];

		for (int o = 0; o < COUNT_OF(others); o++) {
			char choices[256];
			struct case_ c;

			snprintf(choices, sizeof(choices), "runtime=%s strategy=%s seq_len=256%s",
				runtime, strategy, others[o]);
			case_load(&c, model, topology);
			if (case_try_plan(&c, choices)) {
				law(&c, choices);
				n++;
			}
			case_finish(&c);
		}
	}
	return n;
}

#define LAW(condition)                                                                             \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail_msg("%s breaks: %s", choices, #condition);                            \
	} while (0)

static int64_t sum(const int64_t bytes[CATEGORY_COUNT])
{
	int64_t total = 0;

	for (int c = 0; c < CATEGORY_COUNT; c++)
		total += bytes[c];
	return total;
}

/* Axes share out what all of them communicate; what two expose at once counts for both. */
static void axis_laws(const struct prediction *p, double communication, const char *choices)
{
	double bytes = 0, time = 0, exposed = 0;

	for (int a = 0; a < GROUP_KIND_COUNT; a++) {
		const struct axis_figures *axis = &p->axes[a];
		LAW(axis->exposed >= 0 && axis->exposed <= axis->time * (1 + 1e-9));
		LAW(axis->ranks != 1 && (axis->ranks > 0 || axis->wire_bytes == 0));
		bytes += axis->wire_bytes;
		time += axis->time;
		exposed += axis->exposed;
	}
	LAW(fabs(bytes - p->wire_bytes_per_rank) <= 1e-9 * bytes);
	LAW(fabs(time - communication) <= 1e-9 * time);
	LAW(exposed >= p->time.exposed_communication * (1 - 1e-9));
}

static void time_laws(struct case_ *c, const char *choices)
{
	struct simulation_options options = {0};
	const struct prediction *p = case_simulate(c, &options, true);
	const struct time_split *t = &p->time;
	double communication = t->all_gather + t->reduce_scatter + t->all_reduce;

	LAW(p->step_time > 0 && isfinite(p->step_time));
	axis_laws(p, communication, choices);
	LAW(t->exposed_communication >= 0);
	LAW(t->exposed_communication <= communication * (1 + 1e-9));
	LAW(t->exposed_communication <= p->step_time * (1 + 1e-9));
	LAW(p->plan_lower_bound >= p->lower_bound);
	LAW(p->step_time >= p->plan_lower_bound);
	LAW(p->lower_bound > 0);
	LAW(p->step_time_low <= p->step_time && p->step_time <= p->step_time_high);
	LAW(p->mfu > 0 && p->mfu < 1 && p->mfu_6n <= p->mfu && p->hfu >= p->mfu);
	LAW(p->mfu_causal <= p->mfu && p->mfu_causal >= p->mfu_6n);
	LAW((p->hfu > p->mfu) == plan_checkpoints(&c->plan, CHECKPOINTING_FULL));
}

static void memory_laws(struct case_ *c, const char *choices)
{
	struct simulation_options options = {0};
	const struct prediction *p = case_simulate(c, &options, true);
	int64_t most = 0;

	LAW(sum(p->memory_at_peak) == p->peak_memory_bytes);
	LAW(p->peak_reserved_bytes >= p->peak_allocated_bytes);
	LAW(p->peak_reserved_bytes >= p->peak_active_bytes);
	LAW(p->peak_memory_bytes >= p->peak_reserved_bytes);
	for (int i = 0; i < CATEGORY_COUNT; i++)
		LAW(p->memory_at_peak[i] >= 0 &&
			p->memory_category_peak[i] >= p->memory_at_peak[i]);
	for (int i = 0; i < c->simulation.memory.n; i++) {
		int64_t now = sum(c->simulation.memory.bytes[i]);

		most = max_i64(most, now);
		LAW(i == 0 || c->simulation.memory.times[i] >= c->simulation.memory.times[i - 1]);
	}
	LAW(most <= p->peak_allocated_bytes);
	LAW(most > 0);
	LAW(strlen(p->peak_at) > 0);
}

static void timeline_laws(struct case_ *c, const char *choices)
{
	struct simulation_options options = {0};
	const struct program *program = &c->schedule->programs[0];
	const struct span *spans;
	double last[STREAM_COUNT] = {0};

	case_simulate(c, &options, true);
	spans = c->simulation.timeline.spans;
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const int *waits = slice_of(program, op->waits);

		LAW(spans[i].issued >= 0);
		LAW(spans[i].start >= spans[i].issued && spans[i].end >= spans[i].start);
		LAW(spans[i].start >= last[op->stream]);
		last[op->stream] = spans[i].end;
		for (int w = 0; w < op->waits.count; w++)
			LAW(waits[w] < 0 || spans[i].start >= spans[waits[w]].end);
		LAW(i == 0 || spans[i].issued >= spans[i - 1].issued);
		LAW(spans[i].end <= c->simulation.timeline.step_time * (1 + 1e-12));
	}
}

static void test_time(void **state)
{
	(void)state;
	assert_true(for_all("gpt2-nano", time_laws) > 200);
	assert_true(for_all("gpt2-124m", time_laws) > 200);
}

static void test_memory(void **state)
{
	(void)state;
	assert_true(for_all("gpt2-124m", memory_laws) > 200);
}

static void test_timeline(void **state)
{
	(void)state;
	assert_true(for_all("gpt2-124m", timeline_laws) > 200);
}

/* Equal input, equal bits; with and without details. */
static void same_again(struct case_ *c, const char *choices)
{
	struct simulation_options options = {0};
	struct prediction first = *case_simulate(c, &options, true);
	struct prediction second = *case_simulate(c, &options, false);

	LAW(memcmp(&first.step_time, &second.step_time, sizeof(double)) == 0);
	LAW(memcmp(&first.time, &second.time, sizeof(first.time)) == 0);
	LAW(memcmp(first.memory_at_peak, second.memory_at_peak, sizeof(first.memory_at_peak)) == 0);
	LAW(first.peak_reserved_bytes == second.peak_reserved_bytes);
	LAW(second.schedule_digest == NULL && first.schedule_digest != NULL);
	LAW(strcmp(first.peak_at, second.peak_at) == 0);
}

static void test_determinism(void **state)
{
	(void)state;
	assert_true(for_all("gpt2-nano", same_again) > 200);
}

/* Without contention, contention's price is gone: never slower than 5 % (an anomaly of order). */
static void contention_costs(struct case_ *c, const char *choices)
{
	struct simulation_options with = {0}, without = {.no_contention = true};
	double slow = case_simulate(c, &with, false)->step_time;
	double fast = case_simulate(c, &without, false)->step_time;

	LAW(fast <= slow * 1.05);
}

static void test_contention(void **state)
{
	(void)state;
	assert_true(for_all("gpt2-124m", contention_costs) > 200);
}

/* --- better hardware ----------------------------------------------------------------------------
 */

struct change {
	const char *what;
	size_t member; /* of struct topology, a double */
	double factor;
};

static const struct change changes[] = {
	{"twice the memory bandwidth", offsetof(struct topology, device.memory_bandwidth), 2},
	{"twice the arithmetic", offsetof(struct topology, calibration.gemm_flops), 2},
	{"half the fabric's latency", offsetof(struct topology, fabric.latency), 0.5},
	{"half the network's latency", offsetof(struct topology, network.latency), 0.5},
	{"twice the NICs' bandwidth", offsetof(struct topology, network.nic_bandwidth), 2},
};

static void better_is_not_slower(struct case_ *c, const char *choices)
{
	struct simulation_options options = {.no_contention = true};
	double before = case_simulate(c, &options, false)->step_time;
	double bound = c->simulation.prediction.plan_lower_bound;

	for (int i = 0; i < COUNT_OF(changes); i++) {
		double *member = (double *)((char *)c->topology + changes[i].member);
		double kept = *member;
		double after;

		*member = kept * changes[i].factor;
		after = case_simulate(c, &options, false)->step_time;
		if (after > before * (1 + 1e-9))
			fail_msg("%s: %s slows the step: %.9g -> %.9g s", choices, changes[i].what,
				before, after);
		LAW(c->simulation.prediction.plan_lower_bound <= bound * (1 + 1e-12));
		*member = kept;
	}
}

static void test_better_hardware(void **state)
{
	(void)state;
	assert_true(for_all("gpt2-124m", better_is_not_slower) > 200);
}

/* More sharding never raises sharded state; hybrid on one node is full sharding. */
static void test_sharding(void **state)
{
	static const char *const groups[] = {"1", "2", "4", "8"};
	struct simulation_options options = {0};
	int64_t last = INT64_MAX;
	struct case_ c;
	(void)state;
	for (int i = 1; i < COUNT_OF(groups); i++) {
		char choices[128];
		const struct prediction *p;

		snprintf(choices, sizeof(choices),
			"runtime=pytorch-fsdp1 strategy=HYBRID_SHARD shard_group=%s", groups[i]);
		case_load(&c, "gpt2-124m", "2xdgx-a100-80gb");
		case_plan(&c, choices);
		p = case_simulate(&c, &options, false);
		assert_true(p->model_states_parameters + p->model_states_gradients +
				    p->model_states_optimizer_state <
			    last);
		last = p->model_states_parameters + p->model_states_gradients +
		       p->model_states_optimizer_state;
		case_finish(&c);
	}
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	case_plan(&c, "runtime=pytorch-fsdp1 strategy=FULL_SHARD");
	struct prediction full = *case_simulate(&c, &options, false);
	case_plan(&c, "runtime=pytorch-fsdp1 strategy=HYBRID_SHARD");
	struct prediction hybrid = *case_simulate(&c, &options, false);
	assert_seconds(hybrid.step_time, full.step_time);
	assert_int_equal(hybrid.peak_memory_bytes, full.peak_memory_bytes);
	case_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_timeline),
		cmocka_unit_test(test_determinism),
		cmocka_unit_test(test_contention),
		cmocka_unit_test(test_better_hardware),
		cmocka_unit_test(test_sharding),
	};
	return cmocka_run_group_tests_name("simulator laws", tests, NULL, NULL);
}
