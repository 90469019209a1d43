/* ZeRO as DeepSpeed, nanotron and InternEvo ship it, and our own: what is held, what goes over the
 * wire, and when. Sources: the runtimes' code (docs/runtimes.md); P = 6,738,415,616 parameters of
 * Llama-2-7B on 2 x 8 GPUs. */
#include <math.h>

#include "schedule/memory/memory.h"
#include "support.h"

static const int64_t P = 6738415616;

static struct sample build(struct arena *arena, const char *runtime, const char *strategy,
	const char *a, const char *b)
{
	struct sample sample = {.model = preset_model(arena, "llama-2-7b"),
		.topology = cluster(arena, "2xdgx-a100-80gb")};
	sample.plan = toy_plan(arena, sample.model, sample.topology,
		arena_printf(arena, "runtime=%s", runtime),
		arena_printf(arena, "strategy=%s", strategy), a, b, NULL);
	sample.schedule = toy_schedule(arena, &sample.plan, sample.model, sample.topology);
	return sample;
}

static double wire(const struct schedule *schedule)
{
	const struct program *p = &schedule->programs[0];
	double total = 0;
	for (int i = 0; i < p->n_ops; i++)
		if (op_kind_class(p->ops[i].kind) == OP_CLASS_COLLECTIVE)
			total += collective_wire_bytes(p->ops[i].kind,
				schedule->groups[p->ops[i].group].size, p->ops[i].bytes);
	return total;
}

static int64_t payload(const struct schedule *schedule, enum op_kind kind)
{
	const struct program *p = &schedule->programs[0];
	int64_t total = 0;
	for (int i = 0; i < p->n_ops; i++)
		if (p->ops[i].kind == kind && p->ops[i].bytes > 1000)
			total += p->ops[i].bytes;
	return total;
}

static void assert_close(double value, double expected)
{
	if (value < 0.9999 * expected || value > 1.0001 * expected)
		fail_msg("%.6g, expected %.6g", value, expected);
}

/* --- bytes ---------------------------------------------------------------------------------------
 */

/* Model states in bytes per parameter, whole and divided by the ranks that share them; payloads of
 * the step in bytes per parameter. */
static const struct {
	const char *runtime, *strategy, *option;
	double parameters, gradients;                  /* held; + 4 / shared_by of masters */
	double all_reduce, reduce_scatter, all_gather; /* payload */
	double shared_by;
} rows[] = {
	{"deepspeed", "ZERO_1", NULL, 2, 2, 2, 0, 2, 16},
	{"deepspeed", "ZERO_2", NULL, 2, 2 / 16., 2, 0, 2, 16},
	{"nanotron", "ZERO_1", NULL, 2, 4, 4, 0, 2, 16},
	{"nanotron", "NO_SHARD", NULL, 2, 4, 4, 0, 0, 1},
	{"megatron", "ZERO_1", NULL, 2, 4, 0, 4, 2, 16},
	{"megatron", "NO_SHARD", NULL, 2, 4, 4, 0, 0, 1},
	{"internevo", "ZERO_1", NULL, 2, 2, 2, 0, 2, 16},
	{"internevo", "ZERO_1", "shard_group=8", 2, 2, 2, 0, 2, 8},
	{"shardplan", "ZERO_1", NULL, 2, 4 / 16., 0, 4, 2, 16},
	{"shardplan", "ZERO_2", NULL, 2, 4 / 16., 0, 4, 2, 16},
};

static void test_bytes(void **state)
{
	(void)state;
	for (int r = 0; r < COUNT_OF(rows); r++) {
		struct arena arena = {0};
		struct sample s =
			build(&arena, rows[r].runtime, rows[r].strategy, rows[r].option, NULL);
		struct model_states held = schedule_model_states(s.schedule, 0);
		double n = rows[r].shared_by, p = (double)P;
		assert_close((double)held.parameters, p * (rows[r].parameters + 4 / n));
		assert_close((double)held.gradients, p * rows[r].gradients);
		assert_close((double)held.optimizer_state, p * 8 / n);
		assert_close(
			(double)payload(s.schedule, OP_ALL_REDUCE) + 1, p * rows[r].all_reduce + 1);
		assert_close((double)payload(s.schedule, OP_REDUCE_SCATTER) + 1,
			p * rows[r].reduce_scatter + 1);
		assert_close(
			(double)payload(s.schedule, OP_ALL_GATHER) + 1, p * rows[r].all_gather + 1);
		assert_close(wire(s.schedule),
			p * (2 * 15 / 16. * rows[r].all_reduce + 15 / 16. * rows[r].reduce_scatter +
				    (n > 1 ? (n - 1) / n : 0) * rows[r].all_gather));
		arena_finish(&arena);
	}
}

