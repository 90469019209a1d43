/* CPU offload: where buffers are, how often they are copied, who updates them, and the laws that
 * refuse everything else. Llama-2-7B on 2 x 8 A100 unless stated otherwise; 33 units with
 * parameters. */
#include "schedule/laws/laws.h"
#include "schedule/memory/memory.h"
#include "schedule/resolve/resolve.h"
#include "support.h"

static struct sample made(struct arena *arena, const char *words)
{
	struct error error = {0};
	struct sample s = {.model = preset_model(arena, "llama-2-7b"),
		.topology = cluster(arena, "2xdgx-a100-80gb")};
	struct question question = {.model = s.model, .topology = s.topology};
	char *rest = arena_strdup(arena, words);
	for (char *word = strtok_r(rest, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		char *value = strchr(word, '=');
		*value++ = '\0';
		assert_true(question_set_by_name(&question, word, word, value, arena, &error));
	}
	if (!plan_resolve(&question, arena, &s.plan, &error) ||
		!schedule_build(arena, &s.plan, s.model, s.topology, &s.schedule, &error))
		fail_msg("%s: %s", words, error.message);
	return s;
}

static const struct program *program_of(const struct sample *s)
{
	return &s->schedule->programs[0];
}

/* Bytes of a role that lie on one side between steps. */
static int64_t resident(const struct sample *s, enum buffer_role role, bool in_host)
{
	const struct program *p = program_of(s);
	int64_t bytes = 0;
	for (int i = 0; i < p->n_buffers; i++)
		if (p->buffers[i].resident && p->buffers[i].role == role &&
			buffer_in_host(&p->buffers[i]) == in_host)
			bytes += p->buffers[i].bytes;
	return bytes;
}

static int64_t copied(const struct sample *s, enum op_kind kind)
{
	const struct program *p = program_of(s);
	int64_t bytes = 0;
	for (int i = 0; i < p->n_ops; i++)
		if (p->ops[i].kind == kind)
			bytes += p->ops[i].bytes;
	return bytes;
}

static struct ledger ledger_of(const struct sample *s, struct arena *arena)
{
	struct ledger ledger;
	schedule_ledger(s->schedule, 0, arena, &ledger);
	return ledger;
}

/* --- where things are ----------------------------------------------------------------------------
 */

/* FSDP's CPUOffload: nothing of the states stays on the device; FSDP1 keeps a pinned gradient. */
static void test_parameters(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample plain = made(&arena, "runtime=pytorch-fsdp1");
	struct sample fsdp1 = made(&arena, "runtime=pytorch-fsdp1 cpu_offload=parameters");
	struct sample fsdp2 = made(&arena, "runtime=pytorch-fsdp2 cpu_offload=parameters");
	int64_t shard = resident(&plain, BUFFER_PARAMETER_SHARD, false);
	assert_in_range(shard, 4 * INT64_C(6738415616) / 16, 4 * INT64_C(6738415616) / 16 + 4096);
	for (int i = 0; i < 2; i++) {
		const struct sample *s = i == 0 ? &fsdp1 : &fsdp2;
		struct model_states states = schedule_model_states(s->schedule, 0);
		assert_int_equal(states.parameters, 0);
		assert_int_equal(states.gradients, 0);
		assert_int_equal(states.optimizer_state, 0);
		assert_int_equal(resident(s, BUFFER_OPTIMIZER_STATE, true),
			2 * resident(s, BUFFER_PARAMETER_SHARD, true));
	}
	assert_int_equal(resident(&fsdp1, BUFFER_PARAMETER_SHARD, true), shard);
	assert_int_equal(resident(&fsdp1, BUFFER_GRADIENT_SHARD, true), shard);
	assert_int_equal(resident(&fsdp2, BUFFER_GRADIENT_SHARD, true), 0);
	/* Host: shard, two moments, gradient. */
	assert_int_equal(ledger_of(&fsdp1, &arena).host_peak_bytes, 4 * shard);
	assert_int_equal(ledger_of(&fsdp2, &arena).host_peak_bytes,
		4 * resident(&fsdp2, BUFFER_PARAMETER_SHARD, true));
	int64_t less = ledger_of(&plain, &arena).peak_bytes - ledger_of(&fsdp1, &arena).peak_bytes;
	assert_in_range(less, 2 * shard, 4 * shard);
	arena_finish(&arena);
}

/* As ZeRO-Offload: the device keeps the shard that is gathered, 2 bytes a parameter. */
static void test_optimizer(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample s = made(&arena, "runtime=shardplan cpu_offload=optimizer");
	int64_t master = resident(&s, BUFFER_MASTER_SHARD, true);
	assert_int_equal(resident(&s, BUFFER_PARAMETER_SHARD, false), master / 2);
	assert_int_equal(resident(&s, BUFFER_LOW_PRECISION_SHARD, true), master / 2);
	assert_int_equal(resident(&s, BUFFER_OPTIMIZER_STATE, true), 2 * master);
	assert_int_equal(resident(&s, BUFFER_OPTIMIZER_STATE, false), 0);
	assert_int_equal(count_ops(s.schedule, OP_CAST_PARAMETERS, -1), 0);
	assert_int_equal(copied(&s, OP_COPY_H2D), master / 2);
	assert_int_equal(copied(&s, OP_COPY_D2H), master);
	struct sample fp32 =
		made(&arena, "runtime=shardplan cpu_offload=optimizer param_dtype=fp32");
	assert_int_equal(resident(&fp32, BUFFER_LOW_PRECISION_SHARD, true), 0);
	assert_int_equal(copied(&fp32, OP_COPY_H2D), resident(&fp32, BUFFER_MASTER_SHARD, true));
	arena_finish(&arena);
}

/* DeepSpeed's stages 1 and 2: all parameters stay in bf16, 2 bytes; the fp32 masters, moments and
 * gradients are the host's, 16 P / N; the masters come back in fp32. */
static void test_deepspeed(void **state)
{
	(void)state;
	static const char *const stages[] = {"ZERO_1", "ZERO_2"};
	for (int i = 0; i < COUNT_OF(stages); i++) {
		struct arena arena = {0};
		struct sample s = made(&arena,
			arena_printf(&arena, "runtime=deepspeed strategy=%s cpu_offload=optimizer",
				stages[i]));
		struct sample plain = made(
			&arena, arena_printf(&arena, "runtime=deepspeed strategy=%s", stages[i]));
		int64_t shard = resident(&plain, BUFFER_PARAMETER_SHARD, false);
		assert_int_equal(resident(&s, BUFFER_MASTER_SHARD, true), shard);
		assert_int_equal(resident(&s, BUFFER_PARAMETER_SHARD, false), 0);
		assert_int_equal(resident(&s, BUFFER_COMPUTE_COPY, false),
			resident(&plain, BUFFER_COMPUTE_COPY, false));
		assert_int_equal(ledger_of(&s, &arena).host_peak_bytes, 4 * shard);
		assert_int_equal(copied(&s, OP_COPY_H2D), shard);
		assert_int_equal(copied(&s, OP_COPY_D2H), shard);
		assert_true(ledger_of(&s, &arena).peak_bytes <=
			    ledger_of(&plain, &arena).peak_bytes - 3 * shard + shard / 2);
		arena_finish(&arena);
	}
}

/* Every offloaded unit takes its own states off the device, and no other's. */
static void test_per_unit(void **state)
{
	(void)state;
	struct arena arena = {0};
	int64_t before = -1, peak = INT64_MAX;
	for (int n = 0; n <= 33; n += 3) {
		struct sample s = made(&arena,
			n == 0 ? "runtime=pytorch-fsdp2 optimizer=adamw-fused"
			       : arena_printf(&arena,
					 "runtime=pytorch-fsdp2 optimizer=adamw-fused "
					 "cpu_offload=%dxparameters%s",
					 n,
					 n < 33 ? arena_printf(&arena, "+%dxnone", 33 - n) : ""));
		const struct program *p = program_of(&s);
		for (int i = 0; i < p->n_buffers; i++)
			if (p->buffers[i].role == BUFFER_OPTIMIZER_STATE)
				assert_int_equal(
					buffer_in_host(&p->buffers[i]), p->buffers[i].unit < n);
		struct ledger ledger = ledger_of(&s, &arena);
		assert_int_equal(count_ops(s.schedule, OP_COPY_D2H, -1), n);
		assert_true(ledger.host_peak_bytes > before);
		assert_true(ledger.peak_bytes < peak);
		before = ledger.host_peak_bytes;
		peak = ledger.peak_bytes;
	}
	arena_finish(&arena);
}

/* --- what is copied ------------------------------------------------------------------------------
 */

/* The shard comes in for every gather, (P + P - R) e_m / F a step; FSDP1 copies it in backward even
 * when SHARD_GRAD_OP has it gathered already (not the root's, which has no second unshard). */
static void test_traffic(void **state)
{
	(void)state;
	static const struct {
		const char *words;
		int h2d;
	} cases[] = {
		{"runtime=pytorch-fsdp1", 65},
		{"runtime=pytorch-fsdp2", 65},
		{"runtime=shardplan", 65},
		{"runtime=pytorch-fsdp1 strategy=SHARD_GRAD_OP", 66},
		{"runtime=pytorch-fsdp2 strategy=SHARD_GRAD_OP", 33},
		{"runtime=shardplan strategy=SHARD_GRAD_OP", 33},
		{"runtime=pytorch-fsdp2 strategy=HYBRID_SHARD", 65},
		{"runtime=pytorch-fsdp2 reshard_after_forward=8", 33},
	};
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct sample s = made(
			&arena, arena_printf(&arena, "%s cpu_offload=parameters", cases[i].words));
		int h2d = count_ops(s.schedule, OP_COPY_H2D, -1);
		/* FSDP1's root unshards again in its pre-backward hook. */
		if (s.plan.runtime == RUNTIME_PYTORCH_FSDP1 &&
			s.plan.strategy == STRATEGY_FULL_SHARD)
			h2d--;
		if (h2d != cases[i].h2d)
			fail_msg(
				"%s: %d copies in, expected %d", cases[i].words, h2d, cases[i].h2d);
		assert_int_equal(count_ops(s.schedule, OP_COPY_D2H, -1), 33);
		assert_int_equal(
			copied(&s, OP_COPY_D2H), resident(&s, BUFFER_PARAMETER_SHARD, true));
		arena_finish(&arena);
	}
}

