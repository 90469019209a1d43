/* Saved, kept and gathered buffers in special cases: in fp8, at the loss, and with nanotron and
 * Megatron-LM, whose modules are computed again. */
#include "schedule/memory/memory.h"
#include "support.h"

/* --- the head in chunks ----------------------------------------------------------------------- */

static int64_t held_by(const struct schedule *schedule, enum buffer_role role)
{
	int64_t bytes = 0;
	for (int i = 0; i < schedule->programs[0].n_buffers; i++)
		if (schedule->programs[0].buffers[i].role == role)
			bytes += schedule->programs[0].buffers[i].bytes;
	return bytes;
}

/* Of ours with --loss fused-linear: logits of 4096 rows on a GPU, and their losses, whatever the
 * micro-batch; temporary buffers are less by just that. */
static void test_chunked_head(void **state)
{
	(void)state;
	const int64_t V = 32000, S = 4096;
	for (int64_t sequences = 1; sequences <= 8; sequences *= 8) {
		struct arena arena = {0};
		struct ledger ledgers[2];
		struct model *model = preset_model(&arena, "llama-2-7b");
		struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
		const char *micro = sequences == 1 ? "micro_batch=1" : "micro_batch=8";
		const int64_t T = sequences * S, chunk = S * (2 * V + 4);
		for (int i = 0; i < 2; i++) {
			struct plan plan = toy_plan(&arena, model, topology, "runtime=shardplan",
				i == 0 ? "loss=fused" : "loss=fused-linear", micro, NULL);
			struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
			schedule_ledger(schedule, 0, &arena, &ledgers[i]);
			assert_int_equal(
				held_by(schedule, BUFFER_LOGITS), i == 0 ? T * 2 * V : chunk);
			assert_int_equal(held_by(schedule, BUFFER_LOSS_WORK), i == 0 ? T * 4 : 0);
		}
		assert_int_equal(ledgers[0].category_peak_bytes[CATEGORY_TEMPORARY_BUFFERS] -
					 ledgers[1].category_peak_bytes[CATEGORY_TEMPORARY_BUFFERS],
			T * 2 * V - chunk);
		arena_finish(&arena);
	}
}

/* --- fp8 -------------------------------------------------------------------------------------- */

static int64_t saved_by(const struct schedule *schedule, int layer)
{
	const struct program *program = &schedule->programs[0];
	int64_t bytes = 0;
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].role == BUFFER_ACTIVATIONS &&
			program->buffers[i].layer == layer)
			bytes += program->buffers[i].bytes;
	return bytes;
}

/* Llama 2 7B, T tokens. torchao keeps what bf16 keeps, and has the copies of one layer at a time:
 * dY, its transpose and x's of the widest. Transformer Engine keeps inputs (two norms' results,
 * that of attention, that of the MLP) in fp8, attention's result beside its own copy of it, and
 * both orders of all weights. Our executor has the copies and scales of one product at a time. */
static void test_fp8(void **state)
{
	static const char *const words[] = {"compile=on", "runtime=megatron", "runtime=shardplan"};
	const int64_t T = 4096, H = 4096, F = 11008, L = 32, layer = 4 * H * H + 3 * H * F;
	(void)state;
	for (int r = 0; r < 3; r++) {
		struct arena arena = {0};
		struct model *model = preset_model(&arena, "llama-2-7b");
		struct topology *topology = cluster(&arena, "2xdgx-h100");
		struct schedule *in[2];
		for (int i = 0; i < 2; i++) {
			struct plan plan = toy_plan(&arena, model, topology, words[r],
				i == 0 ? "fp8=off" : "fp8=tensorwise", NULL);
			in[i] = toy_schedule(&arena, &plan, model, topology);
		}
		assert_int_equal(in[0]->programs[0].n_ops, in[1]->programs[0].n_ops);
		int64_t saved = saved_by(in[1], 1) - saved_by(in[0], 1);
		int64_t held = held_by(in[1], BUFFER_KERNEL_WORKSPACE) -
			       held_by(in[0], BUFFER_KERNEL_WORKSPACE);
		int64_t own = (T + H) * (F + 8);
		const int64_t forward[] = {T * F + F * H, T * F, own};
		const int64_t backward[] = {T * F + T * F + T * H, 2 * T * F, own};
		assert_int_equal(saved, r == 1 ? -T * (3 * H + F) + 2 * T * H : 0);
		assert_int_equal(
			held, L * (forward[r] + backward[r]) + (r == 1 ? 2 * L * layer : 0));
		arena_finish(&arena);
	}
}

