/* Knobs that differ from block to block and from unit to unit: decoding, counting, normal forms,
 * wrapping the embedding and the head apart; and what a schedule makes of them. */
#include "schedule/memory/memory.h"
#include "support.h"

static struct sample made(struct arena *arena, const char *model, const char *machine,
	const char *a, const char *b, const char *c)
{
	struct sample s = {
		.model = preset_model(arena, model), .topology = cluster(arena, machine)};
	s.plan = toy_plan(arena, s.model, s.topology, a, b, c, NULL);
	s.schedule = toy_schedule(arena, &s.plan, s.model, s.topology);
	return s;
}

/* --- the plan ------------------------------------------------------------------------------------
 */

static void test_decoding(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample s = made(&arena, "llama-2-7b", "2xdgx-a100-80gb", "runtime=pytorch-fsdp2",
		"activation_checkpointing=8xfull+4xselective+20xnone",
		"reshard_after_forward=16x8+12xtrue+4xfalse");
	const struct plan *plan = &s.plan;
	for (int l = -1; l <= 32; l++)
		assert_int_equal(
			plan_block_checkpointing(plan, l), l < 0 || l >= 12 ? CHECKPOINTING_NONE
							   : l < 8          ? CHECKPOINTING_FULL
								   : CHECKPOINTING_SELECTIVE);
	assert_int_equal(plan_count_checkpointing(plan, CHECKPOINTING_FULL, 32), 8);
	assert_int_equal(plan_count_checkpointing(plan, CHECKPOINTING_SELECTIVE, 32), 4);
	assert_true(plan_checkpoints(plan, CHECKPOINTING_NONE));
	for (int l = 0; l < 32; l++) {
		assert_int_equal(plan_reshard_group_at(plan, l), l < 16 ? 8 : l < 28 ? -1 : 0);
		assert_int_equal(s.schedule->programs->units[1 + l].reshard_group,
			plan_reshard_group_at(plan, l));
		assert_int_equal(plan_offload_at(plan, l), OFFLOAD_NONE);
	}
	assert_int_equal(s.schedule->programs->units[0].reshard_group, 0);
	assert_false(plan_offloads_any(plan));
	arena_finish(&arena);
}

/* "all": the root too, which is then free while the loss is computed, and gathered once more. */
static void test_root(void **state)
{
	(void)state;
	struct arena arena = {0};
	int64_t at_loss[2], gathers[2];
	struct sample s;
	for (int all = 0; all < 2; all++) {
		struct ledger ledger;
		s = made(&arena, "llama-2-7b", "2xdgx-a100-80gb", "runtime=pytorch-fsdp2",
			"activation_checkpointing=full",
			all ? "reshard_after_forward=all" : "reshard_after_forward=true");
		const struct program *p = &s.schedule->programs[0];
		schedule_ledger(s.schedule, 0, &arena, &ledger);
		gathers[all] = 0;
		for (int i = 0; i < p->n_ops; i++) {
			gathers[all] += p->ops[i].kind == OP_ALL_GATHER && p->ops[i].unit == 0;
			if (p->ops[i].kind == OP_LOSS)
				at_loss[all] = ledger.live[i][CATEGORY_PARAMETERS];
		}
	}
	assert_int_equal(s.schedule->programs->units[0].reshard_group, -1);
	assert_true(plan_reshards_root(&s.plan));
	assert_int_equal(gathers[0], 1);
	assert_int_equal(gathers[1], 2);
	assert_int_equal(at_loss[0] - at_loss[1], 2 * s.schedule->programs->units[0].gathered);
	arena_finish(&arena);
}

