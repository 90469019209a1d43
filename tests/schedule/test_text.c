/* The text form: what is printed is parsed back to the same text, and nothing else is accepted. */
#include "schedule/laws/laws.h"
#include "schedule/memory/memory.h"
#include "support.h"
#include "tests/sampled.h"
#include "tests/schedule/parse.h"

static struct text print(const struct schedule *schedule)
{
	struct text text = {0};
	schedule_print(schedule, &text);
	return text;
}

/* NULL when refused; then the message is one line "sample:LINE:COL: schedule: ...". */
static struct schedule *parse(struct arena *arena, const char *text, size_t length)
{
	struct schedule *schedule;
	struct error error = {0};
	int line, column, read = 0;
	if (schedule_parse(arena, "sample", text, length, &schedule, &error))
		return schedule;
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	assert_null(strchr(error.message, '\n'));
	assert_int_equal(
		sscanf(error.message, "sample:%d:%d: schedule: %n", &line, &column, &read), 2);
	assert_true(read > 0 && line >= 1 && column >= 1 && error.message[read] != '\0');
	return NULL;
}

static struct sample small_sample(struct arena *arena, uint64_t *seed)
{
	struct sample sample;
	do {
		arena_reset(arena);
		sample = random_sample(arena, seed);
	} while (sample.schedule->programs[0].n_ops > 40);
	return sample;
}

/* --- there and back ------------------------------------------------------------------------------
 */

static void check_same_items(
	const struct program *p, struct slice a, const struct program *q, struct slice b)
{
	assert_int_equal(a.count, b.count);
	for (int i = 0; i < a.count; i++)
		assert_int_equal(slice_of(p, a)[i], slice_of(q, b)[i]);
}

static void check_same_op(const struct program *p, const struct program *q, int index)
{
	const struct op *x = &p->ops[index], *y = &q->ops[index];
	assert_int_equal(x->kind, y->kind);
	assert_int_equal(x->stream, y->stream);
	assert_int_equal(x->unit, y->unit);
	assert_int_equal(x->micro_batch, y->micro_batch);
	assert_int_equal(x->group, y->group);
	assert_int_equal(x->layer, y->layer);
	assert_int_equal(x->cause, y->cause);
	assert_int_equal(x->first_module, y->first_module);
	assert_int_equal(x->end_module, y->end_module);
	assert_int_equal(x->dtype, y->dtype);
	assert_int_equal(x->bytes, y->bytes);
	check_same_items(p, x->waits, q, y->waits);
	check_same_items(p, x->host_waits, q, y->host_waits);
	check_same_items(p, x->takes, q, y->takes);
	check_same_items(p, x->gives, q, y->gives);
	check_same_items(p, x->uses, q, y->uses);
}

static void check_same_buffer(const struct buffer *x, const struct buffer *y)
{
	assert_int_equal(x->role, y->role);
	assert_int_equal(x->pool, y->pool);
	assert_int_equal(x->unit, y->unit);
	assert_int_equal(x->layer, y->layer);
	assert_int_equal(x->first_module, y->first_module);
	assert_int_equal(x->end_module, y->end_module);
	assert_int_equal(x->dtype, y->dtype);
	assert_int_equal(x->bytes, y->bytes);
	assert_int_equal(x->resident, y->resident);
}

static void check_same_unit(const struct unit *x, const struct unit *y)
{
	assert_string_equal(x->name, y->name);
	assert_int_equal(x->module, y->module);
	assert_int_equal(x->end_module, y->end_module);
	assert_int_equal(x->chunk, y->chunk);
	assert_int_equal(x->gathered, y->gathered);
	assert_int_equal(x->parameters, y->parameters);
	assert_int_equal(x->n_slices, y->n_slices);
	for (int i = 0; i < x->n_slices; i++) {
		assert_int_equal(x->slices[i].parameter, y->slices[i].parameter);
		assert_int_equal(x->slices[i].offset, y->slices[i].offset);
		assert_int_equal(x->slices[i].elements, y->slices[i].elements);
		assert_int_equal(x->slices[i].padded_elements, y->slices[i].padded_elements);
	}
}

