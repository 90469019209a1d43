/* Ranks that divide the model: what they hold, compute and send. */
#include <math.h>

#include "schedule/fold/fold.h"
#include "schedule/laws/laws.h"
#include "support.h"
#include "tests/sampled.h"

/* --- random plans: laws, and the fold ------------------------------------------------------------
 */

/* The laws hold, and the fold lists what the whole one does. Does it fold? */
static bool folds_alike(struct arena *arena, int round, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	const struct schedule *whole = build_random(arena, round, plan, model, topology);
	const struct schedule *fold = schedule_fold_printable(arena, plan, model, topology);
	assert_string_equal(schedule_digest(whole).hex, schedule_digest(fold).hex);
	return fold->programs->n_loops > 0;
}

static void test_random(void **state)
{
	enum { ROUNDS = SAMPLED(200), DRAWS = 8 };
	int divided = 0, folded = 0;
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct arena arena = {0};
		uint64_t seed = 271828182ull + (uint64_t)round * 7919;
		struct model *model = deep_model(&arena, &seed);
		struct topology *topology = random_topology(&arena, &seed);
		struct plan plan;
		bool is_divided = false;
		for (int draw = 0; draw < DRAWS && !is_divided; draw++) {
			plan = deep_plan(&arena, &seed, model, topology);
			is_divided = divide_plan(&arena, &seed, model, &topology, &plan);
		}
		if (is_divided) {
			divided++;
			folded += folds_alike(&arena, round, &plan, model, topology);
		}
		arena_finish(&arena);
	}
	print_message("%d divided, %d of them fold\n", divided, folded);
	assert_true(4 * divided > ROUNDS);
	assert_true(2 * folded > divided);
}

/* --- what a rank has -----------------------------------------------------------------------------
 */

static const struct model *part_of(struct arena *arena, const struct model *model, int64_t tensor,
	int64_t stream, int64_t context)
{
	const struct division division = {tensor, stream, context};
	struct error error = {0};
	struct model *part;
	if (!model_divide(arena, model, &division, &part, &error))
		fail_msg("%s", error.message);
	return part;
}

/* Norms, and biases behind row-parallel layers: every tensor rank has them. */
static bool is_replicated(const struct model *model, const struct parameter *parameter)
{
	enum module_kind kind = model->modules[parameter->module].kind;
	return module_is_on_stream(&model->division, kind) || kind == MODULE_QUERY_NORM ||
	       kind == MODULE_KEY_NORM ||
	       (parameter->n_dims == 1 && (kind == MODULE_ATTENTION_OUTPUT || kind == MODULE_DOWN));
}

static void test_parameters(void **state)
{
	static const char *const names[] = {
		"llama-2-7b", "llama-3-70b", "gpt3-175b", "gpt2-774m", "mpt-7b"};
	(void)state;
	for (int i = 0; i < COUNT_OF(names); i++)
		for (int64_t t = 1; t <= 4; t *= 2) {
			struct arena arena = {0};
			struct model *model = preset_model(&arena, names[i]);
			const struct model *part = part_of(&arena, model, t, t, 1);
			assert_int_equal(part->n_parameters, model->n_parameters);
			for (int p = 0; p < model->n_parameters; p++) {
				int64_t whole = model->parameters[p].elements;
				int64_t mine = part->parameters[p].elements;
				bool words = model->modules[model->parameters[p].module].kind ==
						     MODULE_EMBEDDING ||
					     model->modules[model->parameters[p].module].kind ==
						     MODULE_HEAD;
				if (is_replicated(model, &model->parameters[p]))
					assert_int_equal(mine, whole);
				else if (words)
					assert_in_range(mine * t, whole,
						whole + t * model->architecture.hidden);
				else
					assert_int_equal(mine * t, whole);
			}
			arena_finish(&arena);
		}
}

static double products(const struct model *model, int64_t sequences, int64_t seq_len)
{
	double flops = 0;
	for (int m = 0; m < model->n_modules; m++)
		for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++) {
			struct module_work work;
			if (!module_kind_is_leaf(model->modules[m].kind))
				continue;
			model_module_work(model, m, (enum pass)pass, sequences, seq_len, 2,
				(struct attending){ATTENTION_FLASH, true}, &work);
			flops += work.attention_flops;
			for (int g = 0; g < work.n_gemms; g++)
				flops += 2.0 * (double)work.gemms[g].m * (double)work.gemms[g].n *
					 (double)work.gemms[g].k * (double)work.gemms[g].count;
		}
	return flops;
}

