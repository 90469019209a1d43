/* Rows that go to experts through DeepEP: its own figures, and what all-to-all would send. */
#include "cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "simulator/costs/costs.h"

/* Megatron-LM's rows, as even as they can be. */
static void plan_experts(struct case_ *c, const char *topology, int64_t groups, const char *words)
{
	case_load(c, "deepseek-v3", topology);
	c->model->architecture.expert_groups = groups;
	c->model->architecture.groups_per_token = groups > 0 ? 4 : 0;
	case_plan(c, arena_printf(&c->arena,
			     "runtime=megatron strategy=ZERO_1 seq_len=4096 micro_batch=1 "
			     "%s expert_load=1 %s",
			     strstr(words, "grad_accum") != NULL ? "" : "grad_accum=1", words));
}

/* The last exchange of rows: results that come back, in bf16. */
static int find_rows(const struct schedule *schedule)
{
	const struct program *program = &schedule->programs[0];
	int found = -1;

	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_ALL_TO_ALL && program->ops[i].dtype == DTYPE_BF16 &&
			program->ops[i].unit < 0)
			found = i;
	assert_true(found >= 0);
	return found;
}

static double seconds_of_rows(struct case_ *c)
{
	int n = c->schedule->programs[0].n_ops, rows = find_rows(c->schedule);
	struct cost *costs = ARENA_ARRAY(&c->arena, struct cost, n);

	cost_operations(c->schedule, 0, costs);
	return costs[rows].device - costs[rows].late;
}

/* Combines of DeepEP's tables (tokens of 7,168 in bf16, 8 of 256 experts in at most 4 nodes): GB/s
 * of what ranks get within a node, or of what nodes get, their own part counted. The first four are
 * version 1 on H800, to which the shares are fitted; the next version 2 on Hopper and Blackwell,
 * the last is HybridEP's. */
static void test_published(void **state)
{
	static const struct {
		const char *topology;
		int64_t experts, groups;
		double places, rate;
	} rows[] = {
		{"h800-8x", 8, 0, 5.30, 158e9},
		{"2xh800-8x", 16, 0, 1.99, 43e9},
		{"4xh800-8x", 32, 0, 3.61, 57e9},
		{"8xh800-8x", 64, 8, 3.62, 50e9},
		{"2xdgx-h100", 16, 0, 1.99, 81e9},
		{"4xdgx-h100", 32, 0, 3.61, 61e9},
		{"dgx-b200", 8, 0, 5.30, 675e9},
		{"2xdgx-b200", 16, 0, 1.99, 91e9},
		{"gb200-nvl72", 8, 0, 5.30, 737e9},
	};
	const double tokens = 4096 * 7168 * 2.0;
	(void)state;
	for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])); i++) {
		double expected = tokens * rows[i].places / rows[i].rate;
		struct case_ c;

		plan_experts(&c, rows[i].topology, rows[i].groups,
			rows[i].experts == 8    ? "expert=8 expert_dispatch=deepep"
			: rows[i].experts == 16 ? "expert=16 expert_dispatch=deepep"
			: rows[i].experts == 32 ? "expert=32 expert_dispatch=deepep"
						: "expert=64 expert_dispatch=deepep");
		double seconds = seconds_of_rows(&c);
		if (!(fabs(seconds / expected - 1) < 0.09))
			fail_msg("%s: %.3f ms, published %.3f", rows[i].topology, 1e3 * seconds,
				1e3 * expected);
		case_finish(&c);
	}
}

/* Of 64 ranks on 8 nodes a token's 8 copies leave for 7/8 of them; DeepEP sends one to each of 3.62
 * nodes. */
static void test_sends_less(void **state)
{
	struct simulation_options options = {0};
	struct prediction first = {0};
	struct case_ c;
	(void)state;
	for (int deepep = 0; deepep < 2; deepep++) {
		plan_experts(&c, "8xdgx-h100", 8,
			deepep ? "expert=64 expert_dispatch=deepep" : "expert=64");
		const struct prediction *p = case_simulate(&c, &options, false);
		const struct op *op = &c.schedule->programs[0].ops[find_rows(c.schedule)];
		double egress = op_node_egress(c.schedule, op), tokens = 4096 * 7168 * 2.0;
		double copies = deepep ? 3.62 : 8;

		assert_true(fabs(egress / (8 * tokens * copies * 7 / 8) - 1) < 0.01);
		if (!deepep)
			first = *p;
		/* Buffers of 10 channels: 288 tokens of each of 8 ranks, 2 x 128 of each node. */
		assert_true(!deepep || p->peak_memory_bytes - first.peak_memory_bytes ==
					       10 * (8 * 288 + 8 * 256) * (2 * 7168 + 2048));
		assert_true(!deepep || p->time.all_to_all < 0.55 * first.time.all_to_all);
		assert_true(!deepep || p->step_time < first.step_time);
		case_finish(&c);
	}
}

/* Of m micro-batches m - 1 pairs hide the rows of a forward and a backward behind compute. The
 * first forward and the last backward wait for theirs, and so do blocks with experts beside dense
 * ones. Compute takes longer beside rows: what is gained is less than what is hidden. */
static void test_beside_compute(void **state)
{
	enum { M = 8 };
	struct simulation_options options = {0};
	(void)state;
	for (int deepep = 0; deepep < 2; deepep++) {
		struct prediction of[2];
		for (int beside = 0; beside < 2; beside++) {
			struct case_ c;
			plan_experts(&c, "dgx-h100", 8,
				deepep ? (beside ? "expert=8 grad_accum=8 expert_overlap=on "
						   "expert_dispatch=deepep"
						 : "expert=8 grad_accum=8 expert_dispatch=deepep")
				       : (beside ? "expert=8 grad_accum=8 expert_overlap=on"
						 : "expert=8 grad_accum=8"));
			of[beside] = *case_simulate(&c, &options, false);
			case_finish(&c);
		}
		const struct axis_figures *apart = &of[0].axes[GROUP_EXPERT],
					  *together = &of[1].axes[GROUP_EXPERT];
		assert_true(apart->exposed > 0.99 * apart->time);
		assert_true(together->exposed < 1.5 * apart->exposed / M);
		assert_true(together->exposed > 0.9 * apart->exposed / M);
		double hidden = apart->exposed - together->exposed;
		double gained = of[0].step_time - of[1].step_time;
		assert_true(gained < hidden && gained > 0.5 * hidden);
		assert_true(fabs(of[1].wire_bytes_per_rank / of[0].wire_bytes_per_rank - 1) < 1e-9);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_sends_less),
		cmocka_unit_test(test_beside_compute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