/* Mixtral, whose experts take two rows a token: Transformer Engine keeps their inputs in fp8, and
 * both orders of the weights of each; the norm before the router is read in bf16. */
static void test_fp8_of_experts(void **state)
{
	static const char *const loads[] = {NULL, "expert_load=1"};
	const int64_t T = 4096, H = 4096, F = 14336, L = 32, held[] = {8, 1};
	const int64_t attention = (2 * 4096 + 2 * 1024) * H, expert = 3 * H * F;
	(void)state;
	for (int m = 0; m < COUNT_OF(loads); m++) {
		struct arena arena = {0};
		struct model *model = preset_model(&arena, "mixtral-8x7b");
		struct topology *topology = cluster(&arena, "2xdgx-h100");
		struct plan plan = toy_plan(&arena, model, topology, "runtime=megatron",
			m == 0 ? "expert=1" : "expert=8", loads[m], NULL);
		struct schedule *bf16 = toy_schedule(&arena, &plan, model, topology);
		plan.fp8 = FP8_TENSORWISE;
		struct schedule *fp8 = toy_schedule(&arena, &plan, model, topology);
		assert_int_equal(saved_by(fp8, 1) - saved_by(bf16, 1), -2 * T * (H + F));
		plan.fp8_param_gather = true;
		struct schedule *kept = toy_schedule(&arena, &plan, model, topology);
		assert_int_equal(held_by(fp8, BUFFER_KERNEL_WORKSPACE) -
					 held_by(kept, BUFFER_KERNEL_WORKSPACE),
			L * (attention + held[m] * expert));
		arena_finish(&arena);
	}
}

/* Blackwell's products read either order of a weight. */
static void test_fp8_of_blackwell(void **state)
{
	const int64_t H = 4096, F = 11008, L = 32, layer = 4 * H * H + 3 * H * F;
	static const char *const names[] = {"2xdgx-h100", "2xdgx-b200"};
	int64_t held[2];
	(void)state;
	for (int t = 0; t < 2; t++) {
		struct arena arena = {0};
		struct model *model = preset_model(&arena, "llama-2-7b");
		struct topology *topology = cluster(&arena, names[t]);
		struct plan plan = toy_plan(
			&arena, model, topology, "runtime=megatron", "fp8=tensorwise", NULL);
		held[t] = held_by(
			toy_schedule(&arena, &plan, model, topology), BUFFER_KERNEL_WORKSPACE);
		arena_finish(&arena);
	}
	assert_int_equal(held[0] - held[1], L * layer);
}

/* Bytes that data parallel ranks gather, and that the cast before it moves. */
static int64_t moved_by(const struct schedule *schedule, enum op_kind kind)
{
	const struct program *program = schedule->programs;
	int64_t bytes = 0;
	for (int x = 0; x < program->n_ops; x++)
		if (program->ops[x].kind == kind)
			bytes += program->ops[x].bytes;
	return bytes;
}

/* Megatron-LM's --fp8-param-gather: weights of blocks are bytes, where they stay and on their way;
 * their first order in fp8 is no copy of them. Each of 16 ranks casts its part by way of bf16: once
 * read to find the largest element with the scale of a tensor, once to be cast. Norms, embedding
 * and head are as before. */
