/* An allocator at its limit: the cost of a retry, which ranks have more of them, and the gain from
 * more memory. */
#include "schedule/fold/fold.h"
#include "sketch.h"
#include "tests/simulator/cases.h"

#define MS  1e-3
#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

/* Of the driver, as retries.c has them, for all ranks of the host. */
#define MALLOC  (SKETCH_RANKS * 0.83 * MS)
#define FREE    (SKETCH_RANKS * 1.64 * MS)
#define SEGMENT (MALLOC + FREE)
#define PAGE    (SKETCH_RANKS * (0.07 * MS + 0.06 * MS))

/* Two pools of 60 MiB, of which the device holds one: a kernel with a buffer of the compute stream,
 * a gather (which waits for it, or not), and a kernel that gives the gathered buffer back. */
static void draw(struct sketch *s, bool waits)
{
	sketch_init(s, 0);
	s->options.no_contention = true;
	int a = sketch_buffer(s, BUFFER_LOGITS, STREAM_COMPUTE, 60 * MIB);
	int b = sketch_buffer(s, BUFFER_UNSHARDED, STREAM_GATHER, 60 * MIB);
	int first = sketch_traffic(s, STREAM_COMPUTE, 1 * MS);
	int gather = sketch_gather(s, STREAM_GATHER, 0, 1 * MS);
	int last = sketch_traffic(s, STREAM_COMPUTE, 1 * MS);
	sketch_link(s, first, LINK_TAKE, a);
	sketch_link(s, first, LINK_GIVE, a);
	sketch_link(s, gather, LINK_TAKE, b);
	if (waits)
		sketch_link(s, gather, LINK_WAIT, first);
	sketch_link(s, last, LINK_WAIT, gather);
	sketch_link(s, last, LINK_GIVE, b);
}

static int64_t outside(const struct sketch *s)
{
	const struct prediction *p = &s->simulation.prediction;
	return p->peak_memory_bytes - p->peak_reserved_bytes;
}

/* In the steady state each of the two requests finds the other pool's segment in its way: the
 * thread waits until the device is idle, the driver takes one back and hands one out. */
static void test_price(void **state)
{
	(void)state;
	for (int waits = 0; waits < 2; waits++) {
		struct sketch s;
		const struct prediction *p = &s.simulation.prediction;
		draw(&s, waits);
		sketch_run(&s);
		assert_seconds(p->step_time, waits ? 3 * MS : 2 * MS);
		assert_int_equal(p->fits, FITS_YES);
		assert_true(p->time.allocator == 0 && p->allocator_retries == 0);
		assert_int_equal(p->peak_wanted_bytes, 0);
		assert_int_equal(prediction_wanted_bytes(p), p->peak_memory_bytes);
		s.topology.device.memory_bytes = outside(&s) + 100 * MIB;
		sketch_run(&s);
		assert_int_equal(p->fits, FITS_TIGHT);
		assert_int_equal(p->allocator_retries, 2);
		/* One of the two at a time: the allocator never holds more than there is. */
		assert_int_equal(p->peak_reserved_bytes, 60 * MIB);
		assert_int_equal(p->peak_active_bytes, 60 * MIB);
		assert_int_equal(p->peak_memory_bytes, outside(&s) + 60 * MIB);
		assert_int_equal(p->peak_wanted_bytes, outside(&s) + 120 * MIB);
		assert_int_equal(prediction_wanted_bytes(p), p->peak_wanted_bytes);
		assert_seconds(p->step_time, 3 * MS + 2 * SEGMENT);
		assert_seconds(p->time.allocator, p->step_time - (waits ? 3 * MS : 2 * MS));
		s.schedule.plan.allocator = ALLOCATOR_EXPANDABLE; /* three pages of 20 MiB */
		sketch_run(&s);
		assert_int_equal(p->allocator_retries, 2);
		assert_seconds(p->step_time, 3 * MS + 2 * 3 * PAGE);
		s.topology.device.memory_bytes = outside(&s) + 50 * MIB;
		sketch_run(&s);
		assert_int_equal(p->fits, FITS_NO);
		assert_true(p->time.allocator == 0);
		sketch_finish(&s);
	}
}

