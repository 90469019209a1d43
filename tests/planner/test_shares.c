/* Blocks of a pipeline shared out over its stages: as fast as the best of all splits, also where
 * nothing else fits. */
#include "support.h"

#include <math.h>

#include "planner/evaluation/evaluation.h"
#include "schedule/pipeline/pipeline.h"
#include "schedule/resolve/resolve.h"

enum { STAGES = 3, BLOCKS = 9 };

struct fixture {
	struct arena arena;
	struct question question;
	struct evaluator evaluator;
};

/* A few blocks, and a head that is worth some of Llama 3 8B's. */
static void begin(struct fixture *f, const char *name, const char *runtime)
{
	struct error error = {0};
	struct model *model;
	*f = (struct fixture){.question = {.simplicity = 0.01, .mixes = true}};
	struct architecture a = load_model(&f->arena, name)->architecture;
	a.layers = BLOCKS;
	assert_true(model_build(&f->arena, &a, &model, &error));
	f->question.model = model;
	f->question.topology = load_topology(&f->arena, "3xdgx-h100");
	f->evaluator.question = &f->question;
	SET_CHOICES(&f->question, &f->arena, "runtime", runtime, "pipeline", "3",
		"pipeline_schedule", "1f1b", "micro_batch", "1", "grad_accum", "12",
		"activation_checkpointing", "none");
}

static void end(struct fixture *f)
{
	evaluator_finish(&f->evaluator);
	arena_finish(&f->arena);
}

static struct prediction run(struct fixture *f, const struct plan *plan)
{
	struct prediction prediction;
	struct error error = {0};
	if (!evaluator_run(&f->evaluator, plan, &prediction, &error))
		fail_msg("%s", error.message);
	return prediction;
}

/* The fastest of all that have room, s; infinite: none has. */
static double fastest(struct fixture *f, const struct plan *plan)
{
	double least = INFINITY;
	for (int first = 0; first <= BLOCKS - 1; first++)
		for (int second = 1; first + second <= BLOCKS; second++) {
			struct plan with = *plan;
			int stages[STAGES] = {first, second, BLOCKS - first - second};
			with.layers_per_stage = rows_make_counts(&f->arena, stages, STAGES);
			struct prediction p = run(f, &with);
			if (has_room(&f->question, &with, &p))
				least = fmin(least, p.step_time);
		}
	return least;
}

static void test_as_fast_as_all(void **state)
{
	static const struct {
		const char *runtime, *strategy;
	} rows[] = {{"pytorch-fsdp2", "SHARD_GRAD_OP"}, {"megatron", "ZERO_1"}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		struct plan plan;
		struct error error = {0};
		begin(&f, "llama-3-8b", rows[i].runtime);
		set_choice(&f.question, &f.arena, "strategy", rows[i].strategy);
		struct answer answer = ask(&f.question, &f.arena);
		assert_non_null(answer.chosen);
		assert_non_null(answer.chosen->plan.layers_per_stage.text);
		assert_true(answer.shares_stages);
		assert_non_null(strstr(answer.chosen->typed, "--layers-per-stage "));
		/* Around the chosen plan: no other split of it is faster. */
		plan = answer.chosen->plan;
		double least = fastest(&f, &plan), chosen = answer.chosen->prediction.step_time;
		assert_true(chosen <= least * 1.002);
		plan.layers_per_stage = (struct rows){0};
		double usual = run(&f, &plan).step_time;
		print_message("%s: %s, %.1f %% less\n", rows[i].runtime,
			answer.chosen->plan.layers_per_stage.text, 100 * (1 - chosen / usual));
		assert_true(chosen < usual * 0.99);
		bool told = false;
		for (int r = 0; r < answer.n_reasons; r++)
			told = told || strstr(answer.reasons[r], "Its stages have ") != NULL;
		assert_true(told);
		/* Typed, it is the same plan. */
		assert_true(planner_share_stages(&f.question, &f.arena, &plan, &error));
		assert_string_equal(
			plan.layers_per_stage.text, answer.chosen->plan.layers_per_stage.text);
		end(&f);
	}
}

/* Returns the least bytes that any split needs, cache and all. */
static int64_t least_memory(struct fixture *f, const struct plan *plan)
{
	int64_t least = INT64_MAX;
	for (int first = 0; first < BLOCKS; first++)
		for (int second = 1; first + second <= BLOCKS; second++) {
			int stages[STAGES] = {first, second, BLOCKS - first - second};
			struct plan with = *plan;
			with.layers_per_stage = rows_make_counts(&f->arena, stages, STAGES);
			struct prediction p = run(f, &with);
			least = min_i64(least, p.peak_memory_bytes);
		}
	return least;
}

/* The first stage keeps the most micro-batches: with less memory it gets fewer blocks. */
static void test_memory(void **state)
{
	(void)state;
	struct fixture f;
	struct plan usual, plan;
	struct error error = {0};
	begin(&f, "llama-2-7b", "pytorch-fsdp2");
	set_choice(&f.question, &f.arena, "strategy", "SHARD_GRAD_OP");
	f.question.headroom.given = true; /* none */
	assert_true(plan_resolve(&f.question, &f.arena, &usual, &error));
	int64_t least = least_memory(&f, &usual);
	f.question.memory_limit_bytes = least + least / 100;
	struct prediction p = run(&f, &usual);
	assert_false(has_room(&f.question, &usual, &p));
	plan = usual;
	assert_true(planner_share_stages(&f.question, &f.arena, &plan, &error));
	assert_non_null(plan.layers_per_stage.text);
	p = run(&f, &plan);
	assert_true(has_room(&f.question, &plan, &p));
	assert_true(p.step_time <= fastest(&f, &usual) * 1.002);
	/* Nothing helps. */
	f.question.memory_limit_bytes = least / 2;
	plan = usual;
	assert_true(planner_share_stages(&f.question, &f.arena, &plan, &error));
	assert_null(plan.layers_per_stage.text);
	end(&f);
}

static void test_refused(void **state)
{
	static const struct {
		const char *runtime, *pipeline, *message;
	} rows[] = {
		{"pytorch-fsdp2", "1",
			"--layers-per-stage auto: there is one stage; add --pipeline N"},
		{"nanotron", "3",
			"--layers-per-stage auto: nanotron cannot say which blocks a stage has; "
			"leave it out"},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		struct plan plan;
		struct error error = {0};
		begin(&f, "llama-3-8b", rows[i].runtime);
		set_choice(&f.question, &f.arena, "pipeline", rows[i].pipeline);
		assert_true(plan_resolve(&f.question, &f.arena, &plan, &error));
		assert_false(planner_share_stages(&f.question, &f.arena, &plan, &error));
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		assert_string_equal(error.message, rows[i].message);
		end(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_fast_as_all),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
