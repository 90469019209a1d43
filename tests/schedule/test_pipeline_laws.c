/* Laws of pipeline orders, for random numbers of ranks, stages and micro-batches: each pass once,
 * no deadlock, the published bubbles, and what is in flight; and what passes of a schedule wait
 * for. */
#include <math.h>

#include "pipelines.h"

enum { TIMES = 2000 };

/* One that pipeline_check accepts; half of the interleaved ones have Megatron's groups. */
static struct pipeline random_pipeline(uint64_t *state)
{
	for (;;) {
		struct pipeline pipeline = {.schedule = (enum pipeline_schedule)random_below(
						    state, PIPELINE_SCHEDULE_COUNT),
			.ranks = 1 + (int)random_below(state, 10),
			.chunks = 1 + (int)random_below(state, 5),
			.micro_batches = 1 + (int)random_below(state, 40)};
		if (pipeline.schedule == PIPELINE_INTERLEAVED) {
			pipeline.group = (int)random_below(state, 2) *
					 (pipeline.ranks + (int)random_below(state, 3));
			pipeline.pairs = random_below(state, 4) == 0;
		}
		if (pipeline_check(&pipeline, false, NULL))
			return pipeline;
	}
}

static int group_of(const struct pipeline *pipeline)
{
	int m = pipeline->micro_batches, p = pipeline->ranks;
	return pipeline->group > 0 ? pipeline->group : m < p ? m : m / (m / p);
}

static void fail_with(const struct pipeline *q, const char *what, double expected, double got)
{
	fail_msg("%s p %d v %d m %d g %d pairs %d: %s: expected %g, got %g",
		pipeline_schedule_names[q->schedule], q->ranks, q->chunks, q->micro_batches,
		q->group, q->pairs, what, expected, got);
}

/* --- each once -----------------------------------------------------------------------------------
 */

/* Every chunk and micro-batch has a forward, then its backward: whole, or dX and then dW. */
static void check_slots(const struct pipeline *pipeline, int rank)
{
	struct arena arena = {0};
	struct pipeline_slot *slots;
	int m = pipeline->micro_batches, all = m * pipeline->chunks;
	int n = pipeline_order(pipeline, rank, &arena, &slots);
	int *passed = ARENA_ARRAY(&arena, int, all);
	for (int i = 0; i < n; i++) {
		struct pipeline_slot slot = slots[i];
		assert_in_range(slot.chunk, 0, pipeline->chunks - 1);
		assert_in_range(slot.micro_batch, 0, m - 1);
		/* 0, forward: 1, dX: 2, dW or whole: 3. */
		int *place = &passed[slot.chunk * m + slot.micro_batch];
		static const int needs[] = {0, 1, 1, 2}, makes[] = {1, 3, 2, 3};
		assert_int_equal(*place, needs[slot.pass]);
		*place = makes[slot.pass];
		if (slot.with_next) {
			assert_int_equal(slot.pass, PIPELINE_FORWARD);
			assert_int_equal(slots[i + 1].pass, PIPELINE_BACKWARD);
		}
	}
	for (int i = 0; i < all; i++)
		assert_int_equal(passed[i], 3);
	arena_finish(&arena);
}

static void test_each_once(void **state)
{
	(void)state;
	uint64_t seed = 1;
	for (int i = 0; i < TIMES; i++) {
		struct pipeline pipeline = random_pipeline(&seed);
		check_slots(&pipeline, (int)random_below(&seed, pipeline.ranks));
	}
}

/* --- runs ----------------------------------------------------------------------------------------
 */

/* Whatever the passes take. */
static void test_no_deadlock(void **state)
{
	(void)state;
	uint64_t seed = 2;
	for (int i = 0; i < TIMES; i++) {
		struct arena arena = {0};
		struct pipeline pipeline = random_pipeline(&seed);
		struct pass_times times = {1, 1, 1, 2};
		if (!run_pipeline(&pipeline, &times, &arena).ends)
			fail_with(&pipeline, "runs to its end", 1, 0);
		arena_finish(&arena);
	}
}

static double most_idle(const struct pipeline *pipeline, const struct pipeline_run *run)
{
	double most = 0;
	for (int k = 0; k < pipeline->ranks; k++)
		most = fmax(most, run->end - run->busy[k]);
	return most;
}

/* The times for which a formula is published; dW is the shortest. */
static struct pass_times random_times(uint64_t *state, enum pipeline_schedule schedule)
{
	bool even = schedule == PIPELINE_ZBV || schedule == PIPELINE_DUALPIPEV;
	double forward = 1 + (double)random_below(state, 1000) / 1000;
	double input = even ? forward : 1 + (double)random_below(state, 1000) / 1000;
	double weight = even ? forward : (double)(1 + random_below(state, 1000)) / 1000;
	return (struct pass_times){forward, input, weight,
		(forward + input + weight) * (1 - (double)random_below(state, 300) / 1000)};
}

