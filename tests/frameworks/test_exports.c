/* Exports and imports: what goes out comes back, what cannot go out is said, names stay inert. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "frameworks/frameworks.h"
#include "planner/planner.h"
#include "schedule/resolve/resolve.h"
#include "tests/sampled.h"

enum { DRAWS = SAMPLED(6000), PLANS_AT_LEAST = SAMPLED(150) };

/* --- random plans --------------------------------------------------------------------------- */

static uint64_t random_state = 0x9e3779b97f4a7c15;

static int random_below(int n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (int)((random_state >> 33) % (unsigned)n);
}

/* Values to draw from; "" leaves the default. */
static const struct {
	const char *knob;
	const char *values[10];
} draws[] = {
	{"runtime", {"pytorch-fsdp1", "pytorch-fsdp2", "pytorch-ddp", "", "deepspeed"}},
	{"strategy", {"NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD",
			     "HYBRID_SHARD_ZERO2", "", "ZERO_1", "ZERO_2", "ZERO_3"}},
	{"shard_group", {"", "", "8", "4", "2"}},
	{"reshard_after_forward", {"", "", "all", "2", "4", "20xtrue+12xfalse"}},
	{"wrap", {"block", "blocks:4", "size:20000000", "model", "block+embedding+head",
			 "blocks:2+head"}},
	{"prefetch", {"", "none", "pre", "post"}},
	{"forward_prefetch", {"", "true", "false"}},
	{"limit_all_gathers", {"", "true", "false"}},
	{"activation_checkpointing", {"none", "selective", "full", "8xfull+24xnone"}},
	{"attention", {"flash", "eager", "flash2"}},
	{"compile", {"true", "false"}},
	{"param_dtype", {"bf16", "fp16", "fp32"}},
	{"master_dtype", {"fp32", "bf16"}},
	{"reduce_dtype", {"fp32", "bf16", "fp16"}},
	{"optimizer", {"adamw-fused", "adamw-foreach", "adamw", "sgd"}},
	{"cpu_offload", {"", "", "none", "optimizer", "parameters", "all", "1xnone+32xparameters"}},
	{"seq_len", {"", "512", "1024"}},
	{"micro_batch", {"", "1", "2", "6"}},
	{"grad_accum", {"", "1", "3", "8"}},
	{"sync_each_micro_batch", {"", "true", "false"}},
	{"clip", {"", "1", "0.5"}},
};

static bool draw_plan(const struct model *model, const struct topology *topology,
	struct arena *arena, struct plan *plan)
{
	struct question question = {.model = model, .topology = topology};

	for (int i = 0; i < COUNT_OF(draws); i++) {
		int n = 0;
		while (n < 10 && draws[i].values[n] != NULL)
			n++;
		const char *value = draws[i].values[random_below(n)];
		/* A value that this version does not have is left out. */
		if (value[0] != '\0')
			question_set_by_name(
				&question, draws[i].knob, draws[i].knob, value, arena, NULL);
	}
	return plan_resolve(&question, arena, plan, NULL);
}

/* --- one plan through one target ------------------------------------------------------------ */

struct trip {
	struct arena *arena;
	struct plan_file file;
	const struct export_target *target;
	int version;
	struct exported exported;
	struct imported imported;
	struct text text;
};

static const char *value_of(struct arena *arena, const struct plan *plan, const char *knob)
{
	return knob_text(knob_find(knob), plan, arena);
}

static bool has_note(const struct trip *trip, const char *knob)
{
	for (int i = 0; i < trip->exported.n_notes; i++) {
		if (strcmp(trip->exported.notes[i].knob, knob) == 0)
			return true;
	}
	return false;
}

static bool is_moot(const struct plan *plan, const char *knob)
{
	static const char *const sharding[] = {"wrap", "prefetch", "forward_prefetch",
		"limit_all_gathers", "reshard_after_forward"};

	if (strcmp(knob, "global_batch") == 0)
		return true;
	if (strcmp(knob, "sync_each_micro_batch") == 0)
		return plan->grad_accum == 1;
	for (int i = 0; i < COUNT_OF(sharding); i++) {
		if (strcmp(knob, sharding[i]) == 0)
			return plan->strategy == STRATEGY_NO_SHARD;
	}
	return false;
}

