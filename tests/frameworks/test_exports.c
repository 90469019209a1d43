/* Exports of single targets, and plans that they refuse. */
#include "support.h"

static void write_as(struct trip *trip, const char *target, const char *asked)
{
	struct question question = {.model = trip->file.model, .topology = trip->file.topology};

	trip->target = target_of(target);
	question_set_by_name(&question, "strategy", "strategy", asked, trip->arena, NULL);
	assert_true(plan_resolve(&question, trip->arena, &trip->file.plan, NULL));
	text_clear(&trip->text);
	assert_true(export_plan(trip->target, trip->version, &trip->file, trip->target->file,
		trip->arena, &trip->exported, &trip->text, NULL));
}

/* Nobody asked for a clip: the framework's default stays, and is said where it clips. */
static void clipping_is_left_alone(void **state)
{
	static const struct {
		const char *target, *key;
	} cases[] = {{"torchtitan", "max_norm"}, {"torchtitan-toml", "max_norm"},
		{"hf-trainer", "max_grad_norm"}, {"axolotl", "max_grad_norm"},
		{"megatron-fsdp", "clip-grad"}, {"accelerate-deepspeed", "gradient_clipping"},
		{"deepspeed", "gradient_clipping"}};
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
	for (int i = 0; i < COUNT_OF(cases); i++) {
		trip.file.question.options = "--strategy FULL_SHARD";
		write_as(&trip, cases[i].target, "FULL_SHARD");
		assert_null(strstr(text_string(&trip.text), cases[i].key));
		assert_true(has_note(&trip, "clip"));
		assert_true(trip.exported.plan.clip == 1);
		trip.file.question.options = "--clip 0";
		write_as(&trip, cases[i].target, "FULL_SHARD");
		assert_non_null(strstr(text_string(&trip.text), cases[i].key));
		assert_false(has_note(&trip, "clip"));
	}
	text_finish(&trip.text);
	arena_finish(&arena);
}

/* Every start line has the address of the first node, or a hostfile; on one node none has. */
static void starts_on_nodes(void **state)
{
	static const char *const topologies[] = {"2xdgx-a100-80gb", "dgx-h100"};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct trip trip = {.arena = &arena};
		load(&arena, "llama-2-7b", topologies[i], &trip.file);
		for (int t = 0; t < n_export_targets; t++) {
			write_as(&trip, export_targets[t]->name, "FULL_SHARD");
			const char *line = trip.exported.launch;
			bool placed = strstr(line, "$MASTER_ADDR") || strstr(line, "--hostfile ");
			assert_int_equal(placed, i == 0);
			assert_null(strchr(line, '%'));
			assert_null(strchr(line, '['));
		}
		text_finish(&trip.text);
	}
	arena_finish(&arena);
}

/* A shell reads the file's name as one word. */
static void starts_with_any_name(void **state)
{
	static const struct {
		const char *target, *file, *words;
	} rows[] = {
		{"accelerate", "runs/a.yaml", "--config_file runs/a.yaml "},
		{"accelerate", "my runs/a.yaml", "--config_file 'my runs/a.yaml' "},
		{"megatron", "it's.sh", "$(grep -v '^#' 'it'\\''s.sh')"},
		{"torchtitan", "my runs/a b.py", "--module 'a b' "},
	};
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};
	struct error error = {0};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-h100", &trip.file);
	for (int i = 0; i < COUNT_OF(rows); i++) {
		text_clear(&trip.text);
		write_as(&trip, rows[i].target, "FULL_SHARD");
		assert_true(export_plan(target_of(rows[i].target), 0, &trip.file, rows[i].file,
			&arena, &trip.exported, &trip.text, &error));
		assert_non_null(strstr(trip.exported.launch, rows[i].words));
	}
	text_finish(&trip.text);
	arena_finish(&arena);
}

/* torchtitan 0.3.0: models/llama3/config_registry.py; its larger two have tensor_parallel_degree 8.
 */
