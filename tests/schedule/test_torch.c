/* Schedules of a small Llama against what PyTorch 2.15.0 issues for it: the files of golden/torch,
 * written by bench/torch/trace.py: collectives one by one, with their payloads. What its compiler
 * makes of tensor parallelism, and what expert ranks exchange. */
#include <math.h>
#include <stdio.h>

#include "schedule/laws/laws.h"
#include "support.h"

static const char *folder;

/* The model of trace.py. */
static struct model *small_llama(struct arena *arena, bool tied)
{
	const struct architecture architecture = {.name = "small",
		.family = FAMILY_LLAMA,
		.layers = 3,
		.hidden = 64,
		.heads = 4,
		.kv_heads = 2,
		.head_dim = 16,
		.ffn = 160,
		.vocab = 250,
		.context = 16,
		.positions = POSITIONS_ROPE,
		.norm = NORM_RMSNORM,
		.mlp = MLP_SWIGLU,
		.tied_head = tied,
		.norm_epsilon = 1e-5,
		.rope_theta = 10000};
	struct error error = {0};
	struct model *model = NULL;
	if (!architecture_check(&architecture, NULL, &error) ||
		!model_build(arena, &architecture, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

static void trace(const struct schedule *schedule, struct text *text)
{
	const struct program *p = &schedule->programs[0];
	bool backward = false;
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		backward = (backward && op->kind != OP_END_BACKWARD) || op->kind == OP_LOSS;
		if (i > 0 && op->micro_batch != p->ops[i - 1].micro_batch)
			backward = false;
		if (op_kind_class(op->kind) == OP_CLASS_COLLECTIVE && op->unit >= 0)
			text_printf(text, "%s %s %s %lld\n", backward ? "backward" : "forward",
				op_kind_name(op->kind), dtype_name(op->dtype),
				(long long)(op->bytes / dtype_bytes(op->dtype)));
	}
}

static void read_golden(const char *name, char *text, size_t size)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/torch/%s.txt", folder, name);
	FILE *file = fopen(path, "rb");
	if (file == NULL)
		fail_msg("%s: cannot be read", path);
	size_t n = fread(text, 1, size - 1, file);
	fclose(file);
	text[n] = '\0';
}

static const struct {
	const char *name, *runtime, *strategy, *third, *fourth;
	bool tied;
	const char *prefetch;
} cases[] = {
	{"fsdp1_full", "pytorch-fsdp1", "FULL_SHARD", NULL, NULL, false},
	{"fsdp1_grad_op", "pytorch-fsdp1", "SHARD_GRAD_OP", NULL, NULL, false},
	{"fsdp1_none", "pytorch-fsdp1", "NO_SHARD", NULL, NULL, false},
	{"fsdp1_full_checkpoint", "pytorch-fsdp1", "FULL_SHARD", "activation_checkpointing=full",
		NULL, false},
	{"fsdp1_full_accumulate", "pytorch-fsdp1", "FULL_SHARD", "grad_accum=2",
		"sync_each_micro_batch=off", false},
	{"fsdp1_full_tied", "pytorch-fsdp1", "FULL_SHARD", NULL, NULL, true},
	{"fsdp1_size", "pytorch-fsdp1", "FULL_SHARD", "wrap=size:4000", NULL, false},
	{"fsdp1_size_checkpoint", "pytorch-fsdp1", "FULL_SHARD", "wrap=size:4000",
		"activation_checkpointing=full", false},
	{"fsdp1_size_checkpoint_none", "pytorch-fsdp1", "FULL_SHARD", "wrap=size:4000",
		"activation_checkpointing=full", false, "prefetch=none"},
	{"fsdp2_full", "pytorch-fsdp2", "FULL_SHARD", NULL, NULL, false},
	{"fsdp2_grad_op", "pytorch-fsdp2", "SHARD_GRAD_OP", NULL, NULL, false},
	{"fsdp2_full_checkpoint", "pytorch-fsdp2", "FULL_SHARD", "activation_checkpointing=full",
		NULL, false},
	{"fsdp2_full_accumulate", "pytorch-fsdp2", "FULL_SHARD", "grad_accum=2",
		"sync_each_micro_batch=off", false},
	{"fsdp2_full_tied", "pytorch-fsdp2", "FULL_SHARD", NULL, NULL, true},
	{"fsdp2_full_root", "pytorch-fsdp2", "FULL_SHARD", "reshard_after_forward=all", NULL,
		false},
	{"fsdp2_full_root_checkpoint", "pytorch-fsdp2", "FULL_SHARD", "reshard_after_forward=all",
		"activation_checkpointing=full", false},
	{"fsdp2_full_root_accumulate", "pytorch-fsdp2", "FULL_SHARD", "reshard_after_forward=all",
		"grad_accum=2", false, "sync_each_micro_batch=off"},
};

static void test_collectives(void **state)
{
	(void)state;
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct arena arena = {0};
		struct text text = {0};
		char golden[8192];
		struct model *model = small_llama(&arena, cases[c].tied);
		struct topology *topology = gpu_cluster(&arena, 1, 4);
		struct plan plan = toy_plan(&arena, model, topology,
			arena_printf(&arena, "runtime=%s", cases[c].runtime),
			arena_printf(&arena, "strategy=%s", cases[c].strategy), "seq_len=16",
			cases[c].third, cases[c].fourth, cases[c].prefetch, NULL);
		trace(toy_schedule(&arena, &plan, model, topology), &text);
		read_golden(cases[c].name, golden, sizeof(golden));
		assert_true(strlen(golden) > 100);
		if (strcmp(text_string(&text), golden) != 0)
			fail_msg("%s: expected\n%sgot\n%s", cases[c].name, golden,
				text_string(&text));
		text_finish(&text);
		arena_finish(&arena);
	}
}

