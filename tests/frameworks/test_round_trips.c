/* Exported plans read back equal: random plans through every target. Special characters in names
 * have no effect. */
#include "support.h"

#include "tests/sampled.h"

enum { DRAWS = SAMPLED(9000), PLANS_AT_LEAST = SAMPLED(150) };

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
	{"liger", {"", "", "true"}},
	{"loss", {"", "", "fused-linear"}},
	{"param_dtype", {"bf16", "fp16", "fp32"}},
	{"fp8", {"", "", "", "", "", "", "", "tensorwise", "rowwise", "mxfp8"}},
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

static void round_trips(void **state)
{
	static const char *const models[] = {"gpt2-124m", "llama-2-7b", "mistral-7b", "mpt-7b"};
	static const char *const topologies[] = {"2xdgx-a100-80gb", "dgx-b200", "4xp4d.24xlarge"};
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
	/* Each of these few plans goes through every target. */
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
			NULL, NULL, 0, &imported, NULL));
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
			bool ok = import_config(&scratch, "x", copy, length, trip.target, NULL, 0,
				&imported, &error);
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
		cmocka_unit_test(names_are_inert),
		cmocka_unit_test(mutations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