/* Every member, so that none is left out of the text. */
static void check_same(const struct schedule *a, const struct schedule *b)
{
	const struct program *p = &a->programs[0], *q = &b->programs[0];
	assert_int_equal(p->n_ops, q->n_ops);
	assert_int_equal(p->n_buffers, q->n_buffers);
	assert_int_equal(p->n_units, q->n_units);
	assert_int_equal(a->n_groups, b->n_groups);
	assert_int_equal(a->n_engines, b->n_engines);
	for (int i = 0; i < p->n_ops; i++)
		check_same_op(p, q, i);
	for (int i = 0; i < p->n_buffers; i++)
		check_same_buffer(&p->buffers[i], &q->buffers[i]);
	for (int i = 0; i < p->n_units; i++)
		check_same_unit(&p->units[i], &q->units[i]);
	for (int i = 0; i < a->n_groups; i++) {
		assert_int_equal(a->groups[i].kind, b->groups[i].kind);
		assert_int_equal(a->groups[i].size, b->groups[i].size);
		assert_int_equal(a->groups[i].stride, b->groups[i].stride);
		assert_int_equal(a->groups[i].engine, b->groups[i].engine);
	}
	assert_true(knobs_alike_but(0, &a->plan, &b->plan));
	assert_true(fields_equal(mesh_fields, &a->plan.mesh, &b->plan.mesh));
}

static void test_round_trip(void **state)
{
	(void)state;
	uint64_t seed = 1;
	for (int round = 0; round < SAMPLED(1500); round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		struct text text = print(sample.schedule);
		struct schedule *again = parse(&arena, text.data, text.length);
		assert_non_null(again);
		struct text printed = print(again);
		assert_int_equal(text.length, printed.length);
		assert_memory_equal(text.data, printed.data, text.length);
		assert_string_equal(
			schedule_digest(sample.schedule).hex, schedule_digest(again).hex);
		check_same(sample.schedule, again);
		struct ledger a, b;
		schedule_ledger(sample.schedule, 0, &arena, &a);
		schedule_ledger(again, 0, &arena, &b);
		assert_int_equal(a.peak_bytes, b.peak_bytes);
		text_finish(&text);
		text_finish(&printed);
		arena_finish(&arena);
	}
}

/* --- damage --------------------------------------------------------------------------------------
 */

static void test_prefixes(void **state)
{
	(void)state;
	uint64_t seed = 17;
	for (int round = 0; round < 3; round++) {
		struct arena arena = {0}, scratch = {0};
		struct sample sample = small_sample(&arena, &seed);
		struct text text = print(sample.schedule);
		assert_in_range(text.length, 2000, 20000);
		for (size_t length = 0; length < text.length; length++) {
			assert_null(parse(&scratch, text.data, length));
			arena_reset(&scratch);
		}
		assert_non_null(parse(&scratch, text.data, text.length));
		text_finish(&text);
		arena_finish(&scratch);
		arena_finish(&arena);
	}
}

/* One random edit: a byte replaced, dropped, doubled, two lines exchanged, a number replaced. */
static void damage(char *text, size_t *length, uint64_t *seed)
{
	static const char *const numbers[] = {
		"-1", "0", "99999999999999999999", "2147483648", "-9223372036854775808", "1e9"};
	size_t at = (size_t)random_below(seed, (int64_t)*length);
	switch (random_below(seed, 4)) {
	case 0:
		text[at] = (char)random_below(seed, 256);
		break;
	case 1:
		memmove(text + at, text + at + 1, *length - at - 1);
		--*length;
		break;
	case 2:
		memmove(text + at + 1, text + at, *length - at);
		++*length;
		break;
	default: {
		const char *number = numbers[random_below(seed, COUNT_OF(numbers))];
		while (at + 1 < *length && (text[at] < '0' || text[at] > '9'))
			at++;
		size_t end = at, n = strlen(number);
		while (end < *length && text[end] >= '0' && text[end] <= '9')
			end++;
		memmove(text + at + n, text + end, *length - end);
		memcpy(text + at, number, n);
		*length = *length - (end - at) + n;
	}
	}
}