/* Later micro-batches are added on the host, or (no synchronisation) nothing goes out before. */
static void test_accumulation(void **state)
{
	(void)state;
	static const char *const runtimes[] = {"pytorch-fsdp2", "shardplan"};
	for (int r = 0; r < COUNT_OF(runtimes); r++) {
		struct arena arena = {0};
		struct sample each = made(&arena,
			arena_printf(&arena, "runtime=%s cpu_offload=parameters grad_accum=3",
				runtimes[r]));
		struct sample last =
			made(&arena, arena_printf(&arena,
					     "runtime=%s cpu_offload=parameters grad_accum=3 "
					     "sync_each_micro_batch=off",
					     runtimes[r]));
		int on_host = 0;
		for (int i = 0; i < program_of(&each)->n_ops; i++) {
			const struct op *op = &program_of(&each)->ops[i];
			on_host += op->kind == OP_ACCUMULATE_GRADIENTS && op->stream == STREAM_HOST;
		}
		assert_int_equal(on_host, 2 * 33);
		assert_int_equal(count_ops(each.schedule, OP_COPY_D2H, -1), 3 * 33);
		assert_int_equal(count_ops(last.schedule, OP_COPY_D2H, -1), 33);
		arena_finish(&arena);
	}
}

/* One optimizer operation for each side that has units; with clipping one norm and one scaling. */
static void test_sides(void **state)
{
	(void)state;
	static const struct {
		const char *offload;
		int device, host;
	} cases[] = {{"none", 1, 0}, {"parameters", 0, 1}, {"10xparameters+23xnone", 1, 1}};
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct arena arena = {0};
		struct sample s = made(
			&arena, arena_printf(&arena, "runtime=pytorch-fsdp2 clip=1 cpu_offload=%s",
					cases[c].offload));
		int found[OP_KIND_COUNT][2] = {0};
		for (int i = 0; i < program_of(&s)->n_ops; i++) {
			const struct op *op = &program_of(&s)->ops[i];
			found[op->kind][op->stream == STREAM_HOST]++;
		}
		static const enum op_kind kinds[] = {
			OP_GRADIENT_NORM, OP_CLIP_GRADIENTS, OP_OPTIMIZER};
		for (int k = 0; k < COUNT_OF(kinds); k++) {
			assert_int_equal(found[kinds[k]][0], cases[c].device);
			assert_int_equal(found[kinds[k]][1], cases[c].host);
		}
		arena_finish(&arena);
	}
}