/* --- asynchronous tensor parallelism -----------------------------------------------------------
 */

static int count_on(const struct schedule *schedule, enum op_kind kind, enum stream stream)
{
	const struct program *program = &schedule->programs[0];
	int n = 0;
	for (int i = 0; i < program->n_ops; i++)
		n += program->ops[i].kind == kind && program->ops[i].stream == stream;
	return n;
}

/* micro_pipeline_tp.py fuses, in compiled blocks, gathers with the plain products that read them
 * and sums with the plain product that makes them: of a block's forward two and two, of its
 * backward the gathers of gradients (what is scattered there is a sum of products). Not where there
 * is a bias (addmm), nor gathers that are cast before the product (rowwise), nor those of routers.
 * What is computed again is too, but for the last product. */
static void test_async(void **state)
{
	static const struct {
		const char *model, *words;
		int blocks, gathers, scatters;
	} rows[] = {
		{"llama-2-7b", "tensor=8", 32, 4, 2},
		{"llama-2-7b", "tensor=8 activation_checkpointing=full", 32, 6, 3},
		{"llama-2-7b", "tensor=8 fp8=tensorwise", 32, 4, 2},
		{"llama-2-7b", "tensor=8 fp8=rowwise", 32, 0, 2},
		{"gpt-oss-120b", "tensor=8", 36, 1, 0},
		{"gpt2-774m", "tensor=4", 36, 2, 0},
		{"mixtral-8x7b", "tensor=8", 32, 2, 1},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const char *words =
			arena_printf(&arena, "%s seq_len=1024 compile=on", rows[i].words);
		const struct schedule *plain =
			build_words(&arena, rows[i].model, "2xdgx-h100", words);
		const struct schedule *async = build_words(&arena, rows[i].model, "2xdgx-h100",
			arena_printf(&arena, "%s async_tensor=on", words));
		int gathers = rows[i].blocks * rows[i].gathers;
		int scatters = rows[i].blocks * rows[i].scatters;
		assert_int_equal(count_on(async, OP_ALL_GATHER, STREAM_PEER), gathers);
		assert_int_equal(count_on(async, OP_REDUCE_SCATTER, STREAM_PEER), scatters);
		assert_int_equal(count_on(async, OP_ADD_SUM, STREAM_COMPUTE), scatters);
		assert_int_equal(count_on(async, OP_ALL_GATHER, STREAM_TENSOR),
			count_on(plain, OP_ALL_GATHER, STREAM_TENSOR) - gathers);
		assert_int_equal(count_on(async, OP_REDUCE_SCATTER, STREAM_TENSOR),
			count_on(plain, OP_REDUCE_SCATTER, STREAM_TENSOR) - scatters);
		arena_finish(&arena);
	}
}

