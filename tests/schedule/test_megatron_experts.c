/* Experts with runtime megatron: what ranks hold, when they send it, and to whom. */
#include <math.h>

#include "support.h"

enum { BLOCKS = 32, HIDDEN = 4096, FFN = 14336, EXPERTS = 8, CHOSEN = 2, TOKENS = 2048 };

static struct schedule *built(struct arena *arena, const char *words)
{
	return build_words(arena, "mixtral-8x7b", "2xdgx-h100",
		arena_printf(arena, "runtime=megatron seq_len=2048 %s", words));
}

/* --- bytes by axis -------------------------------------------------------------------------------
 */

static void assert_exchanged(const struct schedule *schedule, enum op_kind kind,
	enum group_kind group, int64_t n, int64_t bytes)
{
	struct exchanged all = exchanged(schedule, kind, group);
	assert_int_equal(all.n, BLOCKS * n);
	assert_int_equal(all.bytes, BLOCKS * bytes);
}

/* A rank routes its tokens of the residual stream. Their rows go there and back in forward and in
 * backward, their weights there in forward, and the gradients of these back. Ranks that cut an
 * expert gather what each of them got, and scatter the sums. Counts are gathered by all that have
 * all experts together. */
static void test_rows(void **state)
{
	static const struct {
		const char *words;
		double tokens; /* that a rank routes, of those of a sequence */
		double arrived;
		int64_t experts, each; /* ranks */
		int64_t again;         /* forwards of a block */
	} rows[] = {
		{"expert=8 expert_load=1", 1, 1, 8, 1, 1},
		{"expert=8", 1, 1.1, 8, 1, 1},
		{"expert=8 capacity_factor=1.5", 1, 1.5, 8, 1, 1},
		{"expert=8 capacity_factor=0.5", 1, 0.5, 8, 1, 1},
		{"expert=4 tensor=2 expert_load=1", 0.5, 1, 4, 2, 1},
		{"expert=4 tensor=2 activation_checkpointing=full", 0.5, 1.1, 4, 2, 2},
		{"expert=4 tensor=2 activation_checkpointing=selective", 0.5, 1.1, 4, 2, 1},
		{"expert=4 tensor=2 recompute_modules=moe_act+layernorm", 0.5, 1.1, 4, 2, 1},
		{"expert=4 tensor=2 recompute_modules=moe", 0.5, 1.1, 4, 2, 2},
		{"expert=8 tensor=2 expert_tensor=1 expert_load=1", 0.5, 1, 8, 1, 1},
		{"expert=2 context=2 tensor=2 expert_load=1", 0.25, 1, 2, 2, 1},
		{"expert=2 context=4 expert_load=1 strategy=NO_SHARD", 0.25, 1, 2, 1, 1},
		{"tensor=4", 0.25, 1, 1, 4, 1},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *s = built(&arena, rows[i].words);
		bool sends = rows[i].experts > 1, cut = rows[i].each > 1;
		bool counts = s->plan.capacity_factor == 0;
		int64_t all = rows[i].experts * rows[i].each, again = rows[i].again;
		int64_t arrived = (int64_t)ceil(TOKENS * rows[i].tokens * CHOSEN * rows[i].arrived);
		int64_t received = arrived * rows[i].each, row = HIDDEN * 2, weight = 4;
		assert_exchanged(s, OP_ALL_TO_ALL, GROUP_EXPERT, sends * 3 * (again + 1),
			sends * arrived * (again + 1) * (2 * row + weight));
		assert_exchanged(s, OP_ALL_GATHER, GROUP_EXPERT_TENSOR, cut * (2 * again + 1),
			cut * received * (again * (row + weight) + row));
		assert_exchanged(s, OP_REDUCE_SCATTER, GROUP_EXPERT_TENSOR, cut * (again + 2),
			cut * received * (again * row + row + weight));
		assert_exchanged(s, OP_ALL_GATHER, GROUP_EXPERT_ALL, counts * again,
			counts * again * all * EXPERTS * 8);
		arena_finish(&arena);
	}
}