/* Calls of one host's processes take turns; those of other hosts do not wait. */
static void test_turns(void **state)
{
	(void)state;
	for (int64_t host = 1; host <= SKETCH_RANKS; host *= 2) {
		struct sketch s;
		const struct prediction *p = &s.simulation.prediction;
		draw(&s, true);
		sketch_run(&s);
		s.topology.device.memory_bytes = outside(&s) + 100 * MIB;
		s.topology.fabric.host_devices = host;
		sketch_run(&s);
		assert_int_equal(p->allocator_retries, 2);
		assert_seconds(p->step_time, 3 * MS + 2 * SEGMENT * (double)host / SKETCH_RANKS);
		sketch_finish(&s);
	}
}

/* The gather is issued once the device is idle, and the path says so. */
static void test_path(void **state)
{
	(void)state;
	struct sketch s;
	draw(&s, false);
	sketch_run(&s);
	s.topology.device.memory_bytes = outside(&s) + 100 * MIB;
	sketch_run(&s);
	const struct critical_path *path = &s.simulation.critical;
	assert_int_equal(path->n, 3);
	assert_int_equal(path->reasons[1], CRITICAL_ALLOCATOR);
	assert_int_equal(path->ops[1], 1);
	assert_int_equal(path->reasons[2], CRITICAL_WAIT);
	assert_seconds(s.simulation.timeline.spans[1].issued, 1 * MS + 2 * SEGMENT);
	sketch_finish(&s);
}

/* What another stream still uses is no free block, however far the host is ahead: the third gather
 * waits until the device is idle, where the limiter makes it wait for the first kernel alone. */
static void test_deferred_frees(void **state)
{
	(void)state;
	struct sketch s;
	int gathers[3], kernels[3];
	sketch_init(&s, 0);
	s.options.no_contention = true;
	for (int i = 0; i < 3; i++) {
		int buffer = sketch_buffer(&s, BUFFER_UNSHARDED, STREAM_GATHER, 60 * MIB);
		gathers[i] = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
		kernels[i] = sketch_traffic(&s, STREAM_COMPUTE, 10 * MS);
		sketch_link(&s, gathers[i], LINK_TAKE, buffer);
		sketch_link(&s, kernels[i], LINK_WAIT, gathers[i]);
		sketch_link(&s, kernels[i], LINK_GIVE, buffer);
	}
	const struct prediction *p = &s.simulation.prediction;
	sketch_run(&s);
	assert_int_equal(p->peak_reserved_bytes, 180 * MIB);
	assert_seconds(p->step_time, 31 * MS);
	s.schedule.plan.limit_all_gathers = false;
	s.topology.device.memory_bytes = outside(&s) + 130 * MIB;
	sketch_run(&s);
	assert_int_equal(p->fits, FITS_TIGHT);
	assert_int_equal(p->allocator_retries, 1);
	/* At 21 ms both blocks go back and one is asked for. The other one is asked for again while
	 * the first gather of the next step runs. */
	assert_seconds(p->step_time, (21 + 1 + 10) * MS + 2 * FREE + MALLOC);
	s.schedule.plan.limit_all_gathers = true;
	sketch_link(&s, gathers[2], LINK_HOST_WAIT, kernels[0]);
	sketch_run(&s);
	assert_int_equal(p->fits, FITS_YES);
	assert_seconds(p->step_time, 31 * MS);
	sketch_finish(&s);
}

/* Steps of a plan whose device has `limit` bytes; 0: it does not fit. */
static double step(struct case_ *c, int64_t limit, struct prediction *p)
{
	const struct simulation_options options = {.memory_limit_bytes = limit};
	*p = *case_simulate(c, &options, false);
	return p->fits == FITS_NO ? 0 : p->step_time;
}

/* With the limiter less memory is reserved. Where it is short the step is no slower: a thousandth
 * is what the limiter may cost by itself. */