/* Either refused, or a valid schedule that prints as it was read. Sanitizers watch. */
static void test_damaged(void **state)
{
	(void)state;
	uint64_t seed = 8;
	int accepted = 0, rounds = 0;
	for (int s = 0; s < 40; s++) {
		struct arena arena = {0}, scratch = {0};
		struct sample sample = small_sample(&arena, &seed);
		struct text text = print(sample.schedule);
		char *damaged = malloc(text.length + 100);
		for (int k = 0; k < 500; k++, rounds++) {
			size_t length = text.length;
			memcpy(damaged, text.data, length);
			for (int64_t edits = 1 + random_below(&seed, 3); edits > 0; edits--)
				damage(damaged, &length, &seed);
			struct schedule *schedule = parse(&scratch, damaged, length);
			if (schedule != NULL) {
				struct text again = print(schedule);
				struct ledger ledger;
				struct error error = {0};
				accepted++;
				assert_int_equal(again.length, length);
				assert_memory_equal(again.data, damaged, length);
				assert_true(schedule_validate(schedule, &error));
				schedule_ledger(schedule, 0, &scratch, &ledger);
				assert_true(ledger.peak_bytes >= 0);
				text_finish(&again);
			}
			arena_reset(&scratch);
		}
		free(damaged);
		text_finish(&text);
		arena_finish(&scratch);
		arena_finish(&arena);
	}
	/* most of the text is structure; what may change freely are names, knobs and sizes */
	assert_in_range(accepted, rounds / 1000, rounds / 4);
}

/* --- edits by hand -------------------------------------------------------------------------------
 */