static void test_fp8_parameters(void **state)
{
	static const char *const names[] = {"2xdgx-h100", "2xdgx-b200"};
	static const char *const recipes[] = {"fp8=tensorwise", "fp8=delayed"};
	const int64_t H = 4096, F = 11008, L = 32, weights = L * (4 * H * H + 3 * H * F);
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct arena arena = {0};
		struct model *model = preset_model(&arena, "llama-2-7b");
		struct topology *topology = cluster(&arena, names[i / 2]);
		const struct schedule *in[2];
		for (int on = 0; on < 2; on++) {
			struct plan plan = toy_plan(&arena, model, topology, "runtime=megatron",
				"strategy=ZERO_1", recipes[i % 2],
				on ? "fp8_param_gather=on" : "fp8_param_gather=off", NULL);
			in[on] = toy_schedule(&arena, &plan, model, topology);
		}
		assert_int_equal(
			held_by(in[0], BUFFER_COMPUTE_COPY) - held_by(in[1], BUFFER_COMPUTE_COPY),
			weights);
		assert_int_equal(held_by(in[0], BUFFER_KERNEL_WORKSPACE) -
					 held_by(in[1], BUFFER_KERNEL_WORKSPACE),
			weights);
		assert_int_equal(
			moved_by(in[0], OP_ALL_GATHER) - moved_by(in[1], OP_ALL_GATHER), weights);
		assert_int_equal(
			moved_by(in[1], OP_CAST_PARAMETERS) - moved_by(in[0], OP_CAST_PARAMETERS),
			weights / 16 * (i % 2 == 0 ? 5 : 3));
		assert_int_equal(held_by(in[1], BUFFER_LOW_PRECISION_SHARD), weights / 16 * 2);
		arena_finish(&arena);
	}
}

/* Of mxfp8 Blackwell has both orders, each with a scale for 32 elements, which inputs that are kept
 * have, too. Weights that are parameters themselves travel in bf16, and as many bytes are counted
 * for both of their orders as for bf16, so that only scales are left of the copies. */
static void test_blocks_of_32(void **state)
{
	const int64_t T = 4096, H = 4096, F = 11008, L = 32, layer = 4 * H * H + 3 * H * F;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-b200");
	const struct schedule *in[3];
	int64_t held[3];
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct plan plan = toy_plan(&arena, model, topology, "runtime=megatron",
			"strategy=ZERO_1", i == 0 ? "fp8=tensorwise" : "fp8=mxfp8",
			i == 2 ? "fp8_param_gather=on" : "fp8_param_gather=off", NULL);
		in[i] = toy_schedule(&arena, &plan, model, topology);
		held[i] = held_by(in[i], BUFFER_KERNEL_WORKSPACE);
	}
	assert_int_equal(saved_by(in[1], 1) - saved_by(in[0], 1), T * (3 * H + F) / 32);
	assert_int_equal(held[1] - held[0], L * (layer + 2 * layer / 32));
	assert_int_equal(held[1] - held[2], 2 * L * layer);
	assert_int_equal(moved_by(in[1], OP_ALL_GATHER), moved_by(in[2], OP_ALL_GATHER));
	assert_int_equal(held_by(in[1], BUFFER_COMPUTE_COPY), held_by(in[2], BUFFER_COMPUTE_COPY));
	arena_finish(&arena);
}

/* In fp4 two elements take a byte, and 16 one more for their scale. Weights that are parameters
 * themselves travel so, and one order of them is no copy. */
static void test_blocks_of_16(void **state)
{
	const int64_t T = 4096, H = 4096, F = 11008, L = 32, layer = 4 * H * H + 3 * H * F;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-b200");
	const struct schedule *in[3];
	int64_t copies[3];
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct plan plan = toy_plan(&arena, model, topology, "runtime=megatron",
			"strategy=ZERO_1", i == 0 ? "fp8=tensorwise" : "fp8=nvfp4",
			i == 2 ? "fp8_param_gather=on" : "fp8_param_gather=off", NULL);
		in[i] = toy_schedule(&arena, &plan, model, topology);
		copies[i] = fp8_weight_bytes(&plan, model, GENERATION_BLACKWELL);
	}
	assert_int_equal(saved_by(in[0], 1) - saved_by(in[1], 1), T * (3 * H + F) * 7 / 16);
	assert_int_equal(copies[1], L * layer * 9 / 8);
	assert_int_equal(copies[2], L * layer * 5 / 8);
	assert_int_equal(
		moved_by(in[1], OP_ALL_GATHER) - moved_by(in[2], OP_ALL_GATHER), L * layer * 3 / 2);
	assert_int_equal(held_by(in[1], BUFFER_COMPUTE_COPY) - held_by(in[2], BUFFER_COMPUTE_COPY),
		L * layer * 3 / 2);
	arena_finish(&arena);
}