/* Transformer Engine's layers, not compiled: whatever their bias, and in fp8. The sum behind a
 * column-parallel layer and the gather before it stay beside backward's two products. Each of ten
 * exchanges has a buffer: six of what is gathered, in fp8 half as large. */
static void test_async_of_the_engine(void **state)
{
	static const struct {
		const char *model, *words;
		int blocks, halves;
	} rows[] = {{"llama-2-7b", "", 32, 20}, {"llama-2-7b", "fp8=delayed ", 32, 14},
		{"gpt2-774m", "", 36, 20}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *built[2];
		for (int on = 0; on < 2; on++)
			built[on] = build_words(&arena, rows[i].model, "2xdgx-h100",
				arena_printf(&arena,
					"%sruntime=megatron tensor=4 seq_len=1024 micro_batch=1 "
					"async_tensor=%s",
					rows[i].words, on ? "on" : "off"));
		const struct schedule *async = built[1];
		int blocks = rows[i].blocks;
		assert_int_equal(resident_bytes_of(async, BUFFER_GATHERED_TOKENS) -
					 resident_bytes_of(built[0], BUFFER_GATHERED_TOKENS),
			rows[i].halves * 1024 * async->model->architecture.hidden);
		assert_int_equal(count_on(async, OP_ALL_GATHER, STREAM_PEER), 4 * blocks);
		assert_int_equal(count_on(async, OP_REDUCE_SCATTER, STREAM_PEER), 2 * blocks);
		assert_true(count_on(async, OP_ALL_GATHER, STREAM_TENSOR) >= 2 * blocks);
		assert_true(count_on(async, OP_REDUCE_SCATTER, STREAM_TENSOR) >= 2 * blocks);
		arena_finish(&arena);
	}
}

static bool waits_for(const struct program *program, int op, int other)
{
	const int *waits = slice_of(program, program->ops[op].waits);
	for (int i = 0; i < program->ops[op].waits.count; i++)
		if (waits[i] == other)
			return true;
	return false;
}

/* A gather stands before the product that it goes beside, a sum behind it. Neither waits for the
 * other, and what follows waits for the copies: dW of the gradient, or the parts' sum. */
static void test_async_order(void **state)
{
	struct arena arena = {0};
	const struct schedule *schedule = build_words(&arena, "llama-2-7b", "2xdgx-h100",
		"tensor=8 seq_len=2048 compile=on async_tensor=on");
	const struct program *p = &schedule->programs[0];
	const int64_t bytes = 2048 * 4096 * 2;
	int seen = 0;
	(void)state;
	for (int i = 1; i + 2 < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		if (op->stream != STREAM_PEER)
			continue;
		bool gathers = op->kind == OP_ALL_GATHER;
		int product = gathers ? i + 1 : i - 1, next = gathers ? i + 2 : i + 1;
		assert_int_equal(op->bytes, bytes);
		assert_int_equal(p->ops[product].first_module, op->first_module);
		assert_int_equal(p->ops[product].end_module, op->end_module);
		assert_int_equal(p->ops[product].stream, STREAM_COMPUTE);
		assert_int_equal(p->ops[next].stream, STREAM_COMPUTE);
		assert_false(waits_for(p, product, i) || waits_for(p, i, product));
		assert_true(waits_for(p, next, i));
		if (!gathers) {
			assert_int_equal(p->ops[next].kind, OP_ADD_SUM);
			assert_int_equal(p->ops[next].bytes, bytes + bytes / 8);
		} else if (p->ops[product].kind != OP_FORWARD) {
			assert_int_equal(p->ops[product].kind, OP_BACKWARD_INPUT);
			assert_int_equal(p->ops[next].kind, OP_BACKWARD_WEIGHT);
		}
		seen++;
	}
	assert_int_equal(seen, 32 * 6);
	/* A law finds a sum that does not wait for them. */
	struct error error = {0};
	int sum = 0;
	while (p->ops[sum].kind != OP_ADD_SUM)
		sum++;
	assert_true(schedule_validate(schedule, &error));
	p->ops[sum].waits.count = 0;
	assert_false(schedule_validate(schedule, &error));
	assert_non_null(strstr(error.message, "unordered"));
	/* Two chunks of sums. */
	assert_int_equal(resident_bytes_of(schedule, BUFFER_GATHERED_TOKENS), 2 * bytes / 8);
	arena_finish(&arena);
}

