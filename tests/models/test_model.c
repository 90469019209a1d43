/* The tree: names, order, owners, ties; sums over it equal the closed formulas. */
#include "tests/models/support.h"

struct expected_module {
	const char *name;
	enum module_kind kind;
	int n_parameters;
};

static void assert_modules(const struct model *model, const struct expected_module *expected, int n)
{
	for (int i = 0; i < n && i < model->n_modules; i++) {
		assert_string_equal(model->modules[i].name, expected[i].name);
		assert_int_equal(model->modules[i].kind, expected[i].kind);
		assert_int_equal(model->modules[i].n_parameters, expected[i].n_parameters);
	}
	assert_int_equal(model->n_modules, n);
}

static void test_llama_tree(void **state)
{
	static const struct expected_module expected[] = {
		{"", MODULE_MODEL, 0},
		{"model", MODULE_MODEL, 0},
		{"model.embed_tokens", MODULE_EMBEDDING, 1},
		{"model.layers", MODULE_LAYERS, 0},
		{"model.layers.0", MODULE_BLOCK, 0},
		{"model.layers.0.input_layernorm", MODULE_NORM, 1},
		{"model.layers.0.self_attn", MODULE_ATTENTION, 0},
		{"model.layers.0.self_attn.q_proj", MODULE_QUERY, 2},
		{"model.layers.0.self_attn.k_proj", MODULE_KEY, 2},
		{"model.layers.0.self_attn.v_proj", MODULE_VALUE, 2},
		{"model.layers.0.self_attn.q_norm", MODULE_QUERY_NORM, 1},
		{"model.layers.0.self_attn.k_norm", MODULE_KEY_NORM, 1},
		{"model.layers.0.self_attn.core", MODULE_ATTENTION_CORE, 0},
		{"model.layers.0.self_attn.o_proj", MODULE_ATTENTION_OUTPUT, 1},
		{"model.layers.0.post_attention_layernorm", MODULE_NORM, 1},
		{"model.layers.0.mlp", MODULE_MLP, 0},
		{"model.layers.0.mlp.gate_proj", MODULE_GATE, 1},
		{"model.layers.0.mlp.up_proj", MODULE_UP, 1},
		{"model.layers.0.mlp.act", MODULE_ACTIVATION, 0},
		{"model.layers.0.mlp.down_proj", MODULE_DOWN, 1},
		{"model.norm", MODULE_NORM, 1},
		{"lm_head", MODULE_HEAD, 1},
	};
	struct arena arena = {0};
	struct model *model = parse_model(&arena, "m.yaml",
		"shardplan: model/1\nfamily: qwen3\nlayers: 1\nhidden: 8\nheads: 4\nkv_heads: 2\n"
		"head_dim: 6\nffn: 12\nvocab: 10\ncontext: 16\nqkv_bias: true\n");
	const struct parameter *q, *k;

	(void)state;
	assert_modules(model, expected, COUNT_OF(expected));
	q = &model->parameters[model->modules[7].first_parameter];
	k = &model->parameters[model->modules[8].first_parameter];
	assert_string_equal(q[0].name, "model.layers.0.self_attn.q_proj.weight");
	assert_int_equal(q[0].shape[0], 24);
	assert_int_equal(q[0].shape[1], 8);
	assert_string_equal(q[1].name, "model.layers.0.self_attn.q_proj.bias");
	assert_int_equal(q[1].n_dims, 1);
	assert_int_equal(q[1].shape[0], 24);
	assert_int_equal(q[1].init, INIT_ZERO);
	assert_int_equal(k[0].shape[0], 12);
	assert_int_equal(model->modules[10].layer, 0);
	assert_int_equal(model->modules[20].layer, -1);
	assert_int_equal(model->modules[21].tied_parameter, -1);
	arena_finish(&arena);
}