/* The same in GB, as people quote it: model states of stages 1, 2, 3; 37.90 GB on the wire. */
static void test_known_figures(void **state)
{
	(void)state;
	static const struct {
		const char *strategy;
		double parameters, gradients, optimizer_state;
	} known[] = {
		{"ZERO_1", 15.161, 13.477, 3.369},
		{"ZERO_2", 15.161, 0.842, 3.369},
		{"ZERO_3", 2.527, 0.842, 3.369},
	};
	for (int k = 0; k < COUNT_OF(known); k++) {
		struct arena arena = {0};
		struct sample s = build(&arena, "deepspeed", known[k].strategy, NULL, NULL);
		struct model_states held = schedule_model_states(s.schedule, 0);
		assert_true(fabs((double)held.parameters / 1e9 - known[k].parameters) < 0.001);
		assert_true(fabs((double)held.gradients / 1e9 - known[k].gradients) < 0.001);
		assert_true(fabs((double)held.optimizer_state / 1e9 - known[k].optimizer_state) <
			    0.001);
		if (k < 2)
			assert_true(fabs(wire(s.schedule) / 1e9 - 37.90) < 0.01);
		arena_finish(&arena);
	}
}

/* --- when ----------------------------------------------------------------------------------------
 */

static int last_of(const struct program *p, enum op_kind kind)
{
	int i = p->n_ops - 1;
	while (i >= 0 && p->ops[i].kind != kind)
		i--;
	return i;
}

static int first_of(const struct program *p, enum op_kind kind)
{
	int i = 0;
	while (i < p->n_ops && p->ops[i].kind != kind)
		i++;
	return i;
}

/* Does an operation of the compute stream wait for a reduction before backward is through? */
static bool blocks_compute(const struct program *p)
{
	int last = last_of(p, OP_BACKWARD);
	for (int i = 0; i < last; i++)
		for (int w = 0; w < p->ops[i].waits.count; w++) {
			int wait = slice_of(p, p->ops[i].waits)[w];
			if (wait >= 0 && p->ops[i].stream == STREAM_COMPUTE &&
				p->ops[i].kind == OP_ACCUMULATE_GRADIENTS &&
				p->ops[wait].kind == OP_ALL_REDUCE)
				return true;
		}
	return false;
}

/* DeepSpeed's stage 1 reduces when backward is through, stage 2 within, and compute waits;
 * InternEvo and nanotron's DDP reduce beside it; nanotron's ZeRO-1 afterwards, all at once. */
static void test_moments(void **state)
{
	(void)state;
	static const struct {
		const char *runtime, *strategy;
		bool within, blocks;
		int all_reduces;
	} cases[] = {
		{"deepspeed", "ZERO_1", false, false, 14},
		{"deepspeed", "ZERO_2", true, true, 14},
		{"nanotron", "ZERO_1", false, false, 1},
		{"nanotron", "NO_SHARD", true, false, 226},
		{"internevo", "ZERO_1", true, false, 14},
	};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct arena arena = {0};
		struct sample s = build(&arena, cases[c].runtime, cases[c].strategy, NULL, NULL);
		const struct program *p = &s.schedule->programs[0];
		int n = count_group(s.schedule, OP_ALL_REDUCE, GROUP_WORLD);
		if (n != cases[c].all_reduces)
			fail_msg("%s %s: %d", cases[c].runtime, cases[c].strategy, n);
		assert_int_equal(
			first_of(p, OP_ALL_REDUCE) < last_of(p, OP_BACKWARD), cases[c].within);
		assert_int_equal(blocks_compute(p), cases[c].blocks);
		/* one gather of everything, when the parameters are new */
		assert_int_equal(count_ops(s.schedule, OP_ALL_GATHER, -1),
			strcmp(cases[c].strategy, "NO_SHARD") != 0);
		assert_true(last_of(p, OP_ALL_GATHER) < 0 ||
			    last_of(p, OP_ALL_GATHER) > last_of(p, OP_OPTIMIZER));
		arena_finish(&arena);
	}
}