static bool is_beside(const struct trip *trip, const char *knob)
{
	for (int i = 0; i < trip->exported.n_notes; i++) {
		const struct export_note *note = &trip->exported.notes[i];
		if (strcmp(note->knob, knob) == 0 && note->elsewhere)
			return true;
	}
	return false;
}

/* What the caller of `import` has to add, because the file cannot say it. */
static void add_beside(const struct trip *trip, struct question *question)
{
	for (int id = 0; id < KNOB_IN_MESH; id++) {
		const struct field *field = &knob_table[id].field;
		enum expressed expressed;
		const char *value = value_of(trip->arena, &trip->exported.plan, field->name);
		bool quoted = value[0] == '"';
		bool in_file = target_expresses(trip->target, (enum knob_id)id, &expressed) &&
			       expressed != ELSEWHERE && !is_beside(trip, field->name);
		if (in_file || strcmp(field->name, "global_batch") == 0)
			continue;
		assert_true(question_set_by_name(question, field->name, field->name,
			arena_strndup(trip->arena, value + quoted, strlen(value) - 2 * quoted),
			trip->arena, NULL));
	}
}

static void add_settings(const struct trip *trip, struct question *question)
{
	for (int i = 0; i < trip->imported.n_settings; i++) {
		const struct import_setting *setting = &trip->imported.settings[i];
		char *name = arena_strdup(trip->arena, setting->option);
		struct error error = {0};
		for (char *c = name; *c != '\0'; c++)
			*c = *c == '-' ? '_' : *c;
		if (strcmp(name, "gpus") == 0) {
			int64_t ranks;
			assert_true(parse_int(setting->value, &ranks));
			assert_int_equal(ranks, topology_devices(trip->file.topology));
		} else if (!question_set_by_name(
				   question, name, name, setting->value, trip->arena, &error)) {
			fail_msg("%s: %s", trip->target->name, error.message);
		}
	}
}

/* The plan that the file's words stand for. */
static void read_back(struct trip *trip, struct plan *plan)
{
	struct question question = {.model = trip->file.model, .topology = trip->file.topology};
	struct error error = {0};

	if (!import_config(trip->arena, trip->target->file, text_string(&trip->text),
		    trip->text.length, trip->target, NULL, &trip->imported, &error))
		fail_msg("%s: %s\n%s", trip->target->name, error.message, text_string(&trip->text));
	add_settings(trip, &question);
	add_beside(trip, &question);
	if (trip->imported.replicas > 0)
		question_put(&question, KNOB_SHARD_GROUP,
			(union knob_value){.number = topology_devices(trip->file.topology) /
						     trip->imported.replicas});
	if (!plan_resolve(&question, trip->arena, plan, &error))
		fail_msg("%s: %s\n%s", trip->target->name, error.message, text_string(&trip->text));
	import_settle(&trip->imported, trip->file.model, false, trip->arena, plan);
}

static void compare(struct trip *trip, const struct plan *back)
{
	const struct plan *out = &trip->exported.plan;

	for (int id = 0; id < KNOB_IN_MESH; id++) {
		const struct field *field = &knob_table[id].field;
		const char *want = value_of(trip->arena, out, field->name);
		const char *got = value_of(trip->arena, back, field->name);
		if (!is_moot(out, field->name) && strcmp(want, got) != 0)
			fail_msg("%s: %s went out as %s and came back as %s\n%s",
				trip->target->name, field->name, want, got,
				text_string(&trip->text));
	}
	if (out->mesh.shard != back->mesh.shard || out->mesh.replicate != back->mesh.replicate)
		fail_msg("%s: mesh %d x %d came back as %d x %d\n%s", trip->target->name,
			(int)out->mesh.replicate, (int)out->mesh.shard, (int)back->mesh.replicate,
			(int)back->mesh.shard, text_string(&trip->text));
	assert_int_equal(out->global_batch, back->global_batch);
}

