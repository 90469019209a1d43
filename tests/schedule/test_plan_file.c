/* plan.yaml: written and read it is the same; whatever is wrong in it is one line that says where.
 */
#include "schedule/documents/documents.h"
#include "support.h"

static struct text print(const struct plan_file *file)
{
	struct text text = {0};
	plan_file_write(file, &text);
	return text;
}

static void fill(int64_t *items, int n, uint64_t *seed)
{
	for (int i = 0; i < n; i++)
		items[i] = random_below(seed, INT64_C(1) << 50);
}

static double some(uint64_t *seed)
{
	return (double)random_below(seed, 1 << 30) / (double)(1 + random_below(seed, 1 << 30));
}

static struct prediction random_prediction(uint64_t *seed)
{
	struct prediction p = {.fits = (enum fits)random_below(seed, 3),
		.step_time = some(seed),
		.mfu = some(seed),
		.peak_name = "A100-SXM4-80GB bf16 dense",
		.peak_at = "backward model.layers.31, micro-batch 0",
		.peak_op = (int)random_below(seed, 1000),
		.time = {.compute = some(seed), .all_gather = some(seed)},
		.wire_bytes_per_rank = some(seed),
		.step_time_low = some(seed),
		.step_time_high = some(seed),
		.step_time_p95 = some(seed),
		.uncertainty_source = "prior: \"not measured\"",
		.lower_bound = some(seed)};
	fill(p.memory_at_peak, CATEGORY_COUNT, seed);
	fill(p.memory_category_peak, CATEGORY_COUNT, seed);
	fill(p.ledger_category_peak, CATEGORY_COUNT, seed);
	fill(p.collectives, 3, seed);
	fill(&p.peak_memory_bytes, 1, seed);
	fill(&p.ledger_peak_bytes, 1, seed);
	return p;
}

static struct plan_file random_file(struct arena *arena, uint64_t *seed)
{
	struct sample sample = random_sample(arena, seed);
	struct plan_file file = {
		.question = {"tiny: a \"model\"", "2xdgx-a100-80gb", "--gpus 4 # no comment"},
		.model = sample.model,
		.topology = sample.topology,
		.plan = sample.plan,
		.prediction = random_prediction(seed)};
	/* what a catalogue node is not made for */
	if (sample.topology->nodes == 1)
		file.topology->network = (struct network){.kind = NETWORK_NONE};
	file.schedule_digest = arena_strdup(arena, schedule_digest(sample.schedule).hex);
	file.prediction.schedule_digest = file.schedule_digest;
	return file;
}

/* Refusals are "plan.yaml:LINE:COL: ...", one line, exit code 3. Returns the line, 0 = accepted. */
static int refused_at(struct arena *arena, const char *text, size_t length)
{
	struct plan_file file;
	struct error error = {0};
	int line, column, read = 0;
	if (plan_file_parse(arena, "plan.yaml", text, length, &file, &error))
		return 0;
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	assert_null(strchr(error.message, '\n'));
	if (strcmp(error.message, "plan.yaml: the document is empty, expected YAML or JSON") == 0)
		return 1;
	if (sscanf(error.message, "plan.yaml:%d:%d: %n", &line, &column, &read) != 2 || read == 0 ||
		error.message[read] == '\0')
		fail_msg("no position: %s", error.message);
	assert_true(line >= 1 && column >= 1);
	return line;
}

/* --- there and back ------------------------------------------------------------------------------
 */