/* --- what a rank holds ---------------------------------------------------------------------------
 */

static int64_t bytes_of(const struct program *program, enum buffer_role role)
{
	int64_t total = 0;
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident && program->buffers[i].role == role)
			total += program->buffers[i].bytes;
	return total;
}

static bool is_of_experts(const struct model *model, int module)
{
	int parent = model->modules[module].parent;
	return parent >= 0 && model->modules[parent].kind == MODULE_EXPERTS;
}

/* Each bucket is padded to the ranks that share it. */
static void assert_padded(int64_t bytes, int64_t exact, const struct program *program, int width)
{
	assert_in_range(bytes, exact, exact + (int64_t)program->n_units * 16 * width);
}

/* Mixtral 8x7B, TP 2, EP 4 on 16 GPUs: bf16 parameters, fp32 gradients of all that the rank has,
 * and 4 + 8 bytes a parameter of the states, over 8 data-parallel ranks (4 beside two stages), and
 * of experts over the 2 (1) that hold the same ones. */
static void test_states(void **state)
{
	enum { TENSOR = 2, EXPERT = 4, GPUS = 16 };
	const int64_t attention = (HIDDEN * (32 + 2 * 8) * 128 + 32 * 128 * HIDDEN) / TENSOR;
	const int64_t block = attention + 2 * HIDDEN + EXPERTS * HIDDEN;
	const int64_t experts = 3LL * HIDDEN * FFN * EXPERTS / (TENSOR * EXPERT);
	const int64_t table = 32000LL * HIDDEN / TENSOR;
	static const char *const overlaps[] = {"all", "gradients", "none"};
	(void)state;
	for (int64_t stages = 1; stages <= 2; stages++)
		for (int o = 0; o < COUNT_OF(overlaps); o++) {
			struct arena arena = {0};
			const struct schedule *s = built(&arena,
				arena_printf(&arena,
					"tensor=2 expert=4 pipeline=%d overlap=%s strategy=ZERO_1",
					(int)stages, overlaps[o]));
			const int64_t blocks = BLOCKS / stages, ranks = GPUS / stages / TENSOR;
			const int64_t alike = ranks * TENSOR / (TENSOR * EXPERT);
			for (int c = 0; c < s->n_classes; c++) {
				const struct program *p = &s->programs[c];
				int64_t ends = stages == 1 ? 2 * table + HIDDEN
					       : c == 0    ? table
							   : table + HIDDEN;
				int64_t rest = blocks * block + ends, of = blocks * experts;
				int64_t shard = rest / ranks + of / alike;
				assert_padded(
					bytes_of(p, BUFFER_COMPUTE_COPY), 2 * (rest + of), p, 2);
				assert_padded(bytes_of(p, BUFFER_GRADIENT), 4 * (rest + of), p, 4);
				assert_padded(bytes_of(p, BUFFER_PARAMETER_SHARD), 4 * shard, p, 4);
				assert_padded(bytes_of(p, BUFFER_OPTIMIZER_STATE), 8 * shard, p, 8);
			}
			arena_finish(&arena);
		}
}

/* A token of a block, in elements of two bytes: what enters the experts (h, k rows), gate, up and
 * their product (3f, k rows) and nothing behind them; beside these the router's probabilities and
 * the order of its rows. */
static void test_saved(void **state)
{
	struct arena arena = {0};
	const struct schedule *s = built(&arena, "expert=8 expert_load=1");
	const struct program *p = &s->programs[0];
	const int64_t rows = TOKENS * CHOSEN;
	int64_t experts = 0;
	(void)state;
	for (int i = 0; i < p->n_buffers; i++) {
		const struct buffer *b = &p->buffers[i];
		if (b->role == BUFFER_ACTIVATIONS && b->layer == 1 &&
			is_of_experts(p->model, b->first_module))
			experts += b->bytes;
	}
	assert_int_equal(experts, rows * (HIDDEN + 3 * FFN) * 2);
	arena_finish(&arena);
}

