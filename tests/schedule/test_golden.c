/* Schedules against event sequences traced from PyTorch 2.6.0 (CPU, fake process group, third
 * iteration): FSDP1 with every strategy and prefetch mode, FSDP2 with every kind of resharding. The
 * files in golden/ hold one event a line in this program's words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "toy.h"

static const char *folder;

struct tracer {
	const struct schedule *schedule;
	const struct program *program;
	bool fsdp2;
	struct text text;
};

static const char *unit_label(const struct tracer *t, int unit, char buffer[32])
{
	const char *name = t->schedule->programs->units[unit].name;
	if (strncmp(name, "layers.", 7) == 0)
		snprintf(buffer, 32, "L%s", name + 7);
	else
		snprintf(buffer, 32, "%s", name);
	return buffer;
}

/* Was that operation issued before or after the loss of its micro-batch? */
static bool in_backward(const struct tracer *t, int op)
{
	for (int i = op; i >= 0; i--) {
		if (t->program->ops[i].kind == OP_LOSS)
			return true;
		if (i < op && t->program->ops[i].micro_batch != t->program->ops[op].micro_batch)
			return false;
	}
	return false;
}

static void trace_limiter(struct tracer *t, const struct op *op)
{
	char label[32];
	const int *waits = slice_of(t->program, op->host_waits);
	for (int i = 0; i < op->host_waits.count; i++) {
		int target = waits[i] < 0 ? waits[i] + t->program->n_ops : waits[i];
		text_printf(&t->text, "limiter %s %s %d\n",
			unit_label(t, t->program->ops[target].unit, label),
			in_backward(t, target) ? "backward" : "forward", waits[i] < 0 ? -1 : 0);
	}
}

static void trace_cause(struct tracer *t, const struct op *op)
{
	char label[32];
	if (op->cause >= 0)
		text_printf(&t->text, " by %s", unit_label(t, op->cause, label));
	text_add_char(&t->text, '\n');
}

static void trace_collective(struct tracer *t, const struct op *op, const char *label)
{
	text_printf(&t->text, "%s%s%s %s %lld", op_kind_name(op->kind), *label ? " " : "", label,
		dtype_name(op->dtype), (long long)(op->bytes / dtype_bytes(op->dtype)));
	if (t->fsdp2)
		text_printf(
			&t->text, " group %lld", (long long)t->schedule->groups[op->group].size);
}

static void trace_op(struct tracer *t, int index)
{
	const struct op *op = &t->program->ops[index];
	char buffer[32];
	const char *label = op->unit >= 0 ? unit_label(t, op->unit, buffer) : "";
	bool block = op->layer >= 0;
	trace_limiter(t, op);
	if (index > 0 && op->micro_batch > t->program->ops[index - 1].micro_batch)
		text_printf(&t->text, "micro_batch %d\n", op->micro_batch);
	if (op->kind == OP_CAST_PARAMETERS && !t->fsdp2) {
		text_printf(&t->text, "cast %s", label);
		trace_cause(t, op);
	} else if (op->kind == OP_ALL_GATHER) {
		trace_collective(t, op, label);
		trace_cause(t, op);
	} else if (op->kind == OP_FORWARD && block) {
		text_printf(&t->text, "forward %s\n", label);
	} else if (op->kind == OP_RESHARD || op->kind == OP_COPY_OUT) {
		text_printf(&t->text, "%s %s\n", op_kind_name(op->kind), label);
	} else if (op->kind == OP_LOSS) {
		text_add(&t->text, "loss\n");
	} else if (op->kind == OP_FLATTEN_GRADIENTS) {
		text_printf(&t->text, "post_backward %s\n", label);
	} else if (op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALL_REDUCE) {
		if (op->unit < 0)
			text_add(&t->text, "end\n");
		trace_collective(t, op, "");
		text_add_char(&t->text, '\n');
	} else if (op->kind == OP_OPTIMIZER &&
		   (t->fsdp2 || t->program->ops[index - 2].kind != OP_ALL_REDUCE)) {
		text_add(&t->text, "end\n");
	}
}

static char *read_golden(const char *name)
{
	char path[1024];
	snprintf(path, sizeof(path), "%s/%s.txt", folder, name);
	FILE *file = fopen(path, "r");
	if (file == NULL)
		fail_msg("cannot open %s", path);
	char *text = calloc(1, 1 << 16);
	assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
	fclose(file);
	return text;
}

