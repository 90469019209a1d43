/* Units and their layouts: FlatParameter, per-parameter shards, wrap policies, DDP's buckets,
 * compared with measurements in PyTorch 2.6.0 (docs/runtimes.md). */
#include "schedule/resolve/resolve.h"
#include "support.h"

static void set_wrap(struct plan *plan, struct arena *arena, const char *text)
{
	assert_true(fields_set(&knob_table[KNOB_WRAP].field, "wrap", text, plan, arena, NULL));
}

static struct plan plan_for(
	struct arena *arena, const struct model *model, int64_t ranks, const char *runtime)
{
	return toy_plan(arena, model, gpu_cluster(arena, 1, ranks),
		arena_printf(arena, "runtime=%s", runtime), "seq_len=3", NULL);
}

/* --- layout --------------------------------------------------------------------------------------
 */

/* Four ranks, bf16: 200, 25, (7), 200, 8 = 440, shard 110; FSDP2 460; HSDP in pairs 442. */
static void test_traced_layout(void **state)
{
	(void)state;
	static const int64_t flat[] = {0, 200, 232, 432};
	struct arena arena = {0};
	struct unit *units;
	struct model *model = toy_model(&arena, 1, false);
	struct plan plan = plan_for(&arena, model, 4, "pytorch-fsdp1");
	assert_int_equal(units_build(&plan, model, &arena, &units), 2);
	assert_int_equal(units[1].elements, 440);
	assert_int_equal(units[1].gathered, 440);
	assert_int_equal(units[1].chunk, 110);
	assert_int_equal(units[1].parameters, 433);
	for (int i = 0; i < 4; i++)
		assert_int_equal(units[1].slices[i].offset, flat[i]);
	plan = plan_for(&arena, model, 4, "pytorch-fsdp2");
	units_build(&plan, model, &arena, &units);
	assert_int_equal(units[1].gathered, 28 * 8 + 28 + 8 * 25 + 8);
	assert_int_equal(units[1].gathered, 460);
	assert_int_equal(units[1].chunk, 115);
	plan.mesh = (struct mesh){2, 2, 1, 1, 1, 1};
	units_build(&plan, model, &arena, &units);
	assert_int_equal(units[1].gathered, 26 * 8 + 26 + 8 * 25 + 8);
	assert_int_equal(units[1].gathered, 442);
	arena_finish(&arena);
}

/* A block of two vectors with a and b elements. */
static struct model *two_vectors(struct arena *arena, int64_t a, int64_t b)
{
	struct model *model = toy_model(arena, 1, false);
	int64_t sizes[] = {a, 1, b, 1};
	for (int i = 0; i < 4; i++)
		model->parameters[1 + i] = (struct parameter){.name = "p",
			.module = i < 2 ? 4 : 5,
			.n_dims = 1,
			.shape = {sizes[i], 0},
			.elements = sizes[i],
			.trainable = true};
	return model;
}

static void check_flat(const struct unit *unit, int64_t ranks, int64_t alignment)
{
	int64_t end = 0;
	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		int64_t start = (end + alignment - 1) / alignment * alignment;
		assert_int_equal(slice->offset, start);
		end = start + slice->elements;
	}
	assert_int_equal(unit->elements, (end + ranks - 1) / ranks * ranks);
	assert_int_equal(unit->chunk * ranks, unit->gathered);
	assert_int_equal(unit->gathered, unit->elements);
	assert_in_range(unit->gathered - end, 0, ranks - 1);
}

static void check_rows(const struct unit *unit, const struct model *model, int64_t ranks)
{
	int64_t offset = 0;
	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		const struct parameter *parameter = &model->parameters[slice->parameter];
		int64_t rows = 0;
		while (rows < parameter->shape[0])
			rows += ranks;
		assert_int_equal(slice->offset, offset);
		assert_int_equal(
			slice->padded_elements, rows * parameter->elements / parameter->shape[0]);
		offset += slice->padded_elements;
	}
	assert_int_equal(unit->gathered, offset);
	assert_int_equal(unit->chunk * ranks, offset);
}

/* Uneven sizes 1..17 on 1..8 ranks, in the three layouts; padding is less than one row a rank. */
static void test_uneven_sizes(void **state)
{
	(void)state;
	static const struct {
		const char *runtime;
		int64_t alignment;
	} flat[] = {{"pytorch-fsdp1", 8}, {"shardplan", 32}};
	for (int64_t a = 1; a <= 17; a++)
		for (int64_t ranks = 1; ranks <= 8; ranks++) {
			struct arena arena = {0};
			struct unit *units;
			struct model *model = two_vectors(&arena, a, 18 - a);
			for (int r = 0; r < COUNT_OF(flat); r++) {
				struct plan plan = plan_for(&arena, model, ranks, flat[r].runtime);
				units_build(&plan, model, &arena, &units);
				assert_int_equal(units[1].parameters, 20);
				check_flat(&units[1], ranks, flat[r].alignment);
			}
			struct plan plan = plan_for(&arena, model, ranks, "pytorch-fsdp2");
			units_build(&plan, model, &arena, &units);
			check_rows(&units[1], model, ranks);
			arena_finish(&arena);
		}
}