/* All ranks together compute what one would. */
static void test_work_is_divided(void **state)
{
	(void)state;
	for (int64_t t = 1; t <= 8; t *= 2)
		for (int64_t c = 1; c <= 8; c *= 2) {
			struct arena arena = {0};
			struct model *model = preset_model(&arena, "llama-3-8b");
			double whole = products(model, 2, 4096);
			double mine = products(part_of(&arena, model, t, t, c), 2, 4096);
			assert_true(mine * (double)(t * c) < whole * (1 + 1e-12));
			assert_true(mine * (double)(t * c) > whole * (1 - 1e-12));
			arena_finish(&arena);
		}
}

/* Korthikanti et al. (2205.05198, section 4), per block of s tokens of width h, in 2-byte elements:
 * attention and MLP keep parts of t, the norms' inputs and outputs whole without sequence
 * parallelism and parts of t with it. */
static void test_saved(void **state)
{
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "gpt3-175b");
	struct activation_rules rules = {
		.dtype = DTYPE_BF16, .attention = ATTENTION_FLASH, .alignment = 1};
	int block = 0;
	(void)state;
	while (model->modules[block].kind != MODULE_BLOCK)
		block++;
	int end = model->modules[block].end;
	int64_t s = 2048, h = model->architecture.hidden, t = 8;
	int64_t whole = model_saved_bytes(model, block, end, &rules, 1, s);
	int64_t tensor =
		model_saved_bytes(part_of(&arena, model, t, 1, 1), block, end, &rules, 1, s);
	int64_t sequence =
		model_saved_bytes(part_of(&arena, model, t, t, 1), block, end, &rules, 1, s);
	/* Two norms' outputs and statistics, and the residual stream between attention and MLP. */
	int64_t stream = s * h * 2 * 3 + 2 * (2 * s * 4);
	assert_int_equal(tensor, (whole - stream) / t + stream);
	assert_int_equal(sequence, whole / t);
	arena_finish(&arena);
}

/* --- what is exchanged ---------------------------------------------------------------------------
 */

static struct schedule *built(struct arena *arena, const char *words)
{
	return build_words(arena, "llama-2-7b", "2xdgx-h100", words);
}

enum { BLOCKS = 32, TOKENS_BYTES = 2048 * 4096 * 2, LOSS_SUMS = 3, NORM_SUMS = 1 };

/* Two each way a block; behind the embedding, and behind the head's backward. */
static void test_tensor(void **state)
{
	struct arena arena = {0};
	const struct schedule *schedule =
		built(&arena, "tensor=8 sequence_parallel=off seq_len=2048 clip=1");
	struct exchanged reduces = exchanged(schedule, OP_ALL_REDUCE, GROUP_TENSOR);
	(void)state;
	assert_int_equal(reduces.n, 4 * BLOCKS + 2 + LOSS_SUMS + NORM_SUMS);
	assert_int_equal(reduces.bytes,
		(int64_t)(4 * BLOCKS + 2) * TOKENS_BYTES + LOSS_SUMS * 2048 * 4 + NORM_SUMS * 4);
	assert_int_equal(exchanged(schedule, OP_ALL_GATHER, GROUP_TENSOR).n, 0);
	assert_int_equal(exchanged(schedule, OP_REDUCE_SCATTER, GROUP_TENSOR).n, 0);
	arena_finish(&arena);
}

/* Sequence parallelism must move the same bytes as gathers and scatters. Runtimes that keep no
 * gathered input gather it again. nanotron adds up the norms' gradients. */
