/* Questions with answers that an expert knows: which axes, that it fits, how much communication is
 * exposed, an MFU as published (bench/results/planner.md has the plans beside each other). With an
 * argument: those that take longer too (suite `slow`). */
#include "support.h"

#include "planner/evaluation/evaluation.h"

/* A number of ranks that an expert would take. */
struct range {
	int64_t low, high;
};

struct golden {
	const char *model, *topology;
	const char *knobs[8];
	struct range tensor, pipeline, context, expert;
	double mfu_low, mfu_high; /* of the published ones; experts: of active parameters */
	double exposed;           /* of the step, at most */
};

/* Published: torchtitan, Llama 3.1 8B on 8 H100, FSDP, 33 to 39 % (500 W); Megatron-Bridge, Llama 3
 * 70B on 64 H100, TP 4 x PP 8, 727 TFLOP/s in FP8; NeMo, Llama 2 7B at 1M tokens on H100, TP 8 x CP
 * 32, 536 TFLOP/s in FP8. */
static const struct golden quick[] = {
	{"llama-2-7b", "dgx-h100", {"global_batch", "256"}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 0.33,
		0.55, 0.05},
	{"llama-3-8b", "8xdgx-h100", {"seq_len", "1048576"}, {1, 8}, {1, 1}, {8, 64}, {1, 1}, 0.35,
		0.60, 0.10},
	{"llama-3-70b", "8xdgx-h100", {"seq_len", "8192", "global_batch", "128"}, {1, 8}, {1, 8},
		{1, 1}, {1, 1}, 0.35, 0.55, 0.15},
};

/* Megatron-Core, Mixtral 8x7B, TP 1 x PP 4 x EP 8, 468 TFLOP/s (47 %); Meta, 405B, 41 to 43 %;
 * DeepSeek-V3: DeepSeek on 2,048 H800, PP 16 x EP 64, 1,543 tokens/s, and Megatron-Bridge on 1,024
 * H100, TP 2 x PP 8 x EP 64, 1,297 tokens/s (34 % of the peak of bf16), both in FP8. */
static const struct golden slow[] = {
	{"mixtral-8x7b", "4xdgx-h100", {"global_batch", "256"}, {1, 8}, {1, 4}, {1, 1}, {1, 8},
		0.30, 0.50, 0.15},
	{"llama-3.1-405b", "256xdgx-h100", {"seq_len", "8192", "global_batch", "2048"}, {2, 8},
		{1, 16}, {1, 1}, {1, 1}, 0.36, 0.46, 0.15},
	{"llama-3.1-405b", "2048xdgx-h100", {"seq_len", "8192", "global_batch", "2048"}, {4, 8},
		{8, 16}, {1, 8}, {1, 1}, 0.28, 0.45, 0.25},
	{"deepseek-v3", "32xdgx-h100", {"seq_len", "4096", "global_batch", "4096"}, {1, 8}, {1, 16},
		{1, 1}, {8, 64}, 0.10, 0.35, 0.65},
	{"deepseek-v3", "256xdgx-h100", {"seq_len", "4096", "global_batch", "15360"}, {1, 8},
		{1, 16}, {1, 1}, {8, 64}, 0.15, 0.40, 0.35},
};

static bool is_in(struct range range, int64_t ranks)
{
	return range.low <= ranks && ranks <= range.high;
}

static double per_token(const struct candidate *candidate)
{
	return candidate->prediction.step_time / plan_tokens(&candidate->plan);
}

/* What does not divide the model is preferred within 2 %. */
static void judge_plain(const struct golden *g, const struct answer *answer)
{
	for (int i = 0; i < answer->n_alternatives && has_axes(&answer->chosen->plan); i++) {
		const struct candidate *other = &answer->alternatives[i];
		if (other->outcome == OUTCOME_SLOWER && !has_axes(&other->plan) &&
			per_token(other) < 1.02 * per_token(answer->chosen))
			fail_msg("%s on %s: %s is as good without axes", g->model, g->topology,
				strategy_names[other->plan.strategy]);
	}
}

static void judge(const struct golden *g)
{
	struct arena arena = {0};
	struct model *model = load_model(&arena, g->model);
	struct question question = {
		.model = model, .topology = load_topology(&arena, g->topology), .simplicity = 0.01};
	for (int i = 0; i < COUNT_OF(g->knobs) && g->knobs[i] != NULL; i += 2)
		set_choice(&question, &arena, g->knobs[i], g->knobs[i + 1]);
	/* Rotary positions have no last one. */
	model->architecture.context = max_i64(model->architecture.context, question.asked.seq_len);
	struct answer answer = ask(&question, &arena);
	assert_non_null(answer.chosen);
	const struct plan *plan = &answer.chosen->plan;
	const struct prediction *p = &answer.chosen->prediction;
	const struct mesh *mesh = &plan->mesh;
	double exposed = p->time.exposed_communication / p->step_time;
	struct text text = {0};
	plan_summary(plan, &text);
	print_message("%s on %s: %s, MFU %.1f %%, %.1f %% exposed\n", g->model, g->topology,
		text_string(&text), 100 * p->mfu, 100 * exposed);
	text_finish(&text);
	assert_int_equal(p->fits, FITS_YES);
	assert_true(has_room(&question, plan, p));
	assert_true(is_in(g->tensor, mesh->tensor) && is_in(g->pipeline, mesh->pipeline));
	assert_true(is_in(g->context, mesh->context) && is_in(g->expert, mesh->expert));
	assert_true(mesh->tensor <= question.topology->devices_per_node);
	assert_true(p->mfu >= g->mfu_low && p->mfu <= g->mfu_high);
	assert_true(exposed <= g->exposed);
	assert_true(answer.gap == 0);
	judge_plain(g, &answer);
	arena_finish(&arena);
}

static void test_quick(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(quick); i++)
		judge(&quick[i]);
}

static void test_slow(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(slow); i++)
		judge(&slow[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quick),
		cmocka_unit_test(test_slow),
	};
	(void)argv;
	return _cmocka_run_group_tests("golden", tests, argc > 1 ? 2 : 1, NULL, NULL);
}
