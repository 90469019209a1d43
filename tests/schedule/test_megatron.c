/* Runtime megatron: bytes that Megatron-LM's own tests print, its buckets, and when they are
 * reduced. */
#include <stdlib.h>
#include <string.h>

#include "schedule/memory/memory.h"
#include "support.h"

/* --- bytes ---------------------------------------------------------------------------------------
 */

/* The GPT of the tests. */
static struct model *gpt(struct arena *arena)
{
	static const char text[] =
		"shardplan: model/1\nname: gpt\nfamily: gpt2\nlayers: 12\nhidden: 512\nheads: 8\n"
		"ffn: 2048\nvocab: 50257\ncontext: 1024\n";
	struct error error = {0};
	struct model *model;
	if (!model_parse(arena, "gpt", text, strlen(text), &model, &error))
		fail_msg("%s", error.message);
	return model;
}

static int64_t steady_bytes(const struct program *program)
{
	int64_t total = 0;
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident)
			total += program->buffers[i].bytes;
	return total;
}

static void assert_near(int64_t bytes, int64_t measured, double per_cent)
{
	double error = 100 * ((double)bytes / (double)measured - 1);
	if (error < -per_cent || error > per_cent)
		fail_msg("%lld bytes, measured %lld: %+.2f %%", (long long)bytes,
			(long long)measured, error);
}

/* NVIDIA/Megatron-LM, tests/functional_tests/test_cases/gpt, golden values of 8 A100: the largest
 * allocation of the last rank, and what is allocated between steps. Of the calibrating part. */
static const struct {
	const char *words[6];
	int64_t peak, steady;
	double peak_within, steady_within; /* per cent */
} golden[] = {
	{{"strategy=ZERO_1", "attention=eager", "overlap=none", "dropout=on"}, 4673069373,
		552128783, 0.02, 0.01},
	{{"strategy=ZERO_1", "overlap=none", "dropout=on"}, 2711714575, 552128783, 0.02, 0.01},
	{{"strategy=ZERO_1", "shard_group=2", "tensor=2", "sequence_parallel=off", "dropout=on"},
		1677507925, 462388663, 0.2, 0.6},
	{{"strategy=ZERO_1", "shard_group=2", "tensor=2", "sequence_parallel=off", "dropout=on",
		 "attention=eager"},
		2658183177, 462388663, 0.2, 0.6},
	{{"strategy=ZERO_1", "tensor=4", "sequence_parallel=off", "dropout=on", "attention=eager"},
		1513530369, 269843132, 0.8, 0.3},
};

static void test_golden(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(golden); i++) {
		const char *const *words = golden[i].words;
		struct arena arena = {0};
		struct ledger ledger;
		struct model *model = gpt(&arena);
		struct topology *topology = cluster(&arena, "1xdgx-a100-80gb");
		/* CUBLAS_WORKSPACE_CONFIG=:4096:8 of the deterministic mode */
		topology->overheads.workspace_bytes = 8 * (4 << 20);
		struct plan plan = toy_plan(&arena, model, topology, "runtime=megatron",
			"micro_batch=4", "global_batch=32", words[0], words[1], words[2], words[3],
			words[4], words[5], NULL);
		struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
		schedule_ledger(schedule, 0, &arena, &ledger);
		assert_near(ledger.peak_bytes, golden[i].peak, golden[i].peak_within);
		assert_near(steady_bytes(schedule->programs), golden[i].steady,
			golden[i].steady_within);
		arena_finish(&arena);
	}
}

/* From Hopper on attention is cuDNN's: its result is the projection's input. q and k, which were
 * rotated, are kept beside the projection of all three. */