static void test_bubbles(void **state)
{
	(void)state;
	uint64_t seed = 3;
	int seen[PIPELINE_SCHEDULE_COUNT] = {0};
	for (int i = 0; i < TIMES; i++) {
		struct arena arena = {0};
		struct pipeline pipeline = random_pipeline(&seed);
		struct pass_times times = random_times(&seed, pipeline.schedule);
		double expected = pipeline_bubble(&pipeline, &times);
		if (!isnan(expected)) {
			struct pipeline_run run = run_pipeline(&pipeline, &times, &arena);
			double got = most_idle(&pipeline, &run);
			if (fabs(got - expected) > 1e-9 * run.end)
				fail_with(&pipeline, "idle", expected, got);
			seen[pipeline.schedule]++;
		}
		arena_finish(&arena);
	}
	for (int s = 0; s < PIPELINE_SCHEDULE_COUNT; s++)
		assert_true(seen[s] > 20);
}

/* As shares of a step: (p-1)/(m+p-1) of it, interleaved (p-1)/(vm) of the work. */
static void test_shares(void **state)
{
	(void)state;
	for (int v = 1; v <= 4; v++)
		for (int p = 1; p <= 8; p++) {
			struct arena arena = {0};
			struct pass_times times = {1, 1, 1, 0};
			struct pipeline pipeline = {v == 1 ? PIPELINE_1F1B : PIPELINE_INTERLEAVED,
				p, v, 3 * p, 0, false};
			struct pipeline_run run = run_pipeline(&pipeline, &times, &arena);
			double m = 3 * p, idle = run.end - run.busy[0];
			assert_true(fabs(idle / run.busy[0] - (p - 1) / (v * m)) < 1e-9);
			if (v == 1)
				assert_true(fabs(idle / run.end - (p - 1) / (m + p - 1)) < 1e-9);
			arena_finish(&arena);
		}
}

/* "Zero bubble": between its first slot and its last one a rank of zbv never idles. */
static void test_zbv_never_idles(void **state)
{
	(void)state;
	for (int p = 1; p <= 8; p++)
		for (int m = 2 * p - 1; m <= 4 * p; m++) {
			struct arena arena = {0};
			struct pass_times times = {1, 1, 1, 0};
			struct pipeline pipeline = {PIPELINE_ZBV, p, 2, m, 0, false};
			struct pipeline_run run = run_pipeline(&pipeline, &times, &arena);
			for (int k = 0; k < p; k++)
				assert_true(fabs(run.span[k] - run.busy[k]) < 1e-9);
			arena_finish(&arena);
		}
}

/* --- in flight -----------------------------------------------------------------------------------
 */

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

/* -1: no formula. */
static int in_flight_of(const struct pipeline *q, int k)
{
	int p = q->ranks, v = q->chunks, m = q->micro_batches, g = group_of(q);
	const int of[PIPELINE_SCHEDULE_COUNT] = {
		[PIPELINE_GPIPE] = m,
		[PIPELINE_1F1B] = smaller(m, p - k),
		[PIPELINE_INTERLEAVED] =
			smaller(m * v, 2 * (p - 1 - k) + (v - 1) * g + 1 + q->pairs),
		[PIPELINE_ZB_H1] = smaller(m * v, p + (v - 1) * g),
		[PIPELINE_ZBV] = m >= 2 * p - 1 ? 2 * p : -1,
		[PIPELINE_DUALPIPEV] = 2 * p + 1,
	};
	return of[q->schedule];
}

static void test_in_flight(void **state)
{
	(void)state;
	uint64_t seed = 4;
	for (int i = 0; i < TIMES; i++) {
		struct arena arena = {0};
		struct pipeline pipeline = random_pipeline(&seed);
		struct pass_times times = {1, 1, 1, 2};
		struct pipeline_run run = run_pipeline(&pipeline, &times, &arena);
		for (int k = 0; k < pipeline.ranks; k++) {
			struct pipeline_slot *slots;
			int n = pipeline_order(&pipeline, k, &arena, &slots);
			int got = pipeline_in_flight(slots, n);
			int expected = in_flight_of(&pipeline, k);
			assert_int_equal(got, run.held[k]);
			if (expected >= 0 && got != expected)
				fail_with(&pipeline, "in flight", expected, got);
		}
		arena_finish(&arena);
	}
}