static void test_gpt2_tree(void **state)
{
	static const struct expected_module expected[] = {
		{"", MODULE_MODEL, 0},
		{"transformer", MODULE_MODEL, 0},
		{"transformer.wte", MODULE_EMBEDDING, 1},
		{"transformer.wpe", MODULE_POSITION_EMBEDDING, 1},
		{"transformer.h", MODULE_LAYERS, 0},
		{"transformer.h.0", MODULE_BLOCK, 0},
		{"transformer.h.0.ln_1", MODULE_NORM, 2},
		{"transformer.h.0.attn", MODULE_ATTENTION, 0},
		{"transformer.h.0.attn.c_attn", MODULE_QKV, 2},
		{"transformer.h.0.attn.core", MODULE_ATTENTION_CORE, 0},
		{"transformer.h.0.attn.c_proj", MODULE_ATTENTION_OUTPUT, 2},
		{"transformer.h.0.ln_2", MODULE_NORM, 2},
		{"transformer.h.0.mlp", MODULE_MLP, 0},
		{"transformer.h.0.mlp.c_fc", MODULE_UP, 2},
		{"transformer.h.0.mlp.act", MODULE_ACTIVATION, 0},
		{"transformer.h.0.mlp.c_proj", MODULE_DOWN, 2},
		{"transformer.ln_f", MODULE_NORM, 2},
		{"lm_head", MODULE_HEAD, 0},
	};
	struct arena arena = {0};
	struct model *model = parse_model(&arena, "dir/tiny.yaml",
		"shardplan: model/1\nfamily: gpt2\nlayers: 1\nhidden: 8\nheads: 2\nffn: 32\n"
		"vocab: 10\ncontext: 16\n");
	const struct parameter *p = model->parameters;
	int64_t out, in;

	(void)state;
	assert_modules(model, expected, COUNT_OF(expected));
	assert_string_equal(model->architecture.name, "tiny");
	assert_int_equal(model->modules[17].tied_parameter, 0);
	assert_int_equal(p[0].shape[0], 10);
	assert_int_equal(p[1].shape[0], 16);
	assert_int_equal(p[0].init, INIT_NORMAL);
	assert_true(p[0].decay);
	assert_string_equal(p[2].name, "transformer.h.0.ln_1.weight");
	assert_int_equal(p[2].init, INIT_ONE);
	assert_false(p[2].decay);
	assert_int_equal(p[4].shape[0], 24); /* [out, in] */
	assert_int_equal(p[6].init, INIT_RESIDUAL);
	assert_true(module_linear_shape(&model->architecture, MODULE_HEAD, &out, &in));
	assert_int_equal(out, 10);
	assert_int_equal(in, 8);
	assert_false(module_linear_shape(&model->architecture, MODULE_NORM, &out, &in));
	arena_finish(&arena);
}

static void test_mpt_names(void **state)
{
	static const char *const names[] = {"transformer.wte", "transformer.blocks.31.norm_1",
		"transformer.blocks.31.attn.Wqkv", "transformer.blocks.31.attn.out_proj",
		"transformer.blocks.31.norm_2", "transformer.blocks.31.ffn.up_proj",
		"transformer.blocks.31.ffn.down_proj", "transformer.norm_f", "lm_head"};
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "mpt-7b");

	(void)state;
	for (int i = 0; i < COUNT_OF(names); i++)
		find_module(model, names[i]);
	assert_int_equal(model->n_parameters, 1 + 32 * 6 + 1);
	arena_finish(&arena);
}

/* The units of FSDP's block wrap: known sizes. */
static void test_subtrees(void **state)
{
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "llama-2-7b");
	int block = find_module(model, "model.layers.31");

	(void)state;
	assert_int_equal(model_subtree_parameters(model, block), 202383360);
	assert_int_equal(model_subtree_parameters(model, find_module(model, "lm_head")), 131072000);
	assert_int_equal(model_subtree_parameters(model, find_module(model, "model.layers.3.mlp")),
		135266304);
	assert_int_equal(model_subtree_parameters(model, 0), 6738415616);
	assert_int_equal(6738415616 - 32 * INT64_C(202383360), 262148096);
	model = load_preset(&arena, "llama-2-70b");
	block = find_module(model, "model.layers.0");
	assert_int_equal(model_subtree_parameters(model, block), 855654400);
	arena_finish(&arena);
}

