/* The cost of CPU offload: laws between plans, links and hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/simulator/cases.h"

static const char *const offloaded[] = {
	"runtime=pytorch-fsdp1 cpu_offload=parameters",
	"runtime=pytorch-fsdp2 cpu_offload=parameters",
	"runtime=shardplan cpu_offload=parameters",
	"runtime=shardplan cpu_offload=optimizer",
	"runtime=deepspeed strategy=ZERO_2 cpu_offload=optimizer",
	"runtime=pytorch-fsdp2 cpu_offload=7xparameters+6xnone",
};
static const char *const kept[] = {"runtime=pytorch-fsdp1", "runtime=pytorch-fsdp2",
	"runtime=shardplan", "runtime=shardplan", "runtime=deepspeed strategy=ZERO_2",
	"runtime=pytorch-fsdp2"};

static struct prediction predicted(struct case_ *c, const char *choices)
{
	struct simulation_options options = {.no_contention = true};
	case_plan(c, choices);
	return *case_simulate(c, &options, false);
}

/* Less memory, more time, never below what the links allow; the node's host has what its ranks gave
 * away. */
static void test_what_it_saves_and_costs(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(offloaded) / sizeof(offloaded[0]); i++) {
		struct case_ c;
		case_load(&c, "gpt2-124m", "dgx-a100-80gb");
		struct prediction without = predicted(&c, kept[i]),
				  with = predicted(&c, offloaded[i]);
		assert_true(with.ledger_peak_bytes < without.ledger_peak_bytes);
		assert_true(with.step_time > without.step_time);
		assert_true(with.time.copy > 0 && without.time.copy == 0);
		assert_true(with.step_time >= with.plan_lower_bound);
		assert_int_equal(without.ledger_host_peak_bytes, 0);
		assert_int_equal(without.host_memory_bytes, 0);
		assert_int_equal(with.host_memory_bytes, 8 * with.ledger_host_peak_bytes);
		assert_int_equal(with.host_memory_limit_bytes, c.topology->host.memory_bytes);
		assert_int_equal(with.fits, FITS_YES);
		case_finish(&c);
	}
}

/* The step feels the link and the host's memory, and only a plan that offloads does. */
static void test_links(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(offloaded) / sizeof(offloaded[0]); i++) {
		struct case_ c;
		case_load(&c, "gpt2-124m", "dgx-a100-80gb");
		c.topology->host.devices_per_root = 0;
		struct prediction alone = predicted(&c, offloaded[i]);
		c.topology->host.devices_per_root = 2;
		struct prediction shared = predicted(&c, offloaded[i]);
		c.topology->host.pcie_bandwidth /= 2;
		c.topology->host.devices_per_root = 0;
		struct prediction slow = predicted(&c, offloaded[i]);
		assert_true(shared.time.copy > 1.5 * alone.time.copy);
		assert_true(shared.time.copy <= 2 * alone.time.copy * (1 + 1e-9));
		assert_true(shared.step_time >= alone.step_time);
		assert_true(shared.step_time == slow.step_time); /* half a link either way */
		c.topology->host.memory_bandwidth /= 4;
		struct prediction weak = predicted(&c, offloaded[i]);
		assert_true(weak.time.optimizer > 2 * slow.time.optimizer);
		struct prediction none = predicted(&c, kept[i]);
		c.topology->host.memory_bandwidth *= 4;
		struct prediction same = predicted(&c, kept[i]);
		/* But for the batch, which passes the host link too. */
		assert_true(none.step_time >= same.step_time);
		assert_true(none.step_time < same.step_time * (1 + 1e-4));
		case_finish(&c);
	}
}

/* 28 bytes a parameter with the fused update and 88 without, through the rank's part of the host:
 * Llama-2-7B on 16 GPUs, 421,150,976 parameters a rank, 80 % of 409.6 GB/s over 8 ranks. */
static void test_host_update(void **state)
{
	(void)state;
	static const struct {
		const char *choices;
		double bytes;
	} cases[] = {{"optimizer=adamw-fused cpu_offload=parameters", 28},
		{"optimizer=adamw-foreach cpu_offload=parameters", 88}};
	for (int i = 0; i < 2; i++) {
		struct case_ c;
		case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
		struct prediction p = predicted(&c, cases[i].choices);
		double expected = cases[i].bytes * 421150976 / (0.8 * 409.6e9 / 8);
		assert_true(p.time.optimizer > expected && p.time.optimizer < 1.01 * expected);
		/* 24 GB/s shared by two: the shard comes in twice but for the root, and goes out.
		 */
		double in = 4.0 * (2 * 6738415616.0 - 262148096) / 16, out = 4 * 6738415616.0 / 16;
		double copies = (in + out) / 12e9 + (65 + 33) * 10e-6;
		assert_true(p.time.copy > 0.999 * copies && p.time.copy < 1.001 * copies);
		case_finish(&c);
	}
}

/* A host that cannot hold what the ranks give away: the control of "fits". */
static void test_small_host(void **state)
{
	(void)state;
	struct case_ c;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	struct prediction p = predicted(&c, offloaded[0]);
	assert_false(prediction_overflows_host(&p));
	c.topology->host.memory_bytes = p.host_memory_bytes;
	p = predicted(&c, offloaded[0]);
	assert_int_equal(p.fits, FITS_YES);
	c.topology->host.memory_bytes--;
	p = predicted(&c, offloaded[0]);
	assert_int_equal(p.fits, FITS_NO);
	assert_true(prediction_overflows_host(&p));
	assert_int_equal(prediction_excess_bytes(&p), 1);
	p = predicted(&c, kept[0]);
	assert_int_equal(p.fits, FITS_YES);
	case_finish(&c);
}

/* Activations: never faster than without, never slower over a faster link, less on the device. A
 * Llama's copies, 31 inputs of 4096 x 4096 in bf16, go both ways at 24 GB/s shared by two. */
static void test_activations(void **state)
{
	(void)state;
	static const char *const plans[] = {"activation_checkpointing=full seq_len=4096",
		"runtime=pytorch-fsdp1 activation_checkpointing=full seq_len=4096",
		"runtime=shardplan seq_len=4096"};
	for (int i = 0; i < 3; i++) {
		struct case_ c;
		double slower = 1e30;
		case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
		const char *choices = arena_printf(&c.arena, "%s activation_offload=%s", plans[i],
			i < 2 ? "checkpoints" : "all");
		for (double faster = 1; faster < 20; faster *= 2) {
			struct prediction without = predicted(&c, plans[i]);
			struct prediction with = predicted(&c, choices);
			assert_true(with.step_time >= without.step_time * (1 - 1e-9));
			assert_true(with.step_time <= slower * (1 + 1e-9));
			assert_true(with.step_time >= with.plan_lower_bound);
			assert_true(with.peak_memory_bytes < without.peak_memory_bytes);
			assert_int_equal(with.host_memory_bytes, 8 * with.ledger_host_peak_bytes);
			double copies = 2 * 31 * (2.0 * 4096 * 4096 / 12e9 + 10e-6);
			assert_true(i == 2 || faster > 1 ||
				    (with.time.copy > 0.999 * copies &&
					    with.time.copy < 1.001 * copies));
			slower = with.step_time;
			c.topology->host.pcie_bandwidth *= 2;
		}
		case_finish(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_it_saves_and_costs),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_host_update),
		cmocka_unit_test(test_small_host),
		cmocka_unit_test(test_activations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