/* Biases of GPT-2's 12 blocks stay as they are. */
static void test_fp8_leaves_biases(void **state)
{
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "gpt2-124m");
	struct topology *topology = cluster(&arena, "2xdgx-h100");
	int64_t gathered[2];
	(void)state;
	for (int on = 0; on < 2; on++) {
		struct plan plan = toy_plan(&arena, model, topology, "runtime=megatron",
			"strategy=ZERO_1", "fp8=delayed",
			on ? "fp8_param_gather=on" : "fp8_param_gather=off", NULL);
		gathered[on] =
			moved_by(toy_schedule(&arena, &plan, model, topology), OP_ALL_GATHER);
	}
	assert_int_equal(gathered[0] - gathered[1], 12 * 12 * 768 * 768);
	arena_finish(&arena);
}

/* Over 24 ranks a flat bucket's fp8 weights are no whole number of bytes a rank: what is left over,
 * less than a byte a rank and bucket, goes in bf16. */
static void test_fp8_divides(void **state)
{
	const int64_t H = 4096, F = 11008, L = 32, weights = L * (4 * H * H + 3 * H * F);
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "3xdgx-h100");
	int64_t gathered[2], units = 0;
	(void)state;
	for (int on = 0; on < 2; on++) {
		struct plan plan = toy_plan(&arena, model, topology, "runtime=megatron",
			"strategy=ZERO_1", "fp8=delayed",
			on ? "fp8_param_gather=on" : "fp8_param_gather=off", NULL);
		const struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
		gathered[on] = moved_by(schedule, OP_ALL_GATHER);
		units = schedule->programs->n_units;
	}
	assert_true(gathered[0] - gathered[1] <= weights);
	assert_true(gathered[0] - gathered[1] > weights - 24 * units);
	arena_finish(&arena);
}

/* torchao's: FSDP2 gathers bytes and has bytes of a block; the shards, of 16 ranks, are cast by
 * three kernels of 8, 8 and 5 bytes an element, not one of 6. Forward and backward gather. */
static void test_fp8_gathers(void **state)
{
	const int64_t H = 4096, F = 11008, L = 32, weights = L * (4 * H * H + 3 * H * F);
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-h100");
	const struct schedule *in[2];
	(void)state;
	for (int on = 0; on < 2; on++) {
		struct plan plan = toy_plan(&arena, model, topology, "runtime=pytorch-fsdp2",
			"strategy=FULL_SHARD", "compile=on", "fp8=tensorwise",
			on ? "fp8_param_gather=on" : "fp8_param_gather=off", NULL);
		in[on] = toy_schedule(&arena, &plan, model, topology);
	}
	int64_t last = weights / L; /* what the last block keeps for backward */
	int64_t gathered = moved_by(in[0], OP_ALL_GATHER) - moved_by(in[1], OP_ALL_GATHER);
	assert_true(gathered == 2 * weights || gathered == 2 * weights - last);
	assert_int_equal(
		held_by(in[0], BUFFER_UNSHARDED) - held_by(in[1], BUFFER_UNSHARDED), gathered);
	assert_int_equal(moved_by(in[1], OP_CAST_PARAMETERS) - moved_by(in[0], OP_CAST_PARAMETERS),
		gathered / 16 * 15);
	/* Each rank finds the largest elements of its shards in fp32. */
	assert_int_equal(
		moved_by(in[1], OP_OPTIMIZER) - moved_by(in[0], OP_OPTIMIZER), weights / 16 * 4);
	arena_finish(&arena);
}

/* What tensor ranks gather: two inputs and two gradients of 32 blocks; the head's stay in bf16.
 * With scales of blocks gradients travel in both orders, in as many bytes as in bf16, or as in fp8
 * where two elements take a byte: inputs, which are gathered twice, then take half of that. */
