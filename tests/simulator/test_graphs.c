/* CUDA graphs: what the host no longer launches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cases.h"

/* A graph of the passes is one launch; the update is issued as ever, and devices take as long. */
static void test_graph_passes(void **state)
{
	struct case_ c[2];
	struct cost *costs[2];

	(void)state;
	for (int on = 0; on < 2; on++) {
		case_load(&c[on], "llama-2-7b", "2xdgx-h100");
		case_plan(
			&c[on], on ? "runtime=megatron cuda_graph_scope=full_iteration grad_accum=2"
				   : "runtime=megatron grad_accum=2");
		costs[on] = ARENA_ARRAY(&c[on].arena, struct cost, c[on].schedule->programs->n_ops);
		cost_operations(c[on].schedule, 0, costs[on]);
	}
	const struct program *program = c[1].schedule->programs;
	double batch = cost_batch(&c[1].plan, c[1].topology);
	assert_int_equal(program->n_ops, c[0].schedule->programs->n_ops);
	for (int i = 0; i < program->n_ops; i++) {
		bool of_step = program->ops[i].micro_batch < 0;
		assert_true(costs[1][i].device == costs[0][i].device);
		assert_true(costs[0][i].host > 0);
		assert_true(of_step ? costs[1][i].host == costs[0][i].host
				    : costs[1][i].host == 0 || costs[1][i].host == batch);
	}
	for (int on = 0; on < 2; on++)
		case_finish(&c[on]);
}

/* What the second block takes in both passes. */
struct launches {
	double kernels; /* of the host's launches */
	double device;  /* s */
};

static struct launches launches_of(const char *model, const char *words)
{
	struct case_ c;
	struct launches sum = {0};

	case_load(&c, model, "2xdgx-h100");
	case_plan(&c, arena_printf(&c.arena, "runtime=megatron seq_len=4096 %s", words));
	const struct program *program = c.schedule->programs;
	struct cost *costs = ARENA_ARRAY(&c.arena, struct cost, program->n_ops);
	cost_operations(c.schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++) {
		if (program->ops[i].layer != 1)
			continue;
		sum.kernels += costs[i].host / plan_host_per_kernel(&c.plan);
		sum.device += costs[i].device;
	}
	case_finish(&c);
	return sum;
}

/* A graph of a block is two launches a pass, its copy of the input and itself, wherever in the
 * block it is; what it leaves out is launched as ever. */
static void test_graph_scopes(void **state)
{
	static const struct {
		const char *model, *words, *scope;
		double kernels; /* that the graphs save; 0: all but `left` */
		double left;
	} cases[] = {
		{"llama-2-7b", "micro_batch=1", "attn+mlp", 0, 4},
		{"llama-2-7b", "micro_batch=1", "full_iteration", 0, 0},
		{"llama-2-7b", "micro_batch=1 tensor=4", "attn+mlp", 0, 4},
		{"llama-2-7b", "micro_batch=1", "attn", 1, 0},
		{"llama-2-7b", "micro_batch=1", "mlp", 1, 0},
		{"qwen3-30b-a3b", "micro_batch=1 expert=8", "attn+moe_router+moe_preprocess", 1, 0},
		{"qwen3-30b-a3b", "micro_batch=1 expert=8 capacity_factor=1", "attn+moe", 0, 4},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		const struct launches eager = launches_of(cases[i].model, cases[i].words),
				      graph = launches_of(cases[i].model,
					      arena_printf(&arena, "%s cuda_graph_scope=%s",
						      cases[i].words, cases[i].scope));
		bool whole = cases[i].kernels == 0;
		if (whole ? fabs(graph.kernels - cases[i].left) > 1e-9
			  : graph.kernels <= 4 || graph.kernels >= eager.kernels - 4)
			fail_msg("%s: %g launches, %g without", cases[i].scope, graph.kernels,
				eager.kernels);
		assert_true(graph.device >= eager.device && graph.device < 1.05 * eager.device);
		arena_finish(&arena);
	}
}

/* Each scope saves what it holds: attention and MLP together as much as both, but for the graph
 * that is then one; counts of rows go with moe_preprocess, unless DeepEP's kernels send them. */
static void test_graph_scopes_add_up(void **state)
{
	static const char *const scopes[] = {"off", "attn", "mlp", "attn+mlp"},
				 *const routers[] = {
					 "attn+moe_router", "attn+moe_router+moe_preprocess"};
	double n[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct arena arena = {0};
		n[i] = launches_of(
			"llama-2-7b", arena_printf(&arena, "cuda_graph_scope=%s", scopes[i]))
			       .kernels;
		arena_finish(&arena);
	}
	assert_float_equal(n[0] - n[3], (n[0] - n[1]) + (n[0] - n[2]) + 4, 1e-9);
	for (int deepep = 0; deepep < 2; deepep++) {
		struct arena arena = {0};
		for (int i = 0; i < 2; i++)
			n[i] = launches_of("qwen3-30b-a3b",
				arena_printf(&arena,
					"expert=8 expert_dispatch=%s cuda_graph_scope=%s",
					deepep ? "deepep" : "all-to-all", routers[i]))
				       .kernels;
		assert_true(deepep ? n[0] == n[1] : n[0] > n[1]);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_graph_passes),
		cmocka_unit_test(test_graph_scopes),
		cmocka_unit_test(test_graph_scopes_add_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
