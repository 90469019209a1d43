/* Thresholds: on this side the chosen plan wins, on the other one the plan that is named. */
#include "support.h"

#include <math.h>

#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/ranking.h"

/* Seconds per token; infinite when it does not fit. */
static double cost(
	const struct question *question, const struct topology *topology, const struct plan *plan)
{
	struct evaluator evaluator = {.question = question};
	struct prediction prediction;
	struct error error = {0};
	double tokens = (double)plan->global_batch * (double)plan->seq_len;
	if (!evaluator_run_on(&evaluator, topology, plan, &prediction, &error))
		fail_msg("%s", error.message);
	evaluator_finish(&evaluator);
	return prediction.fits == FITS_NO ? INFINITY : prediction.step_time / tokens;
}

/* The best of another strategy over the chosen plan there; above 1: chosen wins. */
static double lead(const struct question *question, const struct topology *topology,
	const struct answer *answer)
{
	double chosen = cost(question, topology, &answer->chosen->plan), least = INFINITY;
	bool seen[STRATEGY_COUNT] = {false};
	seen[answer->chosen->plan.strategy] = true;
	for (int i = 0; i < answer->n_alternatives; i++) {
		const struct candidate *other = &answer->alternatives[i];
		if (other->outcome == OUTCOME_IMPOSSIBLE || seen[other->plan.strategy])
			continue;
		seen[other->plan.strategy] = true;
		least = fmin(least, cost(question, topology, &other->plan));
	}
	return least / chosen;
}

static const struct threshold *find_threshold(const struct answer *answer, const char *what)
{
	for (int i = 0; i < answer->n_thresholds; i++)
		if (strcmp(answer->thresholds[i].what, what) == 0 && answer->thresholds[i].at > 0)
			return &answer->thresholds[i];
	return NULL;
}

static void test_link(void **state)
{
	(void)state;
	static const char *const models[] = {"llama-2-7b", "gpt2-1.5b", "llama-2-13b"};
	int found = 0;
	for (int m = 0; m < COUNT_OF(models); m++) {
		for (double factor = 1; factor > 0.05; factor /= 4) {
			struct arena arena = {0};
			struct question question = {.model = load_model(&arena, models[m]),
				.topology = load_topology(&arena, "2xdgx-a100-80gb")};
			struct topology topology = *question.topology, other;
			topology.network.nic_bandwidth *= factor;
			question.topology = &topology;
			set_choice(&question, &arena, "wrap", "block");
			set_choice(&question, &arena, "micro_batch", "1");
			struct answer answer = ask(&question, &arena);
			const struct threshold *t = find_threshold(&answer, "node link, per NIC");
			if (t == NULL || lead(&question, &topology, &answer) < 1) {
				arena_finish(&arena);
				continue;
			}
			found++;
			other = topology;
			other.network.nic_bandwidth = t->at;
			assert_true(lead(&question, &other, &answer) < 1);
			other.network.nic_bandwidth = t->at < t->now ? t->at * 1.03 : t->at / 1.03;
			assert_true(lead(&question, &other, &answer) >= 1);
			arena_finish(&arena);
		}
	}
	print_message("%d thresholds\n", found);
	assert_true(found >= 3);
}

/* Micro-batches are whole: one less than the threshold is still won. */
static void test_micro_batch(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb")};
	set_choice(&question, &arena, "strategy", "FULL_SHARD");
	set_choice(&question, &arena, "activation_checkpointing", "none");
	set_choice(&question, &arena, "micro_batch", "1");
	struct answer answer = ask(&question, &arena);
	const struct threshold *t = find_threshold(&answer, "micro-batch");
	assert_non_null(t);
	assert_null(t->becomes); /* one strategy: no other takes over, it no longer fits */
	struct plan plan = answer.chosen->plan;
	for (int above = 0; above <= 1; above++) {
		plan.micro_batch = (int64_t)t->at - 1 + above;
		plan.global_batch = plan.micro_batch * plan.grad_accum * plan_data_parallel(&plan);
		assert_int_equal(isinf(cost(&question, question.topology, &plan)) != 0, above);
	}
	arena_finish(&arena);
}

/* Memory: at the threshold the chosen plan just fits, a byte less and it does not. */
static void test_memory(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb")};
	set_choice(&question, &arena, "micro_batch", "1");
	struct answer answer = ask(&question, &arena);
	const struct threshold *t = find_threshold(&answer, "device memory");
	assert_non_null(t);
	question.memory_limit_bytes = (int64_t)t->at;
	struct evaluator evaluator = {.question = &question};
	struct prediction prediction;
	struct error error = {0};
	assert_true(evaluator_run(&evaluator, &answer.chosen->plan, &prediction, &error));
	assert_int_equal(prediction.fits, FITS_YES);
	question.memory_limit_bytes--;
	assert_true(evaluator_run(&evaluator, &answer.chosen->plan, &prediction, &error));
	assert_int_not_equal(prediction.fits, FITS_YES);
	evaluator_finish(&evaluator);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_link),
		cmocka_unit_test(test_micro_batch),
		cmocka_unit_test(test_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