/* What the encoders write, the decoders read, and it is in normal form. */
static void test_round_trip(void **state)
{
	(void)state;
	struct arena arena = {0};
	uint64_t seed = 11;
	for (int round = 0; round < 500; round++) {
		enum checkpointing blocks[9];
		enum offload units[9];
		int64_t groups[9], n = 1 + random_below(&seed, 9);
		for (int i = 0; i < n; i++) {
			blocks[i] = (enum checkpointing)random_below(&seed, 3);
			units[i] = (enum offload)random_below(&seed, 4);
			groups[i] = (int64_t[]){-1, 0, 2, 16}[random_below(&seed, 4)];
		}
		struct plan plan = {
			.activation_checkpointing = rows_make_checkpointing(&arena, blocks, n),
			.reshard_after_forward = rows_make_reshard(&arena, groups, n),
			.cpu_offload = rows_make_offload(&arena, units, n)};
		struct plan again = plan;
		plan_normalise(&again, &arena);
		assert_string_equal(
			plan.activation_checkpointing.text, again.activation_checkpointing.text);
		assert_string_equal(
			plan.reshard_after_forward.text, again.reshard_after_forward.text);
		assert_string_equal(plan.cpu_offload.text, again.cpu_offload.text);
		for (int i = 0; i < n; i++) {
			assert_int_equal(plan_block_checkpointing(&plan, i), blocks[i]);
			assert_int_equal(plan_reshard_group_at(&plan, i), groups[i]);
			assert_int_equal(plan_offload_at(&plan, i),
				units[i] == OFFLOAD_ALL ? OFFLOAD_PARAMETERS : units[i]);
		}
	}
	arena_finish(&arena);
}

/* Equal plans have equal texts, and so equal digests. */
static void test_normal_form(void **state)
{
	(void)state;
	static const char *const same[][2] = {
		{"activation_checkpointing=full", "activation_checkpointing=32xfull"},
		{"activation_checkpointing=full", "activation_checkpointing=30xfull+2xfull"},
		{"activation_checkpointing=2xfull+30xnone",
			"activation_checkpointing=1xfull+1xfull+30xnone"},
		{"reshard_after_forward=true", "reshard_after_forward=32xtrue"},
		{"reshard_after_forward=8", "reshard_after_forward=32x8"},
		{"cpu_offload=none", "cpu_offload=33xnone"},
	};
	struct arena arena = {0};
	for (int i = 0; i < COUNT_OF(same); i++) {
		struct sample a = made(&arena, "llama-2-7b", "2xdgx-a100-80gb", same[i][0],
			"runtime=pytorch-fsdp2", NULL);
		struct sample b = made(&arena, "llama-2-7b", "2xdgx-a100-80gb", same[i][1],
			"runtime=pytorch-fsdp2", NULL);
		struct digest x = schedule_digest(a.schedule), y = schedule_digest(b.schedule);
		assert_true(knobs_alike_but(0, &a.plan, &b.plan));
		assert_memory_equal(&x, &y, sizeof(x));
	}
	arena_finish(&arena);
}

static const struct {
	const char *model, *words, *message;
} refused[] = {
	{"llama-2-7b", "activation_checkpointing=8xfull+8xnone",
		"--activation-checkpointing 8xfull+8xnone: its runs count 16, expected the 32 "
		"blocks of the model"},
	{"llama-2-7b", "activation_checkpointing=33xfull",
		"--activation-checkpointing 33xfull: its runs count 33, expected the 32 blocks of "
		"the model"},
	{"llama-2-7b", "activation_checkpointing=full+none",
		"--activation-checkpointing: expected one of none, selective, full, or runs such "
		"as 2xselective+1xnone, got \"full+none\""},
	{"llama-2-7b", "activation_checkpointing=8xful+24xnone",
		"--activation-checkpointing: expected one of none, selective, full, or runs such "
		"as 2xselective+1xnone, got \"8xful+24xnone\""},
	{"llama-2-7b", "reshard_after_forward=20xtrue+13xfalse",
		"--reshard-after-forward 20xtrue+13xfalse: its runs count 33, expected the 32 "
		"units without the root"},
	{"llama-2-7b", "reshard_after_forward=20xtrue+12xmaybe",
		"--reshard-after-forward: expected true, false or a group size, got "
		"\"20xtrue+12xmaybe\""},
	{"llama-2-7b", "reshard_after_forward=16x3+16xtrue",
		"--reshard-after-forward 16x3+16xtrue: expected a proper divisor (not 1) of the "
		"shard group of 16, with FULL_SHARD or HYBRID_SHARD"},
	{"llama-2-7b", "reshard_after_forward=32xfalse",
		"--reshard-after-forward 32xfalse: contradicts FULL_SHARD; use SHARD_GRAD_OP"},
	{"llama-2-7b", "reshard_after_forward=16xtrue+16xfalse strategy=SHARD_GRAD_OP",
		"--reshard-after-forward 16xtrue+16xfalse: contradicts SHARD_GRAD_OP; use "
		"FULL_SHARD"},
	{"llama-2-7b", "cpu_offload=32xnone",
		"--cpu-offload 32xnone: its runs count 32, expected the 33 units with the root"},
	{"llama-2-7b", "wrap=block+embedding+head cpu_offload=33xnone",
		"--cpu-offload 33xnone: its runs count 33, expected the 34 units"},
	{"llama-2-7b", "wrap=model+head",
		"--wrap: expected block, blocks:K, size:N or model, and after the first "
		"three +embedding, +head or both, got \"model+head\""},
	{"llama-2-7b", "wrap=block+head+embedding",
		"--wrap: expected block, blocks:K, size:N or model, and after "
		"the first three +embedding, +head or both, got \"block+head+embedding\""},
	{"gpt2-124m", "wrap=blocks:2+embedding",
		"--wrap blocks:2+embedding: the head of gpt2-124m is tied to its token embedding, "
		"both must be in the root; use blocks:2"},
};