static void test_round_trip(void **state)
{
	(void)state;
	uint64_t seed = 2;
	for (int round = 0; round < 200; round++) {
		struct arena arena = {0};
		struct plan_file file = random_file(&arena, &seed), again;
		struct error error = {0};
		struct text text = print(&file);
		if (!plan_file_parse(&arena, "plan.yaml", text.data, text.length, &again, &error))
			fail_msg("%s", error.message);
		struct text printed = print(&again);
		assert_string_equal(text.data, printed.data);
		assert_true(knobs_alike_but(0, &file.plan, &again.plan));
		assert_true(again.prediction.step_time == file.prediction.step_time);
		assert_memory_equal(again.prediction.memory_at_peak, file.prediction.memory_at_peak,
			sizeof(file.prediction.memory_at_peak));
		assert_string_equal(again.question.options, file.question.options);
		/* model, topology and plan of the file compile to the schedule it names */
		struct schedule *schedule =
			toy_schedule(&arena, &again.plan, again.model, again.topology);
		assert_string_equal(schedule_digest(schedule).hex, file.schedule_digest);
		text_finish(&text);
		text_finish(&printed);
		arena_finish(&arena);
	}
}

/* --- every line damaged --------------------------------------------------------------------------
 */

struct line {
	const char *text;
	int indent, length;
	int colon; /* of "key:"; -1: none */
	bool scalar;
};

static bool next_line(const char **cursor, struct line *line)
{
	if (**cursor == '\0')
		return false;
	const char *end = strchr(*cursor, '\n');
	*line = (struct line){.text = *cursor, .length = (int)(end - *cursor)};
	line->indent = (int)strspn(line->text, " ");
	const char *colon = memchr(line->text, ':', (size_t)line->length);
	line->colon = colon != NULL ? (int)(colon - line->text) : -1;
	line->scalar = line->colon >= 0 && line->colon + 1 < line->length;
	*cursor = end + 1;
	return true;
}

/* The text with `length` bytes at `at` replaced. */
static char *spliced(const char *text, const char *at, int length, const char *with)
{
	char *result = NULL;
	assert_true(asprintf(&result, "%.*s%s%s", (int)(at - text), text, with, at + length) > 0);
	return result;
}

static int try_splice(
	struct arena *arena, const char *text, const char *at, int length, const char *with)
{
	char *damaged = spliced(text, at, length, with);
	int line = refused_at(arena, damaged, strlen(damaged));
	free(damaged);
	return line;
}

static struct text sample_text(struct arena *arena, uint64_t seed)
{
	struct plan_file file = random_file(arena, &seed);
	return print(&file);
}

/* A key that nobody knows is refused where it stands, also a known one with a letter more. */
static void test_unknown_keys(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct text text = sample_text(&arena, 5);
	const char *cursor = text.data;
	struct line line;
	int number = 0;
	while (next_line(&cursor, &line) && strncmp(line.text, "  rank_class", 12) != 0) {
		number++;
		if (number == 1)
			continue;
		assert_int_equal(
			try_splice(&arena, text.data, line.text + line.colon, 0, "x"), number);
		char *key = arena_printf(&arena, "%*sextra: 1\n", line.indent, "");
		int at = try_splice(&arena, text.data, line.text, 0, key);
		assert_int_equal(at, number);
	}
	assert_in_range(number, 100, 200);
	/* "shardplan" itself is what makes it a plan file */
	assert_int_equal(try_splice(&arena, text.data, text.data, 9, "shardplanx"), 1);
	assert_int_equal(
		try_splice(&arena, text.data, strstr(text.data, "plan/1"), 6, "plan/2"), 1);
	text_finish(&text);
	arena_finish(&arena);
}

/* A list, a map or nothing where a value stands is refused, at that value. */
static void test_wrong_types(void **state)
{
	(void)state;
	static const char *const values[] = {" [1, 2]", " {a: 1}"};
	struct arena arena = {0};
	struct text text = sample_text(&arena, 6);
	const char *cursor = text.data;
	struct line line;
	int number = 0;
	while (next_line(&cursor, &line) && strncmp(line.text, "  rank_class", 12) != 0) {
		number++;
		for (int v = 0; v < COUNT_OF(values) && line.scalar; v++)
			assert_int_equal(try_splice(&arena, text.data, line.text + line.colon + 1,
						 line.length - line.colon - 1, values[v]),
				number);
	}
	text_finish(&text);
	arena_finish(&arena);
}

