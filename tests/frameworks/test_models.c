/* Models spelled out in files, as programs and as people write them. */
#include "support.h"

static void import_model(
	struct arena *arena, const char *text, struct imported *imported, struct model **model)
{
	struct error error = {0};

	if (!import_config(arena, "x", text, strlen(text), NULL, NULL, 0, imported, &error))
		fail_msg("%s\n%s", error.message, text);
	assert_non_null(imported->model);
	if (!model_parse(arena, "x", imported->model, strlen(imported->model), model, &error))
		fail_msg("%s\n%s", error.message, imported->model);
}

/* Megatron-LM has no words for ALiBi and for the biases and sinks of gpt-oss. */
static bool is_said(const struct model *model)
{
	return model->architecture.positions != POSITIONS_ALIBI &&
	       !model->architecture.attention_sinks;
}

static void presets_return(void **state)
{
	int said = 0;

	(void)state;
	for (int i = 0; i < n_model_presets; i++) {
		struct arena arena = {0};
		struct trip trip = {.arena = &arena};
		struct model *model;
		load(&arena, model_presets[i].name, "64xdgx-h100", &trip.file);
		resolve(&trip.file, &arena);
		if (is_said(trip.file.model)) {
			assert_true(export_plan(target_of("megatron"), 0, &trip.file, "x", &arena,
				&trip.exported, &trip.text, NULL));
			import_model(&arena, text_string(&trip.text), &trip.imported, &model);
			if (model_subtree_parameters(model, 0) !=
				model_subtree_parameters(trip.file.model, 0))
				fail_msg("%s:\n%s", model_presets[i].name, text_string(&trip.text));
			assert_int_equal(model->architecture.experts_per_token,
				trip.file.model->architecture.experts_per_token);
			assert_true(architecture_seen(&model->architecture, 65536) ==
				    architecture_seen(&trip.file.model->architecture, 65536));
			said++;
		}
		text_finish(&trip.text);
		arena_finish(&arena);
	}
	assert_true(said > 15);
}

#define SIZES                                                                                      \
	"--micro-batch-size 1 --num-layers 12 --hidden-size 768 --num-attention-heads 12 "         \
	"--seq-length 1024 "
#define WORDS   SIZES "--vocab-size 50257 "
#define EXPERTS WORDS "--num-experts 8 --moe-layer-freq "

static void words(void **state)
{
	static const struct {
		const char *text, *key, *value; /* NULL: the model has no such key */
		const char *note;
	} cases[] = {
		{SIZES "--merge-file m\n", "vocab", "50257", NULL},
		{SIZES "--tokenizer-type HuggingFaceTokenizer\n", "vocab", "50257",
			"its number of words is not here"},
		{WORDS "--make-vocab-size-divisible-by 3232 --tensor-model-parallel-size 2\n",
			"vocab", "51712", NULL},
		{WORDS "--swiglu\n", "ffn", "2048", NULL},
		{WORDS "\n", "ffn", "3072", NULL},
		{WORDS "\n", "qkv_bias", "true", NULL},
		{WORDS "--disable-bias-linear --add-qkv-bias\n", "qkv_bias", "true", NULL},
		{WORDS "--disable-bias-linear\n", "mlp_bias", "false", NULL},
		{WORDS "--group-query-attention --num-query-groups 4\n", "kv_heads", "4", NULL},
		{WORDS "--use-rotary-position-embeddings\n", "positions", "rope", NULL},
		{WORDS "--normalization RMSNorm\n", "norm_bias", "false", NULL},
		{WORDS "--squared-relu\n", "mlp", "gelu", "predicted as gelu"},
		{WORDS "--mtp-num-layers 1\n", "layers", "12", NULL},
		{WORDS "--multi-latent-attention --kv-lora-rank 512\n", "head_dim", "192", NULL},
		{EXPERTS "([0]*3+[1]*9)\n", "dense_layers", "3", NULL},
		{EXPERTS "\"([0]*3+[1]*9)\"\n", "dense_layers", "3", NULL},
		{EXPERTS "'[0,1]*6'\n", "moe_every", "2", NULL},
		{EXPERTS "(([0]+[1]))*6\n", "moe_every", "2", NULL},
		{EXPERTS "'[0]*3 + [1]*9'\n", "dense_layers", "3", NULL},
		{EXPERTS "2\n", "moe_every", "2", NULL},
		{WORDS "--window-size 127,0\n", "attention_window", "128", NULL},
		{WORDS "--window-size 127,0 --window-attn-skip-freq 2\n", "full_attention_every",
			"2", NULL},
		{WORDS "--window-size 127,0 --window-attn-skip-freq '[1,1,1,0]*3'\n",
			"full_attention_every", "4", NULL},
		{WORDS "--window-size 127,0 --window-attn-skip-freq 1\n", "attention_window", NULL,
			NULL},
		{WORDS "--window-size -1,0\n", "attention_window", NULL, NULL},
		{EXPERTS "[1]*12\n", "experts_per_token", "2", NULL},
		{EXPERTS "[1]*12 --moe-router-num-groups 4 --moe-router-group-topk 2\n",
			"groups_per_token", "2", NULL},
		{EXPERTS "[1]*12 --moe-router-num-groups 4\n", "experts", "8", NULL},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct imported imported;
		struct model *model;
		import_model(&arena, cases[i].text, &imported, &model);
		const char *value = arena_printf(&arena, "\"%s\":%s", cases[i].key, cases[i].value);
		const char *quoted =
			arena_printf(&arena, "\"%s\":\"%s\"", cases[i].key, cases[i].value);
		if (cases[i].value == NULL)
			assert_null(strstr(imported.model, cases[i].key));
		else if (strstr(imported.model, value) == NULL &&
			 strstr(imported.model, quoted) == NULL)
			fail_msg("no %s in %s\n%s", value, imported.model, cases[i].text);
		assert_int_equal(imported.n_notes, cases[i].note != NULL);
		if (cases[i].note != NULL)
			assert_non_null(strstr(imported.notes[0].text, cases[i].note));
		arena_finish(&arena);
	}
}