static void test_limiter(void **state)
{
	int n = 0, faster = 0;
	(void)state;
	struct case_ on, off;
	case_load(&on, "llama-2-7b", "2xp4d.24xlarge");
	case_load(&off, "llama-2-7b", "2xp4d.24xlarge");
#define SHORT "runtime=pytorch-fsdp1 micro_batch=8 seq_len=2048 activation_checkpointing=full"
	case_plan(&on, SHORT " limit_all_gathers=on");
	case_plan(&off, SHORT " limit_all_gathers=off");
	for (int64_t limit = 20; limit <= 40; limit++) {
		struct prediction with, without;
		double a = step(&on, limit * GIB, &with), b = step(&off, limit * GIB, &without);
		assert_true(prediction_wanted_bytes(&with) < prediction_wanted_bytes(&without));
		if (a <= 0 || b <= 0)
			continue;
		if (b < 0.999 * a)
			fail_msg("%d GiB: %g s with the limiter, %g without", (int)limit, a, b);
		n++;
		faster += b > 1.02 * a;
	}
	assert_true(n > 15 && faster > 3);
	case_finish(&on);
	case_finish(&off);
}

/* Plans with less and less memory: neighbours of which the one with more is not slower. */
struct sweep {
	int tight, pairs, ordered;
	double upper, lower; /* mean steps, of the half with more memory and of the one with less */
};

static void halve(const double *steps, int n, struct sweep *s)
{
	for (int i = 0; i < n; i++)
		*(2 * i < n ? &s->upper : &s->lower) += steps[i] / steps[0] / n;
}

static void shrink(struct case_ *c, struct sweep *s)
{
	struct prediction p;
	double tight[32], with_room = step(c, 1000 * GIB, &p);
	int64_t needed = p.peak_memory_bytes;
	int n = 0;
	for (int percent = 106; percent > 30; percent -= 4) {
		double now = step(c, needed * percent / 100, &p);
		if (now <= 0)
			break;
		assert_int_equal(p.fits, percent >= 100 ? FITS_YES : FITS_TIGHT);
		assert_true(p.peak_memory_bytes <= needed * percent / 100);
		assert_int_equal(prediction_wanted_bytes(&p), needed);
		if (p.fits == FITS_YES ? now != with_room : now < with_room)
			fail_msg("%.17g s at %d %%, %.17g with room", now, percent, with_room);
		if (p.fits == FITS_TIGHT)
			tight[n++] = now;
	}
	for (int i = 1; i < n; i++)
		s->ordered += tight[i - 1] <= 1.02 * tight[i];
	s->tight += n;
	s->pairs += n > 0 ? n - 1 : 0;
	if (n >= 4 && n % 2 == 0)
		halve(tight, n, s);
}

/* A plan with room takes what it takes without a limit, to the bit, and one that is tight is never
 * faster. Between two that are tight the allocator itself keeps no law: what a retry gives back,
 * and where it strikes, differs. It keeps the tendency. */
static void test_more_memory(void **state)
{
	static const char *const models[] = {"llama-2-7b", "gpt2-1.5b", "llama-3-8b"};
	static const char *const topologies[] = {"2xp4d.24xlarge", "dgx-h100", "4xdgx-a100-80gb"};
	static const char *const choices[] = {"runtime=pytorch-fsdp1", "runtime=pytorch-fsdp2",
		"runtime=pytorch-fsdp1 limit_all_gathers=off",
		"runtime=pytorch-fsdp2 allocator=expandable",
		"runtime=pytorch-fsdp1 strategy=SHARD_GRAD_OP", "runtime=pytorch-ddp",
		"runtime=deepspeed strategy=ZERO_3",
		"runtime=pytorch-fsdp2 cpu_offload=parameters"};
	static const char *const others[] = {" micro_batch=4", " grad_accum=3 micro_batch=2",
		" activation_checkpointing=full micro_batch=8"};
	struct sweep sweep = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(choices) * COUNT_OF(others); i++) {
		struct case_ c;
		case_load(&c, models[i % 3], topologies[i / 3 % 3]);
		if (case_try_plan(
			    &c, arena_printf(&c.arena, "%s%s", choices[i / 3], others[i % 3])))
			shrink(&c, &sweep);
		case_finish(&c);
	}
	print_message(
		"%d tight, %d of %d neighbours ordered; with less memory %.3g times as long\n",
		sweep.tight, sweep.ordered, sweep.pairs, sweep.lower / sweep.upper);
	assert_true(sweep.tight > 60);
	assert_true(10 * sweep.ordered > 7 * sweep.pairs);
	assert_true(sweep.lower > sweep.upper);
}

