/* With tensor, pipeline, context and expert ranks too, the search finds what simulating every plan
 * finds. With a number as argument: on so many random questions (suite `slow`: 1,000); with a
 * second one: from that question on. */
#include "support.h"

#include <stdlib.h>

#include "planner/search/search.h"

static int questions = SAMPLED(24), first = 0;

#define PICK(state, ...)                                                                           \
	((const char *const[]){                                                                    \
		__VA_ARGS__}[random_below(state, COUNT_OF(((const char *const[]){__VA_ARGS__})))])

/* --- questions -----------------------------------------------------------------------------------
 */

/* Its heads, its widths and its experts can be cut over 2, 4 or 8 ranks. */
static struct model *random_model(uint64_t *state, bool experts, struct arena *arena)
{
	struct architecture a = load_model(arena, "llama-3-8b")->architecture;
	struct error error = {0};
	struct model *model = NULL;
	a.layers = 4 + 4 * random_below(state, 2);
	a.kv_heads = 4 << random_below(state, 2);
	a.heads = a.kv_heads << random_below(state, 2);
	a.head_dim = 32 << random_below(state, 2);
	a.hidden = a.heads * a.head_dim;
	a.ffn = 512 * (1 + random_below(state, 8));
	a.vocab = 1024 * (1 + random_below(state, 30));
	a.context = 256 << random_below(state, 4);
	a.tied_head = random_below(state, 4) == 0; /* then there are no stages */
	a.attention_window = a.layers == 8 ? a.context / 4 : 0;
	a.full_attention_every = a.attention_window > 0 ? 2 : 0;
	if (experts) {
		a.experts = 8;
		a.experts_per_token = 1 + random_below(state, 2);
		a.expert_ffn = a.ffn;
		a.moe_every = 1;
	}
	if (!architecture_check(&a, NULL, &error) || !model_build(arena, &a, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

static struct topology *random_topology(uint64_t *state, struct arena *arena)
{
	struct topology *topology = load_topology(
		arena, PICK(state, "dgx-h100", "2xdgx-h100", "2xdgx-a100-80gb", "rtx4090-8x"));
	struct error error = {0};
	if (topology->nodes == 1 && random_below(state, 3) == 0 &&
		!topology_use_devices(topology, 4, &error))
		fail_msg("%s", error.message);
	if (random_below(state, 3) == 0)
		topology->network.nic_bandwidth /= 16;
	return topology;
}

/* Given, or to be chosen from two, or left alone. */
static void open_axis(
	struct question *question, uint64_t *state, struct arena *arena, enum knob_id id)
{
	static const char *const lists[][2] = {{"1", "2"}, {"1", "4"}, {"2", "4"}};
	int64_t list = random_below(state, COUNT_OF(lists) + 3);
	if (list < COUNT_OF(lists))
		restrict_to(question, arena, id, 2, lists[list]);
	else if (list == COUNT_OF(lists))
		set_choice(question, arena, knob_table[id].field.name, "2");
}

/* Every second time, where there can be several. */
static void open_stages(struct question *question, uint64_t *state, struct arena *arena)
{
	static const char *const ranks[] = {"1", "2"}, *const orders[] = {"1f1b", "interleaved"};
	int64_t way = random_below(state, 4);
	if (way > 1 || question->model->architecture.tied_head)
		return;
	if (way == 0)
		restrict_to(question, arena, KNOB_PIPELINE, 2, ranks);
	else
		set_choice(question, arena, "pipeline", PICK(state, "2", "4"));
	if (way == 0 && question->asked.runtime != RUNTIME_NANOTRON)
		restrict_to(question, arena, KNOB_PIPELINE_SCHEDULE, 2, orders);
}

static void open_axes(struct question *question, uint64_t *state, struct arena *arena)
{
	bool nanotron = question->asked.runtime == RUNTIME_NANOTRON;
	open_axis(question, state, arena, KNOB_TENSOR);
	open_stages(question, state, arena);
	if (!nanotron && random_below(state, 2) == 0)
		open_axis(question, state, arena, KNOB_CONTEXT);
	if (question->model->architecture.experts > 0)
		open_axis(question, state, arena, KNOB_EXPERT);
	if (question->model->architecture.experts > 0 && (*state & 1) == 0)
		question->freed |= KNOB_BIT(KNOB_EXPERT_DISPATCH);
	if (question->model->architecture.experts > 0 && (*state & 2) == 0)
		question->freed |= KNOB_BIT(KNOB_EXPERT_OVERLAP);
}

/* Every third time, where there can be tensor ranks. */
static void open_async(struct question *question, uint64_t *state, struct arena *arena)
{
	static const char *const values[] = {"off", "on"};
	bool given = question_gives(question, KNOB_TENSOR);
	if (question->asked.runtime != RUNTIME_PYTORCH_FSDP2 || random_below(state, 3) > 0 ||
		(!given && question->only[KNOB_TENSOR].n == 0))
		return;
	set_choice(question, arena, "compile", "on");
	restrict_to(question, arena, KNOB_ASYNC_TENSOR, 2, values);
}

/* So that tens of plans are left, or a few hundred. */
static void fix_knobs(struct question *question, uint64_t *state, struct arena *arena)
{
	static const struct {
		const char *name, *value;
	} knobs[] = {{"wrap", "block"}, {"prefetch", "pre"}, {"forward_prefetch", "false"},
		{"limit_all_gathers", "true"}, {"sync_each_micro_batch", "false"},
		{"activation_checkpointing", "none"}, {"reduce_dtype", "fp32"}};
	bool torch = question->asked.runtime == RUNTIME_PYTORCH_FSDP2;
	for (int i = 0; i < COUNT_OF(knobs); i++) {
		enum knob_id id = knob_find(knobs[i].name);
		bool fixed = random_below(state, 8) > (i < 5 ? 0 : 5);
		if (fixed && id != KNOB_LIMIT_ALL_GATHERS && (torch || i == 5))
			set_choice(question, arena, knobs[i].name, knobs[i].value);
	}
	if (torch)
		question->strategies = 1u << STRATEGY_FULL_SHARD | 1u << random_below(state, 5);
}

/* On both sides of what plans need; sometimes nothing fits. */
static int64_t random_limit(const struct question *question, uint64_t *state)
{
	int64_t states = 16 * question->model->parameter_count;
	int64_t fixed = INT64_C(700) << 20;
	return fixed + states / 8 + random_below(state, states + (INT64_C(1) << 30));
}

static struct question random_axes(uint64_t *state, struct arena *arena)
{
	struct question question = {0};
	const char *runtime = PICK(state, "pytorch-fsdp2", "megatron", "pytorch-fsdp2", "nanotron");
	bool experts = random_below(state, 4) == 0 && strcmp(runtime, "nanotron") != 0;
	question.model = random_model(state, experts, arena);
	question.topology = random_topology(state, arena);
	question.objective = (enum objective)(random_below(state, 2) * random_below(state, 3));
	set_choice(&question, arena, "runtime", runtime);
	set_choice(&question, arena, "global_batch", PICK(state, "16", "32", "48", "128"));
	open_axes(&question, state, arena);
	open_async(&question, state, arena);
	fix_knobs(&question, state, arena);
	if (random_below(state, 3) > 0)
		question.memory_limit_bytes = random_limit(&question, state);
	question.simplicity = random_below(state, 2) > 0 ? 0.01 : 0;
	return question;
}

/* --- the comparison ------------------------------------------------------------------------------
 */

struct totals {
	int64_t different, questions, plans, evaluated, fitting, with_room, divided, staged,
		refused;
};

/* Pipelines that nobody asked for are not all looked at (docs/planner.md): then only the fastest
 * has to be the same. */
static bool looks_at_all(const struct search *search)
{
	const struct question *question = search->question;
	bool asked = question_gives(question, KNOB_PIPELINE) || question->only[KNOB_PIPELINE].n > 0;
	for (int i = 0; i < search->space.n && !asked; i++)
		if (search->space.plans[i].mesh.pipeline > 1)
			return false;
	return true;
}

static void expect_same(const struct search *search, const char *what, const struct ranked *found,
	const struct ranked *best, const char *question, int64_t *n)
{
	enum cost_kind kind = search->ranking.objective;
	struct text text = {0};
	if ((found != NULL ? found->plan : -1) == (best != NULL ? best->plan : -1))
		return;
	if (found != NULL) {
		text_printf(&text, "%s found: ", found->tight ? "tight" : "roomy");
		plan_summary(&search->space.plans[found->plan], &text);
	}
	if (best != NULL) {
		text_printf(&text, "\n%s best: ", best->tight ? "tight" : "roomy");
		plan_summary(&search->space.plans[best->plan], &text);
		text_printf(&text, "\ncosts %lld and %lld",
			(long long)(found != NULL ? found->costs.of[kind] : -1),
			(long long)best->costs.of[kind]);
	}
	print_message("another %s: %s\n%s\n", what, question, text_string(&text));
	text_finish(&text);
	(*n)++;
}

/* Returns in how many ways they differ. */
static int64_t compare(const struct search *search, const struct ranking *all, const char *question)
{
	int64_t n = 0;
	assert_false(search->given_up);
	assert_int_equal(search->evaluated + search->pruned, search->space.n);
	expect_same(
		search, "first", ranking_first(&search->ranking), ranking_first(all), question, &n);
	for (int s = 0; s <= STRATEGY_COUNT && looks_at_all(search); s++)
		expect_same(search, "winner", ranking_best(&search->ranking, s),
			ranking_best(all, s), question, &n);
	return n;
}

static void count(const struct search *search, const struct ranking *all, struct totals *totals)
{
	const struct ranked *fastest = ranking_first(all);
	totals->questions++;
	totals->plans += search->space.n;
	totals->evaluated += search->evaluated;
	totals->fitting += fastest != NULL;
	if (fastest == NULL)
		return;
	totals->with_room += !fastest->tight;
	totals->divided += fastest->divided;
	totals->staged += search->space.plans[fastest->plan].mesh.pipeline > 1;
}

/* `all`: every plan of the space, simulated. */
static bool answer(const struct question *question, struct arena *arena, struct search *search,
	struct ranking *all)
{
	struct error error = {0};
	int64_t least[STRATEGY_COUNT];
	if (search_run(question, arena, search, &error)) {
		rank_all(search, all, least);
		return true;
	}
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	search_finish(search);
	return false;
}

static void judge(const struct question *question, struct totals *totals)
{
	struct arena arena = {0};
	struct search search;
	struct ranking all;
	struct text text = {0};
	describe_question(question, &text);
	if (answer(question, &arena, &search, &all)) {
		totals->different += compare(&search, &all, text_string(&text));
		count(&search, &all, totals);
		ranking_finish(&all);
		search_finish(&search);
	} else {
		totals->refused++;
	}
	text_finish(&text);
	arena_finish(&arena);
}

static struct question question_of(int number, struct arena *arena)
{
	uint64_t seed = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(number + 1);
	return random_axes(&seed, arena);
}

static void test_equals_brute_force(void **state)
{
	(void)state;
	struct totals totals = {0};
	for (int i = first; i < first + questions; i++) {
		struct arena arena = {0};
		const struct question question = question_of(i, &arena);
		judge(&question, &totals);
		arena_finish(&arena);
	}
	print_message("%lld questions, %lld refused; %lld with an answer, %lld of them with room, "
		      "%lld divided, %lld in stages; %lld plans, %lld simulated\n",
		(long long)totals.questions, (long long)totals.refused, (long long)totals.fitting,
		(long long)totals.with_room, (long long)totals.divided, (long long)totals.staged,
		(long long)totals.plans, (long long)totals.evaluated);
	assert_int_equal(totals.different, 0);
	/* The comparison saw all kinds, and the search left most plans out. */
	assert_true(questions == 1 || totals.questions > totals.refused);
	assert_true(questions == 1 || totals.fitting < totals.questions);
	assert_true(questions == 1 || (totals.with_room > 0 && totals.with_room < totals.fitting));
	assert_true(questions == 1 || (totals.divided > totals.staged && totals.staged > 0));
	assert_true(questions == 1 || totals.evaluated < totals.plans / 4);
}

/* Retries make few micro-batches of a pipeline slower than what it has to beat: its memory is not
 * looked at, and it is not taken for one with room. */
static void test_retries_are_too_slow(void **state)
{
	enum { QUESTION = 4121 };
	struct arena arena = {0};
	struct totals totals = {0};
	const struct question question = question_of(QUESTION, &arena);
	(void)state;
	judge(&question, &totals);
	assert_int_equal(totals.fitting, 1);
	assert_int_equal(totals.different, 0);
	arena_finish(&arena);
}

/* Control: a plan that is missing is noticed. */
static void test_negative_control(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct search search;
	struct ranking all;
	int64_t n = 0;
	const struct question question = question_of(0, &arena);
	assert_true(answer(&question, &arena, &search, &all));
	const struct ranked best = *ranking_first(&all);
	expect_same(&search, "first", ranking_first(&search.ranking), &best, "", &n);
	assert_int_equal(n, 0);
	for (int i = 0; i < all.n; i++)
		if (all.entries[i].plan == best.plan)
			all.entries[i] = all.entries[--all.n];
	expect_same(&search, "first (control)", ranking_first(&search.ranking), ranking_first(&all),
		"", &n);
	assert_int_equal(n, 1);
	ranking_finish(&all);
	search_finish(&search);
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equals_brute_force),
		cmocka_unit_test(test_retries_are_too_slow),
		cmocka_unit_test(test_negative_control),
	};
	if (argc > 1)
		questions = atoi(argv[1]);
	if (argc > 2)
		first = atoi(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
