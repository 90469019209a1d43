/* Schedules of a small Llama against what PyTorch 2.15.0 issues for it: the files of golden/torch,
 * written by bench/torch/trace.py. Collectives
 * one by one, with their payloads. */
#include <stdio.h>

#include "support.h"

static const char *folder;

/* The model of trace.py. */
static struct model *small_llama(struct arena *arena, bool tied)
{
	const struct architecture architecture = {.name = "small",
		.family = FAMILY_LLAMA,
		.layers = 3,
		.hidden = 64,
		.heads = 4,
		.kv_heads = 2,
		.head_dim = 16,
		.ffn = 160,
		.vocab = 250,
		.context = 16,
		.positions = POSITIONS_ROPE,
		.norm = NORM_RMSNORM,
		.mlp = MLP_SWIGLU,
		.tied_head = tied,
		.norm_epsilon = 1e-5,
		.rope_theta = 10000};
	struct error error = {0};
	struct model *model = NULL;
	if (!architecture_check(&architecture, NULL, &error) ||
		!model_build(arena, &architecture, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

static void trace(const struct schedule *schedule, struct text *text)
{
	const struct program *p = &schedule->programs[0];
	bool backward = false;
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		backward = (backward && op->kind != OP_END_BACKWARD) || op->kind == OP_LOSS;
		if (i > 0 && op->micro_batch != p->ops[i - 1].micro_batch)
			backward = false;
		if (op_kind_class(op->kind) == OP_CLASS_COLLECTIVE && op->unit >= 0)
			text_printf(text, "%s %s %s %lld\n", backward ? "backward" : "forward",
				op_kind_name(op->kind), dtype_name(op->dtype),
				(long long)(op->bytes / dtype_bytes(op->dtype)));
	}
}

static void read_golden(const char *name, char *text, size_t size)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/torch/%s.txt", folder, name);
	FILE *file = fopen(path, "rb");
	if (file == NULL)
		fail_msg("%s: cannot be read", path);
	size_t n = fread(text, 1, size - 1, file);
	fclose(file);
	text[n] = '\0';
}

static const struct {
	const char *name, *runtime, *strategy, *third, *fourth;
	bool tied;
	const char *prefetch;
} cases[] = {
	{"fsdp1_full", "pytorch-fsdp1", "FULL_SHARD", NULL, NULL, false},
	{"fsdp1_grad_op", "pytorch-fsdp1", "SHARD_GRAD_OP", NULL, NULL, false},
	{"fsdp1_none", "pytorch-fsdp1", "NO_SHARD", NULL, NULL, false},
	{"fsdp1_full_checkpoint", "pytorch-fsdp1", "FULL_SHARD", "activation_checkpointing=full",
		NULL, false},
	{"fsdp1_full_accumulate", "pytorch-fsdp1", "FULL_SHARD", "grad_accum=2",
		"sync_each_micro_batch=off", false},
	{"fsdp1_full_tied", "pytorch-fsdp1", "FULL_SHARD", NULL, NULL, true},
	{"fsdp1_size", "pytorch-fsdp1", "FULL_SHARD", "wrap=size:4000", NULL, false},
	{"fsdp1_size_checkpoint", "pytorch-fsdp1", "FULL_SHARD", "wrap=size:4000",
		"activation_checkpointing=full", false},
	{"fsdp1_size_checkpoint_none", "pytorch-fsdp1", "FULL_SHARD", "wrap=size:4000",
		"activation_checkpointing=full", false, "prefetch=none"},
	{"fsdp2_full", "pytorch-fsdp2", "FULL_SHARD", NULL, NULL, false},
	{"fsdp2_grad_op", "pytorch-fsdp2", "SHARD_GRAD_OP", NULL, NULL, false},
	{"fsdp2_full_checkpoint", "pytorch-fsdp2", "FULL_SHARD", "activation_checkpointing=full",
		NULL, false},
	{"fsdp2_full_accumulate", "pytorch-fsdp2", "FULL_SHARD", "grad_accum=2",
		"sync_each_micro_batch=off", false},
	{"fsdp2_full_tied", "pytorch-fsdp2", "FULL_SHARD", NULL, NULL, true},
	{"fsdp2_full_root", "pytorch-fsdp2", "FULL_SHARD", "reshard_after_forward=all", NULL,
		false},
	{"fsdp2_full_root_checkpoint", "pytorch-fsdp2", "FULL_SHARD", "reshard_after_forward=all",
		"activation_checkpointing=full", false},
	{"fsdp2_full_root_accumulate", "pytorch-fsdp2", "FULL_SHARD", "reshard_after_forward=all",
		"grad_accum=2", false, "sync_each_micro_batch=off"},
};

static void test_collectives(void **state)
{
	(void)state;
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct arena arena = {0};
		struct text text = {0};
		char golden[8192];
		struct model *model = small_llama(&arena, cases[c].tied);
		struct topology *topology = gpu_cluster(&arena, 1, 4);
		struct plan plan = toy_plan(&arena, model, topology,
			arena_printf(&arena, "runtime=%s", cases[c].runtime),
			arena_printf(&arena, "strategy=%s", cases[c].strategy), "seq_len=16",
			cases[c].third, cases[c].fourth, cases[c].prefetch, NULL);
		trace(toy_schedule(&arena, &plan, model, topology), &text);
		read_golden(cases[c].name, golden, sizeof(golden));
		assert_true(strlen(golden) > 100);
		if (strcmp(text_string(&text), golden) != 0)
			fail_msg("%s: expected\n%sgot\n%s", cases[c].name, golden,
				text_string(&text));
		text_finish(&text);
		arena_finish(&arena);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_collectives),
	};
	folder = argc > 1 ? argv[1] : "tests/schedule/golden";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