static void test_gathers_in_fp8(void **state)
{
	static const struct {
		const char *words[2], *nodes;
		int in_fp8, bytes; /* gathers of a block, and of an element in all of them */
		bool others;
	} cases[] = {{{"fp8=tensorwise"}, "2xdgx-h100", 4, 4, true},
		{{"fp8=rowwise"}, "2xdgx-h100", 0, 0, true},
		{{"fp8=tensorwise", "runtime=shardplan"}, "2xdgx-h100", 0, 0, true},
		{{"fp8=tensorwise", "sequence_parallel=off"}, "2xdgx-h100", 0, 0, false},
		{{"fp8=mxfp8"}, "2xdgx-b200", 0, 0, true},
		{{"fp8=tensorwise", "runtime=megatron"}, "2xdgx-h100", 6, 6, true},
		{{"fp8=blockwise", "runtime=megatron"}, "2xdgx-h100", 4, 4, true},
		{{"fp8=mxfp8", "runtime=megatron"}, "2xdgx-b200", 4, 4, true},
		{{"fp8=nvfp4", "runtime=megatron"}, "2xdgx-b200", 6, 4, true}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct model *model = preset_model(&arena, "llama-2-7b");
		struct topology *topology = cluster(&arena, cases[i].nodes);
		struct plan plan = toy_plan(&arena, model, topology, "tensor=2", cases[i].words[0],
			cases[i].words[1], NULL);
		const struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
		int64_t bytes = 0;
		int in_fp8 = 0, others = 0;
		for (int x = 0; x < schedule->programs->n_ops; x++) {
			const struct op *op = &schedule->programs->ops[x];
			bool low = op->dtype == DTYPE_FP8;
			if (op->kind != OP_ALL_GATHER || op->dtype == DTYPE_FP32 ||
				schedule->groups[op->group].kind != GROUP_TENSOR)
				continue;
			assert_true(low || op->bytes == 2 * 4096 * 4096);
			bytes += low ? op->bytes : 0;
			*(low ? &in_fp8 : &others) += 1;
		}
		assert_int_equal(in_fp8, cases[i].in_fp8 * 32);
		assert_int_equal(bytes, (int64_t)cases[i].bytes * 32 * 4096 * 4096);
		assert_int_equal(others > 0, cases[i].others);
		arena_finish(&arena);
	}
}

/* Bytes of temporaries beside an element of logits in bf16: whole, and cut over tensor ranks. */
static void test_cut_loss(void **state)
{
	static const struct {
		const char *loss, *tensor, *runtime;
		int64_t bytes;
	} cases[] = {{"loss=upcast", NULL, NULL, 12}, {"loss=native", NULL, NULL, 6},
		{"loss=upcast", "tensor=2", NULL, 14}, {"loss=native", "tensor=2", NULL, 12},
		{"loss=fused", "tensor=2", NULL, 2},
		{"loss=parallel", "tensor=2", "runtime=nanotron", 8},
		{"loss=upcast", "tensor=2", "runtime=megatron", 8}};
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-h100");
	(void)state;
	struct plan plan;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		plan = toy_plan(&arena, model, topology, cases[i].loss, cases[i].tensor,
			cases[i].runtime, NULL);
		assert_int_equal(plan_loss_bytes(&plan, GENERATION_HOPPER), cases[i].bytes);
	}
	assert_int_equal(plan_loss_bytes(&plan, GENERATION_AMPERE), 12);
	arena_finish(&arena);
}

/* Of one sequence of 4096, what a step saves. */
static int64_t saved_under(
	struct arena *arena, struct model *model, const char *runtime, struct topology *topology)
{
	const struct plan plan = toy_plan(arena, model, topology, runtime, NULL);
	const struct activation_rules rules = plan_activation_rules(&plan, GENERATION_HOPPER);
	return model_saved_bytes(model, 0, model->n_modules, &rules, 1, 4096);
}

/* nanotron's query is a part of one tensor of all heads, of which k and v are read no more: they
 * are kept with it, unless heads share their keys. */