static void test_kernels(void **state)
{
	static const char *const nodes[] = {"1xdgx-a100-80gb", "dgx-h100"};
	const int64_t tokens = 4096, layers = 32, heads = 32, kv_heads = 8, head_dim = 128;
	int64_t activations[2] = {0};
	(void)state;
	for (int n = 0; n < 2; n++) {
		struct arena arena = {0};
		struct ledger ledger;
		struct model *model = preset_model(&arena, "llama-3-8b");
		struct topology *topology = cluster(&arena, nodes[n]);
		struct plan plan = toy_plan(&arena, model, topology, "runtime=megatron",
			"micro_batch=1", "seq_len=4096", NULL);
		struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
		const struct program *p = schedule->programs;
		schedule_ledger(schedule, 0, &arena, &ledger);
		for (int i = 0; i < p->n_ops; i++)
			if (p->ops[i].kind == OP_LOSS)
				activations[n] = ledger.live[i][CATEGORY_ACTIVATIONS];
		arena_finish(&arena);
	}
	assert_int_equal(activations[1] - activations[0],
		layers * tokens * 2 * head_dim * ((heads + kv_heads) - heads));
}

/* --- buckets -------------------------------------------------------------------------------------
 */

static struct schedule *built(struct arena *arena, const char *nodes, const char *a, const char *b)
{
	struct model *model = preset_model(arena, "llama-2-7b");
	struct topology *topology = cluster(arena, nodes);
	struct plan plan = toy_plan(arena, model, topology, "runtime=megatron", "strategy=ZERO_1",
		"grad_accum=2", a, b, NULL);
	return toy_schedule(arena, &plan, model, topology);
}

/* 40 million elements, or a million a rank; all of them where nothing is overlapped. */
static void test_buckets(void **state)
{
	static const struct {
		const char *nodes, *overlap;
		int64_t filled;
	} rows[] = {{"2xdgx-a100-80gb", "overlap=all", 40000000},
		{"16xdgx-a100-80gb", "overlap=gradients", 128000000},
		{"2xdgx-a100-80gb", "overlap=none", INT64_MAX}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct program *p =
			built(&arena, rows[i].nodes, rows[i].overlap, NULL)->programs;
		assert_true(p->n_units > 1 || rows[i].filled == INT64_MAX);
		for (int u = 0; u < p->n_units; u++) {
			const struct unit *unit = &p->units[u];
			int64_t last = unit->slices[unit->n_slices - 1].elements;
			assert_true(unit->parameters - last < rows[i].filled);
			assert_true(unit->parameters >= rows[i].filled || u == p->n_units - 1);
		}
		arena_finish(&arena);
	}
}

static int first_of(const struct program *p, enum op_kind kind)
{
	int i = 0;
	while (i < p->n_ops && p->ops[i].kind != kind)
		i++;
	return i;
}

static int last_of(const struct program *p, enum op_kind kind)
{
	int i = p->n_ops - 1;
	while (i >= 0 && p->ops[i].kind != kind)
		i--;
	return i;
}

/* Beside the last backward, or behind it. */
static void test_moments(void **state)
{
	static const char *const overlaps[] = {"overlap=all", "overlap=gradients", "overlap=none"};
	(void)state;
	for (int i = 0; i < COUNT_OF(overlaps); i++) {
		struct arena arena = {0};
		const struct program *p =
			built(&arena, "2xdgx-a100-80gb", overlaps[i], NULL)->programs;
		assert_int_equal(first_of(p, OP_REDUCE_SCATTER) < last_of(p, OP_BACKWARD), i < 2);
		assert_int_equal(p->ops[first_of(p, OP_REDUCE_SCATTER)].micro_batch, 1);
		arena_finish(&arena);
	}
}

/* Where nothing is overlapped, a rank waits for the backwards of all stages that it has. */
static void test_moments_of_stages(void **state)
{
	static const char words[] = "runtime=megatron strategy=ZERO_1 pipeline=2 grad_accum=4 "
				    "pipeline_schedule=interleaved overlap=";
	static const char *const overlaps[] = {"all", "none"};
	(void)state;
	for (int i = 0; i < COUNT_OF(overlaps); i++) {
		struct arena arena = {0};
		const struct schedule *s = build_words(&arena, "gpt2-355m", "2xdgx-a100-80gb",
			arena_printf(&arena, "%s%s", words, overlaps[i]));
		const struct program *first = &s->programs[0]; /* others have one bucket */
		assert_int_equal(
			first_of(first, OP_REDUCE_SCATTER) < last_of(first, OP_BACKWARD), i == 0);
		arena_finish(&arena);
	}
}

