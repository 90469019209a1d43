/* The plans that a question allows. */
#include "support.h"

#include <limits.h>
#include <string.h>

#include "planner/space/space.h"

struct fixture {
	struct arena arena;
	struct question question;
	struct space space;
};

static void begin(struct fixture *f, const char *model, const char *topology)
{
	*f = (struct fixture){0};
	f->question.model = load_model(&f->arena, model);
	f->question.topology = load_topology(&f->arena, topology);
}

static void fix(struct fixture *f, const char *name, const char *value)
{
	set_choice(&f->question, &f->arena, name, value);
}

static void build(struct fixture *f)
{
	struct error error = {0};
	if (!space_build(&f->question, &f->arena, &f->space, &error))
		fail_msg("%s", error.message);
}

static void end(struct fixture *f)
{
	space_finish(&f->space);
	arena_finish(&f->arena);
}

static void test_shard_groups(void **state)
{
	(void)state;
	struct fixture f;
	int64_t groups[SPACE_VALUES_MAX];
	begin(&f, "gpt2-124m", "3xdgx-a100-80gb");
	/* of 24 ranks: 2 4 8 fit in a node, 3 6 12 straddle nodes unevenly, 16 does not divide */
	assert_int_equal(space_shard_groups(f.question.topology, groups), 3);
	assert_int_equal(groups[0], 2);
	assert_int_equal(groups[1], 4);
	assert_int_equal(groups[2], 8);
	end(&f);
	begin(&f, "gpt2-124m", "4xdgx-a100-80gb");
	assert_int_equal(space_shard_groups(f.question.topology, groups), 4);
	assert_int_equal(groups[3], 16);
	end(&f);
}

static void test_wraps_differ(void **state)
{
	(void)state;
	static const char *const models[] = {"gpt2-nano", "gpt2-124m", "llama-2-7b", "llama-3-8b"};
	for (int i = 0; i < COUNT_OF(models); i++) {
		struct fixture f;
		union knob_value wraps[SPACE_VALUES_MAX];
		begin(&f, models[i], "2xdgx-a100-80gb");
		build(&f);
		int n = space_wraps(&f.space.plans[0], f.question.model, false, &f.arena, wraps);
		assert_string_equal(wraps[0].wrap.text, "block");
		assert_in_range(n, 2, 7);
		for (int j = 0; j < n; j++)
			for (int k = j + 1; k < n; k++)
				assert_string_not_equal(wraps[j].wrap.text, wraps[k].wrap.text);
		end(&f);
	}
}

/* Two points never make the same choice everywhere. */
static void test_no_duplicates(void **state)
{
	(void)state;
	struct fixture f;
	begin(&f, "gpt2-124m", "2xdgx-a100-80gb");
	fix(&f, "global_batch", "64");
	fix(&f, "runtime", "pytorch-fsdp1");
	build(&f);
	assert_true(f.space.n > 500);
	for (int i = 0; i < f.space.n; i++)
		for (int j = i + 1; j < f.space.n; j++)
			assert_false(f.space.plans[i].mesh.shard == f.space.plans[j].mesh.shard &&
				     knobs_alike_but(0, &f.space.plans[i], &f.space.plans[j]));
	end(&f);
}

static void test_fixed_stays_fixed(void **state)
{
	(void)state;
	struct fixture f;
	begin(&f, "llama-2-7b", "2xdgx-a100-80gb");
	fix(&f, "wrap", "blocks:3");
	fix(&f, "activation_checkpointing", "full");
	fix(&f, "micro_batch", "2");
	fix(&f, "global_batch", "128");
	fix(&f, "forward_prefetch", "on");
	fix(&f, "reduce_dtype", "bf16");
	f.question.strategies = 1u << STRATEGY_FULL_SHARD | 1u << STRATEGY_HYBRID_SHARD;
	question_open(&f.question, KNOB_SHARD_GROUP);
	build(&f);
	assert_true(f.space.n > 2);
	assert_true(f.space.same_batch);
	for (int i = 0; i < f.space.n; i++) {
		const struct plan *plan = &f.space.plans[i];
		assert_string_equal(plan->wrap.text, "blocks:3");
		assert_string_equal(plan->activation_checkpointing.text, "full");
		assert_int_equal(plan->micro_batch, 2);
		assert_int_equal(plan->grad_accum, 4);
		assert_int_equal(plan->reduce_dtype, DTYPE_BF16);
		assert_true(plan->forward_prefetch);
		assert_true(plan->strategy == STRATEGY_FULL_SHARD ||
			    plan->strategy == STRATEGY_HYBRID_SHARD);
	}
	end(&f);
}