/* Micro-batches: stage 2 reduces in each, the others in the last. */
static void test_accumulation(void **state)
{
	(void)state;
	static const struct {
		const char *runtime, *strategy;
		bool each;
	} cases[] = {{"deepspeed", "ZERO_1", false}, {"deepspeed", "ZERO_2", true},
		{"deepspeed", "ZERO_3", true}, {"nanotron", "ZERO_1", false},
		{"nanotron", "NO_SHARD", false}, {"internevo", "ZERO_1", false},
		{"megatron", "ZERO_1", false}, {"megatron", "NO_SHARD", false},
		{"shardplan", "ZERO_1", false}, {"shardplan", "ZERO_2", true}};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct arena arena = {0};
		struct sample s =
			build(&arena, cases[c].runtime, cases[c].strategy, "grad_accum=3", NULL);
		const struct program *p = &s.schedule->programs[0];
		int in[3] = {0};
		for (int i = 0; i < p->n_ops; i++)
			if (p->ops[i].micro_batch >= 0 && (p->ops[i].kind == OP_REDUCE_SCATTER ||
								  p->ops[i].kind == OP_ALL_REDUCE))
				in[p->ops[i].micro_batch]++;
		assert_true(in[2] > 0);
		assert_int_equal(in[0], cases[c].each ? in[2] : 0);
		assert_int_equal(in[1], cases[c].each ? in[2] : 0);
		arena_finish(&arena);
	}
}

/* --- buckets -------------------------------------------------------------------------------------
 */

/* A bucket closes before it would exceed the limit, and not earlier. */
static void check_buckets(const struct sample *s, int64_t limit)
{
	for (int u = 0; u < s->schedule->programs->n_units; u++) {
		const struct unit *unit = &s->schedule->programs->units[u];
		assert_true(unit->parameters <= limit || unit->n_slices == 1);
		if (u + 1 < s->schedule->programs->n_units)
			assert_true(unit->parameters + unit[1].slices[0].elements > limit);
	}
}

static void test_buckets(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample s = build(&arena, "deepspeed", "ZERO_2", NULL, NULL);
	check_buckets(&s, 500000000);
	s = build(&arena, "internevo", "ZERO_1", NULL, NULL);
	check_buckets(&s, 512 << 20);
	arena_finish(&arena);
}

/* What was reduced goes back into all gradients of the bucket (InternEvo), or the owner keeps its
 * slice (DeepSpeed). */
static void test_copies(void **state)
{
	(void)state;
	static const char *const runtimes[] = {"internevo", "deepspeed"};
	for (int r = 0; r < COUNT_OF(runtimes); r++) {
		struct arena arena = {0};
		struct sample s = build(&arena, runtimes[r], "ZERO_1", NULL, NULL);
		const struct program *p = &s.schedule->programs[0];
		int64_t copied = 0, elements = 0;
		for (int i = 0; i < p->n_ops; i++)
			if (p->ops[i].kind == OP_ACCUMULATE_GRADIENTS)
				copied += p->ops[i].bytes;
		for (int u = 0; u < s.schedule->programs->n_units; u++)
			elements += r == 0 ? s.schedule->programs->units[u].gathered
					   : s.schedule->programs->units[u].chunk;
		assert_int_equal(copied, 4 * elements);
		arena_finish(&arena);
	}
}

/* nanotron gathers updated parameters in copies: the rank's own part, that of each rank, and all of
 * them once more. */
static void test_gathered_copies(void **state)
{
	struct arena arena = {0};
	struct sample s = build(&arena, "nanotron", "ZERO_1", NULL, NULL);
	const struct program *p = &s.schedule->programs[0];
	int64_t ranks = plan_data_parallel(&s.schedule->plan), part = 0, bytes = 0, n = 0;
	(void)state;
	for (int u = 0; u < p->n_units; u++)
		part += p->units[u].chunk * 2;
	for (int b = 0; b < p->n_buffers; b++) {
		if (p->buffers[b].role != BUFFER_LOW_PRECISION_SHARD)
			continue;
		n++;
		bytes += p->buffers[b].bytes;
	}
	assert_int_equal(n, ranks + 2);
	assert_int_equal(bytes, part * (2 * ranks + 1));
	arena_finish(&arena);
}

/* --- stage 3 -------------------------------------------------------------------------------------
 */

static bool is_small(const struct unit *unit)
{
	for (int i = 0; i < unit->n_slices; i++)
		if (unit->slices[i].elements > 100000)
			return false;
	return unit->parameters > 0;
}

/* Leaves are units; the norms stay; what forward ends with is kept for backward; prefetches carry
 * up to 5e7 elements and the parameter that exceeds them. */