/* Every difference between the plan and what the file stands for has a note, and so has every knob
 * that is not in the file. */
static void check_notes(const struct trip *trip)
{
	static const char *const follows[] = {
		"reshard_after_forward", "limit_all_gathers", "forward_prefetch", "prefetch"};

	for (int id = 0; id < KNOB_IN_MESH; id++) {
		const struct field *field = &knob_table[id].field;
		const char *before = value_of(trip->arena, &trip->file.plan, field->name);
		const char *after = value_of(trip->arena, &trip->exported.plan, field->name);
		bool moot = is_moot(&trip->exported.plan, field->name);
		bool follower = false;
		for (int i = 0; i < COUNT_OF(follows); i++)
			follower =
				follower ||
				(strcmp(field->name, follows[i]) == 0 &&
					(has_note(trip, "strategy") || has_note(trip, "runtime")));
		if (strcmp(before, after) != 0 && !moot && !follower &&
			!has_note(trip, field->name))
			fail_msg("%s: %s became %s in silence: %s", trip->target->name, before,
				after, field->name);
	}
	for (int i = 0; i < trip->imported.n_notes; i++)
		assert_null(strstr(trip->imported.notes[i].text, "unknown key"));
}

/* DeepSpeed offloads what its runtime does not predict: the file keeps it. */
static bool is_unpredicted(const struct trip *trip)
{
	const struct plan *plan = &trip->exported.plan;

	return strcmp(plan->cpu_offload.text, "none") != 0 &&
	       !plan_check(plan, trip->file.model, trip->file.topology, NULL);
}

static void go(struct trip *trip)
{
	struct plan back;
	struct error error = {0};

	if (!export_plan(trip->target, trip->version, &trip->file, trip->target->file, trip->arena,
		    &trip->exported, &trip->text, &error)) {
		/* What FSDP1 would train wrongly. */
		if (trip->exported.plan.runtime != RUNTIME_PYTORCH_FSDP1 || !is_unpredicted(trip))
			fail_msg("%s: %s", trip->target->name, error.message);
		return;
	}
	if (is_unpredicted(trip)) {
		check_notes(trip);
		return;
	}
	if (!plan_check(&trip->exported.plan, trip->file.model, trip->file.topology, &error))
		fail_msg("%s: %s\n%s", trip->target->name, error.message, text_string(&trip->text));
	read_back(trip, &back);
	compare(trip, &back);
	check_notes(trip);
}

static void load(
	struct arena *arena, const char *model, const char *topology, struct plan_file *file)
{
	assert_true(model_load_preset(arena, model, &file->model, NULL));
	assert_true(topology_load_name(arena, topology, &file->topology, NULL));
	file->question = (struct question_text){model, topology, ""};
}

static int count_versions(const struct export_target *target)
{
	int n = 1;

	for (const char *c = target->versions; *c != '\0'; c++)
		n += *c == ' ';
	return n;
}

static void round_trips(void **state)
{
	static const char *const models[] = {"gpt2-124m", "llama-2-7b", "mistral-7b", "mpt-7b"};
	static const char *const topologies[] = {"2xdgx-a100-80gb", "dgx-h100", "4xp4d.24xlarge"};
	int trips = 0, refused = 0;

	(void)state;
	for (int i = 0; i < DRAWS; i++) {
		struct arena arena = {0};
		struct trip trip = {.arena = &arena};
		load(&arena, models[i % 4], topologies[i % 3], &trip.file);
		bool is_plan =
			draw_plan(trip.file.model, trip.file.topology, &arena, &trip.file.plan);
		refused += !is_plan;
		for (int t = 0; is_plan && t < n_export_targets; t++, trips++) {
			trip.target = export_targets[t];
			for (trip.version = 0; trip.version < count_versions(trip.target);
				trip.version++) {
				text_clear(&trip.text);
				go(&trip);
			}
		}
		text_finish(&trip.text);
		arena_finish(&arena);
	}
	/* Of these few, each through every target. */
	assert_true(trips >= PLANS_AT_LEAST * n_export_targets);
	print_message("%d trips, %d draws were no plans\n", trips, refused);
}