static void check_all_gathered(const char *words)
{
	struct arena arena = {0};
	const struct schedule *s = build_words(&arena, "llama-2-7b", "2xdgx-a100-80gb", words);
	for (int rank = 0; rank < s->n_classes; rank++) {
		const struct program *p = &s->programs[rank];
		int gathers = 0;
		for (int i = 0; i < p->n_ops; i++)
			gathers += p->ops[i].kind == OP_ALL_GATHER;
		assert_int_equal(gathers, p->n_units);
	}
	arena_finish(&arena);
}

/* Megatron-LM wraps each of a rank's interleaved stages apart: the first of all has buckets of 40
 * million elements, any other one bucket. Those of the first two are gathered before the first
 * message is received, the third's behind one forward of the second rank. */
static void test_interleaved_buckets(void **state)
{
	static const char words[] = "runtime=megatron strategy=ZERO_1 pipeline=2 grad_accum=4 "
				    "pipeline_schedule=interleaved virtual_stages=4";
	struct arena arena = {0};
	const struct schedule *s = build_words(&arena, "llama-2-7b", "2xdgx-a100-80gb", words);
	(void)state;
	for (int rank = 0; rank < 2; rank++) {
		const struct program *p = &s->programs[rank];
		int whole = 0, early = 0, gathers = 0;
		for (int u = 0; u < p->n_units; u++)
			whole += p->units[u].parameters > 4 * 200000000;
		assert_int_equal(whole, rank == 0 ? 3 : 4);
		if (rank == 1)
			assert_int_equal(p->n_units, 4);
		else
			assert_true(p->n_units > 3 + 10);
		for (int i = 0; i < p->n_ops; i++) {
			gathers += p->ops[i].kind == OP_ALL_GATHER;
			assert_true(p->ops[i].kind != OP_ALL_GATHER || p->ops[i].micro_batch == 0);
			early += p->ops[i].kind == OP_ALL_GATHER && i < first_of(p, OP_FORWARD);
		}
		assert_int_equal(gathers, p->n_units);
		assert_int_equal(early, p->n_units - 2);
		assert_true(rank == 0 || first_of(p, OP_ALL_GATHER) < first_of(p, OP_RECV));
	}
	/* Nor is one left out where there are fewer micro-batches than ranks. */
	check_all_gathered("runtime=megatron strategy=ZERO_1 pipeline=4 grad_accum=1 "
			   "pipeline_schedule=interleaved virtual_stages=4");
	arena_finish(&arena);
}

/* Several instances of the optimizer: each slice is summed over those that have it. */
static void test_instances(void **state)
{
	struct arena arena = {0};
	const struct schedule *s = built(&arena, "2xdgx-a100-80gb", "shard_group=4", NULL);
	const struct program *p = s->programs;
	int slices = 0;
	(void)state;
	for (int i = 1; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i], *before = &p->ops[i - 1];
		if (op->kind != OP_ALL_REDUCE || s->groups[op->group].kind != GROUP_REPLICATE)
			continue;
		slices++;
		assert_int_equal(before->kind, OP_REDUCE_SCATTER);
		assert_int_equal(before->unit, op->unit);
		assert_int_equal(s->groups[before->group].size, 4);
		assert_int_equal(s->groups[op->group].size, 4);
		assert_int_equal(op->bytes, before->bytes / 4);
	}
	assert_int_equal(slices, p->n_units);
	arena_finish(&arena);
}

/* --- exchanges beside backward -------------------------------------------------------------------
 */

static bool waits(const struct program *p, int op, int for_op)
{
	for (int i = 0; i < p->ops[op].waits.count; i++)
		if (slice_of(p, p->ops[op].waits)[i] == for_op)
			return true;
	return false;
}

static int next_compute(const struct program *p, int i)
{
	for (i++; op_kind_class(p->ops[i].kind) != OP_CLASS_COMPUTE;)
		i++;
	return i;
}

/* The parts of a range's column-parallel layers: dX, its sum over tensor ranks, dW. The layer's
 * input comes in beside dX, and the sum runs beside dW: nobody waits for it but what comes next. */