/* --- experts -------------------------------------------------------------------------------------
 */

enum { BLOCKS = 32 };

static struct schedule *built_mixtral(struct arena *arena, const char *words)
{
	return build_words(arena, "mixtral-8x7b", "2xdgx-h100", words);
}

/* A block sends every token's 2 rows there and back, in forward and in backward; as many more as
 * the fullest rank gets. Counts are 8 numbers of 8 bytes. Tensor ranks share the rows of whole
 * experts.
 */
static void test_rows(void **state)
{
	enum { ROW = 4096 * 2, TOKENS = 2048, CHOSEN = 2, COUNTS = 8 * 8 };
	static const struct {
		const char *words;
		int exchanges, counts;
		double share;
	} rows[] = {
		{"expert=8 expert_load=1", 4, 1, 1},
		{"expert=8", 4, 1, 1.1},
		{"expert=8 activation_checkpointing=full", 6, 2, 1.1},
		{"expert=8 activation_checkpointing=selective", 6, 2, 1.1},
		{"expert=8 tensor=2 expert_load=1", 4, 1, 0.5},
		{"expert=4 tensor=2 expert_tensor=2 expert_load=1", 4, 1, 1},
		{"expert=4 context=2 expert_load=1.5", 4, 1, 0.75},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = built_mixtral(
			&arena, arena_printf(&arena, "seq_len=2048 %s", rows[i].words));
		struct exchanged all = exchanged(schedule, OP_ALL_TO_ALL, GROUP_EXPERT);
		int64_t received = (int64_t)ceil(TOKENS * CHOSEN * rows[i].share) * ROW;
		assert_int_equal(all.n, BLOCKS * (rows[i].exchanges + rows[i].counts));
		assert_int_equal(all.bytes,
			BLOCKS * (rows[i].exchanges * received + rows[i].counts * COUNTS));
		arena_finish(&arena);
	}
}

/* Experts have a unit in every block, over the ranks that hold the same ones: gathered in forward
 * and in backward, reduced once. */
static void test_expert_units(void **state)
{
	static const struct {
		const char *words;
		int64_t experts, ranks, stride, tensor;
	} rows[] = {
		{"expert=8", 8, 2, 8, 1},
		{"expert=2", 2, 8, 2, 1},
		{"expert=4 tensor=2", 4, 4, 4, 2},
		{"expert=4 tensor=2 expert_tensor=2", 4, 2, 8, 2},
		{"expert=4 strategy=HYBRID_SHARD shard_group=8", 4, 2, 4, 1},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *s = built_mixtral(
			&arena, arena_printf(&arena, "seq_len=2048 %s", rows[i].words));
		int64_t cut = plan_expert_tensor(&s->plan) * rows[i].experts;
		int64_t elements = 3LL * 8 * 4096 * 14336 / cut;
		struct exchanged gathers = exchanged(s, OP_ALL_GATHER, GROUP_EXPERT_SHARD);
		struct exchanged scatters = exchanged(s, OP_REDUCE_SCATTER, GROUP_EXPERT_SHARD);
		assert_int_equal(gathers.n, 2 * BLOCKS);
		assert_int_equal(gathers.bytes, 2 * BLOCKS * elements * 2);
		assert_int_equal(scatters.n, BLOCKS);
		assert_int_equal(scatters.bytes, BLOCKS * elements * 4);
		for (int g = 0; g < s->n_groups; g++)
			if (s->groups[g].kind == GROUP_EXPERT_SHARD) {
				assert_int_equal(s->groups[g].size, rows[i].ranks);
				assert_int_equal(s->groups[g].stride, rows[i].stride);
			}
		arena_finish(&arena);
	}
}

/* One rank with all experts is none of expert parallelism. */
static void test_one_expert_rank(void **state)
{
	static const char *const words[] = {"", "activation_checkpointing=full grad_accum=2",
		"tensor=2", "strategy=HYBRID_SHARD"};
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct arena arena = {0};
		const char *more = arena_printf(&arena, "seq_len=2048 %s", words[i]);
		const struct schedule *plain = built_mixtral(&arena, more);
		const struct schedule *one =
			built_mixtral(&arena, arena_printf(&arena, "%s expert=1", more));
		assert_string_equal(schedule_digest(plain).hex, schedule_digest(one).hex);
		arena_finish(&arena);
	}
}