static void test_stage3_gathers(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample s = build(&arena, "deepspeed", "ZERO_3", NULL, NULL);
	const struct program *p = &s.schedule->programs[0];
	int *gathers = ARENA_ARRAY(&arena, int, s.schedule->programs->n_units);
	int64_t live = 0, most = 0;
	assert_int_equal(s.schedule->programs->n_units, 1 + 32 * 9 + 3);
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		for (int k = 0; k < op->takes.count; k++) {
			const struct buffer *buffer = &p->buffers[slice_of(p, op->takes)[k]];
			if (buffer->role != BUFFER_UNSHARDED)
				continue;
			gathers[buffer->unit]++;
			live += buffer->bytes / 2;
			most = max_i64(most, live);
		}
		for (int k = 0; k < op->gives.count; k++) {
			const struct buffer *buffer = &p->buffers[slice_of(p, op->gives)[k]];
			live -= buffer->role == BUFFER_UNSHARDED ? buffer->bytes / 2 : 0;
		}
		if (op->kind == OP_ALL_GATHER && op->micro_batch >= 0 && op->cause >= 0)
			assert_in_range(op->bytes / 2, 16777216, 50000000 + 131072000);
	}
	assert_int_equal(live, 0);
	assert_in_range(most, 900000000, 1000000000 + 131072000);
	for (int u = 0; u < s.schedule->programs->n_units; u++) {
		const struct unit *unit = &s.schedule->programs->units[u];
		bool late = unit->module >= s.schedule->programs->units[1 + 9 * 31].module;
		if (unit->parameters == 0 || is_small(unit))
			assert_int_equal(gathers[u], 0);
		else if (u == 1 || late) /* the embedding is not read by backward: it is fetched */
			assert_int_equal(gathers[u], u == 1 ? 2 : 1);
	}
	arena_finish(&arena);
}

/* Each gradient is reduce-scattered once, in buckets of at most 5e8 elements; the host runs no
 * more than two reductions ahead. */
static void test_stage3_reductions(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample s = build(&arena, "deepspeed", "ZERO_3", NULL, NULL);
	const struct program *p = &s.schedule->programs[0];
	int *reduced = ARENA_ARRAY(&arena, int, s.schedule->programs->n_units), host_waits = 0;
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		host_waits += op->host_waits.count;
		if (op->kind != OP_REDUCE_SCATTER)
			continue;
		assert_true(op->bytes <= 2 * 500000000);
		for (int k = 1; k < op->uses.count; k++)
			reduced[p->buffers[slice_of(p, op->uses)[k]].unit]++;
	}
	for (int u = 0; u < s.schedule->programs->n_units; u++)
		assert_int_equal(reduced[u], s.schedule->programs->units[u].parameters > 0);
	assert_int_equal(count_ops(s.schedule, OP_REDUCE_SCATTER, -1), 14);
	assert_int_equal(host_waits, 14 - 3 + 1);
	arena_finish(&arena);
}

/* --- ours ----------------------------------------------------------------------------------------
 */

/* ZERO_3 is FULL_SHARD; stages 1 and 2 gather each unit once, behind its update. */
static void test_ours(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample full = build(&arena, "shardplan", "FULL_SHARD", NULL, NULL);
	struct sample three = build(&arena, "shardplan", "ZERO_3", NULL, NULL);
	struct text a = {0}, b = {0};
	three.schedule->plan.strategy = STRATEGY_FULL_SHARD;
	schedule_print(full.schedule, &a);
	schedule_print(three.schedule, &b);
	assert_string_equal(text_string(&a), text_string(&b));
	text_finish(&a);
	text_finish(&b);
	for (int stage = 1; stage <= 2; stage++) {
		struct sample s = build(&arena, "shardplan", stage == 1 ? "ZERO_1" : "ZERO_2",
			"grad_accum=2", NULL);
		const struct program *p = &s.schedule->programs[0];
		assert_int_equal(count_ops(s.schedule, OP_ALL_GATHER, -1), 33);
		assert_int_equal(count_ops(s.schedule, OP_REDUCE_SCATTER, -1), 33 * stage);
		assert_int_equal(count_ops(s.schedule, OP_RESHARD, -1), 0);
		assert_true(first_of(p, OP_ALL_GATHER) > first_of(p, OP_OPTIMIZER));
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_known_figures),
		cmocka_unit_test(test_moments),
		cmocka_unit_test(test_accumulation),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_gathered_copies),
		cmocka_unit_test(test_stage3_gathers),
		cmocka_unit_test(test_stage3_reductions),
		cmocka_unit_test(test_ours),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