static void test_limiter(void **state)
{
	(void)state;
	struct fixture f;
	int on = 0;
	begin(&f, "gpt2-124m", "dgx-a100-80gb");
	fix(&f, "runtime", "pytorch-fsdp1");
	build(&f);
	assert_true(f.space.plans[0].limit_all_gathers);
	for (int i = 0; i < f.space.n; i++)
		on += f.space.plans[i].limit_all_gathers;
	assert_true(on > 0 && on < f.space.n);
	end(&f);
	begin(&f, "gpt2-124m", "dgx-a100-80gb");
	fix(&f, "runtime", "pytorch-fsdp1");
	fix(&f, "limit_all_gathers", "off");
	build(&f);
	for (int i = 0; i < f.space.n; i++)
		assert_false(f.space.plans[i].limit_all_gathers);
	end(&f);
}

static void restrict_knob(
	struct fixture *f, const char *knob, bool forbidden, int n, const char **values)
{
	struct error error = {0};
	for (int i = 0; i < n; i++)
		assert_true(question_restrict(&f->question, knob_find(knob), forbidden, knob,
			values[i], &f->arena, &error));
}

/* A list is what the knob may be, also of knobs that are not searched by themselves. */
static void test_lists(void **state)
{
	(void)state;
	static const char *wraps[] = {"blocks:2", "block"}, *dtypes[] = {"bf16", "fp32"};
	struct fixture f;
	bool seen[2][2] = {{false}};
	begin(&f, "gpt2-124m", "2xdgx-a100-80gb");
	fix(&f, "strategy", "FULL_SHARD");
	restrict_knob(&f, "wrap", false, 2, wraps);
	restrict_knob(&f, "reduce_dtype", false, 2, dtypes);
	build(&f);
	for (int i = 0; i < f.space.n; i++) {
		const struct plan *plan = &f.space.plans[i];
		bool block = strcmp(plan->wrap.text, "block") == 0;
		assert_true(block || strcmp(plan->wrap.text, "blocks:2") == 0);
		assert_true(plan->reduce_dtype == DTYPE_BF16 || plan->reduce_dtype == DTYPE_FP32);
		seen[block][plan->reduce_dtype == DTYPE_BF16] = true;
	}
	assert_true(seen[0][0] && seen[0][1] && seen[1][0] && seen[1][1]);
	assert_string_equal(f.space.plans[0].wrap.text, "blocks:2"); /* in the user's order */
	end(&f);
}

static void test_forbidden(void **state)
{
	(void)state;
	static const char *wrap[] = {"block", "size:1e8"}, *dtype[] = {"fp32"}, *on[] = {"on"};
	struct fixture f;
	begin(&f, "gpt2-124m", "2xdgx-a100-80gb");
	restrict_knob(&f, "wrap", true, 2, wrap);
	restrict_knob(&f, "reduce_dtype", true, 1, dtype);
	restrict_knob(&f, "forward_prefetch", true, 1, on);
	build(&f);
	assert_true(f.space.n > 10);
	for (int i = 0; i < f.space.n; i++) {
		const struct plan *plan = &f.space.plans[i];
		bool ddp = plan->runtime == RUNTIME_PYTORCH_DDP;
		assert_true(ddp || strcmp(plan->wrap.text, "block") != 0);
		assert_true(ddp || strcmp(plan->wrap.text, "size:100000000") != 0);
		assert_true(plan->reduce_dtype != DTYPE_FP32);
		assert_false(plan->forward_prefetch);
	}
	end(&f);
}