/* --- Megatron-Core before 0.9 --------------------------------------------------------------------
 */

/* Ranks gather the tokens of one another, their weights and, in backward, the gradients of results;
 * and scatter what they have of results, and of the gradients of tokens and weights. */
static void test_gathered_tokens(void **state)
{
	static const struct {
		const char *words;
		double tokens; /* that a rank routes, of those of a sequence */
		int64_t ranks, again;
	} rows[] = {
		{"expert=8 expert_load=1", 1, 8, 1},
		{"tensor=4", 0.25, 4, 1},
		{"expert=4 tensor=2 activation_checkpointing=full", 0.5, 8, 2},
		{"tensor=1", 1, 1, 1},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *s = built(&arena,
			arena_printf(&arena, "libraries=megatron-core:0.6 %s", rows[i].words));
		int64_t ranks = rows[i].ranks, sends = ranks > 1, again = rows[i].again;
		int64_t all = (int64_t)(TOKENS * rows[i].tokens) * ranks, token = HIDDEN * 2;
		assert_exchanged(s, OP_ALL_TO_ALL, GROUP_EXPERT, 0, 0);
		assert_exchanged(s, OP_ALL_GATHER, GROUP_EXPERT_TENSOR, 0, 0);
		assert_exchanged(s, OP_ALL_GATHER, GROUP_EXPERT_ALL, sends * (3 * again + 1),
			sends * (again * (all * (token + 4) + ranks * EXPERTS * 8) + all * token));
		assert_exchanged(s, OP_REDUCE_SCATTER, GROUP_EXPERT_ALL, sends * (again + 2),
			sends * all * ((again + 1) * token + 4));
		arena_finish(&arena);
	}
}

static int64_t saved_by_a_block(const char *words)
{
	struct arena arena = {0};
	const struct schedule *s = built(&arena, words);
	const struct program *p = &s->programs[0];
	int64_t bytes = 0;
	for (int i = 0; i < p->n_buffers; i++)
		if (p->buffers[i].role == BUFFER_ACTIVATIONS && p->buffers[i].layer == 1)
			bytes += p->buffers[i].bytes;
	arena_finish(&arena);
	return bytes;
}

/* Results are kept, because they are weighed behind the experts; the sort of rows is not. Before
 * 0.7 the gathered tokens are kept too, and the rows that were picked out of them. */
static void test_picked_rows(void **state)
{
	const int64_t row = HIDDEN * 2, rows = TOKENS * CHOSEN * row, tokens = TOKENS * row;
	const int64_t sort = TOKENS / 4 * EXPERTS * 8;
	(void)state;
	int64_t now = saved_by_a_block("tensor=4");
	assert_int_equal(saved_by_a_block("tensor=4 libraries=megatron-core:0.9"), now);
	assert_int_equal(
		saved_by_a_block("tensor=4 libraries=megatron-core:0.8"), now + rows - sort);
	assert_int_equal(saved_by_a_block("tensor=4 libraries=megatron-core:0.6"),
		now + 2 * rows + tokens - sort);
}

/* --- groups --------------------------------------------------------------------------------------
 */