/* --- recognizing ---------------------------------------------------------------------------- */

static void recognizes(void **state)
{
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
	struct question question = {.model = trip.file.model, .topology = trip.file.topology};
	assert_true(plan_resolve(&question, &arena, &trip.file.plan, NULL));
	for (int t = 0; t < n_export_targets; t++) {
		struct imported imported;
		trip.target = export_targets[t];
		text_clear(&trip.text);
		assert_true(export_plan(trip.target, trip.version, &trip.file, "x", &arena,
			&trip.exported, &trip.text, NULL));
		assert_true(import_config(&arena, "x", text_string(&trip.text), trip.text.length,
			NULL, NULL, &imported, NULL));
		/* TRL takes accelerate's file. */
		const char *want =
			strcmp(trip.target->name, "trl") == 0 ? "accelerate" : trip.target->name;
		assert_string_equal(imported.target->name, want);
	}
	text_finish(&trip.text);
	arena_finish(&arena);
}

/* --- clipping, nodes, CPUs, shared weights ---------------------------------------------------- */

static const struct export_target *target_of(const char *name)
{
	const struct export_target *target = export_find(name, NULL);

	assert_non_null(target);
	return target;
}

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

/* --- names are inert ------------------------------------------------------------------------ */

static void names_are_inert(void **state)
{
	static const char evil[] = "a\nEVIL: 1\r\nEVIL = 2\\\"\"\"\n--EVIL 3\n$(EVIL)`EVIL`"
				   "\xe2\x80\xa8"
				   "EVIL #{EVIL} </script>";
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
	struct question question = {.model = trip.file.model, .topology = trip.file.topology};
	assert_true(plan_resolve(&question, &arena, &trip.file.plan, NULL));
	trip.file.model->architecture.name = evil;
	trip.file.topology->device.name = evil;
	for (int t = 0; t < n_export_targets; t++) {
		trip.target = export_targets[t];
		text_clear(&trip.text);
		go(&trip);
		const char *text = text_string(&trip.text);
		for (const char *at = text; (at = strstr(at, "EVIL")) != NULL; at++) {
			assert_true(at > text && at[-1] != '\n');
			assert_false(
				strncmp(at - 2, "--", 2) == 0 && at - 2 > text && at[-3] == '\n');
		}
		assert_null(strchr(text, '\r'));
		for (int i = 0; i < trip.imported.n_settings; i++)
			assert_null(strstr(trip.imported.settings[i].value, "EVIL"));
	}
	text_finish(&trip.text);
	arena_finish(&arena);
}

/* --- files of others ------------------------------------------------------------------------ */

struct foreign {
	const char *text;
	const char *target;   /* NULL: refused */
	const char *settings; /* "option=value option=value", or what the message says */
	const char *note;     /* part of one, NULL: none */
};

