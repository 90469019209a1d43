/* Context ranks: the cost of attention by each method, and the communication beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "tests/simulator/cases.h"

#define LONG "runtime=megatron context=8 seq_len=65536 activation_checkpointing=full "

static struct prediction predicted(const char *choices, double fabric)
{
	const struct simulation_options options = {0};
	struct case_ c;

	case_load(&c, "llama-3.1-8b", "dgx-h100");
	c.topology->fabric.bandwidth *= fabric;
	case_plan(&c, choices);
	struct prediction p = *case_simulate(&c, &options, false);
	case_finish(&c);
	return p;
}

static void assert_close(double got, double expected, double tolerance)
{
	if (!(fabs(got - expected) <= tolerance * fabs(expected)))
		fail_msg("expected %.9g, got %.9g", expected, got);
}

/* The same products and bytes of keys; a round waits for no message unless links are slow, where
 * messages follow one another. */
static void a_ring_runs_beside_attention(void **state)
{
	struct prediction gathered = predicted(LONG "context_method=all-gather", 1);
	struct prediction ring = predicted(LONG "context_method=ring", 1);
	struct prediction slow = predicted(LONG "context_method=ring", 0.02);
	(void)state;
	assert_close(ring.wire_bytes_per_rank, gathered.wire_bytes_per_rank, 1e-12);
	assert_close(ring.hfu * ring.step_time, gathered.hfu * gathered.step_time, 1e-9);
	assert_true(ring.time.messages > 0.05 * ring.step_time);
	assert_true(ring.time.exposed_communication < 0.2 * ring.time.messages);
	assert_true(gathered.time.exposed_communication > ring.time.exposed_communication);
	assert_true(slow.time.exposed_communication > 0.5 * slow.time.messages);
	assert_true(slow.step_time > slow.time.messages);
	assert_true(ring.collectives[COLLECTIVE_SEND_RECV] == 32 * (7 + 7 + 8));
}

/* Rounds are shorter sequences, and are merged; whole heads are neither. */
static void shapes_of_attention_differ(void **state)
{
	double gathered = predicted(LONG "context_method=all-gather", 1).time.compute;
	double ring = predicted(LONG "context_method=ring", 1).time.compute;
	double heads = predicted(LONG "context_method=all-to-all", 1).time.compute;
	(void)state;
	assert_true(ring > 1.02 * gathered);
	assert_close(heads, gathered, 0.01);
}

/* Mistral's tokens see 4096 back: flash attention computes no more, except in a ring, eagerly, or
 * in frameworks without windows. */
static void windows_are_left_out(void **state)
{
	static const struct {
		const char *choices;
		bool left_out;
	} cases[] = {
		{"runtime=megatron", true},
		{"runtime=megatron context=8 context_method=all-gather", true},
		{"runtime=pytorch-fsdp2 context=8 context_method=ring", false},
		{"runtime=megatron attention=eager", false},
		{"runtime=pytorch-fsdp2", true},
		{"runtime=pytorch-ddp strategy=NO_SHARD", true},
		{"runtime=deepspeed strategy=ZERO_3", true},
		{"runtime=nanotron strategy=ZERO_1", false},
		{"runtime=shardplan", false},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		const struct simulation_options options = {.memory = MEMORY_IGNORED};
		double compute[2];
		for (int window = 0; window < 2; window++) {
			struct case_ c;
			case_load(&c, "mistral-7b", "dgx-h100");
			if (!window)
				c.model->architecture.attention_window = 0;
			const char *choices =
				arena_printf(&c.arena, "seq_len=32768 %s", cases[i].choices);
			case_plan(&c, choices);
			compute[window] = case_simulate(&c, &options, false)->time.compute;
			case_finish(&c);
		}
		if (cases[i].left_out ? compute[1] > 0.8 * compute[0] : compute[1] != compute[0])
			fail_msg("%s: %g s, %g without windows", cases[i].choices, compute[1],
				compute[0]);
	}
}

/* The most bytes of blocks and partial results that forward has at a time. */
static int64_t most_of_ring(const struct program *p)
{
	int64_t live = 0, most = 0;

	for (int o = 0; o < p->n_ops && p->ops[o].kind != OP_LOSS; o++)
		for (int give = 0; give < 2; give++) {
			struct slice slice = give ? p->ops[o].gives : p->ops[o].takes;
			for (int k = 0; k < slice.count; k++) {
				const struct buffer *b = &p->buffers[slice_of(p, slice)[k]];
				bool counts = b->role == BUFFER_GATHERED_TOKENS ||
					      b->role == BUFFER_PARTIAL_SUMS;
				live += counts ? (give ? -b->bytes : b->bytes) : 0;
				most = most > live ? most : live;
			}
		}
	assert_int_equal(live, 0);
	return most;
}

/* Forward keeps all blocks and results (Transformer Engine), or three blocks (torch). */
static void buffers_of_a_ring(void **state)
{
	static const char *const runtimes[] = {"megatron", "pytorch-fsdp2"};
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct case_ c;
		int64_t block = 8192 * 2 * 1024 * 2, result = 8192 * 4096;
		int64_t torch = 3 * block + 18 * result, engine = 7 * block + 8 * 2 * result;
		char choices[160];

		snprintf(choices, sizeof(choices),
			"runtime=%s context=8 seq_len=65536 context_method=ring", runtimes[i]);
		case_load(&c, "llama-3.1-8b", "dgx-h100");
		case_plan(&c, choices);
		assert_int_equal(most_of_ring(c.schedule->programs), i == 0 ? engine : torch);
		case_finish(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_runs_beside_attention),
		cmocka_unit_test(windows_are_left_out),
		cmocka_unit_test(shapes_of_attention_differ),
		cmocka_unit_test(buffers_of_a_ring),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
