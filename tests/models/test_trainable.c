/* Trained parameters: texts, names, and the adapters that peft adds. */
#include "support.h"

static bool parse(struct arena *arena, const char *text, struct trainable *trainable)
{
	static const struct field field = {
		"trainable", FIELD_TYPE_DECODED, 0, 0, NULL, &trainable_decoded};
	struct error error = {0};

	return fields_set(&field, "trainable", text, trainable, arena, &error);
}

static void test_texts(void **state)
{
	static const char *const bad[] = {"", "lora", "lora:", "lora:0", "lora:-4", "lora:8x",
		"lora:8:", "lora:8:alpha=", "lora:8:alpha=0", "lora:8:q_proj:beta=3", "a b"};
	struct arena arena = {0};
	struct trainable t;

	(void)state;
	assert_true(parse(&arena, "all", &t));
	assert_true(trainable_is_all(&t));
	assert_true(parse(&arena, "lora:8:q_proj,v_proj:alpha=4", &t));
	assert_int_equal(t.rank, 8);
	assert_string_equal(t.modules, "q_proj,v_proj");
	assert_true(t.alpha == 4);
	assert_true(parse(&arena, "lora:8", &t));
	assert_true(t.alpha == 16 && t.modules == NULL);
	for (int i = 0; i < COUNT_OF(bad); i++)
		if (parse(&arena, bad[i], &t))
			fail_msg("\"%s\" was taken", bad[i]);
	arena_finish(&arena);
}

static void test_globs(void **state)
{
	static const struct {
		const char *text, *name;
		bool matches;
	} cases[] = {{"*", "a.b", true}, {"a", "a.b", false}, {"*.b", "a.b", true},
		{"a.?", "a.b", true}, {"a.?", "a.", false}, {"x,*b", "a.b", true},
		{"*layers.3[01].*", "model.layers.30.x", true},
		{"*layers.3[01].*", "model.layers.32.x", false}, {"*a*b", "aabab", true},
		{"*a*b", "aaba", false}, {"[!a]*", "ab", false}, {"[a-c]", "b", true}};
	struct arena arena = {0};
	struct trainable t;

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		assert_true(parse(&arena, cases[i].text, &t));
		if (trainable_matches(&t, cases[i].name) != cases[i].matches)
			fail_msg("%s, %s", cases[i].text, cases[i].name);
	}
	arena_finish(&arena);
}

static bool train(struct arena *arena, const char *preset, const char *text, struct model **trained)
{
	struct model *model = load_preset(arena, preset);
	struct trainable t;
	struct error error = {0};

	assert_true(parse(arena, text, &t));
	return model_train(arena, model, &t, trained, &error);
}

/* Megatron-Core's layers: A [r, h] once for queries, keys and values, and B [q + k + v, r]; 80
 * blocks of 8192, 64 and 8 heads of 128, 28672 wide; GPT-2's 12 of 768. */
static void test_layers(void **state)
{
	static const struct {
		const char *preset, *text;
		int64_t trained;
	} cases[] = {
		{"llama-3-70b", "lora:16:linear_qkv", (int64_t)80 * 16 * (8192 + 10240)},
		{"llama-3-70b", "lora:16:linear_proj", (int64_t)80 * 16 * (8192 + 8192)},
		{"llama-3-70b", "lora:16:linear_fc1", (int64_t)80 * 16 * (8192 + 57344)},
		{"llama-3-70b", "lora:16:linear_fc2", (int64_t)80 * 16 * (28672 + 8192)},
		{"gpt2-124m", "lora:8:linear_qkv,linear_fc1",
			(int64_t)12 * 8 * (768 + 2304 + 768 + 3072)},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct model *model;

		assert_true(train(&arena, cases[i].preset, cases[i].text, &model));
		assert_int_equal(model->trained_count, cases[i].trained);
		arena_finish(&arena);
	}
}

/* peft 0.21.2 with transformers 5.23.0 on the meta device: LoraConfig(r=16) and its target_modules,
 * p.numel() of what requires a gradient, and of all. */