static void check_beside(const struct program *p, int input, bool gathers, enum op_kind sum)
{
	int weight = input + 2, behind = next_compute(p, weight);
	assert_int_equal(p->ops[input + 1].kind, sum);
	assert_int_equal(p->ops[weight].kind, OP_BACKWARD_WEIGHT);
	assert_int_equal(p->ops[input].first_module, p->ops[weight].first_module);
	assert_int_equal(p->ops[input].end_module, p->ops[weight].end_module);
	assert_true(waits(p, input + 1, input));
	assert_false(waits(p, weight, input + 1));
	assert_true(waits(p, behind, input + 1));
	assert_int_equal(p->ops[input - 1].kind == OP_ALL_GATHER, gathers);
	if (!gathers)
		return;
	assert_false(waits(p, input, input - 1));
	assert_true(waits(p, weight, input - 1));
}

/* nanotron wraps a model in DDP, whose buckets hold gradients once more, where there are replicas.
 */
static void test_one_replica(void **state)
{
	static const char *const words[] = {"runtime=nanotron strategy=NO_SHARD tensor=16",
		"runtime=nanotron strategy=NO_SHARD tensor=8"};
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct arena arena = {0};
		const struct program *p =
			build_words(&arena, "llama-2-7b", "2xdgx-a100-80gb", words[i])->programs;
		int n = 0;
		for (int b = 0; b < p->n_buffers; b++)
			n += p->buffers[b].role == BUFFER_REDUCE_INPUT;
		assert_int_equal(n > 0, i > 0);
		arena_finish(&arena);
	}
}

static void test_beside(void **state)
{
	static const struct {
		const char *words;
		bool gathers;
		enum op_kind sum;
		int parts; /* of a block */
	} cases[] = {
		{"runtime=megatron tensor=4", true, OP_REDUCE_SCATTER, 2},
		{"runtime=megatron tensor=4 sequence_parallel=off", false, OP_ALL_REDUCE, 2},
		{"runtime=megatron tensor=4 activation_checkpointing=full", true, OP_REDUCE_SCATTER,
			2},
		{"runtime=nanotron tensor=4", true, OP_REDUCE_SCATTER, 2},
		{"runtime=nanotron tensor=4 keep_gathered=on", false, OP_REDUCE_SCATTER, 2},
		{"runtime=megatron tensor=4 serial_tensor=on", false, OP_REDUCE_SCATTER, 0},
		{"runtime=nanotron tensor=4 serial_tensor=on", false, OP_REDUCE_SCATTER, 0},
		{"runtime=pytorch-fsdp2 tensor=4", false, OP_REDUCE_SCATTER, 0},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		const struct program *p =
			build_words(&arena, "llama-2-7b", "2xdgx-a100-80gb", cases[i].words)
				->programs;
		int parts = 0;
		for (int o = 0; o < p->n_ops; o++) {
			if (p->ops[o].kind != OP_BACKWARD_INPUT)
				continue;
			check_beside(p, o, cases[i].gathers, cases[i].sum);
			parts++;
		}
		/* and the head */
		assert_int_equal(parts, cases[i].parts > 0 ? 32 * cases[i].parts + 1 : 0);
		arena_finish(&arena);
	}
}

/* The stage is not the first one: its last message is on its way before its gradients are waited
 * for, but where they are DDP's. */
static void test_sent_before(void **state)
{
	static const struct {
		const char *words;
		bool before;
	} cases[] = {{"runtime=megatron strategy=ZERO_1 pipeline=2 grad_accum=4", true},
		{"runtime=megatron strategy=NO_SHARD pipeline=2 grad_accum=4", true},
		{"runtime=nanotron strategy=NO_SHARD pipeline=2 grad_accum=4", false},
		{"runtime=nanotron strategy=ZERO_1 pipeline=2 grad_accum=4", false}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		const struct schedule *s =
			build_words(&arena, "llama-2-7b", "2xdgx-a100-80gb", cases[i].words);
		const struct program *p = &s->programs[s->n_classes - 1];
		int ends = last_of(p, OP_END_BACKWARD);
		assert_true(ends >= 0);
		assert_int_equal(last_of(p, OP_SEND) < ends, cases[i].before);
		arena_finish(&arena);
	}
}