static const struct foreign files[] = {
	{"distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
	 "  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
	 "  fsdp_ofload_params: true\n",
		"accelerate", "gpus=8 strategy=FULL_SHARD param-dtype=bf16 wrap=block",
		"x:7: fsdp_config.fsdp_ofload_params: unknown key, ignored; did you mean "
		"fsdp_config.fsdp_offload_params?"},
	{"distributed_type: FSDP\nfsdp_config: {version: 2, offload_params: false, "
	 "reshard_after_forward: false}\n",
		"accelerate", "strategy=SHARD_GRAD_OP cpu-offload=none sync-each-micro-batch=off",
		NULL},
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n",
		"accelerate-fsdp1",
		"strategy=HYBRID_SHARD prefetch=none wrap=model param-dtype=fp32",
		"nothing is wrapped"},
	/* accelerate 1.15, commands/launch.py: --fsdp_sharding_strategy, default "FULL_SHARD". */
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n"
	 "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n",
		"accelerate-fsdp1", "strategy=FULL_SHARD",
		"x:4: fsdp_config.fsdp_reshard_after_forward: SHARD_GRAD_OP: accelerate runs "
		"FULL_SHARD"},
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: true\n"
	 "  fsdp_sharding_strategy: SHARD_GRAD_OP\n",
		"accelerate-fsdp1", "strategy=SHARD_GRAD_OP", NULL},
	{"{\"per_device_train_batch_size\": 1, \"fsdp\": true,\n\"fsdp_config\": "
	 "{\"version\": 1, \"reshard_after_forward\": \"shard_grad_op\"}}\n",
		"hf-trainer-fsdp1", "strategy=SHARD_GRAD_OP",
		"FULL_SHARD unless FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP is set"},
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
	 "  fsdp_forward_prefetch: true\n",
		NULL, "x:4:26: fsdp_forward_prefetch: FSDP2 refuses it in accelerate", NULL},
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
	 "  fsdp_reshard_after_forward: maybe\n",
		NULL, "x:4:31: fsdp_reshard_after_forward: expected true or false, got \"maybe\"",
		NULL},
	{"distributed_type: FSDP\nnum_processes: 0\nfsdp_config: {fsdp_version: 2}\n", NULL,
		"x:2:16: num_processes: expected a whole number above 0, got \"0\"", NULL},
	{"distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
	 "parallelism_config: {parallelism_config_cp_size: 2}\n",
		NULL, "only data parallelism is predicted", NULL},
	{"distributed_type: MULTI_GPU\nnum_processes: 4\nnum_processes: 8\n", "accelerate",
		"strategy=NO_SHARD runtime=pytorch-ddp gpus=8", NULL},
	{"{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 2, "
	 "\"gradient_accumulation_steps\": 4, \"zero_optimization\": {\"stage\": 3, "
	 "\"reduce_bucket_size\": 1e6, \"offload_param\": {\"device\": \"nvme\"}}}",
		"deepspeed",
		"gpus=16 micro-batch=2 cpu-offload=parameters strategy=FULL_SHARD "
		"runtime=pytorch-fsdp2 param-dtype=fp32",
		"reduce_bucket_size: 1e6: predicted with DeepSpeed's default of 500000000 "
		"elements"},
	/* The block has no switch for checkpointing itself. */
	{"{\"zero_optimization\": {\"stage\": 2}, \"activation_checkpointing\": "
	 "{\"partition_activations\": false}}",
		"deepspeed", "strategy=ZERO_2", "does not switch checkpointing on"},
	{"{\"zero_optimization\": {\"stage\": 2}, \"activation_checkpointing\": "
	 "{\"partition_activations\": true}}",
		"deepspeed", "strategy=ZERO_2", "true: is not predicted"},
	{"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 8}, \"bf16\": "
	 "{\"enabled\": true}}",
		"deepspeed", "strategy=HYBRID_SHARD shard-group=8 reduce-dtype=bf16",
		"MiCS is predicted as"},
	{"{\"zero_optimization\": {\"stage\": 5}}", NULL, "expected 0, 1, 2 or 3, got \"5\"", NULL},
	{"{\"train_micro_batch_size_per_gpu\": \"auto\", \"zero_optimization\": {\"stage\": 2}}",
		"deepspeed", "sync-each-micro-batch=on", "auto: add --micro-batch"},
	{"{\"fsdp\": \"shard_grad_op auto_wrap\", \"fsdp_config\": {\"version\": 2, "
	 "\"fsdp_auto_wrap_policy\": \"SIZE_BASED_WRAP\", \"min_num_params\": 5000}, \"bf16\": "
	 "\"true\"}",
		"hf-trainer",
		"strategy=SHARD_GRAD_OP wrap=size:5000 param-dtype=bf16 sync-each-micro-batch=off",
		NULL},
	{"base_model: Qwen/Qwen3-8B\nsequence_len: 8192\nmicro_batch_size: 1\nbf16: auto\n"
	 "fsdp_version: 2\ndp_shard_size: 8\ndp_replicate_size: 2\n"
	 "fsdp_config: {reshard_after_forward: false}\n",
		"axolotl", "gpus=16 shard-group=8 strategy=HYBRID_SHARD_ZERO2 seq-len=8192", NULL},
	{"variables: {n: 2048}\nmax_seq_len: ${variables.n}\nglobal_train_batch_size: 64\n"
	 "device_train_microbatch_size: auto\nprecision: amp_bf16\n"
	 "fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE}\n",
		"llm-foundry", "seq-len=2048 reduce-dtype=bf16 prefetch=post global-batch=64",
		"auto: add --micro-batch"},
	{"parallelism: {dp: 4, tp: 2, pp: 1}\noptimizer: {zero_stage: 1}\n", NULL,
		"x:1:26: tp: 2: only data parallelism is predicted in this version", NULL},
	{"[training]\nlocal_batch_size = 2\nseq_len = 4_096\nmax_norm = inf\n\n[parallelism]\n"
	 "data_parallel_shard_degree = -1 # the rest\n[activation_checkpoint]\nmode = 'full'\n",
		"torchtitan-toml",
		"micro-batch=2 seq-len=4096 clip=0 strategy=FULL_SHARD "
		"activation-checkpointing=full",
		NULL},
	{"[training]\nseq_len = \n", NULL, "x:2:11: expected a value", NULL},
	{"[training]\nname = llama\n", NULL, "strings are quoted", NULL},
	{"from torchtitan.models.llama3.config_registry import llama3_8b\n\n"
	 "def mine():\n    cfg = llama3_8b()\n    cfg.parallelism = ParallelismConfig("
	 "data_parallel_replicate_degree=2, data_parallel_shard_degree=8)\n"
	 "    cfg.training.max_context_length = 4096\n"
	 "    cfg.training.num_tokens_per_microbatch_per_dp_rank = 2 * 4096\n"
	 "    cfg.activation_checkpoint = SelectiveAC.Config()\n    return cfg\n",
		"torchtitan",
		"gpus=16 shard-group=8 micro-batch=2 activation-checkpointing=selective", NULL},
	/* Several, and nobody says which. */
	{"from torchtitan.trainer import Trainer\ndef a():\n    return Trainer.Config()\n"
	 "def b() -> Trainer.Config:\n    return a()\n",
		NULL, "2 configurations, expected one; add --config with a or b", NULL},
	{"#!/bin/bash\nMBS=4\nSTRATEGY=${S:-\"optim_grads_params\"}\n"
	 "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py \\\n"
	 "  --micro-batch-size $MBS --seq-length ${LEN:-2048} --bf16 --use-megatron-fsdp \\\n"
	 "  --data-parallel-sharding-strategy ${STRATEGY}\n",
		"megatron-fsdp", "gpus=16 micro-batch=4 seq-len=2048 strategy=FULL_SHARD",
		"predicted as FSDP2"},
	{"import torch\nmesh = init_device_mesh('cuda', (2, 8))\nmodel = FSDP(model, "
	 "sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2,\n  limit_all_gathers=False, "
	 "auto_wrap_policy=policy, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))\n",
		"pytorch-fsdp1",
		"strategy=HYBRID_SHARD_ZERO2 shard-group=8 limit-all-gathers=off "
		"param-dtype=bf16 wrap=block",
		NULL},
	{"import torch\nfor b in blocks:\n    fully_shard(b, mesh=mesh, "
	 "reshard_after_forward=4)\n",
		"pytorch", "strategy=FULL_SHARD reshard-after-forward=4", NULL},
	{"answer: 42\n", NULL, "no configuration of a framework that is known here", NULL},
	{"distributed_type: [\n", NULL, "x:", NULL},
};