static void test_refused(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	for (int i = 0; i < COUNT_OF(refused); i++) {
		struct plan plan;
		struct error error = {0};
		char *words = arena_strdup(&arena, refused[i].words), *second = strchr(words, ' ');
		if (second != NULL)
			*second++ = '\0';
		if (try_plan(&arena, preset_model(&arena, refused[i].model), topology, &plan,
			    &error, words, second, NULL))
			fail_msg("%s passes", refused[i].words);
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		assert_string_equal(error.message, refused[i].message);
	}
	arena_finish(&arena);
}

/* --- wrapping apart ------------------------------------------------------------------------------
 */

/* As torchtitan wraps Llama: the token embedding alone, the blocks, final norm and head together.
 */
static void test_apart(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample s = made(&arena, "llama-2-7b", "2xdgx-a100-80gb", "runtime=pytorch-fsdp2",
		"wrap=block+embedding+head", "reshard_after_forward=33xtrue+1xfalse");
	assert_int_equal(s.schedule->programs->n_units, 35);
	assert_int_equal(s.schedule->programs->units[0].parameters, 0);
	assert_int_equal(s.schedule->programs->units[1].parameters, 131072000);
	for (int u = 2; u < 34; u++)
		assert_int_equal(s.schedule->programs->units[u].parameters, 202383360);
	assert_int_equal(s.schedule->programs->units[34].parameters, 131072000 + 4096);
	assert_string_equal(s.schedule->programs->units[34].name, "model.norm+lm_head");
	assert_int_equal(s.schedule->programs->units[34].reshard_group, 0);
	/* every unit once forward, all but the head again backward */
	assert_int_equal(count_ops(s.schedule, OP_ALL_GATHER, -1), 34 + 33);
	assert_int_equal(count_ops(s.schedule, OP_REDUCE_SCATTER, -1), 34);
	struct sample h = made(&arena, "llama-2-7b", "2xdgx-a100-80gb", "runtime=pytorch-fsdp1",
		"wrap=blocks:8+head", NULL);
	assert_int_equal(h.schedule->programs->n_units, 1 + 4 + 1);
	assert_int_equal(h.schedule->programs->units[0].parameters, 131072000);
	arena_finish(&arena);
}

/* "size:N" wraps single modules; what it wrapped already stays one unit. */
static void test_apart_by_size(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample plain = made(&arena, "llama-2-7b", "dgx-a100-80gb", "runtime=pytorch-fsdp1",
		"wrap=size:1e8", NULL);
	struct sample apart = made(&arena, "llama-2-7b", "dgx-a100-80gb", "runtime=pytorch-fsdp1",
		"wrap=size:1e8+embedding+head", NULL);
	assert_int_equal(plain.schedule->programs->n_units, apart.schedule->programs->n_units);
	struct sample large = made(&arena, "llama-2-7b", "dgx-a100-80gb", "runtime=pytorch-fsdp1",
		"wrap=size:2e8", NULL);
	struct sample more = made(&arena, "llama-2-7b", "dgx-a100-80gb", "runtime=pytorch-fsdp1",
		"wrap=size:2e8+embedding+head", NULL);
	assert_int_equal(large.schedule->programs->n_units + 2, more.schedule->programs->n_units);
	arena_finish(&arena);
}