/* --- what tensor ranks have alike ----------------------------------------------------------------
 */

/* Sums of a class's gradients over tensor ranks: how many there are, and elements of fp32. */
static struct exchanged sums_of(const struct schedule *s, int class)
{
	const struct program *p = &s->programs[class];
	struct exchanged sums = {0, 0};
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		if (op->kind != OP_ALL_REDUCE || s->groups[op->group].kind != GROUP_TENSOR ||
			op->micro_batch >= 0 || op->bytes == 4) /* the gradient norm's scalar */
			continue;
		sums.n++;
		sums.bytes += op->bytes;
		assert_int_equal(op->dtype, DTYPE_FP32);
		assert_true(i > last_of(p, OP_BACKWARD));
		assert_true(i > last_of(p, OP_REDUCE_SCATTER));
		assert_true(i < first_of(p, OP_OPTIMIZER));
	}
	return sums;
}

/* Norms, and what is added behind a row-parallel product, of a rank's tokens: once a step. Norms of
 * queries and keys are of its heads. Routers too. */
static void test_alike(void **state)
{
	static const struct {
		const char *model, *words;
		int64_t elements;
	} cases[] = {
		{"llama-2-7b", "runtime=megatron tensor=4 strategy=ZERO_1 overlap=all", 65 * 4096},
		{"llama-2-7b", "runtime=megatron tensor=4 grad_accum=4", 65 * 4096},
		{"llama-2-7b", "runtime=megatron tensor=4 sequence_parallel=off", 0},
		{"llama-2-7b", "runtime=megatron", 0},
		{"llama-2-7b", "runtime=megatron tensor=4 pipeline=4 grad_accum=8", 16 * 4096},
		{"llama-2-7b", "runtime=nanotron tensor=4 strategy=ZERO_1", 65 * 4096},
		{"llama-2-7b", "runtime=nanotron tensor=4 sequence_parallel=off", 0},
		{"gpt2-355m", "runtime=megatron tensor=4", (49 * 2 + 24 * 2) * 1024},
		{"gpt2-355m", "runtime=nanotron tensor=4", 49 * 2 * 1024},
		{"qwen3-30b-a3b", "runtime=megatron tensor=4",
			97 * 2048 + 48 * (2 * 128 + 128 * 2048)},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		const struct schedule *s =
			build_words(&arena, cases[i].model, "2xdgx-a100-80gb", cases[i].words);
		struct exchanged sums = sums_of(s, 0);
		assert_int_equal(sums.n, cases[i].elements > 0);
		assert_int_equal(sums.bytes, 4 * cases[i].elements);
		if (s->n_classes > 1) /* and the final norm */
			assert_int_equal(sums_of(s, s->n_classes - 1).bytes, sums.bytes + 4 * 4096);
		arena_finish(&arena);
	}
}

/* --- the vocabulary ------------------------------------------------------------------------------
 */

/* A multiple of 128 words a tensor rank. */
static void test_vocabulary(void **state)
{
	static const struct {
		const char *tensor;
		int64_t words;
	} rows[] = {{"tensor=1", 50304}, {"tensor=2", 25216}, {"tensor=4", 12672}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct model *model = gpt(&arena);
		struct topology *topology = cluster(&arena, "1xdgx-a100-80gb");
		struct plan plan =
			toy_plan(&arena, model, topology, "runtime=megatron", rows[i].tensor, NULL);
		assert_int_equal(
			plan_model(&plan, model, &arena)->architecture.vocab, rows[i].words);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_kernels),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_moments),
		cmocka_unit_test(test_moments_of_stages),
		cmocka_unit_test(test_interleaved_buckets),
		cmocka_unit_test(test_instances),
		cmocka_unit_test(test_one_replica),
		cmocka_unit_test(test_beside),
		cmocka_unit_test(test_sent_before),
		cmocka_unit_test(test_alike),
		cmocka_unit_test(test_vocabulary),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
