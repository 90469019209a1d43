/* From choices to a plan: defaults, batch arithmetic, the mesh; plans written, read and summed up;
 * the table of knobs. */
#include "schedule/resolve/resolve.h"
#include "support.h"

/* --- defaults ------------------------------------------------------------------------------------
 */

static void test_gpu_defaults(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-3-8b");
	struct plan plan = plan_of_words(&arena, model, cluster(&arena, "2xdgx-a100-80gb"), "");
	assert_int_equal(plan.runtime, RUNTIME_PYTORCH_FSDP2);
	assert_int_equal(plan.strategy, STRATEGY_FULL_SHARD);
	assert_int_equal(plan.mesh.shard, 16);
	assert_int_equal(plan.mesh.replicate, 1);
	assert_int_equal(plan.seq_len, 4096); /* of 8192 */
	assert_int_equal(plan.micro_batch, 1);
	assert_int_equal(plan.grad_accum, 1);
	assert_int_equal(plan.global_batch, 16);
	assert_int_equal(plan.param_dtype, DTYPE_BF16);
	assert_int_equal(plan.master_dtype, DTYPE_FP32);
	assert_int_equal(plan.reduce_dtype, DTYPE_FP32);
	assert_int_equal(plan.optimizer, OPTIMIZER_ADAMW_FOREACH);
	assert_int_equal(plan.attention, ATTENTION_FLASH);
	assert_string_equal(plan.wrap.text, "block");
	assert_string_equal(plan.reshard_after_forward.text, "true");
	assert_int_equal(plan.prefetch, PREFETCH_PRE);
	assert_string_equal(plan.activation_checkpointing.text, "none");
	assert_string_equal(plan.cpu_offload.text, "none");
	assert_true(plan.clip == 0 && plan.sync_each_micro_batch && !plan.compile);
	assert_false(plan.limit_all_gathers); /* FSDP2 has none */
	plan = plan_of_words(
		&arena, model, cluster(&arena, "dgx-a100-80gb"), "runtime=pytorch-fsdp1");
	assert_true(plan.limit_all_gathers);
	assert_int_equal(plan.optimizer, OPTIMIZER_ADAMW_FOREACH);
	plan = plan_of_words(&arena, model, cluster(&arena, "dgx-v100"), "");
	assert_int_equal(plan.param_dtype, DTYPE_FP16);
	plan = plan_of_words(&arena, model, cluster(&arena, "dgx-a100-80gb"),
		"runtime=pytorch-ddp master_dtype=bf16");
	assert_int_equal(plan.reduce_dtype, DTYPE_BF16); /* DDP has no policy of its own */
	arena_finish(&arena);
}

static void test_local_defaults(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "gpt2-124m");
	struct plan plan = plan_of_words(&arena, model, cpu_machine(&arena, 4), "");
	assert_int_equal(plan.runtime, RUNTIME_SHARDPLAN);
	assert_int_equal(plan.param_dtype, DTYPE_FP32);
	assert_int_equal(plan.master_dtype, DTYPE_FP32);
	assert_int_equal(plan.reduce_dtype, DTYPE_FP32);
	assert_int_equal(plan.optimizer, OPTIMIZER_ADAMW_FUSED);
	assert_int_equal(plan.seq_len, 1024);
	assert_true(plan.limit_all_gathers);
	assert_int_equal(plan.mesh.shard, 4);
	arena_finish(&arena);
}

/* A runtime's own knobs follow when nobody asked otherwise. */
static void test_adapted(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	struct plan plan = plan_of_words(&arena, model, topology, "strategy=NO_SHARD");
	assert_int_equal(plan.runtime, RUNTIME_PYTORCH_DDP);
	assert_int_equal(plan.mesh.replicate, 16);
	assert_int_equal(plan.mesh.shard, 1);
	assert_string_equal(plan.reshard_after_forward.text, "false");
	plan = plan_of_words(&arena, model, topology, "runtime=pytorch-ddp");
	assert_int_equal(plan.strategy, STRATEGY_NO_SHARD);
	plan = plan_of_words(&arena, model, topology, "strategy=HYBRID_SHARD_ZERO2");
	assert_int_equal(plan.mesh.shard, 8);
	assert_int_equal(plan.mesh.replicate, 2);
	assert_string_equal(plan.reshard_after_forward.text, "false");
	plan = plan_of_words(&arena, model, topology, "runtime=shardplan");
	assert_int_equal(plan.optimizer, OPTIMIZER_ADAMW_FUSED);
	plan = plan_of_words(&arena, model, topology, "reshard_after_forward=4");
	assert_int_equal(plan_reshard_group(&plan), 4);
	arena_finish(&arena);
}