static int64_t closed_formula(const struct architecture *a)
{
	int64_t h = a->hidden, q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
	int64_t norm = h * (a->norm_bias ? 2 : 1), gated = a->mlp == MLP_SWIGLU;
	int64_t block = h * q + 2 * h * kv + q * h + (2 + gated) * h * a->ffn + 2 * norm;

	block += a->qkv_bias ? q + 2 * kv : 0;
	block += a->output_bias ? h : 0;
	block += a->mlp_bias ? (1 + gated) * a->ffn + h : 0;
	block += a->qk_norm ? 2 * a->head_dim : 0;
	return a->vocab * h * (a->tied_head ? 1 : 2) +
	       (a->positions == POSITIONS_LEARNED ? a->context * h : 0) + a->layers * block + norm;
}

static void assert_tree_is_sound(const struct model *model)
{
	int64_t total = 0;
	int parameter = 0;

	for (int i = 0; i < model->n_modules; i++) {
		const struct module *m = &model->modules[i];

		assert_true(m->parent < i && (i == 0) == (m->parent < 0));
		assert_true(m->end > i && m->end <= model->n_modules);
		assert_true(m->parent < 0 || m->end <= model->modules[m->parent].end);
		assert_int_equal(m->first_parameter, parameter);
		assert_true(module_kind_is_leaf(m->kind) == (m->end == i + 1));
		for (int p = 0; p < m->n_parameters; p++, parameter++)
			assert_int_equal(model->parameters[parameter].module, i);
	}
	assert_int_equal(parameter, model->n_parameters);
	for (int i = 0; i < model->n_parameters; i++) {
		const struct parameter *p = &model->parameters[i];

		assert_int_equal(p->elements, p->shape[0] * (p->n_dims == 2 ? p->shape[1] : 1));
		assert_true(p->decay == (p->n_dims == 2));
		total += p->elements;
	}
	assert_int_equal(total, model->parameter_count);
}

static void test_random_counts(void **state)
{
	struct arena arena = {0};
	uint64_t seed = 1;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct architecture a = random_architecture(&seed);
		struct model *model = build_model(&arena, &a);

		assert_tree_is_sound(model);
		assert_int_equal(model->parameter_count, closed_formula(&a));
		assert_int_equal(model_subtree_parameters(model, 0), closed_formula(&a));
		arena_reset(&arena);
	}
	arena_finish(&arena);
}

/* 10^14 parameters and beyond: nothing wraps around. */
static void test_huge(void **state)
{
	struct architecture a = {.name = "huge",
		.family = FAMILY_LLAMA,
		.layers = 1000,
		.hidden = 100000,
		.heads = 1000,
		.kv_heads = 100,
		.head_dim = 100,
		.ffn = 400000,
		.vocab = 1000000,
		.context = 1000000,
		.positions = POSITIONS_ROPE,
		.norm = NORM_RMSNORM,
		.mlp = MLP_SWIGLU,
		.norm_epsilon = 1e-5,
		.rope_theta = 1e4};
	struct arena arena = {0};
	struct error error = {0};
	struct model *model;

	(void)state;
	model = build_model(&arena, &a);
	assert_int_equal(model->parameter_count, closed_formula(&a));
	assert_true(model->parameter_count > INT64_C(100000000000000));
	a.hidden = a.ffn = 1000000000;
	assert_false(architecture_check(&a, NULL, &error));
	assert_string_equal(error.message, "model: hidden: expected a model of at most 10^16 "
					   "parameters, got about 3.00e+09 T");
	/* Unchecked, it is still an error and no wrapped count. */
	error_clear(&error);
	a.layers = 10;
	assert_false(model_build(&arena, &a, &model, &error));
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	arena_finish(&arena);
}

