/* The validator accepts what the builder makes, and judges order as a second, independent oracle
 * does. Damage of other kinds: test_damage.c. */
#include "damage.h"
#include "oracle.h"
#include "schedule/memory/memory.h"
#include "support.h"
#include "tests/sampled.h"

/* --- order: the validator agrees with the oracle -------------------------------------------------
 */

struct tally {
	int waits, redundant, needed, refused;
};

static void try_without(struct schedule *s, int op, int index, struct oracle *whole,
	struct oracle *part, struct tally *tally)
{
	struct program *p = &s->programs[0];
	struct slice before = p->ops[op].waits;
	int n_indices = p->n_indices;
	slice_drop(p, &p->ops[op].waits, index);
	oracle_build(part, p);
	bool ordered = oracle_ordered(part), accepted = is_accepted(s);
	tally->waits++;
	tally->redundant += oracle_equal(whole, part);
	tally->needed += !ordered;
	tally->refused += !accepted;
	if (ordered != accepted)
		fail_msg("op %d without wait %d: ordered %d, accepted %d", op,
			slice_of(p, before)[index], ordered, accepted);
	p->ops[op].waits = before;
	p->n_indices = n_indices;
}

/* Every wait of hundreds of schedules is dropped once: refused exactly when some two operations on
 * one buffer are no longer ordered. Most waits that no other path implies are needed in this sense;
 * the rest make memory come back before it is taken again (FSDP2). */
static void test_dropped_waits(void **state)
{
	(void)state;
	uint64_t seed = 99;
	struct tally tally = {0};
	struct oracle whole = {0}, part = {0};
	for (int round = 0; round < SAMPLED(400); round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		struct schedule *s = schedule_copy(&arena, sample.schedule);
		struct program *p = &s->programs[0];
		oracle_build(&whole, p);
		assert_true(oracle_ordered(&whole));
		for (int i = 0; i < p->n_ops && p->n_ops <= 120; i++)
			for (int k = 0; k < p->ops[i].waits.count; k++)
				try_without(s, i, k, &whole, &part, &tally);
		arena_finish(&arena);
	}
	oracle_finish(&whole);
	oracle_finish(&part);
	assert_in_range(tally.waits, SAMPLED(5000), SAMPLED(100000));
	assert_int_equal(tally.refused, tally.needed);
	assert_true(tally.needed > (tally.waits - tally.redundant) * 9 / 10);
	assert_true(tally.redundant > 0);
}

/* Another order: an operation moves to another stream, a wait aims elsewhere, host waits go. To
 * the peer stream nothing moves: chunks go there beside what makes them. */
static bool reorder(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int op = (int)random_below(seed, p->n_ops), k;
	if (random_below(seed, 3) == 0 && p->ops[op].stream != STREAM_HOST) {
		enum stream stream = (enum stream)random_below(seed, STREAM_HOST);
		p->ops[op].stream = stream == STREAM_PEER ? STREAM_TENSOR : stream;
		return true;
	}
	enum member member = random_below(seed, 3) ? WAITS : HOST_WAITS;
	op = draw_op(p, member, seed);
	if (op <= 0)
		return false;
	struct slice *slice = op_member(&p->ops[op], member);
	draw_item(p, *slice, seed, &k);
	if (member == HOST_WAITS)
		slice_drop(p, slice, k);
	else
		slice_set(p, slice, k, (int)random_below(seed, p->n_ops + op) - p->n_ops);
	return true;
}

static void test_other_orders(void **state)
{
	(void)state;
	uint64_t seed = 5;
	int verdicts[2] = {0};
	struct oracle oracle = {0};
	for (int round = 0; round < SAMPLED(3000); round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		struct schedule *s = schedule_copy(&arena, sample.schedule);
		if (s->programs[0].n_ops <= 120 && reorder(s, &seed)) {
			oracle_build(&oracle, &s->programs[0]);
			bool ordered = oracle_ordered(&oracle);
			verdicts[ordered]++;
			assert_int_equal(is_accepted(s), ordered);
		}
		arena_finish(&arena);
	}
	oracle_finish(&oracle);
	assert_in_range(verdicts[0], SAMPLED(500), SAMPLED(3000));
	assert_in_range(verdicts[1], SAMPLED(500), SAMPLED(3000));
}

/* --- whatever is planned is valid ----------------------------------------------------------------
 */

/* schedule_build validates; random_sample fails the test when it refuses. The limiter's waits name
 * frees, of this step or the last. */
static void check_host_wait(const struct plan *plan, const struct op *awaited)
{
	if (plan->runtime == RUNTIME_DEEPSPEED) {
		assert_int_equal(plan->strategy, STRATEGY_ZERO_3);
		assert_int_equal(awaited->stream, STREAM_REDUCE);
		return;
	}
	assert_true(plan->limit_all_gathers);
	assert_int_equal(awaited->kind, OP_RESHARD);
}