/* PyTorch's FSDP1 over one rank is NO_SHARD; neither FSDP2 nor more ranks are. */
static void test_one_rank(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "gpt2-124m");
	struct topology *topology = cluster(&arena, "dgx-a100-80gb");
	topology->devices_per_node = 1;
	struct plan plan = plan_of_words(&arena, model, topology,
		"runtime=pytorch-fsdp1 strategy=FULL_SHARD reshard_after_forward=true");
	assert_int_equal(plan.strategy, STRATEGY_NO_SHARD);
	assert_int_equal(plan.runtime, RUNTIME_PYTORCH_FSDP1);
	assert_string_equal(plan.reshard_after_forward.text, "false");
	plan = plan_of_words(&arena, model, topology, "runtime=pytorch-fsdp1");
	assert_int_equal(plan.strategy, STRATEGY_NO_SHARD);
	plan = plan_of_words(&arena, model, topology,
		"runtime=pytorch-fsdp1 strategy=FULL_SHARD cpu_offload=parameters");
	assert_int_equal(plan.strategy, STRATEGY_FULL_SHARD);
	plan = plan_of_words(&arena, model, topology, "runtime=pytorch-fsdp2 strategy=FULL_SHARD");
	assert_int_equal(plan.strategy, STRATEGY_FULL_SHARD);
	topology->devices_per_node = 2;
	plan = plan_of_words(&arena, model, topology, "runtime=pytorch-fsdp1 strategy=FULL_SHARD");
	assert_int_equal(plan.strategy, STRATEGY_FULL_SHARD);
	arena_finish(&arena);
}

/* Which options were given, and which not. */
static void test_given(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct question question = {0};
	struct error error = {0};
	assert_false(question_gives(&question, KNOB_SHARD_GROUP));
	assert_true(question_set_by_name(
		&question, "shard_group", "--shard-group", "1", &arena, &error));
	assert_true(question_gives(&question, KNOB_SHARD_GROUP));
	for (int i = 0; i < KNOB_IN_MESH; i++)
		assert_false(question_gives(&question, (enum knob_id)i));
	assert_true(question_set_by_name(&question, "clip", "--clip", "1", &arena, &error));
	assert_true(question_gives(&question, KNOB_CLIP));
	assert_false(question_gives(&question, KNOB_WRAP));
	assert_int_equal(knob_find("colour"), KNOB_COUNT);
	arena_finish(&arena);
}

/* --- batch ---------------------------------------------------------------------------------------
 */

/* Any two of the three give the third; all three pass when they agree, and only then. */
static void test_batch(void **state)
{
	(void)state;
	uint64_t seed = 12;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	for (int round = 0; round < 2000; round++) {
		int64_t micro = 1 + random_below(&seed, 50), accum = 1 + random_below(&seed, 50);
		int64_t ranks = 1 + random_below(&seed, 64), global = micro * accum * ranks;
		const char *given[4];
		topology->nodes = 1;
		topology->devices_per_node = ranks;
		given[0] = arena_printf(
			&arena, "micro_batch=%d grad_accum=%d", (int)micro, (int)accum);
		given[1] = arena_printf(
			&arena, "micro_batch=%d global_batch=%d", (int)micro, (int)global);
		given[2] = arena_printf(
			&arena, "grad_accum=%d global_batch=%d", (int)accum, (int)global);
		given[3] = arena_printf(&arena, "%s global_batch=%d", given[0], (int)global);
		for (int g = 0; g < 4; g++) {
			struct plan plan = plan_of_words(&arena, model, topology, given[g]);
			assert_int_equal(plan.micro_batch, micro);
			assert_int_equal(plan.grad_accum, accum);
			assert_int_equal(plan.global_batch, global);
		}
		struct plan plan;
		struct error error;
		given[3] = arena_printf(&arena, "%s global_batch=%d", given[0],
			(int)(global + 1 + random_below(&seed, 100)));
		assert_false(try_words(&arena, model, topology, given[3], &plan, &error));
		assert_int_equal(error.code, EXIT_CODE_USAGE);
	}
	arena_finish(&arena);
}