static void test_sequence(void **state)
{
	static const struct {
		const char *words;
		int gathers, alike;
	} rows[] = {{"tensor=8 seq_len=2048 clip=1", 4 * BLOCKS + 2, 0},
		{"tensor=8 seq_len=2048 runtime=internevo clip=1", 6 * BLOCKS + 3, 0},
		{"tensor=8 seq_len=2048 runtime=nanotron clip=1", 6 * BLOCKS + 3, 1},
		{"tensor=8 seq_len=2048 runtime=nanotron clip=1 keep_gathered=on", 4 * BLOCKS + 2,
			1}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = built(&arena, rows[i].words);
		struct exchanged gathers = exchanged(schedule, OP_ALL_GATHER, GROUP_TENSOR);
		struct exchanged scatters = exchanged(schedule, OP_REDUCE_SCATTER, GROUP_TENSOR);
		assert_int_equal(gathers.n, rows[i].gathers);
		assert_int_equal(gathers.bytes, (int64_t)rows[i].gathers * TOKENS_BYTES);
		assert_int_equal(scatters.n, 4 * BLOCKS + 2);
		assert_int_equal(scatters.bytes, (int64_t)(4 * BLOCKS + 2) * TOKENS_BYTES);
		assert_int_equal(exchanged(schedule, OP_ALL_REDUCE, GROUP_TENSOR).n,
			LOSS_SUMS + NORM_SUMS + rows[i].alike);
		arena_finish(&arena);
	}
}

/* Keys and values of the whole sequence in forward and in backward; their gradients back, from
 * torch round the ranks in fp32. With full checkpointing in forward twice. Until January 2026
 * torchtitan repeats keys for the heads of queries. */
static void test_context(void **state)
{
	static const struct {
		const char *words;
		int gathers, scatters, sums, times;
	} rows[] = {{"runtime=megatron context_method=all-gather", 2, 1, 0, 1}, {"", 2, 0, 8, 1},
		{"activation_checkpointing=full", 3, 0, 8, 1},
		{"libraries=pytorch:2.10.0", 2, 0, 8, 1}, {"libraries=pytorch:2.9.0", 2, 0, 8, 4}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = build_words(&arena, "llama-3-8b", "dgx-h100",
			arena_printf(&arena, "context=8 seq_len=2048 %s", rows[i].words));
		int64_t keys = (int64_t)rows[i].times * 2 * TOKENS_BYTES / 4;
		struct exchanged gathers = exchanged(schedule, OP_ALL_GATHER, GROUP_CONTEXT);
		struct exchanged scatters = exchanged(schedule, OP_REDUCE_SCATTER, GROUP_CONTEXT);
		struct exchanged sums = exchanged(schedule, OP_SEND_RECV, GROUP_CONTEXT);
		assert_int_equal(gathers.n, rows[i].gathers * BLOCKS);
		assert_int_equal(gathers.bytes, rows[i].gathers * BLOCKS * keys);
		assert_int_equal(scatters.n, rows[i].scatters * BLOCKS);
		assert_int_equal(sums.n, rows[i].sums * BLOCKS);
		assert_int_equal(sums.bytes, rows[i].sums * BLOCKS * keys / 8 * 2);
		arena_finish(&arena);
	}
}

/* The bytes are those of a block of the model, in keys and values of one rank. Each forward sends c
 * - 1, so that all ranks have met all. Backward sends as many, and c - 1 gradients beside them, or
 * c by themselves, which are fp32; ours sends c - 1 by themselves. */
static void test_ring(void **state)
{
	static const struct {
		const char *words;
		int forwards;
	} rows[] = {
		{"context=2 runtime=megatron", 1},
		{"context=8 runtime=megatron", 1},
		{"context=8 runtime=megatron activation_checkpointing=full", 2},
		{"context=8 runtime=megatron activation_checkpointing=selective", 2},
		{"context=2 context_method=ring", 1},
		{"context=8 context_method=ring", 1},
		{"context=8 context_method=ring activation_checkpointing=full", 2},
		{"context=4 tensor=2 context_method=ring activation_checkpointing=selective", 1},
		{"context=2 context_method=ring runtime=shardplan", 1},
		{"context=8 context_method=ring runtime=shardplan activation_checkpointing=full",
			2},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *s =
			built(&arena, arena_printf(&arena, "seq_len=2048 %s", rows[i].words));
		struct exchanged sent = exchanged(s, OP_SEND_RECV, GROUP_CONTEXT);
		bool apart = s->plan.runtime == RUNTIME_PYTORCH_FSDP2;
		bool ours = s->plan.runtime == RUNTIME_SHARDPLAN;
		int64_t c = s->plan.mesh.context, forwards = rows[i].forwards;
		int64_t keys = 2 * TOKENS_BYTES / c / s->plan.mesh.tensor;
		int64_t back = (c - 1) + (apart ? 2 * c : c - 1);
		assert_int_equal(s->plan.context_method, CONTEXT_RING);
		int64_t messages = apart ? 2 * c - 1 : ours ? 2 * c - 2 : c;
		assert_int_equal(sent.n, BLOCKS * (forwards * (c - 1) + messages));
		assert_int_equal(sent.bytes, BLOCKS * keys * (forwards * (c - 1) + back));
		assert_int_equal(exchanged(s, OP_ALL_GATHER, GROUP_CONTEXT).n, 0);
		assert_int_equal(exchanged(s, OP_REDUCE_SCATTER, GROUP_CONTEXT).n, 0);
		arena_finish(&arena);
	}
}

