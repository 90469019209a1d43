/* What goes out comes back: random plans through every target; names stay inert. */
#include "support.h"

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
	{"fp8", {"", "", "", "", "", "", "", "tensorwise", "rowwise"}},
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

static const char *value_of(struct arena *arena, const struct plan *plan, const char *knob)
{
	return knob_text(knob_find(knob), plan, arena);
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
		if (in_file || strcmp(field->name, "global_batch") == 0 ||
			strcmp(value, "null") == 0 ||
			(strcmp(field->name, "virtual_stages") == 0 && strcmp(value, "0") == 0))
			continue;
		if (!question_set_by_name(question, field->name, field->name,
			    arena_strndup(trip->arena, value + quoted, strlen(value) - 2 * quoted),
			    trip->arena, NULL))
			fail_msg("%s: %s", field->name, value);
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

static int count_versions(const struct export_target *target)
{
	int n = 1;

	for (const char *c = target->versions; *c != '\0'; c++)
		n += *c == ' ';
	return n;
}

struct degree {
	enum knob_id knob;
	int64_t ranks;
};

/* Writes a plan with these degrees and reads it back. False: the target has no words for it, and
 * says `refused`. */
static bool says_degrees(struct trip *trip, const char *model, const struct degree *degrees, int n,
	const char *refused, struct plan *back)
{
	struct error error = {0};

	load(trip->arena, model, "2xdgx-a100-80gb", &trip->file);
	struct question question = {.model = trip->file.model, .topology = trip->file.topology};
	for (int i = 0; i < n; i++)
		question_put(
			&question, degrees[i].knob, (union knob_value){.number = degrees[i].ranks});
	assert_true(plan_resolve(&question, trip->arena, &trip->file.plan, &error));
	if (!export_plan(trip->target, 0, &trip->file, trip->target->file, trip->arena,
		    &trip->exported, &trip->text, &error)) {
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		assert_non_null(strstr(error.message, refused));
		return false;
	}
	read_back(trip, back);
	for (int i = 0; i < n; i++)
		assert_int_equal(knob_get(degrees[i].knob, back).number, degrees[i].ranks);
	compare(trip, back);
	text_finish(&trip->text);
	return true;
}

/* Files of torchtitan, Megatron-LM and accelerate say ranks that divide the model; no other does,
 * and says so. accelerate cuts no sequence. */
static void axes(void **state)
{
	static const struct degree degrees[] = {{KNOB_TENSOR, 4}, {KNOB_CONTEXT, 2}};
	struct arena arena = {0};
	int said = 0;

	(void)state;
	for (int t = 0; t < n_export_targets; t++) {
		struct trip trip = {.arena = &arena, .target = export_targets[t]};
		const char *name = trip.target->name;
		bool has_tensor = strcmp(name, "nanotron") == 0 || strcmp(name, "axolotl") == 0;
		bool is_fsdp1 = strcmp(name, "accelerate-fsdp1") == 0;
		bool by_plan = strcmp(name, "accelerate") == 0 || strcmp(name, "trl") == 0;
		struct plan back;
		if (!says_degrees(&trip, "llama-2-7b", degrees, COUNT_OF(degrees),
			    has_tensor ? "context 2"
			    : is_fsdp1 ? "FSDP1"
				       : "tensor 4",
			    &back))
			continue;
		said++;
		assert_true(by_plan || strstr(name, "torchtitan") != NULL ||
			    strcmp(name, "megatron") == 0 || strcmp(name, "megatron-bridge") == 0);
		assert_int_equal(back.sequence_parallel, !by_plan);
	}
	assert_true(said > 0);
	arena_finish(&arena);
}

/* Asynchronous tensor parallelism has words in torchtitan alone, others since it is compilation's.
 */
static void async_tensor(void **state)
{
	struct arena arena = {0};
	int said = 0;

	(void)state;
	for (int t = 0; t < n_export_targets; t++) {
		struct trip trip = {.arena = &arena, .target = export_targets[t]};
		bool titan = strstr(trip.target->name, "torchtitan") != NULL;
		bool toml = strcmp(trip.target->name, "torchtitan-toml") == 0;
		for (int version = 0; version < (titan && !toml ? 2 : 1); version++) {
			struct error error = {0};
			struct plan back;
			load(&arena, "llama-3.1-8b", "2xdgx-a100-80gb", &trip.file);
			struct question question = {
				.model = trip.file.model, .topology = trip.file.topology};
			question_put(&question, KNOB_TENSOR, (union knob_value){.number = 4});
			question_put(&question, KNOB_COMPILE, (union knob_value){.on = true});
			question_put(&question, KNOB_ASYNC_TENSOR, (union knob_value){.on = true});
			assert_true(plan_resolve(&question, &arena, &trip.file.plan, &error));
			if (!export_plan(trip.target, version, &trip.file, trip.target->file,
				    &arena, &trip.exported, &trip.text, &error))
				continue; /* no tensor ranks */
			assert_int_equal(trip.exported.plan.async_tensor, titan);
			if (!titan) {
				text_finish(&trip.text);
				continue;
			}
			assert_non_null(strstr(text_string(&trip.text),
				version == 0 ? "enable_async_tensor_parallel"
					     : "compile.enable_async_tensor_parallel"));
			read_back(&trip, &back);
			assert_true(back.async_tensor);
			text_finish(&trip.text);
			said++;
		}
	}
	assert_int_equal(said, 5);
	arena_finish(&arena);
}

/* So it is with experts on several ranks, which prefetch in forward under torchtitan. */
static void experts(void **state)
{
	static const struct degree degrees[] = {
		{KNOB_TENSOR, 2}, {KNOB_EXPERT, 4}, {KNOB_EXPERT_TENSOR, 2}};
	struct arena arena = {0};
	int said = 0;

	(void)state;
	for (int t = 0; t < n_export_targets; t++) {
		struct trip trip = {.arena = &arena, .target = export_targets[t]};
		struct plan back;
		if (!says_degrees(
			    &trip, "qwen3-30b-a3b", degrees, COUNT_OF(degrees), "expert 4", &back))
			continue;
		said++;
		bool is_torch = strstr(trip.target->name, "torchtitan") != NULL;
		assert_true(is_torch || strcmp(trip.target->name, "megatron") == 0 ||
			    strcmp(trip.target->name, "megatron-bridge") == 0);
		assert_int_equal(trip.exported.plan.forward_prefetch, is_torch);
	}
	assert_true(said > 0);
	arena_finish(&arena);
}

/* Stages, in the words of torchtitan, nanotron and Megatron-LM; others say that they have none. */
static const struct {
	const char *strategy, *schedule, *virtual_stages, *layers;
	bool beside; /* torchtitan has no word for such stages */
} stages[] = {
	{"SHARD_GRAD_OP", "1f1b", NULL, NULL, false},
	{"FULL_SHARD", "gpipe", NULL, NULL, false},
	{"FULL_SHARD", "interleaved", "2", NULL, false},
	{"SHARD_GRAD_OP", "interleaved", "3", NULL, false},
	{"SHARD_GRAD_OP", "1f1b", NULL, "9,9,8,6", false},
	{"SHARD_GRAD_OP", "1f1b", NULL, "8,9,7,8", true},
	{"SHARD_GRAD_OP", "interleaved", "5", NULL, true},
	{"SHARD_GRAD_OP", "zb-h1", "2", NULL, false},
	{"FULL_SHARD", "zbv", "2", NULL, false},
	{"SHARD_GRAD_OP", "dualpipev", "2", NULL, false},
};

static void plan_stages(struct trip *trip, int c)
{
	const char *const given[][2] = {{"pipeline", "4"}, {"grad_accum", "8"},
		{"micro_batch", "2"}, {"strategy", stages[c].strategy},
		{"pipeline_schedule", stages[c].schedule},
		{"virtual_stages", stages[c].virtual_stages},
		{"layers_per_stage", stages[c].layers}};
	struct error error = {0};

	load(trip->arena, "llama-2-7b", "2xdgx-a100-80gb", &trip->file);
	struct question question = {.model = trip->file.model, .topology = trip->file.topology};
	for (int i = 0; i < COUNT_OF(given); i++)
		if (given[i][1] != NULL)
			assert_true(question_set_by_name(&question, given[i][0], given[i][0],
				given[i][1], trip->arena, &error));
	if (!plan_resolve(&question, trip->arena, &trip->file.plan, &error))
		fail_msg("%s", error.message);
}

static void compare_stages(struct trip *trip, const struct plan *back, int c)
{
	const struct plan *plan = &trip->file.plan;

	assert_int_equal(back->mesh.pipeline, 4);
	assert_int_equal(back->grad_accum, 8);
	assert_int_equal(back->micro_batch, 2);
	assert_false(back->sync_each_micro_batch);
	compare(trip, back);
	check_notes(trip);
	if (strstr(trip->target->name, "torchtitan") == NULL)
		return;
	const char *const *sayers;
	int n = export_sayers(
		trip->file.model, trip->file.topology, &trip->exported.plan, trip->arena, &sayers);
	assert_int_equal(n, stages[c].beside ? 0 : 3);
	if (n > 0)
		assert_string_equal(sayers[0], "torchtitan");
	assert_int_equal(back->strategy, plan->strategy);
	assert_int_equal(back->pipeline_schedule, plan->pipeline_schedule);
	assert_int_equal(is_beside(trip, "layers_per_stage") || is_beside(trip, "virtual_stages"),
		stages[c].beside);
}

static void pipelines(void **state)
{
	int said = 0;

	(void)state;
	for (int i = 0; i < n_export_targets * COUNT_OF(stages); i++) {
		struct arena arena = {0};
		struct trip trip = {
			.arena = &arena, .target = export_targets[i / COUNT_OF(stages)]};
		struct error error = {0};
		struct plan back;
		plan_stages(&trip, i % COUNT_OF(stages));
		for (trip.version = 0; trip.version < count_versions(trip.target); trip.version++) {
			text_clear(&trip.text);
			if (!export_plan(trip.target, trip.version, &trip.file, trip.target->file,
				    &arena, &trip.exported, &trip.text, &error)) {
				assert_int_equal(error.code, EXIT_CODE_USAGE);
				assert_non_null(strstr(error.message, "pipeline 4"));
				continue;
			}
			said++;
			/* So it is in the line that starts it. */
			if (strcmp(trip.target->name, "torchtitan-flags") == 0)
				text_add(&trip.text, "--config llama3_8b\n");
			read_back(&trip, &back);
			compare_stages(&trip, &back, i % COUNT_OF(stages));
		}
		text_finish(&trip.text);
		arena_finish(&arena);
	}
	/* torchtitan's three, two of them in two versions, nanotron, Megatron-LM and
	 * Megatron-Bridge. */
	assert_int_equal(said, 8 * COUNT_OF(stages));
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
	resolve(&trip.file, &arena);
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
	resolve(&trip.file, &arena);
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

/* Every prefix and many mutations of every export: an answer or a message, never a crash. */
static void mutations(void **state)
{
	static const char letters[] = " \n\t\"'()[]{}#=$\\,:-9z";
	struct arena arena = {0};
	struct trip trip = {.arena = &arena};

	(void)state;
	load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
	resolve(&trip.file, &arena);
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
		cmocka_unit_test(axes),
		cmocka_unit_test(async_tensor),
		cmocka_unit_test(experts),
		cmocka_unit_test(pipelines),
		cmocka_unit_test(round_trips),
		cmocka_unit_test(recognizes),
		cmocka_unit_test(names_are_inert),
		cmocka_unit_test(mutations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