static char *replaced(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);
	assert_non_null(at);
	char *result = NULL;
	assert_true(
		asprintf(&result, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
	return result;
}

static const struct {
	const char *from, *to, *message;
} edits[] = {
	{"schedule 1\n", "schedule 2\n", "sample:1:1: schedule: expected \"schedule 1\", got"},
	{"plan strategy FULL_SHARD", "plan strategy FULL",
		"sample:2:6: schedule: strategy: expected one of NO_SHARD,"},
	{"plan wrap block\n", "", "schedule: incomplete"},
	{"plan wrap block\n", "plan wrap block\nplan wrap block\n", "sample:5:"},
	{"plan wrap block\n", "plan warp block\n", "sample:4:6: schedule: no such field \"warp\""},
	{"plan wrap block\n", "plan wrap  block\n", "wrap: expected block, blocks:K"},
	{"plan compile false", "plan compile off", "exactly as it is printed"},
	{"plan seq_len 3", "plan seq_len 03", "exactly as it is printed"},
	{"plan clip 0\n", "plan clip -1\n", "clip: expected a number of 0 or more"},
	{"mesh shard 2", "mesh shard 4", "do not fit the mesh"},
	{"mesh shard 2", "mesh shard 0", "expected a whole number greater than 0"},
	{"mesh replicate 1", "mesh replicate 9223372036854775807", "mesh: replicate"},
	{"group 0 shard", "group 1 shard", "expected the next number, got"},
	{"group 0 shard", "group 0 sharp", "expected a kind of group, got"},
	{"group 0 shard size=2", "group 0 shard size=3", "do not fit the mesh"},
	{"engine=0", "engine=-1", "do not fit the mesh"},
	{"engine=0", "engine=7", "do not fit the mesh"},
	{"unit 0 root", "unit 0", "exactly as it is printed"},
	{"unit 0 root", "unit 1 root", "expected the next number"},
	{"chunk=", "chunk=1", "sizes contradict each other"},
	{"slices=0@0", "slices=0@9999999", "sizes contradict each other"},
	{"slices=0@0+", "slices=0@0-", "expected a slice"},
	{"class 0\n", "", "expected a class before its buffers"},
	{"class 0\n", "class 0\nclass 1\n", "2 classes, expected 1"},
	{"buffer 0 parameter_shard", "buffer 0 parameter_shart", "expected a buffer's role"},
	{"buffer 0 parameter_shard", "buffer 0 tokens", "unit 0: updated by 0 optimizers"},
	{" resident\n", "\n", "before it is taken"},
	{" resident\n", " permanent\n", "expected the end of the line, got \"permanent\""},
	{"bytes=", "bytes=-", ""},
	{"stream=gather ", "stream=gather_ ", "expected stream"},
	{" all_gather stream", " all_gathers stream", "expected a kind of operation"},
	{" all_gather stream", " loss stream", "group 0 with loss"},
	{" waits=", " wait=", "expected the end of the line"},
	{" waits=", " waits=,", "expected a list of numbers"},
	{" waits=", " waits=1000,", "waits name 1000, expected"},
	{" uses=", " uses=1000,", "uses name 1000, expected"},
	{" takes=", " takes=0,", "taken resident buffer 0"},
	{"end\n", "end\nmore\n", "exactly as it is printed"},
	{"end\n", "", "cut short, expected \"end\""},
	{"end\n", "end", "cut short"},
};

static void test_edits(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = toy_model(&arena, 1, false);
	struct topology *topology = gpu_cluster(&arena, 1, 2);
	struct plan plan = toy_plan(&arena, model, topology, "runtime=pytorch-fsdp1", "seq_len=3",
		"strategy=FULL_SHARD", NULL);
	struct text text = print(toy_schedule(&arena, &plan, model, topology));
	for (int i = 0; i < COUNT_OF(edits); i++) {
		struct error error = {0};
		struct schedule *schedule;
		char *edited = replaced(text.data, edits[i].from, edits[i].to);
		if (schedule_parse(&arena, "sample", edited, strlen(edited), &schedule, &error))
			fail_msg("\"%s\" for \"%s\" passes", edits[i].to, edits[i].from);
		assert_null(parse(&arena, edited, strlen(edited)));
		if (strstr(error.message, edits[i].message) == NULL)
			fail_msg(
				"\"%s\" for \"%s\": %s", edits[i].to, edits[i].from, error.message);
		free(edited);
	}
	assert_null(parse(&arena, "", 0));
	assert_null(parse(&arena, text.data, text.length - 1));
	text.data[100] = '\0';
	assert_null(parse(&arena, text.data, text.length));
	text_finish(&text);
	arena_finish(&arena);
}

/* --- digest --------------------------------------------------------------------------------------
 */

static const char *const knobs[] = {"strategy=SHARD_GRAD_OP", "strategy=HYBRID_SHARD",
	"strategy=NO_SHARD", "wrap=blocks:2", "wrap=model", "wrap=size:150", "prefetch=post",
	"prefetch=none", "forward_prefetch=on", "limit_all_gathers=off",
	"activation_checkpointing=full", "param_dtype=fp32", "param_dtype=fp16",
	"reduce_dtype=bf16", "optimizer=adamw-fused", "optimizer=sgd", "runtime=shardplan",
	"runtime=pytorch-fsdp2", "seq_len=4", "micro_batch=2", "grad_accum=2", "clip=1"};

/* What follows "class 0": buffers and operations alone, without the knobs. */
static struct digest program_digest(const struct schedule *schedule)
{
	struct text text = print(schedule);
	const char *program = strstr(text.data, "\nclass 0\n");
	struct digest digest = digest_of(program, strlen(program));
	text_finish(&text);
	return digest;
}

/* Every knob changes buffers and operations, not only its own line; no two give the same. */
static void test_digests(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = toy_model(&arena, 4, false);
	struct topology *topology = gpu_cluster(&arena, 2, 2);
	struct digest digests[COUNT_OF(knobs) + 1];
	for (int i = 0; i <= COUNT_OF(knobs); i++) {
		const char *knob = i < COUNT_OF(knobs) ? knobs[i] : "prefetch=pre";
		struct plan plan = toy_plan(&arena, model, topology, "runtime=pytorch-fsdp1",
			"seq_len=3", "strategy=FULL_SHARD", knob, NULL);
		struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
		digests[i] = program_digest(schedule);
		assert_int_equal(strlen(schedule_digest(schedule).hex), 32);
		for (int k = 0; k < i; k++)
			if (strcmp(digests[k].hex, digests[i].hex) == 0)
				fail_msg("%s and %s give one program", knobs[k], knob);
	}
	arena_finish(&arena);
}

/* Another size of anything is another digest; the same question twice is the same digest. */
static void test_digest_is_stable(void **state)
{
	(void)state;
	uint64_t seed = 404;
	for (int round = 0; round < 100; round++) {
		struct arena arena = {0};
		uint64_t again = seed;
		struct digest a = schedule_digest(random_sample(&arena, &seed).schedule);
		struct digest b = schedule_digest(random_sample(&arena, &again).schedule);
		struct digest c = schedule_digest(random_sample(&arena, &again).schedule);
		assert_string_equal(a.hex, b.hex);
		assert_string_not_equal(a.hex, c.hex);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_edits),
		cmocka_unit_test(test_digests),
		cmocka_unit_test(test_digest_is_stable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