static bool waits_for(const struct program *program, const struct op *op, int other)
{
	for (int w = 0; w < op->waits.count; w++)
		if (slice_of(program, op->waits)[w] == other)
			return true;
	return false;
}

/* Each of c rounds waits for the block of keys that came last but one: the last one is sent beside
 * it. The first has its own. */
static void test_rounds(void **state)
{
	static const char *const runtimes[] = {"megatron", "pytorch-fsdp2", "shardplan"};
	(void)state;
	for (int r = 0; r < COUNT_OF(runtimes); r++) {
		struct arena arena = {0};
		const struct program *p = built(
			&arena, arena_printf(&arena,
					"context=4 context_method=ring seq_len=2048 runtime=%s",
					runtimes[r]))
						  ->programs;
		int rounds = 0, sent[2] = {-1, -1};
		for (int i = 0; i < p->n_ops && rounds < 4; i++) {
			const struct op *op = &p->ops[i];
			if (op->kind == OP_SEND_RECV) {
				sent[0] = sent[1];
				sent[1] = i;
			}
			if (op->kind != OP_FORWARD || op->layer != 0 || sent[1] < 0)
				continue;
			bool is_last = ++rounds == 4;
			assert_int_equal(waits_for(p, op, sent[1]), is_last);
			assert_int_equal(waits_for(p, op, sent[0]), !is_last && rounds > 1);
		}
		assert_int_equal(rounds, 4);
		arena_finish(&arena);
	}
}

static bool reads_gathered(
	const struct program *program, const struct op *op, const struct op *gather)
{
	int gathered = slice_of(program, gather->takes)[gather->takes.count - 1];
	bool reads = false;
	for (int u = 0; u < op->uses.count; u++)
		reads = reads || slice_of(program, op->uses)[u] == gathered;
	return reads;
}

/* Torch's second round is the first that needs what was gathered; compiled, the first waits too. */
static void test_gathered_rounds(void **state)
{
	static const char *const words[] = {"context=4 compile=off", "context=4 compile=on"};
	(void)state;
	for (int w = 0; w < COUNT_OF(words); w++) {
		struct arena arena = {0};
		const struct program *p = built(&arena, words[w])->programs;
		int rounds = 0, gather = -1, waits = -1;
		for (int i = 0; i < p->n_ops && rounds < 2; i++) {
			if (p->ops[i].kind == OP_ALL_GATHER && p->ops[i].unit < 0)
				gather = i;
			if (gather < 0 || p->ops[i].kind != OP_FORWARD)
				continue;
			if (waits < 0 && waits_for(p, &p->ops[i], gather))
				waits = rounds;
			if (rounds++ == 1)
				assert_true(reads_gathered(p, &p->ops[i], &p->ops[gather]));
		}
		assert_int_equal(waits, w == 0 ? 1 : 0);
		arena_finish(&arena);
	}
}

/* All heads of queries, keys and values there, results back; in backward the other way. Ours asks
 * for all again, with results and their gradients. */
