/* Laws of the optimum, on random questions: more memory, more options and faster links never make
 * it worse, and what it does not use can be taken away. With a number as argument: on so many
 * random questions (suite `slow`). */
#include "support.h"

#include <stdlib.h>

#include "planner/search/search.h"

static int questions = SAMPLED(10);

/* The first plan in order, of all that fit. */
struct optimum {
	bool exists, refused;
	int64_t cost; /* of the objective */
	struct costs costs;
	struct plan plan;
};

static struct optimum optimum_of(const struct question *question, struct arena *arena)
{
	struct optimum optimum = {0};
	struct search search;
	struct error error = {0};
	if (!search_run(question, arena, &search, &error)) {
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		optimum.refused = true;
	} else if (search.ranking.n > 0) {
		const struct ranked *first = &search.ranking.entries[0];
		optimum.exists = true;
		optimum.cost = first->costs.of[search.ranking.objective];
		optimum.costs = first->costs;
		optimum.plan = search.space.plans[first->plan];
	}
	search_finish(&search);
	return optimum;
}

struct tally {
	int64_t judged, strict, broken;
	bool quiet; /* a control: breaking is what is wanted */
};

static void judge(struct tally *tally, const struct question *question, bool holds, bool strict)
{
	struct text text = {0};
	tally->judged++;
	tally->strict += strict;
	if (holds)
		return;
	if (tally->broken++ < 3 && !tally->quiet) {
		describe_question(question, &text);
		print_message("breaks: %s\n", text_string(&text));
		text_finish(&text);
	}
}

/* --- more memory ---------------------------------------------------------------------------------
 */

/* The control looks for one. */
static bool has_noticed(const struct tally *tally)
{
	return tally->quiet && tally->broken > 0;
}

/* `swapped`: the control, that takes the one for the other. */
static void judge_memory(
	struct tally *tally, struct question question, uint64_t *state, bool swapped)
{
	struct arena arena = {0};
	int64_t much = question.memory_limit_bytes + random_below(state, INT64_C(4) << 30);
	struct optimum small = optimum_of(&question, &arena);
	question.memory_limit_bytes = much;
	struct optimum large = optimum_of(&question, &arena);
	if (swapped) {
		struct optimum other = small;
		small = large;
		large = other;
	}
	if (small.exists)
		judge(tally, &question, large.exists && large.cost <= small.cost,
			large.cost < small.cost);
	else if (!small.refused)
		judge(tally, &question, true, large.exists);
	/* Room that the optimum did not need can go. */
	if (large.exists && !swapped) {
		question.memory_limit_bytes = large.costs.of[COST_MEMORY];
		struct optimum exact = optimum_of(&question, &arena);
		judge(tally, &question, exact.exists && exact.cost == large.cost, false);
	}
	arena_finish(&arena);
}

static struct tally judge_memories(uint64_t seed, int n, bool swapped)
{
	struct tally tally = {.quiet = swapped};
	for (int i = 0; i < n && !has_noticed(&tally); i++) {
		struct arena arena = {0};
		struct question question = random_question(&seed, &arena);
		if (question.memory_limit_bytes > 0)
			judge_memory(&tally, question, &seed, swapped);
		arena_finish(&arena);
	}
	return tally;
}

static void test_more_memory(void **state)
{
	(void)state;
	struct tally tally = judge_memories(UINT64_C(0x3c6ef372fe94f82b), questions, false);
	print_message("%lld times, %lld of them it helps\n", (long long)tally.judged,
		(long long)tally.strict);
	assert_int_equal(tally.broken, 0);
	assert_true(tally.strict > 0);
	assert_true(tally.judged > questions / 2);
}

/* --- more options --------------------------------------------------------------------------------
 */

static const struct {
	const char *knob, *value;
} options[] = {{"wrap", "block"}, {"wrap", "model"}, {"activation_checkpointing", "none"},
	{"activation_checkpointing", "full"}, {"sync_each_micro_batch", "false"},
	{"strategy", "FULL_SHARD"}, {"strategy", "SHARD_GRAD_OP"}, {"strategy", "NO_SHARD"},
	{"prefetch", "post"}, {"prefetch", "none"}, {"forward_prefetch", "true"},
	{"forward_prefetch", "false"}, {"limit_all_gathers", "false"}};

static bool uses(const struct plan *plan, const char *knob, const char *value)
{
	struct text text = {0};
	knob_print(knob_find(knob), plan, &text);
	bool is = strcmp(text_string(&text), value) == 0;
	text_finish(&text);
	return is;
}

static bool forbid(
	struct question *question, struct arena *arena, const char *knob, const char **value)
{
	if (question_gives(question, knob_find(knob)))
		return false;
	if (strcmp(knob, "strategy") == 0) {
		unsigned all = question->strategies != 0 ? question->strategies
							 : (1u << STRATEGY_ZERO_1) - 1;
		for (int s = 0; s < STRATEGY_COUNT; s++)
			if (strcmp(strategy_names[s], *value) == 0)
				question->strategies = all & ~(1u << s);
		return question->strategies != 0 && question->strategies != all;
	}
	struct error error = {0};
	return question_restrict(question, knob_find(knob), true, knob, *value, arena, &error);
}