static bool has_setting(const struct imported *imported, const char *pair, size_t length)
{
	const char *equals = memchr(pair, '=', length);
	size_t name = (size_t)(equals - pair);

	for (int i = 0; i < imported->n_settings; i++) {
		const struct import_setting *setting = &imported->settings[i];
		if (strlen(setting->option) == name && strncmp(setting->option, pair, name) == 0)
			return strlen(setting->value) == length - name - 1 &&
			       strncmp(setting->value, equals + 1, length - name - 1) == 0;
	}
	return false;
}

static void check_settings(const struct foreign *file, const struct imported *imported)
{
	assert_string_equal(imported->target->name, file->target);
	for (const char *pair = file->settings; *pair != '\0';) {
		size_t length = strcspn(pair, " ");
		if (!has_setting(imported, pair, length))
			fail_msg("no %.*s in\n%s", (int)length, pair, file->text);
		pair += length + (pair[length] == ' ');
	}
}

static void check_note(const struct foreign *file, const struct imported *imported)
{
	bool found = file->note == NULL;

	for (int i = 0; i < imported->n_notes; i++)
		found = found || strstr(imported->notes[i].text, file->note) != NULL;
	if (!found)
		fail_msg("no note \"%s\" for\n%s", file->note, file->text);
}

static void foreign_files(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(files); i++) {
		const struct foreign *file = &files[i];
		struct arena arena = {0};
		struct error error = {0};
		struct imported imported;
		bool ok = import_config(
			&arena, "x", file->text, strlen(file->text), NULL, NULL, &imported, &error);
		if (file->target == NULL) {
			assert_false(ok);
			assert_int_equal(error.code, EXIT_CODE_INPUT);
			if (strstr(error.message, file->settings) == NULL)
				fail_msg("got \"%s\", expected \"%s\"", error.message,
					file->settings);
		} else {
			if (!ok)
				fail_msg("%s\n%s", error.message, file->text);
			check_settings(file, &imported);
			check_note(file, &imported);
		}
		arena_finish(&arena);
	}
}