static void test_heads(void **state)
{
	static const struct {
		const char *words;
		int forwards;
		int64_t back; /* results */
	} rows[] = {{"runtime=megatron context=8", 1, 4},
		{"runtime=megatron context=4 tensor=2", 1, 4},
		{"runtime=megatron context=8 activation_checkpointing=full", 2, 4},
		{"runtime=shardplan context=8 attention=flash", 1, 8},
		{"runtime=shardplan context=4 tensor=2 activation_checkpointing=full", 2, 8}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *s = built(
			&arena, arena_printf(&arena, "seq_len=2048 context_method=all-to-all %s",
					rows[i].words));
		struct exchanged all = exchanged(s, OP_ALL_TO_ALL, GROUP_CONTEXT);
		int64_t result = TOKENS_BYTES / s->plan.mesh.context / s->plan.mesh.tensor;
		assert_int_equal(all.n, BLOCKS * 2 * (rows[i].forwards + 1));
		assert_int_equal(
			all.bytes, BLOCKS * result * (4 * rows[i].forwards + rows[i].back));
		arena_finish(&arena);
	}
}

/* A decoder's blocks have two attentions, and both are computed again before either goes back. What
 * the first one sends back for that is read by nobody, and is freed all the same. */
static void test_two_attentions(void **state)
{
	enum { ENCODERS = 5, DECODERS = 7, EXCHANGES = 6 };
	struct arena arena = {0};
	struct error error = {0};
	struct topology *topology = cluster(&arena, "dgx-h100");
	struct architecture architecture = preset_model(&arena, "gpt2-124m")->architecture;
	struct model *model;
	struct schedule *s;
	(void)state;
	architecture.family = FAMILY_T5;
	architecture.positions = POSITIONS_RELATIVE;
	architecture.relative_buckets = 32;
	architecture.layers = ENCODERS + DECODERS;
	architecture.encoder_layers = ENCODERS;
	if (!architecture_check(&architecture, NULL, &error) ||
		!model_build(&arena, &architecture, &model, &error))
		fail_msg("%s", error.message);
	struct plan plan = plan_of_words(&arena, model, topology,
		"runtime=megatron context=2 context_method=all-to-all "
		"activation_checkpointing=selective");
	if (!schedule_build(&arena, &plan, model, topology, &s, &error))
		fail_msg("%s", error.message);
	assert_int_equal(exchanged(s, OP_ALL_TO_ALL, GROUP_CONTEXT).n,
		EXCHANGES * (ENCODERS + 2 * DECODERS));
	arena_finish(&arena);
}

/* A ring's message fills what comes; it goes round the context ranks. */
static void test_ring_laws(void **state)
{
	(void)state;
	for (int damage = 0; damage < 2; damage++) {
		struct arena arena = {0};
		struct schedule *s = built(&arena, "context=4 runtime=megatron seq_len=2048");
		struct program *p = s->programs;
		struct error error = {0};
		int i = 0;
		while (p->ops[i].kind != OP_SEND_RECV)
			i++;
		assert_true(schedule_validate(s, &error));
		if (damage == 0)
			p->ops[i].bytes += 8;
		else
			p->ops[i].group = 0;
		assert_false(schedule_validate(s, &error));
		arena_finish(&arena);
	}
}

static int next_round(const struct program *p, int i)
{
	do
		i++;
	while (p->ops[i].kind != OP_FORWARD ||
		op_buffer(p, &p->ops[i], BUFFER_GATHERED_TOKENS) < 0);
	return i;
}

/* Ours sends a block on from where it came to: a round may read it meanwhile, and not end it. */
static void test_blocks_are_read(void **state)
{
	struct arena arena = {0};
	struct error error = {0};
	struct schedule *s =
		built(&arena, "context=4 context_method=ring runtime=shardplan seq_len=2048");
	struct program *p = s->programs;
	int reads = next_round(p, -1), ends = next_round(p, reads);
	(void)state;
	assert_true(schedule_validate(s, &error));
	assert_int_equal(p->ops[reads].gives.count, 0);
	p->ops[reads].gives = p->ops[ends].gives;
	p->ops[ends].gives.count = 0;
	assert_false(schedule_validate(s, &error));
	assert_non_null(strstr(error.message, "unordered"));
	arena_finish(&arena);
}