/* --- wrapping ------------------------------------------------------------------------------------
 */

struct kind_of_unit {
	int count;
	int64_t parameters;
	enum module_kind kind; /* of the wrapped module */
};

static void check_wrap(const char *preset, const char *wrap, int n_units,
	const struct kind_of_unit *expected, int n_expected)
{
	struct arena arena = {0};
	struct unit *units;
	struct model *model = preset_model(&arena, preset);
	struct plan plan = toy_plan(&arena, model, cluster(&arena, "2xdgx-a100-80gb"),
		"runtime=pytorch-fsdp1", arena_printf(&arena, "wrap=%s", wrap), NULL);
	int n = units_build(&plan, model, &arena, &units);
	int64_t total = 0;
	assert_int_equal(n, n_units);
	for (int e = 0; e < n_expected; e++) {
		int count = 0;
		for (int u = 1; u < n; u++)
			count += units[u].parameters == expected[e].parameters &&
				 model->modules[units[u].module].kind == expected[e].kind;
		if (expected[e].kind == MODULE_MODEL &&
			units[0].parameters == expected[e].parameters)
			count++;
		assert_int_equal(count, expected[e].count);
	}
	for (int u = 0; u < n; u++)
		total += units[u].parameters;
	assert_int_equal(total, model->parameter_count);
	arena_finish(&arena);
}

/* What PyTorch's transformer_auto_wrap_policy and size_based_auto_wrap_policy make of Llama-2. */
static void test_wrap_tables(void **state)
{
	(void)state;
	static const struct kind_of_unit block_7b[] = {
		{32, 202383360, MODULE_BLOCK}, {1, 262148096, MODULE_MODEL}};
	/* all attention and all norms end up in one unit, the inner model */
	static const struct kind_of_unit size_1e8_7b[] = {{32, 135266304, MODULE_MLP},
		{1, 131072000, MODULE_EMBEDDING}, {1, 131072000, MODULE_HEAD},
		{1, 2147749888, MODULE_MODEL}};
	static const struct kind_of_unit size_5e7_7b[] = {{32, 67108864, MODULE_ATTENTION},
		{32, 135266304, MODULE_MLP}, {1, 131072000, MODULE_EMBEDDING},
		{1, 131072000, MODULE_HEAD}, {1, 266240, MODULE_MODEL}};
	static const struct kind_of_unit size_2e7_7b[] = {{32, 67108864, MODULE_ATTENTION},
		{32, 45088768, MODULE_GATE}, {32, 45088768, MODULE_UP}, {32, 45088768, MODULE_DOWN},
		{1, 131072000, MODULE_EMBEDDING}, {1, 131072000, MODULE_HEAD},
		{1, 266240, MODULE_MODEL}};
	static const struct kind_of_unit block_70b[] = {
		{80, 855654400, MODULE_BLOCK}, {1, 524296192, MODULE_MODEL}};
	static const struct kind_of_unit size_1e8_70b[] = {{80, 150994944, MODULE_ATTENTION},
		{80, 234881024, MODULE_GATE}, {80, 234881024, MODULE_UP},
		{80, 234881024, MODULE_DOWN}, {1, 262144000, MODULE_EMBEDDING},
		{1, 262144000, MODULE_HEAD}, {1, 1318912, MODULE_MODEL}};
	check_wrap("llama-2-7b", "block", 33, block_7b, COUNT_OF(block_7b));
	check_wrap("llama-2-7b", "size:1e8", 36, size_1e8_7b, COUNT_OF(size_1e8_7b));
	check_wrap("llama-2-7b", "size:5e7", 67, size_5e7_7b, COUNT_OF(size_5e7_7b));
	check_wrap("llama-2-7b", "size:2e7", 131, size_2e7_7b, COUNT_OF(size_2e7_7b));
	check_wrap("llama-2-70b", "block", 81, block_70b, COUNT_OF(block_70b));
	check_wrap("llama-2-70b", "size:1e8", 323, size_1e8_70b, COUNT_OF(size_1e8_70b));
}

