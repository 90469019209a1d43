/* The presets against published parameter counts, to the last parameter. */
#include "tests/models/support.h"

static const struct {
	const char *name;
	int64_t parameters, active; /* active 0: all */
} published[] = {
	{"deepseek-v3", 671026404352, 37552282624},
	{"gpt-oss-120b", 116829156672, 5711982912},
	{"gpt-oss-20b", 20914757184, 4187440704},
	{"gpt2-124m", 124439808, 0},
	{"gpt2-355m", 354823168, 0},
	{"gpt2-774m", 774030080, 0},
	{"gpt2-1.5b", 1557611200, 0},
	{"gpt2-nano", 10844160, 0},
	{"gpt3-175b", 174604259328, 0},
	/* Without 60 x 384 corrections of its routers: 1026408232448 in its files. */
	{"kimi-k2", 1026408209408, 32861477888},
	{"llama-2-7b", 6738415616, 0},
	{"llama-2-13b", 13015864320, 0},
	{"llama-2-70b", 68976648192, 0},
	{"llama-3-8b", 8030261248, 0},
	{"llama-3-70b", 70553706496, 0},
	{"llama-3-405b", 405853388800, 0},
	{"llama-3.1-8b", 8030261248, 0},
	{"llama-3.1-70b", 70553706496, 0},
	{"llama-3.1-405b", 405853388800, 0},
	{"llama-nano", 10523520, 0},
	{"mistral-7b", 7241732096, 0},
	{"mixtral-8x7b", 46702792704, 12879925248},
	{"qwen2.5-7b", 7615616512, 0},
	{"qwen2.5-32b", 32763876352, 0},
	{"qwen2.5-72b", 72706203648, 0},
	{"qwen3-8b", 8190735360, 0},
	{"qwen3-32b", 32762123264, 0},
	{"qwen3-235b-a22b", 235093634560, 22190763520},
	{"qwen3-30b-a3b", 30532122624, 3353032704},
	/* V*h + L*(12*h^2 + 2*h) + h */
	{"mpt-125m", 123636480, 0},
	{"mpt-350m", 353616896, 0},
	{"mpt-760m", 756917760, 0},
	{"mpt-1b", 1311213568, 0},
	{"mpt-3b", 2645690880, 0},
	{"mpt-7b", 6649286656, 0},
	{"mpt-13b", 12841210880, 0},
	{"mpt-30b", 29957200896, 0},
	{"mpt-70b", 64838443008, 0},
};

static void test_counts(void **state)
{
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(published); i++) {
		struct model *model = load_preset(&arena, published[i].name);

		if (model->parameter_count != published[i].parameters)
			fail_msg("%s: expected %" PRId64 ", got %" PRId64, published[i].name,
				published[i].parameters, model->parameter_count);
		assert_int_equal(model->active_parameter_count,
			published[i].active > 0 ? published[i].active : published[i].parameters);
		assert_string_equal(model->architecture.name, published[i].name);
		arena_reset(&arena);
	}
	arena_finish(&arena);
}

/* Every embedded file is in the table above, and the list is sorted. */
static void test_list_is_complete(void **state)
{
	(void)state;
	assert_int_equal(n_model_presets, COUNT_OF(published));
	for (int i = 1; i < n_model_presets; i++)
		assert_true(strcmp(model_presets[i - 1].name, model_presets[i].name) < 0);
	for (int i = 0; i < n_model_presets; i++)
		assert_int_equal(strlen(model_presets[i].text), model_presets[i].length);
}

static void test_unknown(void **state)
{
	static const struct {
		const char *name, *message;
	} cases[] = {
		{"llama-2-7", "no preset model is named \"llama-2-7\", did you mean "
			      "llama-2-70b or llama-2-7b? (`shardplan models` lists them)"},
		{"Llama2", "no preset model is named \"Llama2\", did you mean llama-2-13b, "
			   "llama-2-70b "
			   "or llama-2-7b? (`shardplan models` lists them)"},
		{"lama-2-7b", "no preset model is named \"lama-2-7b\", did you mean llama-2-7b? "
			      "(`shardplan models` lists them)"},
		{"qqqqqqqqqqqqqqqqqqqq",
			"no preset model is named \"qqqqqqqqqqqqqqqqqqqq\" "
			"(`shardplan models` lists them); for another model give its "
			"Hugging Face config.json"},
	};
	struct arena arena = {0};
	struct model *model;

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct error error = {0};

		assert_false(model_load_preset(&arena, cases[i].name, &model, &error));
		assert_string_equal(error.message, cases[i].message);
		assert_int_equal(error.code, EXIT_CODE_INPUT);
	}
	arena_finish(&arena);
}