/* A remainder names the values next to it, and they work. */
static void test_batch_remainders(void **state)
{
	(void)state;
	uint64_t seed = 3;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	for (int round = 0; round < 1000; round++) {
		int64_t global = 16 + random_below(&seed, 2000), micro = 1 + random_below(&seed, 9);
		struct plan plan;
		struct error error;
		const char *words = arena_printf(
			&arena, "micro_batch=%d global_batch=%d", (int)micro, (int)global);
		bool ok = try_words(&arena, model, topology, words, &plan, &error);
		assert_int_equal(ok, global % (16 * micro) == 0);
		if (ok)
			continue;
		long long named[5];
		assert_int_equal(sscanf(error.message,
					 "--global-batch %lld: not a multiple of data-parallel "
					 "ranks x --micro-batch = %lld; %lld or %lld would be",
					 &named[0], &named[1], &named[2], &named[3]),
			4);
		assert_int_equal(named[0], global);
		assert_int_equal(named[1], 16 * micro);
		assert_true(named[2] > 0 && named[3] == named[2] + named[1]);
		assert_true(global < named[3] && (named[2] < global || named[2] == named[1]));
		for (int k = 2; k <= 3; k++) {
			words = arena_printf(
				&arena, "micro_batch=%d global_batch=%lld", (int)micro, named[k]);
			plan_of_words(&arena, model, topology, words);
		}
	}
	arena_finish(&arena);
}

/* --- mesh ----------------------------------------------------------------------------------------
 */

/* Exactly the divisors of the ranks are shard groups; what the message offers are divisors. */
static void test_shard_groups(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	for (int ranks = 1; ranks <= 48; ranks++) {
		struct topology *topology = gpu_cluster(&arena, 1, ranks);
		for (int group = 1; group <= ranks + 2; group++) {
			struct plan plan;
			struct error error;
			int below, above;
			const char *words =
				arena_printf(&arena, "strategy=HYBRID_SHARD shard_group=%d", group);
			bool ok = try_words(&arena, model, topology, words, &plan, &error);
			assert_int_equal(ok, group <= ranks && ranks % group == 0);
			if (ok) {
				assert_int_equal(plan.mesh.shard, group);
				assert_int_equal(plan.mesh.replicate, ranks / group);
			} else if (group <= ranks) {
				assert_int_equal(sscanf(error.message,
							 "--shard-group %*d: does not divide %*d "
							 "ranks; %d or %d would",
							 &below, &above),
					2);
				assert_true(below < group && group < above);
				assert_int_equal(ranks % below, 0);
				assert_int_equal(ranks % above, 0);
			}
		}
	}
	arena_finish(&arena);
}

/* --- complete plans ------------------------------------------------------------------------------
 */

static struct plan read_back(
	struct arena *arena, const struct plan *plan, enum writer_format format)
{
	struct text text = {0};
	struct writer writer;
	struct error error = {0};
	struct plan again = {0};
	writer_init(&writer, &text, format);
	plan_write(plan, &writer);
	writer_finish(&writer);
	struct node *root = document_parse(arena, "plan", text.data, text.length, 0, &error);
	if (root == NULL || !plan_read(arena, root, &again, &error))
		fail_msg("%s", error.message);
	text_finish(&text);
	return again;
}

/* Written and read, a plan is the same, and compiles to the same schedule. */
static void test_write_read(void **state)
{
	(void)state;
	uint64_t seed = 60;
	for (int round = 0; round < 300; round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		struct plan again =
			read_back(&arena, &sample.plan, round % 2 ? WRITER_YAML : WRITER_JSON);
		struct error error = {0};
		assert_true(knobs_alike_but(0, &sample.plan, &again));
		assert_true(fields_equal(mesh_fields, &sample.plan.mesh, &again.mesh));
		assert_true(plan_check(&again, sample.model, sample.topology, &error));
		assert_string_equal(schedule_digest(sample.schedule).hex,
			schedule_digest(toy_schedule(&arena, &again, sample.model, sample.topology))
				.hex);
		arena_finish(&arena);
	}
}