/* Published runs of which it is said whether they reached the limit. */
static const struct published {
	const char *model, *topology;
	int64_t vocab; /* 0: the model's */
	const char *choices;
	bool tight;
	bool own_head; /* unlike the model's */
} published[] = {
#define ISSUE                                                                                      \
	"runtime=pytorch-fsdp1 micro_batch=8 seq_len=2048 activation_checkpointing=full "          \
	"loss=float limit_all_gathers="
	/* pytorch issue 104509, without the limiter unless said: 7B on 16 A100, local batch 8. A
	 * GPT has 46 retries, most at the loss, none with the limiter; a LLaMA has none. Memory and
	 * checkpointing are not stated: the 5.0 s with the limiter are those of full checkpointing,
	 * with which 40 GB run short and 80 GB do not. */
	{"llama-2-7b", "2xp4d.24xlarge", 50304, ISSUE "off", true},
	{"llama-2-7b", "2xp4d.24xlarge", 50304, ISSUE "on", false},
	{"llama-2-7b", "2xp4d.24xlarge", 0, ISSUE "off", false},
#define PAPER                                                                                      \
	"runtime=pytorch-fsdp1 seq_len=2048 activation_checkpointing=full attention=eager "        \
	"optimizer=adamw-foreach micro_batch="
	/* The FSDP paper (Zhao et al. 2023): minGPT of 175B, whose head is its own, on 128 A100 80
	 * GB. Micro-batch 1 fits, 2 depletes the memory; the dtype of reductions is not stated. */
	{"gpt3-175b", "16xdgx-a100-80gb", 0, PAPER "1 reduce_dtype=bf16", false, true},
	{"gpt3-175b", "16xdgx-a100-80gb", 0, PAPER "1 reduce_dtype=fp32", false, true},
	{"gpt3-175b", "16xdgx-a100-80gb", 0, PAPER "2 reduce_dtype=fp32", true, true},
};

static void give_own_head(struct case_ *c)
{
	struct architecture architecture = c->model->architecture;
	architecture.tied_head = false;
	assert_true(model_build(&c->arena, &architecture, &c->model, NULL));
}

static void test_published(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(published); i++) {
		struct case_ c;
		struct prediction p;
		case_load(&c, published[i].model, published[i].topology);
		if (published[i].vocab > 0)
			assert_true(
				model_pad(&c.arena, c.model, published[i].vocab, &c.model, NULL));
		if (published[i].own_head)
			give_own_head(&c);
		case_plan(&c, published[i].choices);
		step(&c, 0, &p);
		if ((p.fits == FITS_TIGHT) != published[i].tight)
			fail_msg("%s %s: %s", published[i].model, published[i].choices,
				fits_names[p.fits]);
		assert_true((p.time.allocator > 0) == published[i].tight);
		case_finish(&c);
	}
}

/* A folded list takes what the whole one takes, iteration by iteration. */
static void test_folded(void **state)
{
	(void)state;
	struct case_ c;
	case_load(&c, "llama-2-7b", "2xp4d.24xlarge");
	case_plan(&c, SHORT " limit_all_gathers=off grad_accum=3");
	const struct simulation_options options = {.memory_limit_bytes = 30 * GIB};
	struct prediction whole = *case_simulate(&c, &options, true);
	c.schedule = schedule_fold(&c.arena, &c.plan, c.model, c.topology);
	struct prediction folded = *case_simulate(&c, &options, false);
	assert_int_equal(whole.fits, FITS_TIGHT);
	assert_true(whole.allocator_retries >= 1);
	assert_true(folded.allocator_retries == whole.allocator_retries);
	assert_seconds(folded.step_time, whole.step_time);
	assert_seconds(folded.time.allocator, whole.time.allocator);
	assert_int_equal(folded.peak_memory_bytes, whole.peak_memory_bytes);
	case_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_price),
		cmocka_unit_test(test_turns), cmocka_unit_test(test_path),
		cmocka_unit_test(test_deferred_frees), cmocka_unit_test(test_limiter),
		cmocka_unit_test(test_more_memory), cmocka_unit_test(test_published),
		cmocka_unit_test(test_folded)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