static void test_round_trip(void **state)
{
	struct arena arena = {0};
	uint64_t seed = 7;

	(void)state;
	for (int round = 0; round < 200; round++) {
		struct architecture a = random_architecture(&seed);
		struct model *model = build_model(&arena, &a), *again = NULL;
		enum writer_format format = round % 2 ? WRITER_YAML : WRITER_JSON;
		struct error error = {0};
		struct text text = {0};
		struct writer writer;
		const struct node *root;

		writer_init(&writer, &text, format);
		writer_begin_map(&writer, "model");
		model_write(model, &writer);
		writer_end_map(&writer);
		writer_finish(&writer);
		root = document_parse(&arena, "plan", text.data, text.length, 0, &error);
		if (root == NULL || !model_read(&arena, node_get(root, "model"), &again, &error))
			fail_msg("%s\n%s", error.message, text.data);
		assert_true(fields_equal(
			architecture_fields, &model->architecture, &again->architecture));
		text_finish(&text);
		arena_reset(&arena);
	}
	arena_finish(&arena);
}

static void test_details(void **state)
{
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "gpt2-nano");
	struct error error = {0};
	struct text text = {0};
	struct writer writer;
	const struct node *root, *modules, *head;
	int64_t count;

	(void)state;
	writer_init(&writer, &text, WRITER_JSON);
	model_write_details(model, &writer);
	writer_finish(&writer);
	root = document_parse(&arena, "json", text.data, text.length, 0, &error);
	assert_non_null(root);
	assert_true(node_int(node_get(root, "parameters"), &count, &error));
	assert_int_equal(count, 10844160);
	modules = node_get(root, "modules");
	assert_int_equal(modules->n_children, model->n_modules);
	head = modules->children[modules->n_children - 1];
	assert_string_equal(node_get(head, "name")->text, "lm_head");
	assert_string_equal(node_get(head, "tied_to")->text, "transformer.wte.weight");
	text_finish(&text);
	arena_finish(&arena);
}

/* nanoGPT: 50257 words become 50304 (commit 77e7e04). By hand: 47 rows of 768 more in GPT-2's tied
 * table. */
static void test_padded(void **state)
{
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "gpt2-124m"), *padded, *none;
	struct error error = {0};

	(void)state;
	assert_int_equal(vocab_padded(50257), 50304);
	assert_int_equal(vocab_padded(32000), 32000);
	assert_true(model_pad(&arena, model, 50304, &padded, &error));
	assert_int_equal(padded->architecture.vocab, 50304);
	assert_int_equal(padded->parameter_count - model->parameter_count, 47 * 768);
	assert_int_equal(padded->n_modules, model->n_modules);
	assert_int_equal(model->architecture.vocab, 50257);
	assert_false(model_pad(&arena, model, 50000, &none, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	arena_finish(&arena);
}

/* Expert ranks: the parts of a parameter follow one another in the whole, and who has an element is
 * who says so. What is of no expert all have. */
static void test_expert_parts(void **state)
{
	const struct division division = {.expert = 4, .expert_tensor = 1};
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "mixtral-8x7b"), *part;
	struct error error = {0};
	int cut = 0;

	(void)state;
	assert_true(model_divide(&arena, model, &division, &part, &error));
	assert_int_equal(model_parts(part), 4);
	for (int p = 0; p < part->n_parameters; p++) {
		int64_t own = part->parameters[p].elements, all = model->parameters[p].elements;
		bool is_cut = model_parameter_is_cut(part, p);

		assert_int_equal(all, is_cut ? 4 * own : own);
		cut += is_cut;
		for (int64_t rank = 0; rank < (is_cut ? 4 : 1); rank++)
			for (int64_t at = 0; at < own; at += max_i64(own / 3, 1)) {
				const struct parameter_run run =
					model_parameter_run(part, p, rank, at, own);
				const struct parameter_holder holder =
					model_parameter_holder(part, p, run.whole, own);

				assert_int_equal(run.whole, rank * own + at);
				assert_int_equal(run.n, own - at);
				assert_int_equal(holder.rank, rank);
				assert_int_equal(holder.element, at);
				assert_int_equal(holder.n, own - at);
			}
	}
	assert_int_equal(cut, 3 * model->architecture.layers);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_llama_tree),
		cmocka_unit_test(test_gpt2_tree),
		cmocka_unit_test(test_mpt_names),
		cmocka_unit_test(test_subtrees),
		cmocka_unit_test(test_random_counts),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_details),
		cmocka_unit_test(test_padded),
		cmocka_unit_test(test_expert_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
