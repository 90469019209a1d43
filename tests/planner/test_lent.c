/* What the caller lends: threads that do pieces in any order, and a search that is watched and
 * stopped. */
#include "support.h"

enum { WORKERS = 3 };

/* --- several at once ----------------------------------------------------------------------------
 */

struct workers {
	int n, calls;
};

/* Runs the pieces from the last to the first, over all workers. */
static void backwards(
	void *context, int n, void (*piece)(void *data, int index, int worker), void *data)
{
	struct workers *workers = context;
	for (int i = n - 1; i >= 0; i--)
		piece(data, i, i % workers->n);
	workers->calls++;
}

/* The answer must be the same for any number of workers, whatever is simulated ahead of its
 * turn. */
static void compare_workers(struct question question, struct arena *arena, int *calls)
{
	static const int numbers[] = {2, 3, 8};
	struct text alone = {0};
	struct answer answer;
	struct error error = {0};
	if (!planner_plan(&question, arena, &answer, &error))
		return; /* it contradicts itself */
	print_answer(&answer, &alone);
	for (int i = 0; i < COUNT_OF(numbers); i++) {
		struct text several = {0};
		struct workers workers = {numbers[i], 0};
		const struct lent lent = {&workers, workers.n, backwards, NULL};
		question.lent = &lent;
		answer = ask(&question, arena);
		print_answer(&answer, &several);
		assert_string_equal(text_string(&several), text_string(&alone));
		text_finish(&several);
		*calls += workers.calls;
	}
	text_finish(&alone);
}

static void test_any_order(void **state)
{
	(void)state;
	uint64_t seed = 5;
	int calls = 0;
	for (int i = 0; i < SAMPLED(7); i++) {
		struct arena arena = {0};
		struct question question = random_small_question(&seed, &arena);
		question.mixes = i % 2;
		question.thresholds = i == 6; /* fifty searches */
		compare_workers(question, &arena, &calls);
		arena_finish(&arena);
	}
	assert_true(calls > SAMPLED(7));
}

static void test_options_in_any_order(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "dgx-v100"),
		.headroom.given = true, /* none */
		.mixes = true};
	int calls = 0;
	assert_true(ask(&question, &arena).n_options > 0);
	compare_workers(question, &arena, &calls);
	assert_true(calls > 30);
	arena_finish(&arena);
}

static void test_finding(void **state)
{
	(void)state;
	struct workers workers = {WORKERS, 0};
	const struct lent lent = {&workers, WORKERS, backwards, NULL};
	for (enum find find = FIND_MAX_SEQ_LEN; find <= FIND_SCALING; find++) {
		struct arena arena = {0};
		struct question question = {.model = load_model(&arena, "gpt2-124m"),
			.topology = load_topology(&arena, "2xdgx-a100-80gb")};
		struct finding alone, several;
		struct error error = {0};
		set_choice(&question, &arena, "strategy", "FULL_SHARD");
		assert_true(planner_find(&question, find, 0.9, &arena, &alone, &error));
		question.lent = &lent;
		assert_true(planner_find(&question, find, 0.9, &arena, &several, &error));
		assert_string_equal(several.statement, alone.statement);
		assert_int_equal(several.n, alone.n);
		assert_int_equal(several.evaluated, alone.evaluated);
		for (int i = 0; i < alone.n; i++) {
			assert_string_equal(several.rows[i].what, alone.rows[i].what);
			assert_true(several.rows[i].value == alone.rows[i].value &&
				    several.rows[i].prediction.step_time ==
					    alone.rows[i].prediction.step_time);
		}
		arena_finish(&arena);
	}
	assert_true(workers.calls > 0);
}

/* --- watched and stopped ------------------------------------------------------------------------
 */

struct watch {
	int64_t asked, most; /* so often the answer is yes */
	double step_time, gap;
	bool wrong;
};

static bool look(void *context, const struct looked *looked)
{
	struct watch *watch = context;
	bool worse = watch->step_time > 0 && looked->step_time > watch->step_time * 1.11;
	watch->wrong = watch->wrong || worse || (looked->of > 0 && looked->plans >= looked->of) ||
		       looked->gap > 1 || watch->asked > watch->most;
	watch->step_time = looked->step_time;
	watch->gap = looked->gap;
	return watch->asked++ < watch->most;
}