static void test_groups(void **state)
{
	static const struct {
		const char *words;
		int64_t expert, each, alike, replicas; /* ranks */
	} rows[] = {
		{"expert=8", 8, 1, 2, 1},
		{"expert=4 tensor=2", 4, 2, 2, 1},
		{"expert=2 tensor=4", 2, 4, 2, 1},
		{"expert=8 tensor=4 expert_tensor=1", 8, 1, 2, 1},
		{"expert=4 shard_group=8", 4, 1, 2, 2},
		{"expert=4 strategy=NO_SHARD", 4, 1, 4, 1},
		{"expert=2 tensor=2 context=2 strategy=NO_SHARD", 2, 2, 4, 1},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *s = built(&arena, rows[i].words);
		int64_t together = rows[i].expert * rows[i].each;
		const struct group expected[] = {
			{GROUP_EXPERT, rows[i].expert, rows[i].each, 0},
			{GROUP_EXPERT_TENSOR, rows[i].each, 1, 0},
			{GROUP_EXPERT_ALL, together, 1, 0},
			{GROUP_EXPERT_SHARD, rows[i].alike, together, 0},
			{GROUP_REPLICATE, rows[i].replicas, 16 / rows[i].replicas, 0},
		};
		for (int e = 0; e < COUNT_OF(expected); e++) {
			int found = 0;
			for (int g = 0; g < s->n_groups; g++)
				if (s->groups[g].kind == expected[e].kind) {
					assert_int_equal(s->groups[g].size, expected[e].size);
					assert_int_equal(s->groups[g].stride, expected[e].stride);
					found++;
				}
			assert_int_equal(found, expected[e].size > 1);
		}
		arena_finish(&arena);
	}
}

/* Gradients of experts have buckets of their own, reduced over the ranks that hold the same ones;
 * updated ones are gathered over these. */
static void test_buckets(void **state)
{
	static const char *const words[] = {"expert=4 tensor=2", "expert=4 tensor=2 overlap=none",
		"expert=4 tensor=2 overlap=gradients", "expert=4 shard_group=8",
		"expert=4 strategy=NO_SHARD"};
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct arena arena = {0};
		const struct schedule *s = built(&arena, words[i]);
		const struct program *p = &s->programs[0];
		bool shards = strategy_shards(s->plan.strategy);
		enum group_kind rest = shards ? GROUP_SHARD : GROUP_WORLD;
		enum op_kind sum = shards ? OP_REDUCE_SCATTER : OP_ALL_REDUCE;
		int64_t reduced[2] = {0}, gathered[2] = {0}, all[2] = {0};
		for (int u = 0; u < p->n_units; u++)
			all[p->units[u].of_experts] += p->units[u].gathered;
		for (int o = 0; o < p->n_ops; o++) {
			const struct op *op = &p->ops[o];
			if (op->unit < 0 || op->group < 0)
				continue;
			bool of_experts = p->units[op->unit].of_experts;
			enum group_kind kind = s->groups[op->group].kind;
			if (kind == GROUP_REPLICATE)
				continue;
			assert_int_equal(kind, of_experts ? GROUP_EXPERT_SHARD : rest);
			reduced[of_experts] += op->kind == sum ? op->bytes / 4 : 0;
			gathered[of_experts] += op->kind == OP_ALL_GATHER ? op->bytes / 2 : 0;
		}
		for (int e = 0; e < 2; e++) {
			assert_true(all[e] > 0);
			assert_int_equal(reduced[e], all[e]);
			assert_int_equal(gathered[e], shards ? all[e] : 0);
		}
		arena_finish(&arena);
	}
}

/* --- the order of operations ---------------------------------------------------------------------
 */

/* "all_to_all expert 8192", one a line: the experts of the second block, and what is exchanged
 * round them but parameters and gradients. */
static const char *order_of(struct arena *arena, const struct schedule *s, enum op_kind kind)
{
	const struct program *p = &s->programs[0];
	struct text text = {0};
	int at = 0;
	while (p->ops[at].kind != kind || p->ops[at].layer != 1 ||
		!is_of_experts(p->model, p->ops[at].first_module))
		at++;
	while (p->ops[at - 1].group >= 0)
		at--;
	for (int i = at; i == at || p->ops[i].group >= 0 || p->ops[i - 1].group >= 0; i++) {
		const struct op *op = &p->ops[i];
		if (op->group < 0 && !is_of_experts(p->model, op->first_module))
			break;
		if (op->unit >= 0)
			continue;
		text_add(&text, op_kind_name(op->kind));
		if (op->group >= 0)
			text_printf(&text, " %s %lld", group_kind_names[s->groups[op->group].kind],
				(long long)op->bytes);
		text_add(&text, "\n");
	}
	const char *order = arena_printf(arena, "%s", text_string(&text));
	text_finish(&text);
	return order;
}