static struct op *first_op(struct schedule *s, enum op_kind kind, enum group_kind group)
{
	struct program *p = &s->programs[0];
	int i = 0;
	while (p->ops[i].kind != kind || s->groups[p->ops[i].group].kind != group)
		i++;
	return &p->ops[i];
}

/* Results are weighed in fp32: before backward sends rows, the gradient of the sum, that of the
 * results and what sums up to the weights' gradients live beside the rows that go and come. Whole
 * experts get the tokens that a rank has of the stream, ungathered (torchtitan 0.3.0). */
static void test_weighed_rows(void **state)
{
	enum { HIDDEN = 2048, TOKENS = 2048, CHOSEN = 8, BLOCKS_OF_QWEN = 48 };
	(void)state;
	for (int64_t tensor = 1; tensor <= 4; tensor *= 4) {
		struct arena arena = {0};
		const struct schedule *s = build_words(&arena, "qwen3-30b-a3b", "2xdgx-h100",
			arena_printf(&arena, "expert=8 expert_load=1 seq_len=2048 tensor=%lld",
				(long long)tensor));
		const struct program *p = &s->programs[0];
		int64_t rows = TOKENS * CHOSEN / tensor * HIDDEN, seen = 0;
		for (int i = 0; i < p->n_ops; i++)
			for (int t = 0; t < p->ops[i].takes.count; t++) {
				int taken = slice_of(p, p->ops[i].takes)[t];
				if (p->ops[i].kind != OP_ALL_TO_ALL ||
					p->buffers[taken].role != BUFFER_BACKWARD_WORK)
					continue;
				assert_int_equal(p->buffers[taken].bytes, rows * (3 * 4 - 2 * 2));
				seen++;
			}
		assert_int_equal(seen, BLOCKS_OF_QWEN);
		struct exchanged gathered = exchanged(s, OP_ALL_GATHER, GROUP_TENSOR);
		assert_int_equal(gathered.n, tensor > 1 ? 2 * (BLOCKS_OF_QWEN + 1) : 0);
		arena_finish(&arena);
	}
}

/* What the laws refuse: other bytes than the rows', experts gathered over all ranks, a unit that
 * does not know whose ranks it is sharded over, a group of other ranks. */
static void test_expert_laws(void **state)
{
	(void)state;
	for (int damage = 0; damage < 5; damage++) {
		struct arena arena = {0};
		struct schedule *s = built_mixtral(&arena, "expert=4 seq_len=2048");
		struct op *rows = first_op(s, OP_ALL_TO_ALL, GROUP_EXPERT);
		struct op *gather = first_op(s, OP_ALL_GATHER, GROUP_EXPERT_SHARD);
		struct error error = {0};
		assert_true(schedule_validate(s, &error));
		if (damage == 0)
			rows->bytes += 8;
		else if (damage == 1)
			gather->group = first_op(s, OP_ALL_GATHER, GROUP_SHARD)->group;
		else if (damage == 2)
			s->programs[0].units[gather->unit].of_experts = false;
		else if (damage == 3)
			s->groups[rows->group].stride = 2;
		else
			rows->group = gather->group;
		assert_false(schedule_validate(s, &error));
		arena_finish(&arena);
	}
}

/* Stages of a pipeline, whose ranks exchange rows among themselves, keep the laws together. */
static void test_experts_in_stages(void **state)
{
	struct arena arena = {0};
	const struct schedule *s =
		built_mixtral(&arena, "expert=4 pipeline=2 grad_accum=4 seq_len=2048");
	(void)state;
	assert_int_equal(s->n_classes, 2);
	assert_int_equal(exchanged(s, OP_ALL_TO_ALL, GROUP_EXPERT).n, 4 * (4 + 1) * BLOCKS / 2);
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_async),
		cmocka_unit_test(test_async_of_the_engine),
		cmocka_unit_test(test_async_order),
		cmocka_unit_test(test_collectives),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_expert_units),
		cmocka_unit_test(test_expert_laws),
		cmocka_unit_test(test_weighed_rows),
		cmocka_unit_test(test_experts_in_stages),
		cmocka_unit_test(test_one_expert_rank),
	};
	folder = argc > 1 ? argv[1] : "tests/schedule/golden";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