/* --- negative controls ---------------------------------------------------------------------------
 */

/* --- activations ---------------------------------------------------------------------------------
 */

/* All blocks of Llama-2-7B but the last: a residual stream of 4096 x 4096 in bf16 each. */
static void test_activations(void **state)
{
	(void)state;
	static const char *const runtimes[] = {"runtime=pytorch-fsdp1", "runtime=pytorch-fsdp2",
		"runtime=pytorch-ddp strategy=NO_SHARD", "runtime=shardplan",
		"runtime=deepspeed strategy=ZERO_2", "runtime=deepspeed strategy=ZERO_3"};
	const int64_t residual = 2 * 4096 * 4096;
	for (int r = 0; r < COUNT_OF(runtimes); r++) {
		struct arena arena = {0};
		const char *full = arena_printf(&arena,
			"%s activation_checkpointing=full grad_accum=2 seq_len=4096", runtimes[r]);
		struct sample kept = made(&arena, full);
		struct sample moved = made(
			&arena, arena_printf(&arena, "%s activation_offload=checkpoints", full));
		assert_int_equal(count_ops(moved.schedule, OP_COPY_D2H, -1), 2 * 31);
		assert_int_equal(count_ops(moved.schedule, OP_COPY_H2D, -1), 2 * 31);
		assert_int_equal(copied(&moved, OP_COPY_D2H), 2 * 31 * residual);
		assert_int_equal(ledger_of(&moved, &arena).host_peak_bytes, 31 * residual);
		/* Two of the 31 inputs are there at a time: one in use, the one before it on its
		 * way. */
		assert_int_equal(
			ledger_of(&kept, &arena).category_peak_bytes[CATEGORY_ACTIVATIONS] -
				ledger_of(&moved, &arena).category_peak_bytes[CATEGORY_ACTIVATIONS],
			30 * residual);
		arena_finish(&arena);
	}
}