/* The outer root of size:1e8 owns nothing, yet it is the unit 0 whose hooks come first. */
static void test_empty_root(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	struct plan plan = toy_plan(&arena, model, topology, "wrap=size:1e8", NULL);
	struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
	assert_string_equal(schedule->programs->units[0].name, "root");
	assert_int_equal(schedule->programs->units[0].parameters, 0);
	assert_int_equal(schedule->programs->units[0].n_slices, 0);
	for (int i = 0; i < schedule->programs[0].n_buffers; i++)
		assert_int_not_equal(schedule->programs[0].buffers[i].unit, 0);
	arena_finish(&arena);
}

static void test_blocks_and_model(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct unit *units;
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct plan plan = plan_for(&arena, model, 8, "pytorch-fsdp1");
	set_wrap(&plan, &arena, "blocks:5");
	assert_int_equal(units_build(&plan, model, &arena, &units), 1 + 7);
	assert_string_equal(units[1].name, "model.layers.0..4");
	assert_string_equal(units[7].name, "model.layers.30..31");
	for (int u = 1; u <= 7; u++)
		assert_int_equal(units[u].parameters, (u < 7 ? 5 : 2) * INT64_C(202383360));
	set_wrap(&plan, &arena, "blocks:32");
	assert_int_equal(units_build(&plan, model, &arena, &units), 2);
	set_wrap(&plan, &arena, "blocks:1000");
	assert_int_equal(units_build(&plan, model, &arena, &units), 2);
	assert_int_equal(units[1].parameters, 32 * INT64_C(202383360));
	set_wrap(&plan, &arena, "model");
	assert_int_equal(units_build(&plan, model, &arena, &units), 1);
	assert_int_equal(units[0].parameters, INT64_C(6738415616));
	assert_string_equal(units[0].name, "root");
	arena_finish(&arena);
}

/* A module of exactly N parameters is wrapped, one of N - 1 is not, and what is below N is not even
 * entered. Toy block: a has 225, b 208, together 433; embedding and head 88. */
static void test_threshold(void **state)
{
	(void)state;
	static const struct {
		const char *wrap;
		int n;
		int64_t first; /* parameters of unit 1 */
	} rows[] = {{"size:225", 2, 225}, {"size:226", 2, 433}, {"size:433", 2, 433},
		{"size:434", 1, 0}, {"size:208", 3, 225}, {"size:209", 2, 225}, {"size:88", 5, 88},
		{"size:89", 3, 225}};
	struct arena arena = {0};
	struct unit *units;
	struct model *model = toy_model(&arena, 1, false);
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct plan plan = plan_for(&arena, model, 1, "pytorch-fsdp1");
		set_wrap(&plan, &arena, rows[i].wrap);
		int n = units_build(&plan, model, &arena, &units);
		assert_int_equal(n, rows[i].n);
		if (n > 1)
			assert_int_equal(units[1].parameters, rows[i].first);
	}
	arena_finish(&arena);
}

/* Units nest or are apart, every parameter belongs to exactly one, and a tied weight's unit
 * contains its second user: both ends are gathered together. */
static void check_partition(const struct model *model, const struct unit *units, int n)
{
	int *owner = calloc((size_t)model->n_parameters + 1, sizeof(int));
	const struct module *head = &model->modules[model->n_modules - 1];
	for (int u = 0; u < n; u++) {
		for (int i = 0; i < units[u].n_slices; i++) {
			int p = units[u].slices[i].parameter;
			assert_int_equal(owner[p], 0);
			owner[p] = u + 1;
			assert_in_range(model->parameters[p].module, units[u].module,
				units[u].end_module - 1);
		}
		for (int v = 0; v < u; v++) {
			bool apart = units[u].module >= units[v].end_module;
			bool inside = units[u].end_module <= units[v].end_module;
			assert_true(apart || inside);
		}
	}
	for (int p = 0; p < model->n_parameters; p++)
		assert_int_not_equal(owner[p], 0);
	if (head->tied_parameter >= 0) {
		const struct unit *unit = &units[owner[head->tied_parameter] - 1];
		assert_in_range(model->n_modules - 1, unit->module, unit->end_module - 1);
	}
	free(owner);
}

static void test_partition(void **state)
{
	(void)state;
	uint64_t seed = 2024;
	int tied = 0;
	for (int round = 0; round < 300; round++) {
		struct arena arena = {0};
		struct unit *units;
		struct model *model = random_model(&arena, &seed);
		struct plan plan = plan_for(&arena, model, 1 + random_below(&seed, 8),
			round % 2 ? "pytorch-fsdp1" : "pytorch-fsdp2");
		set_wrap(&plan, &arena,
			arena_printf(&arena, "size:%d", 1 + (int)random_below(&seed, 2000)));
		int n = units_build(&plan, model, &arena, &units);
		check_partition(model, units, n);
		tied += model->architecture.tied_head;
		arena_finish(&arena);
	}
	assert_in_range(tied, 100, 200);
}