/* --- the schedule --------------------------------------------------------------------------------
 */

static int64_t peak(const struct sample *s, struct arena *arena)
{
	struct ledger ledger;
	schedule_ledger(s->schedule, 0, arena, &ledger);
	return ledger.peak_bytes;
}

static int count_recomputes(const struct sample *s)
{
	return count_ops(s->schedule, OP_RECOMPUTE, -1);
}

/* Blocks that are checkpointed are computed again, the others are not; memory lies between none and
 * full, and falls with every block. */
static void test_mixed_checkpointing(void **state)
{
	(void)state;
	static const char *const runtimes[] = {
		"pytorch-fsdp1", "pytorch-fsdp2", "pytorch-ddp", "shardplan"};
	for (int r = 0; r < COUNT_OF(runtimes); r++) {
		struct arena arena = {0};
		int64_t before = INT64_MAX;
		for (int k = 0; k <= 12; k++) {
			struct sample s = made(&arena, "gpt2-124m", "dgx-a100-80gb",
				arena_printf(&arena, "runtime=%s", runtimes[r]),
				k == 0    ? "activation_checkpointing=none"
				: k == 12 ? "activation_checkpointing=full"
					  : arena_printf(&arena,
						    "activation_checkpointing=%dxfull+%dxnone", k,
						    12 - k),
				NULL);
			int64_t bytes = peak(&s, &arena);
			assert_int_equal(count_recomputes(&s), k);
			assert_true(bytes <= before);
			assert_true(k == 0 || k == 12 || bytes < before);
			before = bytes;
		}
		arena_finish(&arena);
	}
}

/* Which blocks are recomputed is what the runs say, not how many only. */
static void test_which_blocks(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample s = made(&arena, "gpt2-124m", "dgx-a100-80gb", "runtime=pytorch-fsdp2",
		"activation_checkpointing=3xnone+2xfull+6xselective+1xfull", NULL);
	const struct program *program = &s.schedule->programs[0];
	int seen[12] = {0};
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_RECOMPUTE)
			seen[program->ops[i].layer]++;
	for (int l = 0; l < 12; l++)
		assert_int_equal(seen[l], l < 3 ? 0 : l < 5 || l == 11 ? 1 : 2);
	arena_finish(&arena);
}

/* A unit that stays gathered is gathered once a micro-batch, another twice; groups of one size
 * share a communicator. */
static void test_mixed_resharding(void **state)
{
	(void)state;
	static const char *const runtimes[] = {"pytorch-fsdp1", "pytorch-fsdp2", "shardplan"};
	struct arena arena = {0};
	for (int r = 0; r < COUNT_OF(runtimes); r++)
		for (int k = 1; k < 12; k++) {
			struct sample s = made(&arena, "gpt2-124m", "dgx-a100-80gb",
				arena_printf(&arena, "runtime=%s", runtimes[r]),
				arena_printf(&arena, "reshard_after_forward=%dxtrue+%dxfalse", k,
					12 - k),
				NULL);
			assert_int_equal(count_ops(s.schedule, OP_ALL_GATHER, 0), 13);
			assert_int_equal(count_ops(s.schedule, OP_ALL_GATHER, 1), k);
		}
	struct sample s = made(&arena, "gpt2-124m", "dgx-a100-80gb", "runtime=pytorch-fsdp2",
		"reshard_after_forward=2x2+3x4+2x2+4xtrue+1xfalse", NULL);
	assert_int_equal(s.schedule->n_groups, 3);
	assert_int_equal(count_group(s.schedule, OP_ALL_GATHER, GROUP_RESHARD), 7);
	assert_int_equal(count_group(s.schedule, OP_ALL_GATHER, GROUP_SHARD), 13 + 4);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decoding),
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_normal_form),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_apart_by_size),
		cmocka_unit_test(test_mixed_checkpointing),
		cmocka_unit_test(test_which_blocks),
		cmocka_unit_test(test_mixed_resharding),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