static void test_dimensions(void **state)
{
	struct arena arena = {0};
	const struct architecture *a = &load_preset(&arena, "llama-3-405b")->architecture;

	(void)state;
	assert_int_equal(a->layers, 126);
	assert_int_equal(a->head_dim, 128);
	assert_int_equal(a->kv_heads, 8);
	assert_int_equal(a->rope_theta, 500000);
	assert_int_equal(a->positions, POSITIONS_ROPE);
	assert_int_equal(a->norm, NORM_RMSNORM);
	a = &load_preset(&arena, "mpt-30b")->architecture;
	assert_int_equal(a->head_dim, 112);
	assert_int_equal(a->kv_heads, 64);
	assert_int_equal(a->positions, POSITIONS_ALIBI);
	assert_false(a->norm_bias);
	assert_false(a->gelu_tanh);
	arena_finish(&arena);
}

/* Ids of Hugging Face, and what people make of them. */
static void test_other_names(void **state)
{
	static const char *const cases[][2] = {{"meta-llama/Llama-3.1-8B", "llama-3.1-8b"},
		{"meta-llama/Meta-Llama-3.1-405B", "llama-3.1-405b"},
		{"meta-llama/Meta-Llama-3-70B-Instruct", "llama-3-70b"},
		{"meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"}, {"Llama2_13B", "llama-2-13b"},
		{"mistralai/Mistral-7B-v0.1", "mistral-7b"}, {"mosaicml/mpt-7b", "mpt-7b"},
		{"Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"}, {"Qwen/Qwen3-8B-Base", "qwen3-8b"},
		{"openai-community/gpt2-medium", "gpt2-355m"},
		{"moonshotai/Kimi-K2-Instruct", "kimi-k2"}, {"gpt2", "gpt2-124m"},
		{"llama-2-7b", "llama-2-7b"}, {"meta-llama/Llama-3.2-1B", NULL},
		{"mistralai/Mistral-7B-v0.3", NULL}, {"llama-7b", NULL}, {"meta-llama/", NULL},
		{"", NULL}, {"-hf", NULL}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		const char *found = model_preset_name(cases[i][0]);
		if ((found == NULL) != (cases[i][1] == NULL) ||
			(found != NULL && strcmp(found, cases[i][1]) != 0))
			fail_msg("%s is read as %s", cases[i][0], found != NULL ? found : "none");
	}
}

/* A module of multi-token prediction is a block, two norms and one behind, and a projection of what
 * it looks up and what came before. Its table and head are the model's: the last stage of a
 * pipeline has a copy of the table. */
static void test_prediction(void **state)
{
	static const int last[] = {60, 61};
	struct arena arena = {0};
	struct error error = {0};
	struct model *one = load_preset(&arena, "deepseek-v3"), *two;
	const int64_t h = one->architecture.hidden, table = h * one->architecture.vocab;

	(void)state;
	assert_true(model_predict_next(&arena, one, 1, &two, &error));
	int64_t block = model_subtree_parameters(two, find_module(two, "model.layers.60"));
	int64_t more = 2 * h * h + 3 * h;
	assert_int_equal(two->parameter_count - one->parameter_count, block + more);
	assert_int_equal(
		model_subtree_parameters(two, find_module(two, "model.layers.61")), block + more);
	assert_int_equal(architecture_losses(&two->architecture), 2);
	const struct stage_part part = {.n_layers = 2, .layers = last, .head = true};
	const struct model *stage = model_stage(&arena, two, &part);
	assert_int_equal(stage->parameter_count, 2 * block + more + h + 2 * table);
	/* Nothing else has an encoder's order. */
	struct model *t5 = parse_model(&arena, "t.yaml",
		"shardplan: model/1\nfamily: t5\nlayers: 4\nencoder_layers: 2\nhidden: 8\n"
		"heads: 2\nffn: 12\nvocab: 10\ncontext: 16\npositions: relative\n"
		"relative_buckets: 4\n");
	assert_false(model_predict_next(&arena, t5, 1, &two, &error));
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_list_is_complete),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_dimensions),
		cmocka_unit_test(test_other_names),
		cmocka_unit_test(test_prediction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
