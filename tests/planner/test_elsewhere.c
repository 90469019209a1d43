/* What is searched beside the question: another framework, rows that reach experts in another way.
 */
#include "support.h"

#include "planner/levers/levers.h"

struct fixture {
	struct arena arena;
	struct question question;
};

static void begin(struct fixture *f, const char *model, const char *topology, int n,
	const char *const *options)
{
	*f = (struct fixture){{0}};
	struct model *loaded = load_model(&f->arena, model);
	f->question.model = loaded;
	f->question.topology = load_topology(&f->arena, topology);
	f->question.mixes = true;
	set_choices(&f->question, &f->arena, n, options);
	/* As the command line does. */
	if (question_gives(&f->question, KNOB_SEQ_LEN))
		loaded->architecture.context =
			max_i64(loaded->architecture.context, f->question.asked.seq_len);
}
#define BEGIN(f, model, topology, ...)                                                             \
	begin(f, model, topology,                                                                  \
		(int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),                \
		(const char *const[]){__VA_ARGS__})

static double token_time(const struct candidate *candidate)
{
	return candidate->prediction.step_time / plan_tokens(&candidate->plan);
}

/* --- another framework ------------------------------------------------------------------------ */

/* What is said of one is what it is planned with, where nobody has chosen one. */
static void test_elsewhere(void **state)
{
	(void)state;
	struct fixture f, near;
	BEGIN(&f, "gpt2-1.5b", "2xdgx-a100-80gb", "global_batch", "32");
	BEGIN(&near, "gpt2-1.5b", "dgx-a100-80gb", "global_batch", "32");
	struct answer answer = ask(&f.question, &f.arena);
	assert_non_null(answer.elsewhere);
	assert_string_equal(answer.elsewhere->typed, "--runtime megatron");
	assert_true(answer.elsewhere->gain >= 0.10);
	set_choice(&f.question, &f.arena, "runtime", "megatron");
	struct answer there = ask(&f.question, &f.arena);
	double gain = 1 - token_time(there.chosen) / token_time(answer.chosen);
	assert_in_range((int)(1000 * (gain - answer.elsewhere->gain) + 0.5), 0, 50);
	assert_null(there.elsewhere);
	assert_null(ask(&near.question, &near.arena).elsewhere);
	arena_finish(&f.arena);
	arena_finish(&near.arena);
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Recomputation leaves no room for rows beside compute, so that no lever of the chosen plan says
 * what a mix gains that is planned with them. */
static void test_rows(void **state)
{
	(void)state;
	struct fixture f;
	BEGIN(&f, "qwen3-235b-a22b", "16xdgx-h100", "global_batch", "1024", "seq_len", "4096",
		"runtime", "megatron");
	struct answer answer = ask(&f.question, &f.arena);
	assert_non_null(answer.elsewhere);
	assert_string_equal(
		answer.elsewhere->typed, "--expert-overlap on --expert-dispatch deepep");
	assert_true(answer.elsewhere->gain >= 0.10);
	SET_CHOICES(&f.question, &f.arena, "expert_overlap", "on", "expert_dispatch", "deepep");
	struct answer there = ask(&f.question, &f.arena);
	double gain = 1 - token_time(there.chosen) / token_time(answer.chosen);
	assert_true(gain > answer.elsewhere->gain - 1e-6);
	assert_true(there.chosen->plan.expert_overlap);
	assert_null(there.elsewhere);
	arena_finish(&f.arena);
}

/* GPUs before Hopper have no DeepEP; a fixed way is not searched. */
static void test_rows_as_they_may_be(void **state)
{
	(void)state;
	struct fixture f;
	BEGIN(&f, "qwen3-235b-a22b", "16xdgx-a100-80gb", "global_batch", "1024", "seq_len", "4096",
		"runtime", "megatron");
	struct answer answer = ask(&f.question, &f.arena);
	if (answer.elsewhere != NULL)
		assert_string_equal(answer.elsewhere->typed, "--expert-overlap on");
	set_choice(&f.question, &f.arena, "expert_overlap", "off");
	assert_null(ask(&f.question, &f.arena).elsewhere);
	arena_finish(&f.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_rows_as_they_may_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