/* MoEAlltoAllTokenDispatcher and TEGroupedMLP (Megatron-Core d98e8a64): counts, the rows and their
 * weights over expert ranks, both over the ranks that cut an expert; results the other way. In
 * backward gradients of weights come before those of rows. */
static void test_order(void **state)
{
	static const char forward[] = "all_gather expert_all 512\n"
				      "all_to_all expert 16777216\n"
				      "all_to_all expert 8192\n"
				      "all_gather expert_tensor 33554432\n"
				      "all_gather expert_tensor 16384\n"
				      "forward\n"
				      "reduce_scatter expert_tensor 33554432\n"
				      "all_to_all expert 16777216\n";
	static const char backward[] = "all_to_all expert 16777216\n"
				       "all_gather expert_tensor 33554432\n"
				       "backward\n"
				       "reduce_scatter expert_tensor 16384\n"
				       "reduce_scatter expert_tensor 33554432\n"
				       "all_to_all expert 8192\n"
				       "all_to_all expert 16777216\n";
	struct arena arena = {0};
	const struct schedule *s = built(&arena, "expert=4 tensor=2 expert_load=1");
	(void)state;
	assert_string_equal(order_of(&arena, s, OP_FORWARD), forward);
	assert_string_equal(order_of(&arena, s, OP_BACKWARD), backward);
	arena_finish(&arena);
}

/* The host makes buffers as large as the counts say; where all experts get as many rows it need not
 * know. */
static void test_host_waits(void **state)
{
	static const struct {
		const char *words;
		int64_t waits;
	} rows[] = {{"expert=8", BLOCKS}, {"expert=8 capacity_factor=1", 0}, {"tensor=2", BLOCKS}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *s = built(&arena, rows[i].words);
		const struct program *p = &s->programs[0];
		int64_t waits = 0;
		for (int o = 0; o < p->n_ops; o++)
			for (int w = 0; w < p->ops[o].host_waits.count; w++) {
				int on = slice_of(p, p->ops[o].host_waits)[w];
				waits += on >= 0 && p->ops[on].group >= 0 &&
					 s->groups[p->ops[on].group].kind == GROUP_EXPERT_ALL;
			}
		assert_int_equal(waits, rows[i].waits);
		arena_finish(&arena);
	}
}

/* --- work ----------------------------------------------------------------------------------------
 */

static double products(const struct model *model)
{
	double flops = 0;
	for (int m = 0; m < model->n_modules; m++)
		for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++) {
			struct module_work work;
			if (!module_kind_is_leaf(model->modules[m].kind))
				continue;
			model_module_work(model, m, (enum pass)pass, 1, 4096, 2,
				(struct attending){ATTENTION_FLASH, true}, &work);
			flops += work.attention_flops;
			for (int g = 0; g < work.n_gemms; g++)
				flops += 2.0 * (double)work.gemms[g].m * (double)work.gemms[g].n *
					 (double)work.gemms[g].k * (double)work.gemms[g].count;
		}
	return flops;
}

/* All ranks together compute what one would: routers too, which see a part of the tokens each. */
static void test_work(void **state)
{
	static const char *const names[] = {"mixtral-8x7b", "qwen3-30b-a3b"};
	(void)state;
	for (int i = 0; i < COUNT_OF(names); i++)
		for (int64_t e = 1; e <= 8; e *= 2)
			for (int64_t t = 1; t <= 4; t *= 2)
				for (int64_t each = 1; each <= t; each *= t > 1 ? t : 2) {
					struct arena arena = {0};
					struct model *model = preset_model(&arena, names[i]), *part;
					const struct division division = {.tensor = t,
						.stream = t,
						.expert = e,
						.expert_tensor = each,
						.routes_stream = true};
					struct error error = {0};
					assert_true(model_divide(
						&arena, model, &division, &part, &error));
					double share = products(part) * (double)t / products(model);
					assert_true(fabs(share - 1) < 1e-9);
					arena_finish(&arena);
				}
}

