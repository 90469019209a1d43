/* Headers of safetensors files against an architecture. */
#include "tests/models/support.h"

#include "models/safetensors.h"
#include "models/stored.h"

static const char config[] =
	"{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 2,\n"
	" \"num_attention_heads\": 2, \"intermediate_size\": 16, \"vocab_size\": 10,\n"
	" \"max_position_embeddings\": 16, \"tie_word_embeddings\": true}";

struct header {
	struct text text;
	int64_t end;
	int n;
};

static void add(struct header *h, const char *name, int64_t rows, int64_t columns)
{
	int64_t bytes = rows * columns * 2;

	text_printf(&h->text, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],",
		h->n++ > 0 ? "," : "{", name, (int)rows, (int)columns);
	text_printf(&h->text, "\"data_offsets\":[%d,%d]}", (int)h->end, (int)(h->end + bytes));
	h->end += bytes;
}

/* As a library would write it: fused q, k, v; a copy of the tied head; an old buffer. */
static const char *write_header(struct arena *arena, int ffn_of_block_1)
{
	struct header h = {0};

	add(&h, "model.embed_tokens.weight", 10, 8);
	for (int i = 0; i < 2; i++) {
		int ffn = i == 1 ? ffn_of_block_1 : 16;

		add(&h, arena_printf(arena, "model.layers.%d.self_attn.qkv.weight", i), 24, 8);
		add(&h, arena_printf(arena, "model.layers.%d.self_attn.o_proj.weight", i), 8, 8);
		add(&h, arena_printf(arena, "model.layers.%d.mlp.weight", i), 3 * ffn, 8);
		add(&h, arena_printf(arena, "model.layers.%d.norms", i), 2, 8);
		add(&h, arena_printf(arena, "model.layers.%d.self_attn.rotary_emb.inv_freq", i), 1,
			2);
	}
	add(&h, "model.norm.weight", 1, 8);
	add(&h, "lm_head.weight", 10, 8);
	text_add(&h.text, ",\"__metadata__\":{\"format\":\"pt\"}}   ");
	const char *copy = arena_strdup(arena, text_string(&h.text));
	text_finish(&h.text);
	return copy;
}

static void test_compare(void **state)
{
	struct arena arena = {0};
	struct model *model = parse_model(&arena, "c.json", config);
	const char *lines[4];
	struct error error = {0};

	(void)state;
	for (int ffn = 16; ffn <= 17; ffn++) {
		struct stored *c = stored_new(&arena);
		const char *header = write_header(&arena, ffn);
		bool quantised;

		if (!stored_add_header(c, "f", header, strlen(header), &error))
			fail_msg("%s", error.message);
		assert_int_equal(stored_tensors(c), 13);
		assert_int_equal(stored_parameters(c, model, &quantised),
			model->parameter_count + (ffn - 16) * 24);
		assert_false(quantised);
		assert_int_equal(stored_differences(&arena, c, model, lines, 4), ffn - 16);
	}
	assert_string_equal(lines[0], "layers.1: expected 656 parameters, got 680");
	arena_finish(&arena);
}

static const struct {
	const char *text, *part;
} bad[] = {
	{"[]", "expected a map"},
	{"{\"a\": 1}", "expected {dtype, shape, data_offsets}"},
	{"{\"a\": {\"dtype\": \"X9\", \"shape\": [1], \"data_offsets\": [0, 1]}}", "a dtype of"},
	{"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 4]}}",
		"expected 8 bytes"},
	{"{\"a\": {\"dtype\": \"F32\", \"shape\": [-2], \"data_offsets\": [0, 4]}}",
		"can be counted"},
	{"{\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 8], \"data_offsets\": [0, "
	 "4]}}",
		"can be counted"},
	{"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 0]}}",
		"expected 4 bytes"},
	{"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0]}}", "two numbers"},
	{"{\"a\": {\"dtype\": \"F32\", \"shape\": 7, \"data_offsets\": [0, 4]}}",
		"a list of at most 8 sizes"},
	{"{\"a\": {\"dtype\": \"F32\"", "f:1:"},
};

static void test_messages(void **state)
{
	struct arena arena = {0};
	const unsigned char huge[8] = {0, 0, 0, 0, 0, 0, 0, 0x80};
	const unsigned char some[8] = {3, 1};
	int64_t length = 0;
	struct error error = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(bad); i++) {
		struct error e = {0};

		assert_false(stored_add_header(
			stored_new(&arena), "f", bad[i].text, strlen(bad[i].text), &e));
		if (strstr(e.message, bad[i].part) == NULL)
			fail_msg("expected ...%s..., got \"%s\"", bad[i].part, e.message);
		assert_int_equal(e.code, EXIT_CODE_INPUT);
	}
	assert_true(safetensors_header_length("f", some, &length, &error));
	assert_int_equal(length, 259);
	assert_false(safetensors_header_length("f", huge, &length, &error));
	assert_non_null(strstr(error.message, "not a safetensors file"));
	arena_finish(&arena);
}

static void test_index(void **state)
{
	static const char index[] = "{\"metadata\": {\"total_size\": 99}, \"weight_map\": {\"a\": "
				    "\"m-1.safetensors\", \"b\": \"m-2.safetensors\", \"c\": "
				    "\"m-1.safetensors\"}}";
	static const char escape[] = "{\"weight_map\": {\"a\": \"../../etc/passwd\"}}";
	struct arena arena = {0};
	struct error error = {0};
	const char **files;
	int64_t size;

	(void)state;
	assert_true(
		safetensors_read_index(&arena, "i", index, strlen(index), &files, &size, &error));
	assert_int_equal(size, 99);
	assert_string_equal(files[1], "m-2.safetensors");
	assert_null(files[2]);
	assert_false(
		safetensors_read_index(&arena, "i", escape, strlen(escape), &files, &size, &error));
	assert_non_null(strstr(error.message, "a file beside the index"));
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compare),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