/* Patterns that are none, and models that are no decoder alone. */
static void refused(void **state)
{
	static const char *const patterns[] = {"[0]*12", "[1]*3+[0]*9", "([0]*3", "[0]*3+", "[2]",
		"[0]*3+[1]*5+[0]+[1]*3", "[0,1]*100000", "[]*9223372036854775807",
		"[1]*9223372036854775807"};
	struct arena arena = {0};
	struct imported imported;
	struct error error;

	(void)state;
	for (int i = 0; i < COUNT_OF(patterns); i++) {
		const char *text = arena_printf(&arena, EXPERTS "'%s'\n", patterns[i]);
		error = (struct error){0};
		assert_false(import_config(
			&arena, "x", text, strlen(text), NULL, NULL, 0, &imported, &error));
		assert_non_null(strstr(error.message, "expected blocks with experts"));
	}
	const char *text = WORDS "--encoder-seq-length 512 --decoder-seq-length 128\n";
	assert_true(
		import_config(&arena, "x", text, strlen(text), NULL, NULL, 0, &imported, &error));
	assert_null(imported.model);
	arena_finish(&arena);
}

/* Arguments without a model take the blocks of the one beside them; their own go before it. */
static void blocks_of_the_model_beside(void **state)
{
	static const char *const stages = "--micro-batch-size 1 --pipeline-model-parallel-size 4 "
					  "--num-layers-per-virtual-pipeline-stage 4";
	static const struct {
		const char *own;
		int64_t beside;
		const char *chunks, *message;
	} cases[] = {{"", 80, "5", NULL}, {" --num-layers 32", 80, "2", NULL},
		{"", 0, NULL,
			"the file does not say how many blocks the model has; name the model"},
		{"", 82, NULL, "whole stages of 82 blocks on 4 ranks"}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct imported imported;
		struct error error = {0};
		const char *text = arena_printf(&arena, "%s%s\n", stages, cases[i].own),
			   *chunks = NULL;
		bool ok = import_config(&arena, "x", text, strlen(text), NULL, NULL,
			cases[i].beside, &imported, &error);
		for (int s = 0; ok && s < imported.n_settings; s++)
			if (imported.settings[s].knob == KNOB_VIRTUAL_STAGES)
				chunks = imported.settings[s].value;
		if (cases[i].message == NULL)
			assert_string_equal(chunks, cases[i].chunks);
		else
			assert_non_null(strstr(error.message, cases[i].message));
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_the_model_beside),
		cmocka_unit_test(presets_return),
		cmocka_unit_test(words),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
