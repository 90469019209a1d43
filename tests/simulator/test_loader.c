/* The data loader: the cost of a batch on the issuing thread, when that waits, and how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/schedule/parse.h"
#include "tests/simulator/cases.h"

#define WORK "seq_len=1024 micro_batch=4 grad_accum=3 activation_checkpointing=full "
enum { TOKENS = 1024 * 4 * 3 };

static const char *const runtimes[] = {"pytorch-fsdp1", "pytorch-fsdp2", "pytorch-ddp", "shardplan",
	"deepspeed", "nanotron", "internevo"};

static struct prediction predicted(struct case_ *c, const char *runtime, double rate)
{
	const struct simulation_options options = {0};

	case_plan(c, arena_printf(&c->arena, WORK "runtime=%s loader_rate=%.17g", runtime, rate));
	return *case_simulate(c, &options, true);
}

static void near(double a, double b, double tolerance)
{
	if (fabs(a - b) > tolerance * fabs(b))
		fail_msg("%.12g is not %.12g", a, b);
}

/* Micro-batch by micro-batch: the loop's 500 us (ours: 5), and a copy of int64 ids and labels
 * (ours: 4 bytes a token) at 24 GB/s, which two GPUs share. */
static void test_batch(void **state)
{
	(void)state;
	struct case_ c;

	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	struct prediction theirs = predicted(&c, "pytorch-fsdp1", 0);
	near(theirs.time.data_loading, 3 * (500e-6 + 10e-6 + 16 * 4096 / 12e9), 1e-9);
	assert_true(theirs.time.data_wait == 0);
	struct prediction ours = predicted(&c, "shardplan", 0);
	near(ours.time.data_loading, 3 * (5e-6 + 10e-6 + 4 * 4096 / 12e9), 1e-9);
	case_finish(&c);
}

/* A loader that is fast enough changes nothing; one that is not sets the step's time, whatever the
 * runtime, and by how much the step is longer is what is printed. */
static void test_rates(void **state)
{
	static const double shares[] = {0.99, 0.33, 0.11};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(runtimes); i++) {
		struct case_ c;

		case_load(&c, "gpt2-124m", "2xdgx-a100-80gb");
		struct prediction free = predicted(&c, runtimes[i], 0);
		struct prediction fast = predicted(&c, runtimes[i], 20 * free.tokens_per_s_per_gpu);
		near(fast.step_time, free.step_time, 1e-9);
		assert_true(fast.time.data_wait == 0);
		for (int j = 0; j < COUNT_OF(shares); j++) {
			double rate = shares[j] * free.tokens_per_s_per_gpu;
			struct prediction slow = predicted(&c, runtimes[i], rate);

			/* How collectives meet differs from step to step. */
			assert_true(slow.step_time >= TOKENS / rate * (1 - 1e-12));
			near(slow.step_time, TOKENS / rate, 1e-3);
			near(slow.tokens_per_s_per_gpu, rate, 1e-3);
			near(slow.time.data_wait, slow.step_time - free.step_time, 1e-6);
			assert_true(slow.plan_lower_bound <= slow.step_time * (1 + 1e-12));
			near(slow.plan_lower_bound, TOKENS / rate, 1e-9);
			assert_true(slow.step_time_low >= slow.plan_lower_bound * (1 - 1e-12));
		}
		case_finish(&c);
	}
}

/* Is the first operation of micro-batch 1 issued after the compute stream has done micro-batch 0?
 */
static bool waits_between(struct case_ *c, const char *runtime)
{
	const struct program *program;
	double done = 0;

	predicted(c, runtime, 0);
	program = &c->schedule->programs[0];
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];

		if (op->micro_batch == 1)
			return c->simulation.timeline.spans[i].issued >= done;
		if (op->stream == STREAM_COMPUTE)
			done = fmax(done, c->simulation.timeline.spans[i].end);
	}
	fail();
	return false;
}

/* torchtitan copies each batch with `.to(device)`, which comes back when the copy is done, and
 * DeepSpeed's throughput timer waits for the device when a forward begins. */
static void test_blocking_copy(void **state)
{
	(void)state;
	struct case_ c;

	case_load(&c, "llama-2-7b", "dgx-a100-80gb");
	assert_true(waits_between(&c, "pytorch-fsdp2"));
	assert_true(waits_between(&c, "deepspeed strategy=ZERO_1"));
	assert_false(waits_between(&c, "pytorch-ddp"));
	case_finish(&c);
}

/* The text of a schedule keeps the rate, and has no line without one. */
static void test_text(void **state)
{
	(void)state;
	static const double rates[] = {0, 12345.5};

	for (int i = 0; i < COUNT_OF(rates); i++) {
		struct case_ c;
		struct schedule *again;
		struct error error = {0};
		struct text text = {0};

		case_load(&c, "gpt2-124m", "dgx-a100-80gb");
		predicted(&c, "pytorch-fsdp2", rates[i]);
		schedule_print(c.schedule, &text);
		assert_int_equal(
			strstr(text_string(&text), "plan loader_rate 12345.5\n") != NULL, i);
		assert_int_equal(strstr(text_string(&text), "loader_rate") != NULL, i);
		if (!schedule_parse(
			    &c.arena, "text", text_string(&text), text.length, &again, &error))
			fail_msg("%s", error.message);
		assert_true(again->plan.loader_rate == rates[i]);
		text_finish(&text);
		case_finish(&c);
	}
}

/* Then more steps than are simulated pass before it is waited for in the middle of one. */
static void test_barely_too_slow(void **state)
{
	static const char work[] = "runtime=shardplan seq_len=1024 micro_batch=1 grad_accum=4 "
				   "activation_checkpointing=full loader_rate=%.17g";
	const struct simulation_options options = {0};
	struct case_ c;

	(void)state;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	case_plan(&c, arena_printf(&c.arena, work, 0.0));
	double rate = 0.99999 * case_simulate(&c, &options, true)->tokens_per_s_per_gpu;
	case_plan(&c, arena_printf(&c.arena, work, rate));
	near(case_simulate(&c, &options, true)->step_time, 4096 / rate, 1e-9);
	case_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_barely_too_slow),
		cmocka_unit_test(test_blocking_copy),
		cmocka_unit_test(test_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