static struct imported read_function(struct arena *arena, const char *function)
{
	static const char text[] =
		"from torchtitan.trainer import Trainer\n\n"
		"def small() -> Trainer.Config:\n"
		"    return Trainer.Config(training=TrainingConfig(local_batch_size=2, "
		"seq_len=512))\n\n"
		"def large() -> Trainer.Config:\n"
		"    config = small()\n    config.training.seq_len = 8192\n    return config\n\n"
		"def tensor() -> Trainer.Config:\n"
		"    return Trainer.Config(parallelism=ParallelismConfig("
		"tensor_parallel_degree=8))\n";
	struct imported imported;
	struct error error = {0};

	if (!import_config(arena, "x", text, strlen(text), NULL, function, &imported, &error))
		fail_msg("%s: %s", function, error.message);
	return imported;
}

/* One function, and those that it calls; another's tensor parallelism is not in the way. */
static void one_function_of_a_file(void **state)
{
	struct arena arena = {0};
	struct imported small = read_function(&arena, "small");
	struct imported large = read_function(&arena, "large");

	(void)state;
	assert_true(has_setting(&small, "seq-len=512", 11));
	assert_true(has_setting(&large, "seq-len=8192", 12));
	assert_true(has_setting(&large, "micro-batch=2", 13));
	arena_finish(&arena);
}

/* Notes come in the order of the file's lines, whatever is read first. */
static void notes_in_order(void **state)
{
	static const char text[] = "{\"zero_optimization\": {\"stage\": 3,\n"
				   "\"offload_param\": {\"device\": \"nvme\"},\n"
				   "\"reduce_bucket_size\": 1e6},\n\"gradient_clipping\": "
				   "\"auto\",\n\"unknown\": 1}";
	struct arena arena = {0};
	struct imported imported;

	(void)state;
	assert_true(import_config(&arena, "x", text, strlen(text), NULL, NULL, &imported, NULL));
	assert_int_equal(imported.n_notes, 5);
	for (int i = 1; i < imported.n_notes; i++)
		assert_true(imported.notes[i - 1].line <= imported.notes[i].line);
	arena_finish(&arena);
}