static void judge_option(struct tally *tally, struct question question, uint64_t *state,
	const struct optimum *open, bool swapped)
{
	struct arena arena = {0};
	int o = (int)random_below(state, COUNT_OF(options));
	const char *value = options[o].value;
	struct question fewer = question;
	if (forbid(&fewer, &arena, options[o].knob, &value)) {
		struct optimum less = optimum_of(&fewer, &arena);
		bool used = open->exists && uses(&open->plan, options[o].knob, value);
		bool worse = !less.exists || less.cost > open->cost;
		bool same = open->exists && less.exists && less.cost == open->cost;
		if (swapped)
			judge(tally, &fewer, !worse, worse);
		else if (!less.refused)
			judge(tally, &fewer, open->exists ? worse || same : !less.exists, worse);
		/* What the optimum does not use may go. */
		if (!used && open->exists && !swapped)
			judge(tally, &fewer, same, false);
	}
	arena_finish(&arena);
}

static struct tally judge_options(uint64_t seed, int n, bool swapped)
{
	struct tally tally = {.quiet = swapped};
	for (int i = 0; i < n && !has_noticed(&tally); i++) {
		struct arena arena = {0};
		struct question question = random_question(&seed, &arena);
		struct optimum open = optimum_of(&question, &arena);
		for (int j = 0; j < 3 && !open.refused; j++)
			judge_option(&tally, question, &seed, &open, swapped);
		arena_finish(&arena);
	}
	return tally;
}

static void test_more_options(void **state)
{
	(void)state;
	struct tally tally = judge_options(UINT64_C(0xa54ff53a5f1d36f1), questions, false);
	print_message("%lld times, %lld of them it helps\n", (long long)tally.judged,
		(long long)tally.strict);
	assert_int_equal(tally.broken, 0);
	assert_true(tally.strict > 0);
	assert_true(tally.judged > questions / 2);
}

/* --- more bandwidth ------------------------------------------------------------------------------
 */

/* Contention may cost a plan some of what faster links give; the optimum loses nothing by more than
 * the choice rule's 1 %. `swapped`: the control. */
static struct tally judge_bandwidths(uint64_t seed, int n, bool swapped)
{
	struct tally tally = {.quiet = swapped};
	for (int i = 0; i < n && !has_noticed(&tally); i++) {
		struct arena arena = {0};
		struct question question = random_question(&seed, &arena);
		struct topology faster = *question.topology;
		double factor = 1.5 + 0.5 * (double)random_below(&seed, 6);
		faster.network.nic_bandwidth *= factor;
		faster.fabric.bandwidth *= factor;
		question.objective = OBJECTIVE_TIME;
		struct optimum slow = optimum_of(&question, &arena);
		question.topology = &faster;
		struct optimum fast = optimum_of(&question, &arena);
		int64_t now = swapped ? slow.cost : fast.cost,
			before = swapped ? fast.cost : slow.cost;
		if (slow.exists)
			judge(&tally, &question,
				fast.exists && (double)now <= 1.01 * (double)before, now < before);
		arena_finish(&arena);
	}
	return tally;
}

static void test_more_bandwidth(void **state)
{
	(void)state;
	struct tally tally = judge_bandwidths(UINT64_C(0xa54ff53a5f1d36f1), questions, false);
	print_message("%lld times, %lld of them it helps\n", (long long)tally.judged,
		(long long)tally.strict);
	assert_int_equal(tally.broken, 0);
	assert_true(tally.strict > questions / 4);
}

/* --- lists ---------------------------------------------------------------------------------------
 */

/* The order of a list decides about ties, and nothing else. */
static void test_order_of_lists(void **state)
{
	static const struct {
		enum knob_id knob;
		const char *one[2], *other[2];
	} lists[] = {{KNOB_FORWARD_PREFETCH, {"true", "false"}, {"false", "true"}},
		{KNOB_WRAP, {"block", "model"}, {"model", "block"}},
		{KNOB_PREFETCH, {"pre", "post"}, {"post", "pre"}}};
	uint64_t seed = UINT64_C(0x510e527fade682d1);
	int judged = 0;
	(void)state;
	for (int i = 0; i < questions; i++) {
		struct arena arena = {0};
		struct question question = random_question(&seed, &arena), other = question;
		int l = i % COUNT_OF(lists);
		if (question_is_open(&question, lists[l].knob)) {
			restrict_to(&question, &arena, lists[l].knob, 2, lists[l].one);
			restrict_to(&other, &arena, lists[l].knob, 2, lists[l].other);
			struct optimum a = optimum_of(&question, &arena);
			struct optimum b = optimum_of(&other, &arena);
			assert_true(a.exists == b.exists && a.refused == b.refused);
			assert_memory_equal(&a.costs, &b.costs, sizeof(a.costs));
			judged += a.exists;
		}
		arena_finish(&arena);
	}
	assert_true(judged > questions / 6);
}

/* Less memory and fewer options do make it worse, and the judge notices. */
static void test_negative_control(void **state)
{
	(void)state;
	assert_true(judge_memories(1, 12, true).broken > 0);
	assert_true(judge_options(1, 6, true).broken > 0);
	assert_true(judge_bandwidths(11, 6, true).broken > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_more_memory),
		cmocka_unit_test(test_more_options),
		cmocka_unit_test(test_more_bandwidth),
		cmocka_unit_test(test_order_of_lists),
		cmocka_unit_test(test_negative_control),
	};
	if (argc > 1)
		questions = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