static bool waits_for(const struct program *program, const struct op *op, int before)
{
	const int *waits = slice_of(program, op->waits);

	for (int i = 0; i < op->waits.count; i++)
		if (waits[i] == before)
			return true;
	return false;
}

/* Ours lets two gradients at most await their reduction within a pass, and none of the pass before.
 * With one micro-batch two passes of a rank differ by their chunk alone. */
static void test_gradients_leave_before_the_next_pass(void **state)
{
	struct arena arena = {0};
	const struct schedule *schedule = build_words(&arena, "gpt2-124m", "dgx-a100-80gb",
		"runtime=shardplan pipeline=2 pipeline_schedule=interleaved virtual_stages=2 "
		"grad_accum=1 strategy=FULL_SHARD");
	int passes = 0;

	(void)state;
	for (int c = 0; c < schedule->n_classes; c++) {
		const struct program *program = &schedule->programs[c];
		int reduced = -1;
		bool over = false; /* the pass: it has sent its last gradient */

		for (int i = 0; i < program->n_ops; i++) {
			const struct op *op = &program->ops[i];

			if (op->kind == OP_REDUCE_SCATTER)
				reduced = i;
			if (op->kind == OP_SEND && reduced >= 0)
				over = true;
			if (op->kind != OP_BACKWARD || !over)
				continue;
			assert_true(waits_for(program, op, reduced));
			over = false;
			passes++;
		}
	}
	assert_int_equal(passes, 2);
	arena_finish(&arena);
}

/* --- two passes side by side, and what a backward begins with ------------------------------------
 */

enum { BLOCKS = 32 };

static struct schedule *built(struct arena *arena, const char *words)
{
	return build_words(arena, "mixtral-8x7b", "2xdgx-h100",
		arena_printf(arena, "runtime=megatron seq_len=2048 %s", words));
}

/* "forward 1", one a line: operations of blocks and what they exchange, with their micro-batch,
 * from the first that takes the gradients of block `back` to its experts, to the end of the block's
 * backward. */
static const char *pair_of(struct arena *arena, const struct program *p, int micro_batch, int back)
{
	struct text text = {0};
	int at = 0;
	while (p->ops[at].kind != OP_BACKWARD || p->ops[at].layer != back ||
		p->ops[at].micro_batch != micro_batch)
		at++;
	while (p->ops[at].kind != OP_ALL_TO_ALL || p->ops[at].micro_batch != micro_batch)
		at--;
	for (bool ends = false; !ends; at++) {
		const struct op *op = &p->ops[at];
		if (op->unit >= 0 && op->layer < 0)
			continue;
		text_printf(&text, "%s %d\n", op_kind_name(op->kind), op->micro_batch);
		ends = op->kind == OP_BACKWARD &&
		       !module_kind_is_of_experts(p->model->modules[op->first_module].kind);
	}
	const char *order = arena_printf(arena, "%s", text_string(&text));
	text_finish(&text);
	return order;
}

/* TransformerLayerSchedulePlan.run (model_chunk_schedule_plan.py, d98e8a64): combine_bwd;
 * pre_dispatch_fwd; mlp_bwd; dispatch_fwd; dispatch_bwd; mlp_fwd; combine_fwd; pre_dispatch_bwd. */
static void test_pairs(void **state)
{
	static const char *const words[] = {"expert=8 grad_accum=3 expert_overlap=on",
		"expert=8 grad_accum=4 pipeline=2 pipeline_schedule=interleaved expert_overlap=on"};
	static const char expected[] = "all_to_all 0\n"
				       "forward %d\n"
				       "backward 0\n"
				       "all_gather %d\n"
				       "all_to_all %d\n"
				       "all_to_all %d\n"
				       "all_to_all 0\n"
				       "all_to_all 0\n"
				       "forward %d\n"
				       "all_to_all %d\n"
				       "backward 0\n";
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct arena arena = {0};
		const struct schedule *s = built(&arena, words[i]);
		const struct program *last = &s->programs[s->n_classes - 1];
		int back = (int)last->model->architecture.layers - 2;
		assert_string_equal(pair_of(&arena, last, 0, back),
			arena_printf(&arena, expected, 1, 1, 1, 1, 1, 1));
		arena_finish(&arena);
	}
}

