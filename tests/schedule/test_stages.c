/* The laws between classes: pipelines drawn by hand are accepted, and each kind of damage is
 * refused with a line that names both ends. */
#include "damage.h"
#include "parse.h"
#include "schedule/laws/laws.h"
#include "schedule/memory/memory.h"
#include "stages.h"
#include "support.h"

static void test_orders(void **state)
{
	struct arena arena = {0};
	(void)state;
	for (int stages = 2; stages <= 6; stages++)
		for (int m = 1; m <= 9; m++)
			for (int order = STAGES_1F1B; order <= STAGES_GPIPE; order++) {
				struct error error = {0};
				const struct schedule *s = stages_schedule(
					&arena, stages, m, (enum stages_order)order);
				if (!schedule_validate(s, &error))
					fail_msg("%d stages, %d micro-batches: %s", stages, m,
						error.message);
				arena_reset(&arena);
			}
	arena_finish(&arena);
}

static void test_text(void **state)
{
	struct arena arena = {0};
	struct text text = {0}, again = {0};
	struct schedule *read;
	struct error error = {0};
	(void)state;
	const struct schedule *s = stages_schedule(&arena, 3, 2, STAGES_1F1B);
	schedule_print(s, &text);
	assert_non_null(strstr(text_string(&text), "\nclass 2\n"));
	assert_non_null(strstr(text_string(&text),
		"op 1 send stream=send micro_batch=0 group=0 peer=1 chunk=0 direction=forward "
		"dtype=bf16 bytes=4096 waits=0 gives=0 uses=0\n"));
	if (!schedule_parse(&arena, "stages", text_string(&text), text.length, &read, &error))
		fail_msg("%s", error.message);
	assert_int_equal(read->n_classes, 3);
	schedule_print(read, &again);
	assert_string_equal(text_string(&text), text_string(&again));
	assert_string_equal(schedule_digest(s).hex, schedule_digest(read).hex);
	text_finish(&text);
	text_finish(&again);
	arena_finish(&arena);
}

/* The first stages hold more: each has the inputs of as many micro-batches as are in flight. */
static void test_ledger(void **state)
{
	struct arena arena = {0};
	(void)state;
	const struct schedule *s = stages_schedule(&arena, 4, 8, STAGES_1F1B);
	struct ledger ledgers[4];
	for (int c = 0; c < 4; c++)
		schedule_ledger(s, c, &arena, &ledgers[c]);
	assert_int_equal(ledgers[1].category_peak_bytes[CATEGORY_ACTIVATIONS],
		(3 + 1) * STAGES_BYTES); /* and the one that is sent */
	assert_int_equal(
		ledgers[2].category_peak_bytes[CATEGORY_ACTIVATIONS], (2 + 1) * STAGES_BYTES);
	assert_int_equal(ledgers[3].category_peak_bytes[CATEGORY_ACTIVATIONS], STAGES_BYTES);
	arena_finish(&arena);
}

/* --- damage --------------------------------------------------------------------------------------
 */

static void drop(struct program *p, int op)
{
	/* What stays behind is a mark of no buffers: the numbers of others hold. */
	p->ops[op].kind = OP_END_COPIES;
	p->ops[op].group = -1;
	p->ops[op].bytes = 0;
	p->ops[op].message = (struct message){0};
}

/* A receive less, with what it brought. */
static void missing_receive(struct schedule *s)
{
	struct program *p = &s->programs[1];
	int op = stages_find(p, OP_RECV, 1, DIRECTION_FORWARD);
	int buffer = slice_of(p, p->ops[op].takes)[0];
	drop(p, op);
	p->buffers[buffer].role = BUFFER_ACTIVATIONS;
	p->ops[op].kind = OP_FORWARD;
	p->ops[op].stream = STREAM_COMPUTE;
}

static void missing_send(struct schedule *s)
{
	struct program *p = &s->programs[0];
	int op = stages_find(p, OP_SEND, 1, DIRECTION_FORWARD);
	drop(p, op);
	p->ops[op].kind = OP_FORWARD;
	p->ops[op].stream = STREAM_COMPUTE;
}

static void wrong_tag(struct schedule *s)
{
	struct program *p = &s->programs[1];
	p->ops[stages_find(p, OP_RECV, 1, DIRECTION_FORWARD)].message.chunk = 1;
}

static void wrong_bytes(struct schedule *s)
{
	struct program *p = &s->programs[1];
	struct op *op = &p->ops[stages_find(p, OP_RECV, 1, DIRECTION_FORWARD)];
	op->bytes /= 2;
	p->buffers[slice_of(p, op->uses)[0]].bytes /= 2;
}

static void wrong_dtype(struct schedule *s)
{
	struct program *p = &s->programs[1];
	p->ops[stages_find(p, OP_RECV, 1, DIRECTION_FORWARD)].dtype = DTYPE_FP32;
}

static void wrong_order(struct schedule *s)
{
	struct program *p = &s->programs[1];
	struct op *a = &p->ops[stages_find(p, OP_RECV, 0, DIRECTION_FORWARD)];
	struct op *b = &p->ops[stages_find(p, OP_RECV, 1, DIRECTION_FORWARD)];
	a->micro_batch = 1;
	b->micro_batch = 0;
}

static void sent_twice(struct schedule *s)
{
	for (int c = 0; c < 2; c++) {
		struct program *p = &s->programs[c];
		enum op_kind kind = c == 0 ? OP_SEND : OP_RECV;
		p->ops[stages_find(p, kind, 1, DIRECTION_FORWARD)].micro_batch = 0;
	}
}

static void two_streams(struct schedule *s)
{
	struct program *p = &s->programs[1];
	p->ops[stages_find(p, OP_RECV, 1, DIRECTION_FORWARD)].stream = STREAM_GATHER;
}