/* Numbers that are none, or beyond reason, in every numeric place of model, topology and plan. */
static void test_wrong_numbers(void **state)
{
	(void)state;
	static const char *const values[] = {" -1", " 0x10", " 1e999", " nan", " 12 monkeys"};
	struct arena arena = {0};
	struct text text = sample_text(&arena, 7);
	const char *cursor = text.data;
	struct line line;
	int number = 0, tried = 0;
	while (next_line(&cursor, &line) && strncmp(line.text, "prediction:", 11) != 0) {
		number++;
		const char *value = line.text + line.colon + 2;
		if (!line.scalar || *value < '0' || *value > '9' || strncmp(value, "2xdgx", 5) == 0)
			continue;
		for (int v = 0; v < COUNT_OF(values); v++) {
			int at = try_splice(&arena, text.data, line.text + line.colon + 1,
				line.length - line.colon - 1, values[v]);
			if (at == 0)
				fail_msg("%.*s accepts%s", line.length, line.text, values[v]);
			tried++;
		}
	}
	assert_in_range(tried, 200, 400);
	text_finish(&text);
	arena_finish(&arena);
}

/* Lines that are missing: a required key is named at its map, an optional one may go. */
static void test_missing_lines(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct text text = sample_text(&arena, 8);
	const char *cursor = text.data;
	struct line line;
	int refused = 0, number = 0;
	while (next_line(&cursor, &line)) {
		number++;
		refused += try_splice(&arena, text.data, line.text, line.length + 1, "") > 0;
	}
	assert_in_range(refused, number / 3, number);
	text_finish(&text);
	arena_finish(&arena);
}

/* --- other damage --------------------------------------------------------------------------------
 */

/* Cut short anywhere it is refused; only the last newline may be missing. */
static void test_truncated(void **state)
{
	(void)state;
	struct arena arena = {0}, scratch = {0};
	struct text text = sample_text(&arena, 9);
	for (size_t length = 0; length + 1 < text.length; length++) {
		char *cut = malloc(length + 1); /* exact, so that reading past it is seen */
		memcpy(cut, text.data, length);
		bool complete =
			cut[length > 0 ? length - 1 : 0] == '"' && length + 1 == text.length;
		assert_int_equal(refused_at(&scratch, cut, length) > 0, !complete);
		free(cut);
		arena_reset(&scratch);
	}
	assert_int_equal(refused_at(&scratch, text.data, text.length), 0);
	text_finish(&text);
	arena_finish(&scratch);
	arena_finish(&arena);
}

static void test_random_bytes(void **state)
{
	(void)state;
	struct arena arena = {0}, scratch = {0};
	uint64_t seed = 10;
	struct text text = sample_text(&arena, 10);
	char *damaged = malloc(text.length);
	int accepted = 0;
	for (int round = 0; round < 1500; round++) {
		memcpy(damaged, text.data, text.length);
		for (int64_t n = 1 + random_below(&seed, 4); n > 0; n--)
			damaged[random_below(&seed, (int64_t)text.length)] =
				(char)random_below(&seed, 256);
		accepted += refused_at(&scratch, damaged, text.length) == 0;
		arena_reset(&scratch);
	}
	assert_in_range(accepted, 1, 700); /* digits of a prediction, letters of a name */
	free(damaged);
	text_finish(&text);
	arena_finish(&scratch);
	arena_finish(&arena);
}

/* --- sections that do not belong together --------------------------------------------------------
 */

static void check_message(struct arena *arena, const char *text, const char *message)
{
	struct plan_file file;
	struct error error = {0};
	assert_false(plan_file_parse(arena, "plan.yaml", text, strlen(text), &file, &error));
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	if (strstr(error.message, message) == NULL)
		fail_msg("%s: expected %s", error.message, message);
}