/* The copy in of each buffer, and the first operation that reads it then. */
static void check_return(const struct program *p, int out)
{
	int host = slice_of(p, p->ops[out].uses)[1], back = -1, in = -1, reader = -1;
	for (int i = out + 1; i < p->n_ops; i++)
		for (int k = 0; k < p->ops[i].uses.count; k++) {
			int buffer = slice_of(p, p->ops[i].uses)[k];
			if (buffer == host) {
				assert_true(in < 0 && p->ops[i].kind == OP_COPY_H2D);
				in = i;
				back = slice_of(p, p->ops[i].uses)[1];
			} else if (buffer == back && i != in && reader < 0) {
				reader = i;
			}
		}
	assert_in_range(in, out + 1, p->n_ops);
	assert_in_range(reader, in + 1, p->n_ops);
	assert_true(p->ops[reader].kind == OP_RECOMPUTE || p->ops[reader].kind == OP_BACKWARD);
	assert_int_equal(p->ops[reader].micro_batch, p->ops[out].micro_batch);
	/* one block ahead */
	assert_int_equal(p->ops[in].layer, p->ops[reader].layer + 1);
}

/* Plans of all kinds: what leaves comes back before its backward, and the device never holds more
 * than without. */
static void test_any_activations(void **state)
{
	(void)state;
	uint64_t seed = 4711;
	int n = 0;
	while (n < 200) {
		struct arena arena = {0};
		struct error error = {0};
		struct sample s = random_sample(&arena, &seed), kept = s;
		if (s.plan.activation_offload == ACTIVATIONS_STAY || plan_offloads_any(&s.plan)) {
			arena_finish(&arena);
			continue;
		}
		kept.plan.activation_offload = ACTIVATIONS_STAY;
		assert_true(schedule_build(
			&arena, &kept.plan, kept.model, kept.topology, &kept.schedule, &error));
		struct ledger with = ledger_of(&s, &arena), without = ledger_of(&kept, &arena);
		const struct program *p = program_of(&s);
		for (int i = 0; i < p->n_ops; i++)
			if (p->ops[i].kind == OP_COPY_D2H)
				check_return(p, i);
		assert_true(with.peak_bytes <= without.peak_bytes);
		assert_int_equal(with.host_peak_bytes * s.plan.grad_accum, copied(&s, OP_COPY_D2H));
		n++;
		arena_finish(&arena);
	}
}

static int find_op(const struct program *p, enum op_kind kind, int side)
{
	for (int i = 0; i < p->n_ops; i++)
		if (p->ops[i].kind == kind &&
			(side < 0 || (p->ops[i].stream == STREAM_HOST) == side))
			return i;
	fail_msg("no such operation");
	return -1;
}

static int find_buffer(const struct program *p, enum buffer_role role, bool in_host)
{
	for (int i = 0; i < p->n_buffers; i++)
		if (p->buffers[i].role == role && buffer_in_host(&p->buffers[i]) == in_host)
			return i;
	fail_msg("no such buffer");
	return -1;
}

static void refused(const struct schedule *schedule, const char *part)
{
	struct error error = {0};
	assert_false(schedule_validate(schedule, &error));
	if (strstr(error.message, part) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error.message, part);
}