static void test_heads_whole(void **state)
{
	static const struct {
		const char *model;
		int64_t elements; /* a token and block */
	} cases[] = {{"llama-2-7b", 2 * 4096}, {"llama-3-8b", 0}};
	struct arena arena = {0};
	struct topology *topology = cluster(&arena, "2xdgx-h100");
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct model *model = preset_model(&arena, cases[i].model);
		int64_t more = saved_under(&arena, model, "runtime=nanotron", topology) -
			       saved_under(&arena, model, "runtime=pytorch-ddp", topology);
		assert_int_equal(more, 32 * 4096 * cases[i].elements * 2);
	}
	arena_finish(&arena);
}

/* And gate and up are one tensor, at the gate. */
static void test_gate_and_up(void **state)
{
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-h100");
	const struct plan plan = toy_plan(&arena, model, topology, "runtime=nanotron", NULL);
	const struct activation_rules rules = plan_activation_rules(&plan, GENERATION_HOPPER);
	(void)state;
	for (int m = 0; m < model->n_modules; m++) {
		enum module_kind kind = model->modules[m].kind;
		struct tensor tensors[MODULE_TENSORS_MAX];
		int64_t bytes;
		if (kind != MODULE_GATE && kind != MODULE_UP)
			continue;
		int n = model_saved_tensors(model, m, &rules, 1, 4096, tensors, &bytes);
		assert_int_equal(n, kind == MODULE_GATE);
		assert_int_equal(bytes, kind == MODULE_GATE ? 4096 * 2 * 11008 * 2 : 0);
	}
	arena_finish(&arena);
}

/* Buffers of all tokens that stay: nanotron's for inputs and for gradients, which it gathers
 * nowhere else; Megatron-LM's for the head. */
static void test_gather_buffers(void **state)
{
	static const struct {
		const char *words;
		int64_t n;
		bool gathers_elsewhere;
	} cases[] = {{"runtime=nanotron tensor=4", 2, false},
		{"runtime=nanotron tensor=4 keep_gathered=on", 1, false},
		{"runtime=megatron tensor=4", 1, true},
		{"runtime=pytorch-fsdp2 tensor=4", 0, true}};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		const struct schedule *schedule =
			build_words(&arena, "llama-2-7b", "2xdgx-h100", cases[i].words);
		const struct program *p = schedule->programs;
		bool elsewhere = false;
		for (int b = 0; b < p->n_buffers; b++)
			elsewhere |= p->buffers[b].role == BUFFER_GATHERED_TOKENS &&
				     !p->buffers[b].resident;
		assert_int_equal(resident_bytes_of(schedule, BUFFER_GATHERED_TOKENS),
			cases[i].n * schedule->plan.seq_len * 4096 * 2);
		assert_int_equal(elsewhere, cases[i].gathers_elsewhere);
	}
	arena_finish(&arena);
}

/* --- modules that are computed again ---------------------------------------------------------- */

/* The leaves of a block that are computed again, and what is exchanged for it: "norm | router". */
static const char *again_in(struct arena *arena, const struct program *p, int layer)
{
	const char *list = "";
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		const struct module *modules = p->model->modules;
		if (op->kind != OP_RECOMPUTE || op->layer != layer)
			continue;
		list = arena_printf(arena, "%s%s%s", list, list[0] != '\0' ? " | " : "",
			module_kind_name(modules[op->first_module].kind));
		if (op->end_module > op->first_module + 1)
			list = arena_printf(arena, "%s..%s", list,
				module_kind_name(modules[op->end_module - 1].kind));
	}
	return list;
}

/* Bytes a token saves less, of all blocks, and leaves of the last block. DeepSeek-V3 has three
 * dense blocks, whose norms before MLPs are computed with the products behind them. A norm keeps a
 * number of 4 bytes. */