static struct plan_file fixed_file(struct arena *arena)
{
	struct plan_file file = {.model = preset_model(arena, "gpt2-nano"),
		.topology = cluster(arena, "2xdgx-a100-80gb"),
		.prediction = {.fits = FITS_YES}};
	file.plan = toy_plan(arena, file.model, file.topology, NULL);
	file.schedule_digest = "0123456789abcdef0123456789abcdef";
	file.prediction.schedule_digest = file.schedule_digest;
	return file;
}

static void test_contradictions(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to, *message;
	} rows[] = {
		{"nodes: 2", "nodes: 4",
			"plan: mesh: replicate 1 x shard 16 is not the topology's 32"},
		{"context: 256", "context: 128",
			"plan: --seq-len 256: gpt2-nano has a context of 128"},
		{"global_batch: 16", "global_batch: 17",
			"plan: global_batch 17: is not micro_batch"},
		{"shard: 16", "shard: 15", "plan: mesh: replicate 1 x shard 15"},
		{"runtime: pytorch-fsdp2", "runtime: pytorch-ddp",
			"plan: --strategy FULL_SHARD: runtime pytorch-ddp cannot do that"},
		{"optimizer: adamw-foreach", "optimizer: lion", "optimizer: expected one of"},
		{"heads: 6", "heads: 7", "head"},
		{"kind: gpu", "kind: tpu", "kind: expected one of"},
		{"schedule_digest: \"0", "schedule_digest: \"1",
			"schedule_digest: expected the prediction's 1123456789abcdef"},
		{"schedule_digest: \"0123456789abcdef0123456789abcdef\"",
			"schedule_digest: \"012\"",
			"schedule_digest: expected the prediction's 012, got 0123"},
		{"plan/1", "plan/9", "shardplan: expected plan/1, got plan/9"},
		{"shardplan: plan/1", "shardplan: topology/1", "shardplan: expected plan/1"},
	};
	struct arena arena = {0};
	struct plan_file file = fixed_file(&arena);
	struct text text = print(&file);
	for (int i = 0; i < COUNT_OF(rows); i++) {
		const char *at = strstr(text.data, rows[i].from);
		assert_non_null(at);
		char *changed = spliced(text.data, at, (int)strlen(rows[i].from), rows[i].to);
		check_message(&arena, changed, rows[i].message);
		free(changed);
	}
	check_message(&arena, "", "");
	check_message(&arena, "- a\n- b\n", "no plan file, expected \"shardplan: plan/1\"");
	check_message(&arena, "- a\n- b\n", "`shardplan import` reads files of other tools");
	struct error error = {0};
	assert_false(plan_file_parse(&arena, "a.toml", "[model]\n", 8, &file, &error));
	assert_string_equal(error.message,
		"a.toml: no plan file; `shardplan import` reads files of other tools");
	check_message(&arena, "shardplan: plan/1\n", "model: missing, expected a section");
	check_message(&arena, "{\"shardplan\": \"plan/1\", \"model\": 1}", "missing");
	text_finish(&text);
	arena_finish(&arena);
}

/* The digest of another schedule, in both places alike, is for the caller to see: the file is
 * sound, its schedule another one. */
static void test_other_schedule(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct plan_file file = fixed_file(&arena), again;
	struct error error = {0};
	struct text text = print(&file);
	assert_true(plan_file_parse(&arena, "plan.yaml", text.data, text.length, &again, &error));
	struct schedule *schedule = toy_schedule(&arena, &again.plan, again.model, again.topology);
	assert_string_not_equal(schedule_digest(schedule).hex, again.schedule_digest);
	text_finish(&text);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_unknown_keys),
		cmocka_unit_test(test_wrong_types),
		cmocka_unit_test(test_wrong_numbers),
		cmocka_unit_test(test_missing_lines),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_random_bytes),
		cmocka_unit_test(test_contradictions),
		cmocka_unit_test(test_other_schedule),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