static void test_laws(void **state)
{
	(void)state;
	for (int damage = 0; damage < 9; damage++) {
		struct arena arena = {0};
		struct sample s = made(&arena, "runtime=shardplan grad_accum=2 "
					       "cpu_offload=11xparameters+11xoptimizer+11xnone");
		struct program *p = &s.schedule->programs[0];
		int h2d = find_op(p, OP_COPY_H2D, -1), d2h = find_op(p, OP_COPY_D2H, -1), i;
		switch (damage) {
		case 0: /* a shard that the plan wants on the host */
			p->buffers[find_buffer(p, BUFFER_PARAMETER_SHARD, true)].pool =
				STREAM_COMPUTE;
			refused(s.schedule, "not where offload parameters has it");
			break;
		case 1: /* one that it wants on the device */
			i = find_buffer(p, BUFFER_PARAMETER_SHARD, false);
			p->buffers[i].pool = STREAM_HOST;
			refused(s.schedule, "has it");
			break;
		case 2: /* the device reads host memory */
			p->ops[h2d].kind = OP_CAST_PARAMETERS;
			refused(s.schedule, "cannot take staged_shard");
			break;
		case 3: /* the host computes what only a device can */
			p->ops[find_op(p, OP_GRADIENT_NORM, 1)].kind = OP_LOSS;
			refused(s.schedule, "loss on the host");
			break;
		case 4: /* a device's update, by the host */
			p->ops[find_op(p, OP_OPTIMIZER, 0)].stream = STREAM_HOST;
			refused(s.schedule, "on the host touches");
			break;
		case 5: /* the host's norm, by the device */
			p->ops[find_op(p, OP_GRADIENT_NORM, 1)].stream = STREAM_COMPUTE;
			refused(s.schedule, "on the device touches");
			break;
		case 6: /* half a copy */
			p->ops[d2h].bytes /= 2;
			refused(s.schedule, "does not fit its buffers");
			break;
		case 7: /* a copy the wrong way round */
			p->ops[h2d].kind = OP_COPY_D2H;
			refused(s.schedule, "cannot take");
			break;
		default: /* the last gradient never arrives: its copy claims an earlier micro-batch
			  */
			for (i = p->n_ops - 1; p->ops[i].kind != OP_COPY_D2H; i--)
				;
			p->ops[i].micro_batch = 0;
			refused(s.schedule, "comes too late");
			break;
		}
		arena_finish(&arena);
	}
}

static void test_activation_laws(void **state)
{
	(void)state;
	for (int damage = 0; damage < 4; damage++) {
		struct arena arena = {0};
		struct sample s = made(&arena, "activation_offload=all");
		struct program *p = &s.schedule->programs[0];
		int out = find_op(p, OP_COPY_D2H, -1), in = find_op(p, OP_COPY_H2D, -1), i;
		int end = find_op(p, OP_END_COPIES, -1);
		switch (damage) {
		case 0: /* half a copy */
			p->ops[out].bytes /= 2;
			refused(s.schedule, "does not fit its buffers");
			break;
		case 1: /* to the device itself */
			p->buffers[slice_of(p, p->ops[out].uses)[1]].pool = STREAM_COMPUTE;
			refused(s.schedule, "does not fit its buffers");
			break;
		case 2: /* given before it has left */
			p->ops[end].waits.count = 0;
			refused(s.schedule, "unordered");
			break;
		default: /* read before it has come */
			for (i = in; p->ops[i].kind != OP_END_COPIES; i++)
				;
			p->ops[i].waits.count = 0;
			refused(s.schedule, "unordered");
			break;
		}
		arena_finish(&arena);
	}
}

/* Without the wait for the copy the host would update with a gradient that is not there yet. */
static void test_waits(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct sample s = made(&arena, "runtime=pytorch-fsdp2 cpu_offload=parameters");
	struct program *p = &s.schedule->programs[0];
	p->ops[find_op(p, OP_OPTIMIZER, 1)].waits.count = 0;
	refused(s.schedule, "unordered");
	struct sample t = made(&arena, "runtime=shardplan cpu_offload=optimizer");
	p = &t.schedule->programs[0];
	for (int i = 0; i < p->n_ops; i++)
		if (p->ops[i].kind == OP_ALL_GATHER)
			p->ops[i].waits.count = 0;
	refused(t.schedule, "unordered");
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_optimizer),
		cmocka_unit_test(test_deepspeed),
		cmocka_unit_test(test_per_unit),
		cmocka_unit_test(test_traffic),
		cmocka_unit_test(test_accumulation),
		cmocka_unit_test(test_sides),
		cmocka_unit_test(test_activations),
		cmocka_unit_test(test_any_activations),
		cmocka_unit_test(test_activation_laws),
		cmocka_unit_test(test_laws),
		cmocka_unit_test(test_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