/* accelerate 1.15 on Llama-2-7B: the head's unit is the one that stays gathered. */
static void tail_stays(void **state)
{
	static const char text[] = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, "
				   "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n";
	static const struct {
		const char *model, *wrap, *reshard;
	} rows[] = {{"llama-2-7b", "block+embedding+head", "33xtrue+1xfalse"},
		{"gpt2-124m", "block", "true"}}; /* one weight, in the root */
	struct arena arena = {0};
	struct imported imported;

	(void)state;
	assert_true(import_config(&arena, "x", text, strlen(text), NULL, NULL, &imported, NULL));
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct plan_file file;
		load(&arena, rows[i].model, "2xdgx-a100-80gb", &file);
		struct question question = {.model = file.model, .topology = file.topology};
		assert_true(plan_resolve(&question, &arena, &file.plan, NULL));
		import_settle(&imported, file.model, false, &arena, &file.plan);
		assert_string_equal(file.plan.wrap.text, rows[i].wrap);
		assert_string_equal(file.plan.reshard_after_forward.text, rows[i].reshard);
		assert_true(plan_check(&file.plan, file.model, file.topology, NULL));
	}
	arena_finish(&arena);
}

/* llm-foundry's mpt-7b.yaml is as wide and deep as Llama-2-7B and is none. Its MPTConfig has biases
 * and learned positions; the count is of these, by hand: V*h + s*h + L*(12h^2 + 13h) + 2h. */
static void model_is_spelled_out(void **state)
{
	static const char text[] = "max_seq_len: 2048\nglobal_train_batch_size: 64\nmodel:\n"
				   "  name: mpt_causal_lm\n  d_model: 4096\n  n_heads: 32\n"
				   "  n_layers: 32\n  vocab_size: 50368\n";
	const int64_t h = 4096;
	struct arena arena = {0};
	struct imported imported;
	struct model *model;

	(void)state;
	assert_true(import_config(&arena, "x", text, strlen(text), NULL, NULL, &imported, NULL));
	assert_true(model_parse(&arena, "x", imported.model, strlen(imported.model), &model, NULL));
	assert_int_equal(model->architecture.family, FAMILY_MPT);
	assert_int_equal(
		model->parameter_count, 50368 * h + 2048 * h + 32 * (12 * h * h + 13 * h) + 2 * h);
	arena_finish(&arena);
}

/* Every prefix and many mutations of every export: an answer or a message, never a crash. */
static void mutations(void **state)
{
	static const char letters[] = " \n\t\"'()[]{}#=$\\,:-9z";
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
	struct question question = {.model = trip.file.model, .topology = trip.file.topology};
	assert_true(plan_resolve(&question, &arena, &trip.file.plan, NULL));
	for (int t = 0; t < n_export_targets; t++) {
		trip.target = export_targets[t];
		text_clear(&trip.text);
		assert_true(export_plan(trip.target, trip.version, &trip.file, "x", &arena,
			&trip.exported, &trip.text, NULL));
		for (int i = 0; i < 200; i++) {
			struct arena scratch = {0};
			struct imported imported;
			struct error error = {0};
			size_t length = trip.text.length;
			char *copy = arena_strndup(&scratch, text_string(&trip.text), length);
			if (i % 2 == 0)
				copy[length = (size_t)random_below((int)length + 1)] = '\0';
			else
				for (int k = 0; k < 3; k++)
					copy[random_below((int)length)] =
						letters[random_below(COUNT_OF(letters) - 1)];
			bool ok = import_config(
				&scratch, "x", copy, length, trip.target, NULL, &imported, &error);
			assert_true(ok || error.code == EXIT_CODE_INPUT);
			arena_finish(&scratch);
		}
	}
	text_finish(&trip.text);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
		cmocka_unit_test(recognizes),
		cmocka_unit_test(versions),
		cmocka_unit_test(clipping_is_left_alone),
		cmocka_unit_test(starts_on_nodes),
		cmocka_unit_test(accelerate_shards),
		cmocka_unit_test(torchtitan_configurations),
		cmocka_unit_test(fsdp1_adds_no_gradients_on_the_host),
		cmocka_unit_test(fsdp1_keeps_shared_weights_together),
		cmocka_unit_test(names_are_inert),
		cmocka_unit_test(foreign_files),
		cmocka_unit_test(one_function_of_a_file),
		cmocka_unit_test(notes_in_order),
		cmocka_unit_test(tail_stays),
		cmocka_unit_test(model_is_spelled_out),
		cmocka_unit_test(mutations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