/* Context ranks have other tokens, so they shard what tensor ranks do not hold alike. */
static void test_groups(void **state)
{
	struct arena arena = {0};
	const struct schedule *s = built(
		&arena, "tensor=2 context=2 strategy=HYBRID_SHARD shard_group=2 seq_len=2048");
	(void)state;
	assert_int_equal(s->plan.mesh.replicate, 2);
	assert_int_equal(s->n_groups, 4);
	assert_int_equal(s->groups[0].kind, GROUP_SHARD);
	assert_int_equal(s->groups[0].size, 4);
	assert_int_equal(s->groups[0].stride, 2);
	assert_int_equal(s->groups[1].kind, GROUP_REPLICATE);
	assert_int_equal(s->groups[1].size, 2);
	assert_int_equal(s->groups[1].stride, 8);
	assert_int_equal(s->groups[2].kind, GROUP_TENSOR);
	assert_int_equal(s->groups[2].stride, 1);
	assert_int_equal(s->groups[3].kind, GROUP_CONTEXT);
	assert_int_equal(s->groups[3].stride, 2);
	assert_int_equal(s->plan.global_batch, 4);
	arena_finish(&arena);
}

/* --- experts -------------------------------------------------------------------------------------
 */

/* Plans whose experts are cut over ranks keep the laws, and fold to the same text. */
static void check_random_experts(enum runtime_kind runtime)
{
	enum { ROUNDS = SAMPLED(150), DRAWS = 60 };
	int divided = 0, folded = 0;
	for (int round = 0; round < ROUNDS; round++) {
		struct arena arena = {0};
		uint64_t seed = 314159265ull + (uint64_t)round * 7919;
		struct model *model = deep_model(&arena, &seed);
		struct topology *topology = random_topology(&arena, &seed);
		struct plan plan = {.mesh = {.expert = 1}};
		while (model->architecture.experts == 0)
			model = deep_model(&arena, &seed);
		for (int draw = 0; draw < DRAWS && plan.mesh.expert == 1; draw++) {
			struct topology *larger = topology;
			plan = deep_plan(&arena, &seed, model, topology);
			if (plan.runtime == runtime)
				divide_plan(&arena, &seed, model, &larger, &plan);
			topology = plan.mesh.expert > 1 ? larger : topology;
		}
		if (plan.mesh.expert > 1) {
			divided++;
			folded += folds_alike(&arena, round, &plan, model, topology);
		}
		arena_finish(&arena);
	}
	print_message("%d divided, %d of them fold\n", divided, folded);
	assert_true(6 * divided > ROUNDS);
	assert_true(4 * folded > divided);
}

static void test_random_experts(void **state)
{
	(void)state;
	check_random_experts(RUNTIME_PYTORCH_FSDP2);
	check_random_experts(RUNTIME_SHARDPLAN);
}

/* All ranks together compute what one would, where all get alike; and hold what one would. */
static void test_experts_are_divided(void **state)
{
	static const char *const names[] = {
		"mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3"};
	(void)state;
	for (int i = 0; i < COUNT_OF(names); i++)
		for (int64_t e = 2; e <= 8; e *= 2)
			for (int64_t t = 1; t <= 4; t *= 2) {
				struct arena arena = {0};
				struct model *model = preset_model(&arena, names[i]);
				const struct division division = {
					.tensor = t, .stream = t, .expert = e, .expert_tensor = 1};
				struct model *part;
				struct error error = {0};
				int64_t held = 0, all = 0;
				assert_true(model_divide(&arena, model, &division, &part, &error));
				double whole = products(model, 1, 4096) / (double)t;
				double mine = products(part, 1, 4096);
				/* Routers and narrow latent tensors are every tensor rank's. */
				assert_true(mine > whole * (1 - 1e-9));
				assert_true(mine < whole * (t > 1 ? 1.08 : 1 + 1e-9));
				for (int p = 0; p < model->n_parameters; p++) {
					int m = model->parameters[p].module;
					if (!module_kind_is_of_experts(model->modules[m].kind))
						continue;
					all += model->parameters[p].elements;
					held += part->parameters[p].elements;
				}
				assert_int_equal(held * e, all);
				arena_finish(&arena);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_work_is_divided),
		cmocka_unit_test(test_saved),
		cmocka_unit_test(test_tensor),
		cmocka_unit_test(test_sequence),
		cmocka_unit_test(test_context),
		cmocka_unit_test(test_gathered_rounds),
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_two_attentions),
		cmocka_unit_test(test_ring_laws),
		cmocka_unit_test(test_blocks_are_read),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_random_experts),
		cmocka_unit_test(test_experts_are_divided),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