static void test_random_plans(void **state)
{
	(void)state;
	uint64_t seed = 123456789;
	int seen[RUNTIME_COUNT][STRATEGY_COUNT] = {0};
	for (int round = 0; round < SAMPLED(6000); round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		const struct program *p = &sample.schedule->programs[0];
		seen[sample.plan.runtime][sample.plan.strategy]++;
		for (int i = 0; i < p->n_ops; i++)
			for (int k = 0; k < p->ops[i].host_waits.count; k++) {
				int wait = slice_of(p, p->ops[i].host_waits)[k];
				check_host_wait(
					&sample.plan, &p->ops[wait < 0 ? wait + p->n_ops : wait]);
			}
		arena_finish(&arena);
	}
	for (int r = 0; r < RUNTIME_COUNT; r++)
		for (int s = 0; s < STRATEGY_COUNT; s++)
			if (knob_honoured(KNOB_STRATEGY, (enum runtime_kind)r, s))
				assert_in_range(seen[r][s], SAMPLED(32), SAMPLED(6000));
			else
				assert_int_equal(seen[r][s], 0);
}

/* --- gradients that await their reduction --------------------------------------------------------
 */

static bool has_gradient(const struct program *p, struct slice slice)
{
	for (int k = 0; k < slice.count; k++)
		if (p->buffers[slice_of(p, slice)[k]].role == BUFFER_GRADIENT)
			return true;
	return false;
}

/* How many gradients may still await their reduction when an operation starts. */
static int gradients_pending(const struct oracle *o, int op)
{
	const struct program *p = o->program;
	int n = 0;
	for (int i = 0; i < op; i++)
		n += p->ops[i].stream != STREAM_COMPUTE && has_gradient(p, p->ops[i].gives) &&
		     !oracle_before(o, i, op);
	return n;
}

/* Our own runtime makes a gradient when two others at most are pending, and does not wait for
 * those: memory stays where the network is slow, and time where it is fast. */
static void test_gradients_pending(void **state)
{
	(void)state;
	uint64_t seed = 31415;
	int seen[4] = {0};
	struct oracle oracle = {0};
	for (int round = 0; round < SAMPLED(2000); round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		const struct program *p = &sample.schedule->programs[0];
		if (sample.plan.runtime == RUNTIME_SHARDPLAN && p->n_ops <= 200) {
			oracle_build(&oracle, p);
			for (int i = 0; i < p->n_ops; i++)
				if (has_gradient(p, p->ops[i].takes))
					seen[min_i64(gradients_pending(&oracle, i), 3)]++;
		}
		arena_finish(&arena);
	}
	oracle_finish(&oracle);
	assert_true(seen[2] > SAMPLED(100));
	assert_int_equal(seen[3], 0);
}

/* --- places --------------------------------------------------------------------------------------
 */

struct placed {
	int64_t at, bytes;
	int take, give;
	bool host;
};

static void find_placed(const struct program *p, struct arena *arena, struct placed *placed)
{
	struct addresses addresses;
	schedule_addresses(p, arena, &addresses);
	for (int b = 0; b < p->n_buffers; b++) {
		const struct buffer *buffer = &p->buffers[b];
		bool host = buffer_in_host(buffer);
		placed[b] = (struct placed){addresses.offsets[b], buffer->bytes, -1, -1, host};
		assert_true(addresses.offsets[b] + buffer->bytes <=
			    (host ? addresses.host_bytes : addresses.device_bytes));
	}
	for (int i = 0; i < p->n_ops; i++) {
		for (int k = 0; k < p->ops[i].takes.count; k++)
			placed[slice_of(p, p->ops[i].takes)[k]].take = i;
		for (int k = 0; k < p->ops[i].gives.count; k++)
			placed[slice_of(p, p->ops[i].gives)[k]].give = i;
	}
}

static bool follows(const struct oracle *oracle, const struct placed *a, const struct placed *b)
{
	return a->give >= 0 && b->take >= 0 && a->take >= 0 && b->give >= 0 &&
	       oracle_before(oracle, a->give, b->take);
}

/* Bytes of two buffers, of which neither is surely gone before the other comes, are apart. Some of
 * the others share theirs. */
static void test_places(void **state)
{
	(void)state;
	uint64_t seed = 2718;
	int shared = 0;
	struct oracle oracle = {0};
	for (int round = 0; round < SAMPLED(1000); round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		const struct program *p = &sample.schedule->programs[0];
		struct placed *placed = ARENA_ARRAY(&arena, struct placed, p->n_buffers + 1);
		if (p->n_ops <= 200) {
			oracle_build(&oracle, p);
			find_placed(p, &arena, placed);
		}
		for (int b = 0; b < p->n_buffers && p->n_ops <= 200; b++)
			for (int a = 0; a < b; a++) {
				const struct placed *one = &placed[a], *other = &placed[b];
				if (one->host != other->host || one->bytes == 0 ||
					other->bytes == 0 || one->at + one->bytes <= other->at ||
					other->at + other->bytes <= one->at)
					continue;
				assert_true(follows(&oracle, one, other) ||
					    follows(&oracle, other, one));
				shared++;
			}
		arena_finish(&arena);
	}
	oracle_finish(&oracle);
	assert_true(shared > SAMPLED(10000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dropped_waits),
		cmocka_unit_test(test_other_orders),
		cmocka_unit_test(test_random_plans),
		cmocka_unit_test(test_gradients_pending),
		cmocka_unit_test(test_places),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