/* Sends and receives on one stream: each class sends, and nobody receives. */
static void crossed(struct schedule *s)
{
	for (int c = 0; c < s->n_classes; c++)
		for (int i = 0; i < s->programs[c].n_ops; i++)
			if (op_kind_class(s->programs[c].ops[i].kind) == OP_CLASS_MESSAGE)
				s->programs[c].ops[i].stream = STREAM_SEND;
}

static void to_itself(struct schedule *s)
{
	struct program *p = &s->programs[0];
	p->ops[stages_find(p, OP_SEND, 0, DIRECTION_FORWARD)].message.peer = 0;
}

static void to_nobody(struct schedule *s)
{
	struct program *p = &s->programs[0];
	p->ops[stages_find(p, OP_SEND, 0, DIRECTION_FORWARD)].message.peer = 2;
}

static void wrong_buffer(struct schedule *s)
{
	struct program *p = &s->programs[0];
	const struct op *op = &p->ops[stages_find(p, OP_SEND, 0, DIRECTION_FORWARD)];
	p->buffers[slice_of(p, op->uses)[0]].bytes += 1;
}

static void no_class(struct schedule *s)
{
	s->n_classes = 1;
}

static struct op norm(int64_t bytes)
{
	return (struct op){.kind = OP_ALL_REDUCE,
		.stream = STREAM_COMPUTE,
		.micro_batch = -1,
		.group = 0,
		.bytes = bytes};
}

static void add_norm(struct schedule *s, int class, int64_t bytes)
{
	struct program *p = &s->programs[class];
	int scalars = p->n_buffers++;
	p->buffers[scalars] = (struct buffer){.role = BUFFER_NORM_SCALARS,
		.unit = -1,
		.layer = -1,
		.resident = true,
		.bytes = bytes};
	int op = stages_add(s, class, norm(bytes));
	slice_add(p, &p->ops[op].uses, scalars);
}

static void one_norm(struct schedule *s)
{
	add_norm(s, 0, 8);
}

static void unequal_norms(struct schedule *s)
{
	add_norm(s, 0, 8);
	add_norm(s, 1, 16);
}

static const struct {
	const char *name;
	void (*apply)(struct schedule *);
	const char *message;
} damages[] = {
	{"missing receive", missing_receive,
		"schedule: op 3 of class 0 sends micro-batch 1, chunk 0, forward to class 1, which "
		"does not receive it"},
	{"missing send", missing_send,
		"schedule: op 4 of class 1 receives micro-batch 1, chunk 0, forward from class 0, "
		"which does not send it"},
	{"wrong tag", wrong_tag,
		"schedule: op 3 of class 0 sends micro-batch 1, chunk 0, forward to class 1, which "
		"does not receive it"},
	{"wrong bytes", wrong_bytes,
		"schedule: op 3 of class 0 sends 4096 bytes of bf16, op 4 of class 1 receives 2048 "
		"bytes of bf16 (micro-batch 1, chunk 0, forward)"},
	{"wrong dtype", wrong_dtype,
		"schedule: op 3 of class 0 sends 4096 bytes of bf16, op 4 of class 1 receives 4096 "
		"bytes of fp32 (micro-batch 1, chunk 0, forward)"},
	{"wrong order", wrong_order,
		"schedule: op 1 of class 0 sends micro-batch 0, chunk 0, forward, where op 0 of "
		"class 1 receives micro-batch 1, chunk 0, forward: one order in a group"},
	{"sent twice", sent_twice,
		"schedule: class 0 sends micro-batch 0, chunk 0, forward to class 1 twice"},
	{"two streams", two_streams, "schedule: ops 0 and 4 of class 1 receive on two streams"},
	{"crossed", crossed,
		"schedule: the classes deadlock: class 0 waits in op 3 (send to class 1, "
		"micro-batch 1, forward), class 1 in op 3 (send to class 0, micro-batch 0, "
		"backward)"},
	{"to itself", to_itself,
		"schedule: class 0: op 1: send of class 0 has class 0 at the other end"},
	{"to nobody", to_nobody,
		"schedule: class 0: op 1: send of class 0 has class 2 at the other end"},
	{"wrong buffer", wrong_buffer,
		"schedule: class 0: op 1: send of 4096 bytes does not fill its buffer"},
	{"no class", no_class, "schedule: 1 classes, expected 2"},
	{"one norm", one_norm, "schedule: 1 collectives of class 0 join classes, 0 of class 1"},
	{"unequal norms", unequal_norms,
		"schedule: op 16 of class 0 is all_reduce of 8 bytes, op 16 of class 1 all_reduce "
		"of 16 bytes, each number 0 of group 0"},
};

static void test_damage(void **state)
{
	struct arena arena = {0};
	(void)state;
	for (int d = 0; d < COUNT_OF(damages); d++) {
		struct error error = {0};
		struct schedule *s = stages_schedule(&arena, 2, 4, STAGES_1F1B);
		damages[d].apply(s);
		if (schedule_validate(s, &error))
			fail_msg("%s: accepted", damages[d].name);
		assert_int_equal(error.code, EXIT_CODE_INTERNAL);
		assert_string_equal(error.message, damages[d].message);
		arena_reset(&arena);
	}
	arena_finish(&arena);
}

/* Equal norms on all stages are accepted. */
static void test_joint_collective(void **state)
{
	struct arena arena = {0};
	struct error error = {0};
	(void)state;
	struct schedule *s = stages_schedule(&arena, 3, 2, STAGES_1F1B);
	for (int c = 0; c < 3; c++)
		add_norm(s, c, 8);
	if (!schedule_validate(s, &error))
		fail_msg("%s", error.message);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_orders),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_ledger),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_joint_collective),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