/* "off" is no key of a file and no word of a schedule; a recipe is both. */
static void test_fp8_is_said(void **state)
{
	(void)state;
	static const char *const words[] = {"fp8=off", "fp8=rowwise", ""};
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-h100");
	struct digest digests[COUNT_OF(words)];
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct plan plan = plan_of_words(&arena, model, topology, words[i]);
		for (int format = 0; format < 2; format++) {
			struct plan again =
				read_back(&arena, &plan, format == 0 ? WRITER_YAML : WRITER_JSON);
			assert_int_equal(again.fp8, i == 1 ? FP8_ROWWISE : FP8_OFF);
		}
		digests[i] = schedule_digest(toy_schedule(&arena, &plan, model, topology));
	}
	assert_string_equal(digests[0].hex, digests[2].hex);
	assert_string_not_equal(digests[0].hex, digests[1].hex);
	arena_finish(&arena);
}

/* A summary tells plans apart that differ in what it names. */
static void test_summary(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct text text = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct plan plan = plan_of_words(&arena, model, cluster(&arena, "2xdgx-a100-80gb"),
		"strategy=HYBRID_SHARD grad_accum=2 sync_each_micro_batch=off "
		"reshard_after_forward=2 forward_prefetch=on");
	plan_summary(&plan, &text);
	assert_string_equal(text_string(&text),
		"HYBRID_SHARD (groups of 8), reshard after forward to groups of 2, wrap block, "
		"prefetch pre + forward, "
		"checkpointing none, micro-batch 1 x 2 (gradients reduced once), pytorch-fsdp2");
	text_finish(&text);
	plan.sync_each_micro_batch = true;
	assert_string_equal(plan_reduction(&plan), "gradients reduced in each");
	plan.late_all_reduce = true;
	assert_string_equal(plan_reduction(&plan), "gradients scattered in each, all-reduced once");
	arena_finish(&arena);
}

/* --- the table of knobs: every row is whole, and a knob can be set, printed, compared and taken --
 */

static void test_rows(void **state)
{
	(void)state;
	uint64_t helped = 0;
	for (int i = 0; i < KNOB_COUNT; i++) {
		const struct knob *knob = &knob_table[i];
		assert_non_null(knob->field.name);
		assert_non_null(knob->help);
		assert_true(knob->metavar != NULL || knob->field.names != NULL);
		assert_int_equal(knob_find(knob->field.name), i);
		helped |= KNOB_BIT(knobs_in_help[i]);
	}
	assert_true(helped == KNOB_BIT(KNOB_COUNT) - 1);
	for (int i = 1; i < KNOB_COUNT; i++)
		assert_true(knob_table[knobs_in_help[i - 1]].group <=
			    knob_table[knobs_in_help[i]].group);
	assert_int_equal(knob_find("no_such_knob"), KNOB_COUNT);
}

/* Nobody types "true". */
static void test_typed(void **state)
{
	(void)state;
	struct arena arena = {0};
	assert_string_equal(
		knob_value_typed(KNOB_COMPILE, (union knob_value){.on = true}, &arena), "on");
	assert_string_equal(
		knob_value_typed(KNOB_COMPILE, (union knob_value){.on = false}, &arena), "off");
	arena_finish(&arena);
}

static void test_one_knob(void **state)
{
	(void)state;
	struct arena arena = {0};
	uint64_t random = 11;
	for (int i = 0; i < 40; i++) {
		struct sample a = random_sample(&arena, &random),
			      b = random_sample(&arena, &random);
		for (int k = 0; k < KNOB_COUNT; k++) {
			enum knob_id id = (enum knob_id)k;
			const char *text = knob_text(id, &a.plan, &arena);
			bool equal = strcmp(text, knob_text(id, &b.plan, &arena)) == 0;
			assert_int_equal(knob_equal(id, &a.plan, &b.plan), equal);
			knob_put(id, &b.plan, knob_get(id, &a.plan));
			assert_true(knob_equal(id, &a.plan, &b.plan));
			assert_string_equal(knob_text(id, &b.plan, &arena), text);
		}
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_defaults),
		cmocka_unit_test(test_local_defaults),
		cmocka_unit_test(test_adapted),
		cmocka_unit_test(test_one_rank),
		cmocka_unit_test(test_given),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_batch_remainders),
		cmocka_unit_test(test_shard_groups),
		cmocka_unit_test(test_write_read),
		cmocka_unit_test(test_fp8_is_said),
		cmocka_unit_test(test_summary),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_typed),
		cmocka_unit_test(test_one_knob),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