static void test_as_peft(void **state)
{
	static const struct {
		const char *preset, *text;
		int64_t trained, all;
	} cases[] = {
		{"llama-2-7b", "lora:16", 8388608, 6746804224},
		{"llama-2-7b", "lora:16:all-linear", 39976960, 6778392576},
		{"llama-2-7b", "lora:16:q_proj,k_proj,v_proj,o_proj", 16777216, 6755192832},
		{"llama-3.1-8b", "lora:16", 6815744, 8037076992},
		{"llama-3.1-8b", "lora:16:all-linear", 41943040, 8072204288},
		{"llama-3.1-8b", "lora:16:q_proj,k_proj,v_proj,o_proj", 13631488, 8043892736},
		{"mistral-7b", "lora:16", 6815744, 7248547840},
		{"mistral-7b", "lora:16:all-linear", 41943040, 7283675136},
		{"mistral-7b", "lora:16:q_proj,k_proj,v_proj,o_proj", 13631488, 7255363584},
		{"gpt2-124m", "lora:16", 589824, 125029632},
		{"gpt2-124m", "lora:16:all-linear", 2359296, 126799104},
		{"gpt2-124m", "lora:16:c_attn,c_proj", 1622016, 126061824},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct model *model;

		assert_true(train(&arena, cases[i].preset, cases[i].text, &model));
		assert_int_equal(model->trained_count, cases[i].trained);
		assert_int_equal(model->parameter_count, cases[i].all);
		arena_finish(&arena);
	}
}

static void test_what_is_not_there(void **state)
{
	struct arena arena = {0};
	struct model *model;

	(void)state;
	assert_false(train(&arena, "llama-2-7b", "lora:4:c_attn", &model));
	assert_false(train(&arena, "llama-2-7b", "lora:4:lm_head", &model));
	assert_false(train(&arena, "llama-2-7b", "*.layers.40.*", &model));
	arena_finish(&arena);
}

/* Backward ends at the first trained leaf: the head alone is one product for the gradient. */
static void test_reach(void **state)
{
	struct arena arena = {0};
	struct model *model;
	int gemms = 0;

	(void)state;
	assert_true(train(&arena, "llama-2-7b", "lm_head*", &model));
	for (int m = 0; m < model->n_modules; m++) {
		struct module_work work;

		model_module_work(model, m, PASS_BACKWARD, 1, 16, 2,
			(struct attending){ATTENTION_FLASH, true}, &work);
		gemms += work.n_gemms;
	}
	assert_int_equal(gemms, 1);
	arena_finish(&arena);
}

/* Tensor ranks have equal parts of every adapter, and of its work; what is frozen is as without. */
static void test_divided(void **state)
{
	struct arena arena = {0};
	struct model *model;

	(void)state;
	assert_true(train(&arena, "llama-3.1-8b", "lora:16:all-linear", &model));
	for (int64_t t = 2; t <= 8; t *= 2) {
		const struct division division = {.tensor = t, .stream = t};
		struct error error = {0};
		struct model *part;

		assert_true(model_divide(&arena, model, &division, &part, &error));
		assert_int_equal(part->trained_count * t, model->trained_count);
		for (int p = 0; p < model->n_parameters; p++)
			if (parameter_is_adapter(model, p))
				assert_int_equal(part->parameters[p].elements * t,
					model->parameters[p].elements);
	}
	arena_finish(&arena);
}

/* The blocks of one of two stages, every other one. */
static const struct model *half_of(struct arena *arena, const struct model *model, bool last)
{
	enum { BLOCKS = 16 };
	int layers[BLOCKS];
	const struct stage_part stage = {BLOCKS, layers, !last, last};

	for (int l = 0; l < BLOCKS; l++)
		layers[l] = 2 * l + last;
	return model_stage(arena, model, &stage);
}

/* Adapters go with their blocks. Backward ends with the first trained leaf of all, and elsewhere
 * goes on to the stage before. */
static void test_stages(void **state)
{
	struct arena arena = {0};
	struct model *model;
	int64_t trained = 0;

	(void)state;
	assert_true(train(&arena, "llama-3.1-8b", "lora:16", &model));
	for (int last = 0; last < 2; last++) {
		const struct model *stage = half_of(&arena, model, last);

		trained += stage->trained_count;
		for (int m = 0; m < stage->n_modules; m++) {
			int adapter = stage->modules[m].adapter;

			if (adapter < 0)
				continue;
			assert_int_equal(stage->parameters[adapter].module, m);
			assert_non_null(strstr(stage->parameters[adapter].name, "lora_A"));
			assert_string_equal(stage->parameters[adapter].name,
				model->parameters[model_whole_parameter(stage, adapter)].name);
		}
		assert_int_equal(stage->modules[stage->first_trained].kind,
			last ? MODULE_NORM : MODULE_QUERY);
	}
	assert_int_equal(trained, model->trained_count);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_globs),
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_as_peft),
		cmocka_unit_test(test_what_is_not_there),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_divided),
		cmocka_unit_test(test_stages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