/* A listed value that no plan can have is an error, not a smaller space. */
static void test_vain_value(void **state)
{
	(void)state;
	static const char *groups[] = {"8", "5"};
	struct fixture f;
	struct error error = {0};
	begin(&f, "gpt2-124m", "2xdgx-a100-80gb");
	restrict_knob(&f, "shard_group", false, 2, groups);
	assert_false(space_build(&f.question, &f.arena, &f.space, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	assert_string_equal(error.message,
		"--shard-group 5: nothing in this search can have it; ask for --shard-group 8");
	f.question.only[KNOB_SHARD_GROUP].n = 1;
	space_finish(&f.space);
	build(&f);
	end(&f);
}

/* 96 sequences for each of 16 ranks: the micro-batches are the divisors of 6. */
static void test_global_batch(void **state)
{
	(void)state;
	struct fixture f;
	bool seen[7] = {false};
	begin(&f, "gpt2-124m", "2xdgx-a100-80gb");
	fix(&f, "global_batch", "96");
	build(&f);
	for (int i = 0; i < f.space.n; i++) {
		const struct plan *plan = &f.space.plans[i];
		assert_int_equal(plan->global_batch, 96);
		assert_int_equal(plan->micro_batch * plan->grad_accum, 6);
		seen[plan->micro_batch] = true;
		if (plan->grad_accum == 1)
			assert_true(plan->sync_each_micro_batch);
	}
	assert_true(f.space.same_batch);
	for (int m = 1; m <= 6; m++)
		assert_int_equal(seen[m], 6 % m == 0);
	end(&f);
}

/* Bits of the sizes that an axis has in the plans. */
static unsigned sizes_of(const struct space *space, enum knob_id axis)
{
	unsigned sizes = 0;
	for (int i = 0; i < space->n; i++)
		sizes |= (unsigned)knob_get(axis, &space->plans[i]).number;
	return sizes;
}

/* Tensor ranks are searched where a node does not hold the states, context ranks where a sequence
 * is long, both where a rank would have no sequence; both and stages where parameters are whole on
 * each rank; else, and where one size was given, they are not. */
static void test_parts(void **state)
{
	static const struct {
		const char *model, *topology, *knob, *value;
		unsigned tensor, context, stages;
	} rows[] = {{"llama-2-7b", "2xdgx-a100-80gb", "seq_len", "4096", 1, 1, 1},
		{"llama-3.1-8b", "2xdgx-a100-80gb", "seq_len", "65536", 15, 15, 1},
		{"llama-3-70b", "8xdgx-h100", "seq_len", "4096", 15, 1, 1},
		{"llama-3-70b", "8xdgx-h100", "tensor", "1", 1, 1, 1},
		{"llama-3-70b", "8xdgx-h100", "runtime", "pytorch-fsdp1", 1, 1, 1},
		{"llama-2-7b", "2xdgx-a100-80gb", "global_batch", "4", 15, 7, 1},
		{"llama-2-7b", "2xdgx-a100-80gb", "global_batch", "16", 1, 1, 1},
		{"llama-2-7b", "2xdgx-a100-80gb", "runtime", "megatron", 15, 3, 7},
		{"llama-3-8b", "8xdgx-h100", "runtime", "nanotron", 15, 1, 15},
		{"llama-3.1-8b", "8xdgx-h100", "seq_len", "32768", 1, 1, 1}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		begin(&f, rows[i].model, rows[i].topology);
		fix(&f, rows[i].knob, rows[i].value);
		build(&f);
		assert_int_equal(sizes_of(&f.space, KNOB_TENSOR), rows[i].tensor);
		assert_int_equal(sizes_of(&f.space, KNOB_CONTEXT), rows[i].context);
		assert_int_equal(sizes_of(&f.space, KNOB_PIPELINE), rows[i].stages);
		for (int p = 0; p < f.space.n; p++)
			assert_int_equal(plan_ranks(&f.space.plans[p]),
				topology_devices(f.question.topology));
		end(&f);
	}
}

/* Beside tensor ranks two nodes of expert ranks are tried, and no more. */
static void test_experts_beside_tensor(void **state)
{
	(void)state;
	struct fixture f;
	int64_t alone = 0, beside = 0;
	begin(&f, "deepseek-v3", "32xdgx-h100");
	fix(&f, "seq_len", "4096");
	build(&f);
	for (int i = 0; i < f.space.n; i++) {
		const struct mesh *mesh = &f.space.plans[i].mesh;
		int64_t *most = mesh->tensor > 1 ? &beside : &alone;
		*most = max_i64(*most, mesh->expert);
	}
	assert_int_equal(beside, 16);
	assert_int_equal(alone, 128);
	end(&f);
}

/* 72 devices share no 128 experts evenly, but each 8 of them do. Gathers of all experts cost time
 * within a node too, whatever fits. */
static void test_experts_of_nodes(void **state)
{
	static const struct {
		const char *model, *topology;
		int64_t most;
	} rows[] = {{"gpt-oss-120b", "gb200-nvl72", 8}, {"deepseek-v3", "8xgb200-nvl72", 64},
		{"qwen3-30b-a3b", "gb200-nvl72", 8}, {"mixtral-8x7b", "dgx-h200", 8},
		{"mixtral-8x7b", "2xdgx-h200", 8}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		int64_t most = 0;
		begin(&f, rows[i].model, rows[i].topology);
		build(&f);
		for (int p = 0; p < f.space.n; p++)
			most = max_i64(most, f.space.plans[p].mesh.expert);
		assert_int_equal(most, rows[i].most);
		end(&f);
	}
}

/* Three devices of a node share eight experts only one by one: no expert ranks then, although two
 * or four would divide the experts of two such nodes. */
static void test_experts_of_odd_nodes(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f, "mixtral-8x7b", "2xdgx-h200");
	struct topology topology = *f.question.topology;
	topology.devices_per_node = 3;
	f.question.topology = &topology;
	build(&f);
	for (int p = 0; p < f.space.n; p++)
		assert_int_equal(f.space.plans[p].mesh.expert, 1);
	end(&f);
}

/* Rows beside compute ask for expert ranks, and of stages for an order that pairs passes. */
static void test_rows_ask_for_the_rest(void **state)
{
	struct fixture f;
	(void)state;
	begin(&f, "mixtral-8x7b", "4xdgx-h100");
	fix(&f, "runtime", "megatron");
	fix(&f, "global_batch", "64");
	fix(&f, "pipeline", "2");
	fix(&f, "expert_overlap", "on");
	build(&f);
	assert_true(f.space.n > 0);
	for (int p = 0; p < f.space.n; p++) {
		const struct plan *plan = &f.space.plans[p];
		assert_true(plan->mesh.expert > 1);
		assert_int_equal(plan->pipeline_schedule, PIPELINE_INTERLEAVED);
		assert_false(plan_checkpoints(plan, CHECKPOINTING_FULL));
	}
	end(&f);
}

/* Megatron-LM's modules are tried from the cheapest on, where blocks are checkpointed selectively.
 * Beside another micro-batch experts are computed once. */
static void test_modules(void **state)
{
	static const struct {
		const char *model, *asks[2], *text;
	} rows[] = {
		{"llama-3-8b", {NULL}, " mlp"},
		{"llama-3-8b", {"attention", "eager"}, " core_attn core_attn+mlp"},
		{"qwen3-30b-a3b", {NULL}, " layernorm+moe_act layernorm+moe"},
		{"qwen3-30b-a3b", {"expert_overlap", "on"}, " layernorm+moe_act"},
		{"deepseek-v3", {NULL},
			" layernorm+mla_up_proj+moe_act"
			" layernorm+mla_up_proj+moe_act+mlp+shared_experts"
			" layernorm+mla_up_proj+mlp+moe"},
		{"qwen3-30b-a3b", {"recompute_modules", "moe"}, " moe"},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		const char *seen = "";
		begin(&f, rows[i].model, "16xdgx-h100");
		fix(&f, "runtime", "megatron");
		fix(&f, "global_batch", "512");
		if (rows[i].asks[0] != NULL)
			fix(&f, rows[i].asks[0], rows[i].asks[1]);
		build(&f);
		for (int p = 0; p < f.space.n; p++) {
			const struct plan *plan = &f.space.plans[p];
			const char *text = plan->recompute_modules.text;
			bool selective = plan_checkpoints(plan, CHECKPOINTING_SELECTIVE);
			if (text == NULL)
				text = selective ? "core_attn" : NULL;
			assert_int_equal(text != NULL, selective);
			text = text != NULL ? arena_printf(&f.arena, " %s", text) : "";
			const char *at = strstr(seen, text);
			size_t length = strlen(text);
			while (at != NULL && at[length] != ' ' && at[length] != '\0')
				at = strstr(at + 1, text);
			if (at == NULL)
				seen = arena_printf(&f.arena, "%s%s", seen, text);
		}
		assert_string_equal(seen, rows[i].text);
		end(&f);
	}
}

/* Stages with experts are searched where ranks keep whole parameters, as Megatron-LM trains.
 * Sharded ones (torchtitan) are where states leave room for stages that stay whole; a node of
 * expert ranks, more where rows travel beside compute.
 */
static void test_experts_in_stages(void **state)
{
	static const struct {
		const char *model, *topology, *runtime;
		int64_t experts; /* the most beside stages; 0: no stages */
		unsigned context;
		bool overlap;
	} rows[] = {{"mixtral-8x7b", "4xdgx-h100", "megatron", 8, 1 | 2},
		{"qwen3-30b-a3b", "8xdgx-h100", "megatron", 32, 1 | 2, true},
		{"qwen3-30b-a3b", "8xdgx-h100", "megatron", 8, 1 | 2},
		{"mixtral-8x7b", "4xdgx-h100", "pytorch-fsdp2", 0, 1},
		{"mixtral-8x7b", "16xdgx-h100", "pytorch-fsdp2", 8, 1},
		{"deepseek-v3", "32xdgx-h100", "pytorch-fsdp2", 0, 1},
		{"deepseek-v3", "256xdgx-h100", "pytorch-fsdp2", 8, 1}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		int64_t most = 0;
		begin(&f, rows[i].model, rows[i].topology);
		fix(&f, "runtime", rows[i].runtime);
		fix(&f, "seq_len", "4096");
		fix(&f, "global_batch", "15360");
		if (rows[i].overlap)
			fix(&f, "expert_overlap", "on");
		build(&f);
		for (int p = 0; p < f.space.n; p++)
			if (f.space.plans[p].mesh.pipeline > 1)
				most = max_i64(most, f.space.plans[p].mesh.expert);
		assert_int_equal(most, rows[i].experts);
		assert_int_equal(sizes_of(&f.space, KNOB_CONTEXT), rows[i].context);
		end(&f);
	}
}

/* Two nodes of A100 whose network takes longer for the gradients of a 7B model (27 GB each way)
 * than they compute, or not: 64 sequences are 2.3 s at their peak, 1024 are 36 s. Both together
 * hold a 70B model if their devices have 80 GB each; of 40 GB they do not, in stages neither. */
static void test_stages_over_slow_networks(void **state)
{
	static const struct {
		const char *model, *topology;
		double nic; /* B/s, one a node */
		const char *batch;
		unsigned stages;
	} rows[] = {{"llama-2-7b", "2xdgx-a100-80gb", 1.25e9, "64", 1 | 2},
		{"llama-2-7b", "2xdgx-a100-80gb", 1.25e9, "1024", 1},
		{"llama-2-7b", "2xdgx-a100-80gb", 25e9, "64", 1},
		{"llama-2-70b", "2xdgx-a100-80gb", 1.25e9, "64", 1 | 2},
		{"llama-2-70b", "2xdgx-a100-40gb", 1.25e9, "64", 1}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		begin(&f, rows[i].model, rows[i].topology);
		struct topology topology = *f.question.topology;
		topology.network.nics_per_node = 1;
		topology.network.nic_bandwidth = rows[i].nic;
		f.question.topology = &topology;
		fix(&f, "seq_len", "4096");
		fix(&f, "global_batch", rows[i].batch);
		build(&f);
		assert_int_equal(sizes_of(&f.space, KNOB_PIPELINE), rows[i].stages);
		end(&f);
	}
}

/* How context ranks exchange is searched where parameters are whole; the runtime's own way is no
 * departure, another one is. */
static void test_context_methods(void **state)
{
	static const struct {
		const char *runtime;
		unsigned methods;
		enum context_method usual;
	} rows[] = {{"megatron", 1 << CONTEXT_ALL_GATHER | 1 << CONTEXT_RING, CONTEXT_RING},
		{"pytorch-fsdp2", 1 << CONTEXT_ALL_GATHER, CONTEXT_ALL_GATHER}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		unsigned found = 0;
		int fewest = INT_MAX, fewest_usual = INT_MAX;
		begin(&f, "llama-3.1-8b", "2xdgx-h100");
		fix(&f, "runtime", rows[i].runtime);
		fix(&f, "context", "4");
		build(&f);
		for (int p = 0; p < f.space.n; p++) {
			bool usual = f.space.plans[p].context_method == rows[i].usual;
			int *least = usual ? &fewest_usual : &fewest;
			found |= 1u << f.space.plans[p].context_method;
			*least = f.space.departures[p] < *least ? f.space.departures[p] : *least;
		}
		assert_int_equal(found, rows[i].methods);
		assert_int_equal(fewest, i == 0 ? fewest_usual + 1 : INT_MAX);
		end(&f);
	}
}

/* Without a batch it is searched: powers of two up to 4 Mi tokens a step, 1024 x 8 x 512 here. */
static void test_free_batch(void **state)
{
	(void)state;
	struct fixture f;
	int64_t most = 0;
	begin(&f, "gpt2-124m", "dgx-a100-80gb");
	build(&f);
	assert_false(f.space.same_batch);
	for (int i = 0; i < f.space.n; i++) {
		int64_t m = f.space.plans[i].micro_batch;
		assert_int_equal(m & (m - 1), 0);
		assert_int_equal(f.space.plans[i].grad_accum, 1);
		most = max_i64(most, m);
	}
	assert_int_equal(most, 512);
	end(&f);
}

static void test_strategies_that_cannot_be(void **state)
{
	(void)state;
	struct fixture f;
	struct error error = {0};
	begin(&f, "gpt2-124m", "dgx-a100-80gb");
	assert_true(topology_use_devices((struct topology *)f.question.topology, 2, &error));
	build(&f);
	assert_non_null(f.space.impossible[STRATEGY_HYBRID_SHARD]);
	assert_non_null(strstr(f.space.impossible[STRATEGY_HYBRID_SHARD], "FULL_SHARD"));
	assert_null(f.space.impossible[STRATEGY_FULL_SHARD]);
	space_finish(&f.space);
	/* by name it is the degenerate one */
	f.question.strategies = 1u << STRATEGY_HYBRID_SHARD;
	build(&f);
	assert_true(f.space.n > 0);
	assert_int_equal(f.space.plans[0].mesh.replicate, 1);
	end(&f);
	/* Where ranks divide the model, groups are smaller; of two groups of eight there is none.
	 */
	begin(&f, "llama-2-7b", "2xdgx-a100-80gb");
	fix(&f, "tensor", "4");
	build(&f);
	int hybrid = f.space.first[STRATEGY_HYBRID_SHARD];
	assert_null(f.space.impossible[STRATEGY_HYBRID_SHARD]);
	assert_int_equal(f.space.plans[hybrid].strategy, STRATEGY_HYBRID_SHARD);
	assert_int_equal(f.space.plans[hybrid].mesh.shard, 2);
	space_finish(&f.space);
	fix(&f, "tensor", "8");
	build(&f);
	assert_non_null(strstr(f.space.impossible[STRATEGY_HYBRID_SHARD], "2 ranks"));
	end(&f);
	/* Four tensor ranks leave three ranks of a node of twelve, and fifteen of five nodes.
	 * Groups of two, which divide the devices, do not divide them. */
	begin(&f, "llama-2-7b", "5xdgx-a100-80gb");
	struct topology twelve = *f.question.topology;
	twelve.devices_per_node = 12;
	f.question.topology = &twelve;
	fix(&f, "tensor", "4");
	build(&f);
	assert_null(f.space.impossible[STRATEGY_HYBRID_SHARD]);
	hybrid = f.space.first[STRATEGY_HYBRID_SHARD];
	assert_int_equal(f.space.plans[hybrid].mesh.shard, 3);
	end(&f);
	/* Eight expert ranks of a node leave one shard group, which is FULL_SHARD's. */
	begin(&f, "mixtral-8x7b", "dgx-h100");
	fix(&f, "expert", "8");
	build(&f);
	assert_true(f.space.first[STRATEGY_FULL_SHARD + 1] > f.space.first[STRATEGY_FULL_SHARD]);
	assert_non_null(strstr(f.space.impossible[STRATEGY_HYBRID_SHARD], "shard group of 2"));
	assert_non_null(f.space.impossible[STRATEGY_HYBRID_SHARD_ZERO2]);
	end(&f);
}

static void test_contradictions(void **state)
{
	(void)state;
	struct fixture f;
	struct error error = {0};
	begin(&f, "gpt2-124m", "2xdgx-a100-80gb");
	fix(&f, "global_batch", "100"); /* 16 ranks */
	assert_false(space_build(&f.question, &f.arena, &f.space, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(error.message, "96"));
	end(&f);
	/* A runtime without the other strategies is not to blame. */
	error = (struct error){0};
	begin(&f, "gpt2-124m", "2xdgx-a100-80gb");
	fix(&f, "runtime", "pytorch-ddp");
	fix(&f, "reduce_dtype", "bf16");
	assert_false(space_build(&f.question, &f.arena, &f.space, &error));
	assert_non_null(strstr(error.message, "--reduce-dtype bf16"));
	end(&f);
	/* No batch of the question fills the groups of micro-batches. */
	error = (struct error){0};
	begin(&f, "gpt3-175b", "8xdgx-a100-80gb");
	fix(&f, "runtime", "megatron");
	fix(&f, "pipeline", "8");
	fix(&f, "tensor", "8");
	fix(&f, "pipeline_schedule", "interleaved");
	fix(&f, "global_batch", "12");
	assert_false(space_build(&f.question, &f.arena, &f.space, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(error.message, "12 micro-batches are not a multiple of 8 stages"));
	end(&f);
}

/* A knob that takes a list is searched: none is left at its first value in silence. */
static void test_every_list_is_an_axis(void **state)
{
	(void)state;
	for (int id = 0; id < KNOB_COUNT; id++) {
		bool is_axis = id == KNOB_STRATEGY;
		for (int a = 0; a < n_axes; a++)
			is_axis = is_axis || axes_in_order[a] == (enum knob_id)id;
		if (is_axis == (knob_table[id].roles & KNOB_ONE_VALUE))
			fail_msg("%s", knob_table[id].field.name);
	}
}

/* A file that knows blocks only, reduces in bf16, and has no word for hybrids. */
static void settle(const void *context, const struct model *model, const struct topology *topology,
	struct arena *arena, struct plan *plan)
{
	(void)context, (void)model, (void)topology, (void)arena;
	plan->wrap = (struct wrap_policy){.text = "block", .kind = WRAP_BLOCK};
	plan->reduce_dtype = DTYPE_BF16;
	if (strategy_is_hybrid(plan->strategy))
		plan->strategy = STRATEGY_FULL_SHARD;
}

static void test_wording(void **state)
{
	(void)state;
	const struct wording wording = {"toy", NULL, settle};
	struct fixture f;
	struct error error = {0};
	begin(&f, "llama-2-7b", "2xdgx-a100-80gb");
	f.question.wording = &wording;
	build(&f);
	assert_true(f.space.n > 10);
	for (int i = 0; i < f.space.n; i++) {
		assert_int_equal(f.space.plans[i].reduce_dtype, DTYPE_BF16);
		assert_false(strategy_is_hybrid(f.space.plans[i].strategy));
		if (strategy_shards(f.space.plans[i].strategy))
			assert_string_equal(f.space.plans[i].wrap.text, "block");
	}
	assert_non_null(strstr(f.space.impossible[STRATEGY_HYBRID_SHARD], "no word for HYBRID"));
	space_finish(&f.space);
	fix(&f, "wrap", "model");
	fix(&f, "strategy", "FULL_SHARD");
	assert_false(space_build(&f.question, &f.arena, &f.space, &error));
	assert_string_equal(
		error.message, "--wrap model: toy cannot say that; use block, or leave out --for");
	end(&f);
}

/* Interleaved orders of two, four and eight stages a rank, each of a block at least. */
static void test_virtual_stages(void **state)
{
	(void)state;
	static const struct {
		const char *pipeline;
		unsigned expected; /* bit v: so many stages are tried; 0 is two */
	} cases[] = {{"2", 1 | 1 << 4 | 1 << 8}, {"4", 1 | 1 << 4 | 1 << 8}, {"8", 1 | 1 << 4}};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct fixture f;
		unsigned found = 0;
		begin(&f, "llama-2-7b", "8xdgx-h100"); /* 32 blocks */
		fix(&f, "runtime", "megatron");
		fix(&f, "pipeline", cases[c].pipeline);
		build(&f);
		for (int i = 0; i < f.space.n; i++) {
			const struct plan *plan = &f.space.plans[i];
			assert_true(plan->virtual_stages == 0 ||
				    plan->pipeline_schedule == PIPELINE_INTERLEAVED);
			found |= 1u << plan->virtual_stages;
		}
		assert_int_equal(found, cases[c].expected);
		end(&f);
	}
}

/* The plan's index in a space; -1: it is not there. */
static int find_plan(const struct space *space, const struct plan *plan)
{
	for (int i = 0; i < space->n; i++)
		if (knobs_alike_but(0, &space->plans[i], plan) &&
			memcmp(&space->plans[i].mesh, &plan->mesh, sizeof(plan->mesh)) == 0)
			return i;
	return -1;
}

/* Where only plans that fit are wanted, those whose states fit no device, or no node, are left out,
 * but for one of each kind; all others are there. */
static void test_hopeless_states(void **state)
{
	(void)state;
	static const char *const questions[][3] = {{"llama-3-70b", "dgx-a100-40gb", "none"},
		{"llama-3-70b", "dgx-h100", "parameters"}, {"llama-2-7b", "dgx-a100-40gb", "none"}};
	static const bool any_left_out[] = {true, true, false};
	for (int q = 0; q < COUNT_OF(questions); q++) {
		struct fixture f;
		struct space fewer;
		struct error error = {0};
		int left_out = 0;
		begin(&f, questions[q][0], questions[q][1]);
		struct topology topology = *f.question.topology;
		topology.host.memory_bytes = INT64_C(1) << 40;
		f.question.topology = &topology;
		fix(&f, "cpu_offload", questions[q][2]);
		build(&f);
		f.question.wanted = WANTED_BEST;
		assert_true(space_build(&f.question, &f.arena, &fewer, &error));
		assert_true(fewer.n > 0);
		for (int i = 0; i < f.space.n; i++)
			if (find_plan(&fewer, &f.space.plans[i]) < 0) {
				assert_true(states_overflow(&f.question, &f.space.plans[i]));
				left_out++;
			}
		assert_int_equal(fewer.n + left_out, f.space.n);
		assert_int_equal(left_out > f.space.n / 2, any_left_out[q]);
		space_finish(&fewer);
		end(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shard_groups),
		cmocka_unit_test(test_wraps_differ),
		cmocka_unit_test(test_no_duplicates),
		cmocka_unit_test(test_fixed_stays_fixed),
		cmocka_unit_test(test_limiter),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_forbidden),
		cmocka_unit_test(test_vain_value),
		cmocka_unit_test(test_global_batch),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_experts_beside_tensor),
		cmocka_unit_test(test_experts_of_nodes),
		cmocka_unit_test(test_experts_of_odd_nodes),
		cmocka_unit_test(test_rows_ask_for_the_rest),
		cmocka_unit_test(test_modules),
		cmocka_unit_test(test_experts_in_stages),
		cmocka_unit_test(test_stages_over_slow_networks),
		cmocka_unit_test(test_context_methods),
		cmocka_unit_test(test_free_batch),
		cmocka_unit_test(test_strategies_that_cannot_be),
		cmocka_unit_test(test_contradictions),
		cmocka_unit_test(test_every_list_is_an_axis),
		cmocka_unit_test(test_virtual_stages),
		cmocka_unit_test(test_wording),
		cmocka_unit_test(test_hopeless_states),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