static void compare(const char *name, const char *strategy, const char *prefetch, bool forward,
	int accum, const char *reshard)
{
	struct arena arena = {0};
	bool fsdp2 = strncmp(name, "fsdp2", 5) == 0;
	bool hybrid = strstr(strategy, "HYBRID") != NULL;
	char strategy_choice[64], prefetch_choice[64], accum_choice[64], reshard_choice[64];
	snprintf(strategy_choice, 64, "strategy=%s", strategy);
	snprintf(prefetch_choice, 64, "prefetch=%s", prefetch);
	snprintf(accum_choice, 64, "grad_accum=%d", accum);
	snprintf(reshard_choice, 64, "reshard_after_forward=%s", reshard);
	struct model *model = toy_model(&arena, TOY_BLOCKS, !fsdp2);
	struct topology *topology = toy_topology(&arena, 4);
	struct plan plan =
		toy_plan(&arena, model, topology, strategy_choice, prefetch_choice, accum_choice,
			reshard_choice, fsdp2 ? "runtime=pytorch-fsdp2" : "runtime=pytorch-fsdp1",
			forward ? "forward_prefetch=on" : "forward_prefetch=off",
			"sync_each_micro_batch=off", fsdp2 ? "clip=0" : "clip=1", "seq_len=3",
			"micro_batch=2", hybrid ? "shard_group=2" : NULL, NULL);
	struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
	struct tracer tracer = {
		.schedule = schedule, .program = &schedule->programs[0], .fsdp2 = fsdp2};
	for (int i = 0; i < tracer.program->n_ops; i++)
		trace_op(&tracer, i);
	char *golden = read_golden(name);
	assert_string_equal(text_string(&tracer.text), golden);
	free(golden);
	text_finish(&tracer.text);
	arena_finish(&arena);
}

static void test_fsdp1(void **state)
{
	(void)state;
	compare("fsdp1_full_shard_backward_pre_fp0_lim1", "FULL_SHARD", "pre", false, 1, "true");
	compare("fsdp1_full_shard_backward_post_fp0_lim1", "FULL_SHARD", "post", false, 1, "true");
	compare("fsdp1_full_shard_none_fp0_lim1", "FULL_SHARD", "none", false, 1, "true");
	compare("fsdp1_full_shard_backward_pre_fp1_lim1", "FULL_SHARD", "pre", true, 1, "true");
}

static void test_fsdp1_strategies(void **state)
{
	(void)state;
	compare("fsdp1_shard_grad_op_backward_pre_fp0_lim1", "SHARD_GRAD_OP", "pre", false, 1,
		"false");
	compare("fsdp1_hybrid_shard_backward_pre_fp0_lim1", "HYBRID_SHARD", "pre", false, 1,
		"true");
	compare("fsdp1_hybrid_shard_zero2_backward_pre_fp0_lim1", "HYBRID_SHARD_ZERO2", "pre",
		false, 1, "false");
	compare("fsdp1_no_shard_backward_pre_fp0_lim1", "NO_SHARD", "pre", false, 1, "false");
}

static void test_fsdp1_accumulation(void **state)
{
	(void)state;
	compare("fsdp1_full_shard_backward_pre_fp0_lim1_accum", "FULL_SHARD", "pre", false, 2,
		"true");
	compare("fsdp1_shard_grad_op_backward_pre_fp0_lim1_accum", "SHARD_GRAD_OP", "pre", false, 2,
		"false");
}

static void test_fsdp2(void **state)
{
	(void)state;
	compare("fsdp2_true", "FULL_SHARD", "pre", false, 1, "true");
	compare("fsdp2_false_plain", "SHARD_GRAD_OP", "pre", false, 1, "false");
	compare("fsdp2_2_plain", "FULL_SHARD", "pre", false, 1, "2");
	compare("fsdp2_true_hsdp", "HYBRID_SHARD", "pre", false, 1, "true");
}

int main(int argc, char **argv)
{
	folder = argc > 1 ? argv[1] : "tests/schedule/golden";
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fsdp1),
		cmocka_unit_test(test_fsdp1_strategies),
		cmocka_unit_test(test_fsdp1_accumulation),
		cmocka_unit_test(test_fsdp2),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