static void torchtitan_configurations(void **state)
{
	static const struct {
		const char *model, *words, *note;
	} rows[] = {
		{"llama-3.1-8b", "--module llama3 --config llama3_8b ", NULL},
		{"llama-3.1-70b", "--module llama3 --config llama3_70b ", NULL},
		{"llama-3-405b", "--module llama3 --config llama3_405b ", "float8"},
		{"llama-2-7b", "--module llama3 --config llama3_8b ",
			"torchtitan ships no configuration of this shape"},
	};
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};

	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		load(&arena, rows[i].model, "2xdgx-h100", &trip.file);
		write_as(&trip, "torchtitan-flags", "FULL_SHARD");
		const char *text = text_string(&trip.text);
		assert_non_null(strstr(trip.exported.launch, rows[i].words));
		assert_non_null(strstr(text, "--parallelism.tensor_parallel_degree 1\n"));
		assert_int_equal(
			strstr(text, "#   model ") != NULL || strstr(text, "float8") != NULL,
			rows[i].note != NULL);
		assert_true(rows[i].note == NULL || strstr(text, rows[i].note) != NULL);
	}
	text_finish(&trip.text);
	arena_finish(&arena);
}

/* accelerate shards on accelerators alone; FSDP1 takes its strategy from one key. */
static void accelerate_shards(void **state)
{
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};
	struct error error = {0};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
	write_as(&trip, "accelerate-fsdp1", "SHARD_GRAD_OP");
	assert_non_null(strstr(text_string(&trip.text), "fsdp_sharding_strategy: SHARD_GRAD_OP\n"));
	write_as(&trip, "hf-trainer-fsdp1", "SHARD_GRAD_OP");
	assert_non_null(strstr(trip.exported.launch, "FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP "));
	for (int clip = 0; clip < 2; clip++) {
		trip.file.question.options = clip == 0 ? "--clip 0" : NULL;
		write_as(&trip, "trl", "FULL_SHARD");
		assert_int_equal(
			strstr(trip.exported.launch, " --max_grad_norm 0") != NULL, clip == 0);
	}
	trip.file.topology->device.kind = DEVICE_CPU;
	assert_false(export_plan(target_of("accelerate"), 0, &trip.file, "x", &arena,
		&trip.exported, &trip.text, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	text_finish(&trip.text);
	arena_finish(&arena);
}

/* FSDP1 would train on the last micro-batch alone. */
static void fsdp1_adds_no_gradients_on_the_host(void **state)
{
	static const char *const asked[][2] = {{"strategy", "FULL_SHARD"},
		{"runtime", "pytorch-fsdp2"}, {"cpu_offload", "parameters"}, {"grad_accum", "4"},
		{"sync_each_micro_batch", "on"}};
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};
	struct error error = {0};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
	struct question question = {.model = trip.file.model, .topology = trip.file.topology};
	for (int i = 0; i < COUNT_OF(asked); i++)
		question_set_by_name(
			&question, asked[i][0], asked[i][0], asked[i][1], &arena, NULL);
	assert_true(plan_resolve(&question, &arena, &trip.file.plan, NULL));
	assert_false(export_plan(target_of("accelerate-fsdp1"), 0, &trip.file, "x", &arena,
		&trip.exported, &trip.text, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(error.message, "--sync-each-micro-batch off"));
	assert_true(export_plan(target_of("accelerate"), 0, &trip.file, "x", &arena, &trip.exported,
		&trip.text, NULL));
	text_finish(&trip.text);
	arena_finish(&arena);
}

/* size_based_auto_wrap_policy would put one end of a shared weight into a unit of its own. */
static void fsdp1_keeps_shared_weights_together(void **state)
{
	static const struct {
		const char *model, *wrap;
	} cases[] = {{"gpt2-124m", "block"}, {"llama-2-7b", "size:20000000"}};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct trip trip = {.arena = &arena};
		load(&arena, cases[i].model, "dgx-h100", &trip.file);
		struct question question = {
			.model = trip.file.model, .topology = trip.file.topology};
		assert_true(question_set_by_name(
			&question, "wrap", "wrap", "size:20000000", &arena, NULL));
		assert_true(plan_resolve(&question, &arena, &trip.file.plan, NULL));
		assert_true(export_plan(target_of("pytorch-fsdp1"), 0, &trip.file, "x", &arena,
			&trip.exported, &trip.text, NULL));
		assert_string_equal(trip.exported.plan.wrap.text, cases[i].wrap);
		text_finish(&trip.text);
	}
	arena_finish(&arena);
}