/* Its answer is worse than that of the whole search by no more than its gap says. */
static void stop_after(struct question *question, int64_t most, const struct answer *whole)
{
	struct arena arena = {0};
	struct answer answer;
	struct error error = {0};
	struct watch watch = {.most = most};
	const struct lent lent = {.context = &watch, .go_on = look};
	question->lent = &lent;
	if (!planner_plan(question, &arena, &answer, &error)) {
		assert_int_equal(error.code, EXIT_CODE_INTERRUPTED);
	} else {
		assert_true(answer.interrupted);
		assert_non_null(answer.chosen);
		double best = whole->chosen->prediction.step_time;
		assert_true(answer.bound <= best * 1.0001);
		assert_true(
			answer.chosen->prediction.step_time * (1 - answer.gap) <= best * 1.0001);
	}
	assert_false(watch.wrong);
	question->lent = NULL;
	arena_finish(&arena);
}

static void test_stopped(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "llama-2-7b"),
		.topology = load_topology(&arena, "dgx-a100-80gb"),
		.mixes = true};
	struct watch watch = {.most = INT64_MAX};
	const struct lent lent = {.context = &watch, .go_on = look};
	set_choice(&question, &arena, "global_batch", "64");
	question.lent = &lent;
	struct answer whole = ask(&question, &arena);
	assert_false(whole.interrupted);
	assert_false(watch.wrong);
	assert_true(watch.step_time > 0 && watch.gap == 0);
	assert_non_null(whole.chosen);
	for (int64_t most = 0; most < watch.asked; most += 1 + watch.asked / 6)
		stop_after(&question, most, &whole);
	stop_after(&question, watch.asked - 1, &whole);
	arena_finish(&arena);
}

/* --- searches beside the answer's ------------------------------------------------------------- */

static bool whatever_comes(void *context, const struct looked *looked)
{
	(void)context;
	(void)looked;
	return true;
}

static bool had_enough(void *context)
{
	struct watch *watch = context;
	return watch->asked++ >= watch->most;
}

static bool has_threshold(const struct answer *answer, const char *sentence)
{
	for (int i = 0; i < answer->n_thresholds; i++)
		if (strcmp(answer->thresholds[i].sentence, sentence) == 0)
			return true;
	return false;
}

/* What stands there stands in the whole answer too. A threshold that nothing changes names both
 * ends, of which one may be known by then. */
static void check_part(const struct answer *part, const struct answer *whole)
{
	assert_true(part->interrupted);
	assert_int_equal(part->chosen != NULL, whole->chosen != NULL);
	if (part->chosen != NULL)
		assert_string_equal(part->chosen->prediction.schedule_digest,
			whole->chosen->prediction.schedule_digest);
	assert_true(part->n_thresholds <= whole->n_thresholds);
	for (int i = 0; i < part->n_thresholds; i++)
		assert_true(part->thresholds[i].at == 0 ||
			    has_threshold(whole, part->thresholds[i].sentence));
	assert_true(part->n_ways_out <= whole->n_ways_out);
	assert_true(part->useless_devices == 0 || whole->useless_devices > 0);
	for (int i = 0; i < part->n_ways_out; i++)
		assert_true(part->ways_out[i].prediction.fits == FITS_YES);
}

/* `found`: so many thresholds and ways out in all. */
static void stop_beside(struct question *question, int found)
{
	struct arena arena = {0};
	struct watch watch = {.most = INT64_MAX};
	const struct lent lent = {
		.context = &watch, .go_on = whatever_comes, .stopped = had_enough};
	question->lent = &lent;
	struct answer whole = ask(question, &arena);
	int64_t all = watch.asked;
	assert_false(whole.interrupted);
	assert_true(whole.n_thresholds + whole.n_ways_out >= found);
	for (int quarter = 0; quarter < 4; quarter += 2) {
		watch = (struct watch){.most = all * quarter / 4};
		struct answer part = ask(question, &arena);
		check_part(&part, &whole);
		/* Soon: each search that was to come asks once or twice. */
		assert_true(watch.asked < watch.most + all / 4 + 200);
		if (quarter == 0)
			assert_int_equal(part.n_thresholds + part.n_ways_out, 0);
	}
	question->lent = NULL;
	arena_finish(&arena);
}

static void test_stopped_beside(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {.model = load_model(&arena, "gpt2-124m"),
		.topology = load_topology(&arena, "2xdgx-a100-80gb"),
		.thresholds = true};
	set_choice(&question, &arena, "micro_batch", "1");
	set_choice(&question, &arena, "wrap", "block");
	stop_beside(&question, 1);
	question = (struct question){.model = load_model(&arena, "gpt2-1.5b"),
		.topology = load_topology(&arena, "rtx4090-8x"),
		.mixes = true};
	SET_CHOICES(&question, &arena, "micro_batch", "64", "wrap", "block", "prefetch", "pre",
		"tensor", "1", "context", "1");
	stop_beside(&question, 1);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_options_in_any_order),
		cmocka_unit_test(test_finding),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_stopped_beside),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