/* GPT-2: the embedding (38.6M) is larger than the threshold, but tied, so it stays in the root;
 * with a head of its own it becomes a unit. */
static void test_tied_stays_in_root(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct unit *units;
	struct model *model = preset_model(&arena, "gpt2-124m");
	struct plan plan = plan_for(&arena, model, 8, "pytorch-fsdp1");
	set_wrap(&plan, &arena, "size:2e7");
	assert_true(model->architecture.tied_head);
	assert_int_equal(units_build(&plan, model, &arena, &units), 1);
	struct architecture untied = model->architecture;
	struct error error = {0};
	untied.tied_head = false;
	assert_true(model_build(&arena, &untied, &model, &error));
	assert_int_equal(units_build(&plan, model, &arena, &units), 4);
	arena_finish(&arena);
}

/* --- DDP -----------------------------------------------------------------------------------------
 */

/* PyTorch's reducer on Llama-2-7B in fp32: 226 buckets, 500 MiB first and last, 128 of 64 MiB and
 * 96 of 172 MiB and a little: a norm joins the bucket that is open when its gradient is ready.
 * (PyTorch rebuilds its buckets in that order after the first step.) The same in bf16, at half the
 * size. */
static void test_buckets(void **state)
{
	(void)state;
	static const int64_t first[] = {
		131072000, 45088768 + 4096, 45088768, 45088768, 16777216 + 4096};
	struct arena arena = {0};
	struct unit *units;
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	struct plan plan =
		toy_plan(&arena, model, topology, "runtime=pytorch-ddp", "strategy=NO_SHARD", NULL);
	for (int half = 0; half < 2; half++) {
		int64_t total = 0;
		plan.master_dtype = half ? DTYPE_BF16 : DTYPE_FP32;
		int n = buckets_build(&plan, model, NULL, &arena, &units), attention = 0, mlp = 0,
		    vocab = 0;
		assert_int_equal(n, 226);
		for (int i = 0; i < COUNT_OF(first); i++)
			assert_int_equal(units[i].elements, first[i]);
		assert_int_equal(units[n - 1].elements, 131072000 + 4096);
		for (int u = 0; u < n; u++) {
			int64_t mib = units[u].elements * 4 >> 20;
			attention += mib == 64;
			mlp += mib == 172;
			vocab += mib == 500;
			total += units[u].elements;
		}
		assert_int_equal(attention, 128);
		assert_int_equal(mlp, 96);
		assert_int_equal(vocab, 2);
		assert_int_equal(total, model->parameter_count);
	}
	arena_finish(&arena);
}

/* Small parameters share a bucket until it holds 25 MiB, the first until it holds 1 MiB. */
static void test_bucket_limits(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct unit *units;
	struct model *model = equal_model(&arena, 60); /* 122 matrices of exactly 1 MiB */
	struct plan plan = plan_for(&arena, model, 1, "pytorch-ddp");
	int n = buckets_build(&plan, model, NULL, &arena, &units);
	assert_int_equal(n, 1 + 5);
	assert_int_equal(units[0].n_slices, 1);
	for (int u = 1; u < 5; u++)
		assert_int_equal(units[u].n_slices, 25);
	assert_int_equal(units[5].n_slices, 121 - 4 * 25);
	assert_int_equal(units[0].slices[0].parameter, model->n_parameters - 1);
	assert_int_equal(units[5].slices[20].parameter, 0);
	arena_finish(&arena);
}

/* The planner asks for values that a framework's file can say before it lays expert ranks out. */
static void test_units_before_experts_are_laid_out(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "mixtral-8x7b");
	const struct topology *topology = cluster(&arena, "2xdgx-h100");
	struct plan plan = plan_of_words(&arena, model, topology, "wrap=block+embedding+head");
	struct plan laid_out =
		plan_of_words(&arena, model, topology, "wrap=block+embedding+head expert=8");
	bool root;
	plan.mesh.expert = 8;
	assert_int_equal(plan_units(&plan, model, &root), plan_units(&laid_out, model, &root));
	assert_int_equal(plan_units(&plan, model, &root), 1 + 2 * 32 + 1);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_traced_layout),
		cmocka_unit_test(test_uneven_sizes),
		cmocka_unit_test(test_wrap_tables),
		cmocka_unit_test(test_empty_root),
		cmocka_unit_test(test_blocks_and_model),
		cmocka_unit_test(test_threshold),
		cmocka_unit_test(test_partition),
		cmocka_unit_test(test_tied_stays_in_root),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_bucket_limits),
		cmocka_unit_test(test_units_before_experts_are_laid_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