static void test_modules(void **state)
{
	enum { TOKENS = 4096, H = 7168, NORM = H * 2 + 4 };
	static const struct {
		const char *model, *words, *again;
		int64_t bytes;
	} cases[] = {
		{"deepseek-v3", "expert=8 recompute_modules=layernorm", "norm | norm",
			(61 + 58) * NORM},
		{"deepseek-v3", "expert=8 recompute_modules=mla_up_proj",
			"query_down_norm..query | kv_down_norm..kv_up",
			61 * (1536 * 2 + 4 + 128 * 192 * 2 + 512 * 2 + 4 + 128 * (256 + 192) * 2)},
		{"deepseek-v3", "expert=8 expert_load=1 recompute_modules=moe_act",
			"experts_activation", 58 * 8 * 2048 * 2},
		{"deepseek-v3", "recompute_modules=mlp", "", 3 * (NORM + 3 * 18432 * 2)},
		{"deepseek-v3", "recompute_modules=shared_experts", "shared_gate..shared_down",
			58 * 3 * 2048 * 2},
		{"llama-2-7b", "recompute_modules=mlp", "norm..down",
			32 * (4096 * 2 + 4 + 3 * 11008 * 2)},
		{"llama-2-7b", "recompute_modules=core_attn", "attention_core", 32 * 32 * 4},
		{"mixtral-8x7b", "expert=8 expert_load=1 recompute_modules=moe_act+layernorm",
			"norm | experts_activation", 32 * (4096 * 2 + 4 + 2 * 14336 * 2)},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		const struct schedule *s = build_words(&arena, cases[i].model, "8xdgx-h100",
			arena_printf(&arena, "runtime=megatron seq_len=4096 %s", cases[i].words));
		const struct program *p = s->programs;
		const char *again = again_in(&arena, p, (int)s->model->architecture.layers - 1);
		if (held_by(s, BUFFER_RECOMPUTED) != TOKENS * cases[i].bytes ||
			strcmp(again, cases[i].again) != 0)
			fail_msg("%s: %s, %lld bytes a token, not %lld", cases[i].words, again,
				(long long)held_by(s, BUFFER_RECOMPUTED) / TOKENS,
				(long long)cases[i].bytes);
		arena_finish(&arena);
	}
}

/* What is computed again out of tensors that are there needs no token of another rank; all that
 * belongs to experts does. */
static void test_modules_exchange(void **state)
{
	static const struct {
		const char *model, *words;
		bool exchanges;
	} cases[] = {
		{"llama-2-7b", "tensor=4 recompute_modules=core_attn", false},
		{"llama-2-7b", "tensor=4 recompute_modules=mlp", true},
		{"mixtral-8x7b", "expert=8 recompute_modules=moe_act+layernorm", false},
		{"mixtral-8x7b", "expert=4 tensor=2 recompute_modules=moe_act+layernorm", false},
		{"mixtral-8x7b", "context=2 expert=4 recompute_modules=layernorm", false},
		{"mixtral-8x7b", "expert=8 recompute_modules=moe", true},
		{"deepseek-v3", "expert=8 recompute_modules=mla_up_proj", false},
		{"deepseek-v3", "tensor=2 expert=4 recompute_modules=mla_up_proj", true},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		int n[2];
		struct arena arena = {0};
		for (int with = 0; with < 2; with++) {
			const struct schedule *s = build_words(&arena, cases[i].model, "8xdgx-h100",
				arena_printf(&arena, "runtime=megatron seq_len=4096 %s%s",
					cases[i].words,
					with ? "" : " activation_checkpointing=none"));
			n[with] = 0;
			for (int o = 0; o < s->programs[0].n_ops; o++)
				n[with] += s->programs[0].ops[o].group >= 0;
		}
		if ((n[1] > n[0]) != cases[i].exchanges)
			fail_msg("%s: %d exchanges, %d without", cases[i].words, n[1], n[0]);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chunked_head),
		cmocka_unit_test(test_fp8),
		cmocka_unit_test(test_fp8_of_experts),
		cmocka_unit_test(test_fp8_of_blackwell),
		cmocka_unit_test(test_fp8_parameters),
		cmocka_unit_test(test_blocks_of_32),
		cmocka_unit_test(test_blocks_of_16),
		cmocka_unit_test(test_fp8_leaves_biases),
		cmocka_unit_test(test_fp8_divides),
		cmocka_unit_test(test_fp8_gathers),
		cmocka_unit_test(test_gathers_in_fp8),
		cmocka_unit_test(test_cut_loss),
		cmocka_unit_test(test_heads_whole),
		cmocka_unit_test(test_gate_and_up),
		cmocka_unit_test(test_gather_buffers),
		cmocka_unit_test(test_modules),
		cmocka_unit_test(test_modules_exchange),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