/* A shared expert that tensor ranks cut has dX and dW apart; gradients that the others sent back
 * are a part of dX, and end there. */
static void test_shared_expert(void **state)
{
	struct arena arena = {0};
	int ended = 0;

	(void)state;
	const struct schedule *s = build_words(&arena, "deepseek-v3", "8xdgx-h100",
		"runtime=megatron seq_len=2048 tensor=2 expert=8 expert_tensor=1");
	const struct program *program = &s->programs[0];
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const int *gives = slice_of(program, op->gives);
		for (int g = 0; g < op->gives.count; g++)
			ended += op->kind == OP_BACKWARD_INPUT &&
				 program->buffers[gives[g]].role == BUFFER_ROWS;
	}
	assert_int_equal(ended, 61 - 3);
	arena_finish(&arena);
}

/* The head makes logits for each loss; what the module looked up and what it adds to are kept, and
 * in it as much as in another block, and the inputs of its three norms. Folded and written out the
 * step is the same, with stages, too. */
static void test_prediction(void **state)
{
	static const char *const words[] = {"grad_accum=4", "expert=8 grad_accum=2",
		"pipeline=4 pipeline_schedule=1f1b expert=2 grad_accum=8",
		"pipeline=2 pipeline_schedule=interleaved tensor=2 expert=4 grad_accum=8"};
	const int64_t T = 2048, H = 4096, V = 32000;

	(void)state;
	for (int w = 0; w < COUNT_OF(words); w++) {
		struct arena arena = {0};
		struct error error = {0};
		const struct topology *topology = cluster(&arena, "2xdgx-h100");
		struct model *models[2] = {preset_model(&arena, "mixtral-8x7b")};
		const struct program *last[2];
		int64_t logits[2], saved[2];
		assert_true(model_predict_next(&arena, models[0], 1, &models[1], &error));
		for (int m = 0; m < 2; m++) {
			struct plan plan = plan_of_words(&arena, models[m], topology,
				arena_printf(&arena, "runtime=megatron seq_len=2048 %s", words[w]));
			struct schedule *s = schedule_emit(&arena, &plan, models[m], topology);
			last[m] = &s->programs[s->n_classes - 1];
			logits[m] = saved[m] = 0;
			for (int b = 0; b < last[m]->n_buffers; b++) {
				const struct buffer *buffer = &last[m]->buffers[b];
				if (buffer->role == BUFFER_LOGITS)
					logits[m] = buffer->bytes;
				if (buffer->role == BUFFER_ACTIVATIONS && buffer->bytes > saved[m])
					saved[m] = buffer->bytes;
			}
		}
		int64_t tensor = w == 3 ? 2 : 1;
		assert_int_equal(logits[0], 2 * T * V / tensor);
		assert_int_equal(logits[1], 2 * logits[0]);
		assert_true(saved[1] >= saved[0] + (w == 0 ? 2 * 2 * T * H : 0));
		arena_finish(&arena);
	}
}

/* Two of cuBLAS, one of Transformer Engine, and one for each of four streams of grouped products.
 */
static void test_workspaces(void **state)
{
	static const struct {
		const char *model;
		int64_t engine;
	} cases[] = {{"llama-3-8b", 1}, {"mixtral-8x7b", 5}};
	const int64_t mib = 1 << 20;

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		const struct schedule *s = build_words(
			&arena, cases[i].model, "2xdgx-h100", "runtime=megatron seq_len=2048");
		assert_int_equal(bytes_of(&s->programs[0], BUFFER_KERNEL_WORKSPACE),
			2 * 32 * mib + cases[i].engine * (32 * mib + 1024));
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_saved),
		cmocka_unit_test(test_gathered_tokens),
		cmocka_unit_test(test_picked_rows),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_host_waits),
		cmocka_unit_test(test_work),
		cmocka_unit_test(test_shared_expert),
		cmocka_unit_test(test_prediction),
		cmocka_unit_test(test_workspaces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