/* Rows wait for what computes them, and compute for its rows; never for the other micro-batch. */
static void test_waits_of_pairs(void **state)
{
	struct arena arena = {0};
	const struct schedule *s = built(&arena, "expert=8 grad_accum=3 expert_overlap=on");
	const struct program *p = &s->programs[0];
	int waits = 0;
	(void)state;
	for (int i = 0; i < p->n_ops; i++)
		for (int w = 0; w < p->ops[i].waits.count; w++) {
			int on = slice_of(p, p->ops[i].waits)[w];
			const struct op *op = &p->ops[i], *other = &p->ops[on < 0 ? i : on];
			bool rows = op->stream == STREAM_EXPERT || other->stream == STREAM_EXPERT;
			if (!rows || on < 0 || op->micro_batch < 0)
				continue;
			waits++;
			if (op->micro_batch != other->micro_batch)
				fail_msg("operation %d waits for %d", i, on);
		}
	/* Seven for a block's forward and backward: of rows, weights and counts for compute, and of
	 * compute for rows. */
	assert_in_range(waits, 3 * BLOCKS * 7, 3 * BLOCKS * 12);
	arena_finish(&arena);
}

/* What a stage sends forward waits for its own micro-batch, not for the backward beside it. The
 * last micro-batch goes through the first stages of both ranks beside another one. */
static void test_messages_of_pairs(void **state)
{
	struct arena arena = {0};
	const struct schedule *s = built(&arena,
		"expert=8 grad_accum=4 pipeline=2 pipeline_schedule=interleaved expert_overlap=on");
	int sent = 0;
	(void)state;
	for (int c = 0; c < s->n_classes; c++) {
		const struct program *p = &s->programs[c];
		for (int i = 0; i < p->n_ops; i++) {
			const struct op *op = &p->ops[i];
			if (op->kind != OP_SEND || op->micro_batch != 3 ||
				op->message.direction != DIRECTION_FORWARD)
				continue;
			sent++;
			for (int w = 0; w < op->waits.count; w++)
				assert_int_equal(p->ops[slice_of(p, op->waits)[w]].micro_batch, 3);
		}
	}
	assert_int_equal(sent, 3);
	arena_finish(&arena);
}

/* The gradient that a stage receives is what its backward first sends to experts. */
static void test_received_first(void **state)
{
	static const char *const words[] = {
		"expert=8 grad_accum=4 pipeline=2 pipeline_schedule=interleaved",
		"expert=8 grad_accum=4 pipeline=2 pipeline_schedule=interleaved expert_overlap=on",
		"expert=8 grad_accum=4 pipeline=2"};
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct arena arena = {0};
		const struct schedule *s = built(&arena, words[i]);
		int received = 0;
		for (int c = 0; c < s->n_classes; c++) {
			const struct program *p = &s->programs[c];
			for (int o = 0; o < p->n_ops; o++) {
				int next = o + 1;
				if (p->ops[o].kind != OP_RECV ||
					p->ops[o].message.direction != DIRECTION_BACKWARD)
					continue;
				while (p->ops[next].micro_batch != p->ops[o].micro_batch)
					next++;
				assert_true(p->ops[next].group >= 0);
				assert_true(waits_for(p, &p->ops[next], o));
				received++;
			}
		}
		assert_true(received > 0);
		arena_finish(&arena);
	}
}

/* The same is computed and exchanged, in another order. */
static void test_work_of_pairs(void **state)
{
	static const char *const words[] = {"expert=8 grad_accum=3",
		"expert=4 tensor=2 grad_accum=2",
		"expert=4 grad_accum=4 pipeline=4 pipeline_schedule=interleaved"};
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct arena arena = {0};
		const struct schedule *apart = built(&arena, words[i]);
		const struct schedule *pairs =
			built(&arena, arena_printf(&arena, "%s expert_overlap=on", words[i]));
		for (int c = 0; c < apart->n_classes; c++) {
			const struct program *a = &apart->programs[c], *b = &pairs->programs[c];
			int64_t n[2][OP_KIND_COUNT] = {0}, bytes[2] = {0};
			assert_int_equal(a->n_ops, b->n_ops);
			for (int o = 0; o < a->n_ops; o++) {
				n[0][a->ops[o].kind]++;
				n[1][b->ops[o].kind]++;
				bytes[0] += a->ops[o].bytes;
				bytes[1] += b->ops[o].bytes;
			}
			assert_memory_equal(n[0], n[1], sizeof(n[0]));
			assert_int_equal(bytes[0], bytes[1]);
		}
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_once),
		cmocka_unit_test(test_no_deadlock),
		cmocka_unit_test(test_bubbles),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_zbv_never_idles),
		cmocka_unit_test(test_gradients_leave_before_the_next_pass),
		cmocka_unit_test(test_in_flight),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_waits_of_pairs),
		cmocka_unit_test(test_messages_of_pairs),
		cmocka_unit_test(test_received_first),
		cmocka_unit_test(test_work_of_pairs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