/* Transformers' switch, which DeepSpeed's users call, knows no selective checkpointing. */
static void deepspeed_checkpoints_whole_blocks(void **state)
{
	static const char *const cases[][2] = {{"none", "none"}, {"full", "full"},
		{"selective", "full"}, {"8xfull+24xnone", "full"}};
	static const char *const targets[] = {"deepspeed", "accelerate-deepspeed"};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases) * COUNT_OF(targets); i++) {
		struct trip trip = {.arena = &arena, .target = target_of(targets[i % 2])};
		load(&arena, "llama-2-7b", "dgx-h100", &trip.file);
		struct question question = {
			.model = trip.file.model, .topology = trip.file.topology};
		assert_true(question_set_by_name(&question, "activation_checkpointing",
			"activation_checkpointing", cases[i / 2][0], &arena, NULL));
		assert_true(plan_resolve(&question, &arena, &trip.file.plan, NULL));
		assert_true(export_plan(
			trip.target, 0, &trip.file, "x", &arena, &trip.exported, &trip.text, NULL));
		assert_string_equal(
			knob_text(KNOB_ACTIVATION_CHECKPOINTING, &trip.exported.plan, &arena),
			cases[i / 2][1]);
		text_finish(&trip.text);
	}
	arena_finish(&arena);
}

/* Each version gets the file that it takes; others are refused with those that are known. */
static void versions(void **state)
{
	static const struct {
		const char *target, *version, *has, *lacks;
	} cases[] = {{"torchtitan", "0.3", "training.local_batch_size", "num_tokens"},
		{"torchtitan", "main", "num_tokens_per_train_step", "local_batch_size"},
		{"deepspeed", "0.19.8", "\"stage\": 3", "mics"},
		{"deepspeed", "0.19.4", "mics_shard_size", "zero_hpz"}};
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};
	struct error error = {0};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
	for (int i = 0; i < COUNT_OF(cases); i++) {
		trip.version =
			export_find_version(target_of(cases[i].target), cases[i].version, NULL);
		write_as(&trip, cases[i].target, "HYBRID_SHARD");
		assert_non_null(strstr(text_string(&trip.text), cases[i].has));
		assert_null(strstr(text_string(&trip.text), cases[i].lacks));
	}
	assert_int_equal(export_find_version(target_of("torchtitan"), "0.3.0", NULL), 0);
	assert_int_equal(export_find_version(target_of("torchtitan"), "0", NULL), 0);
	static const char *const unknown[] = {"0.2", "0.3.00", "", "0.3.0 main", "."};
	for (int i = 0; i < COUNT_OF(unknown); i++)
		assert_int_equal(
			export_find_version(target_of("torchtitan"), unknown[i], &error), -1);
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(error.message, "known: 0.3.0, main"));
	text_finish(&trip.text);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions),
		cmocka_unit_test(deepspeed_checkpoints_whole_blocks),
		cmocka_unit_test(clipping_is_left_alone),
		cmocka_unit_test(starts_on_nodes),
		cmocka_unit_test(accelerate_shards),
		cmocka_unit_test(starts_with_any_name),
		cmocka_unit_test(torchtitan_configurations),
		cmocka_unit_test(fsdp1_adds_no_gradients_on_the_host),
		cmocka_unit_test(fsdp1_keeps_shared_weights_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
