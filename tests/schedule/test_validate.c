/* The validator accepts what the builder makes, and nothing that breaks a law: schedules are
 * damaged at random places, law by law. Order is also judged by a second, independent oracle. */
#include "oracle.h"
#include "support.h"

static bool accepts(const struct schedule *schedule)
{
	struct error error = {0};
	bool ok = schedule_validate(schedule, &error);
	if (!ok) {
		assert_int_equal(error.code, EXIT_CODE_INTERNAL);
		assert_int_equal(strncmp(error.message, "schedule: ", 10), 0);
		assert_null(strchr(error.message, '\n'));
	}
	return ok;
}

/* --- damaging ------------------------------------------------------------------------------------
 */

static struct schedule *copy(struct arena *arena, const struct schedule *schedule)
{
	struct schedule *c = ARENA_NEW(arena, struct schedule);
	struct program *p = ARENA_NEW(arena, struct program);
	const struct program *from = &schedule->programs[0];
	*c = *schedule;
	*p = *from;
	p->ops = ARENA_ARRAY(arena, struct op, p->n_ops);
	p->buffers = ARENA_ARRAY(arena, struct buffer, p->n_buffers);
	p->indices = ARENA_ARRAY(arena, int, p->n_indices + 1000);
	memcpy(p->ops, from->ops, (size_t)p->n_ops * sizeof(struct op));
	memcpy(p->buffers, from->buffers, (size_t)p->n_buffers * sizeof(struct buffer));
	memcpy(p->indices, from->indices, (size_t)p->n_indices * sizeof(int));
	c->groups = ARENA_ARRAY(arena, struct group, c->n_groups);
	memcpy(c->groups, schedule->groups, (size_t)c->n_groups * sizeof(struct group));
	c->programs = p;
	return c;
}

/* Both move the slice to the end of the list, so that others stay as they are. */
static void slice_add(struct program *p, struct slice *slice, int item)
{
	int first = p->n_indices;
	for (int i = 0; i < slice->count; i++)
		p->indices[p->n_indices++] = p->indices[slice->first + i];
	p->indices[p->n_indices++] = item;
	*slice = (struct slice){first, slice->count + 1};
}

static void slice_drop(struct program *p, struct slice *slice, int index)
{
	int first = p->n_indices;
	for (int i = 0; i < slice->count; i++)
		if (i != index)
			p->indices[p->n_indices++] = p->indices[slice->first + i];
	*slice = (struct slice){first, slice->count - 1};
}

static void slice_set(struct program *p, struct slice *slice, int index, int item)
{
	slice_drop(p, slice, index);
	slice_add(p, slice, item);
}

enum member { WAITS, HOST_WAITS, TAKES, GIVES, USES };

static struct slice *member_of(struct op *op, enum member member)
{
	struct slice *const members[] = {
		&op->waits, &op->host_waits, &op->takes, &op->gives, &op->uses};
	return members[member];
}

/* A random operation whose member is not empty; -1 after many draws. */
static int draw(const struct program *p, enum member member, uint64_t *seed)
{
	for (int round = 0; round < 1000; round++) {
		int i = (int)random_below(seed, p->n_ops);
		if (member_of(&p->ops[i], member)->count > 0)
			return i;
	}
	return -1;
}

static int draw_item(const struct program *p, struct slice slice, uint64_t *seed, int *index)
{
	*index = (int)random_below(seed, slice.count);
	return slice_of(p, slice)[*index];
}

static int owner_of(const struct program *p, enum member member, int buffer)
{
	for (int i = 0; i < p->n_ops; i++) {
		struct slice slice = *member_of(&p->ops[i], member);
		for (int k = 0; k < slice.count; k++)
			if (slice_of(p, slice)[k] == buffer)
				return i;
	}
	return -1;
}

static int draw_buffer(const struct program *p, bool resident, uint64_t *seed)
{
	for (int round = 0; round < 1000; round++) {
		int i = (int)random_below(seed, p->n_buffers);
		if (p->buffers[i].resident == resident)
			return i;
	}
	return -1;
}

/* --- one kind of damage each; false: this schedule has no such place
 * ------------------------------
 */

static bool wait_for_itself(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int op = draw(p, WAITS, seed), k;
	if (op < 0)
		return false;
	draw_item(p, p->ops[op].waits, seed, &k);
	slice_set(p, &p->ops[op].waits, k, op);
	return true;
}

static bool wait_forward(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int op = (int)random_below(seed, p->n_ops - 1);
	int later = op + 1 + (int)random_below(seed, p->n_ops - op - 1);
	slice_add(p, member_of(&p->ops[op], random_below(seed, 2) ? WAITS : HOST_WAITS), later);
	return true;
}

static bool wait_two_steps_back(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int op = (int)random_below(seed, p->n_ops);
	slice_add(p, &p->ops[op].waits, -p->n_ops - 1 - (int)random_below(seed, 100));
	return true;
}

static bool take_twice(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int buffer = draw_buffer(p, false, seed);
	slice_add(p, &p->ops[random_below(seed, p->n_ops)].takes, buffer);
	return true;
}

static bool give_twice(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int buffer = draw_buffer(p, false, seed);
	slice_add(p, &p->ops[random_below(seed, p->n_ops)].gives, buffer);
	return true;
}

static bool drop_one(struct schedule *s, enum member member, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int op = draw(p, member, seed), k;
	draw_item(p, *member_of(&p->ops[op], member), seed, &k);
	slice_drop(p, member_of(&p->ops[op], member), k);
	return true;
}

static bool drop_take(struct schedule *s, uint64_t *seed)
{
	return drop_one(s, TAKES, seed);
}

static bool drop_give(struct schedule *s, uint64_t *seed)
{
	return drop_one(s, GIVES, seed);
}

static bool take_resident(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int buffer = draw_buffer(p, true, seed);
	slice_add(p,
		member_of(&p->ops[random_below(seed, p->n_ops)],
			random_below(seed, 2) ? TAKES : GIVES),
		buffer);
	return true;
}

static bool use_after_give(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int buffer = draw_buffer(p, false, seed), giver = owner_of(p, GIVES, buffer);
	if (giver == p->n_ops - 1)
		return false;
	int op = giver + 1 + (int)random_below(seed, p->n_ops - giver - 1);
	slice_add(p, &p->ops[op].uses, buffer);
	return true;
}

static bool use_before_take(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int buffer = draw_buffer(p, false, seed), taker = owner_of(p, TAKES, buffer);
	if (taker == 0)
		return false;
	slice_add(p, &p->ops[random_below(seed, taker)].uses, buffer);
	return true;
}

/* The operation that takes a buffer changes places with a later one that touches it. */
static bool swap_with_taker(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int buffer = draw_buffer(p, false, seed), taker = owner_of(p, TAKES, buffer);
	int other = owner_of(p, GIVES, buffer);
	if (other == taker)
		return false;
	struct op op = p->ops[taker];
	p->ops[taker] = p->ops[other];
	p->ops[other] = op;
	return true;
}

static int draw_collective(const struct program *p, bool of_unit, uint64_t *seed)
{
	for (int round = 0; round < 1000; round++) {
		int i = (int)random_below(seed, p->n_ops);
		if (p->ops[i].group >= 0 && (!of_unit || p->ops[i].unit >= 0))
			return i;
	}
	return -1;
}

static int draw_reduction(const struct schedule *s, uint64_t *seed)
{
	for (int round = 0; round < 100; round++) {
		int i = draw_collective(&s->programs[0], true, seed);
		if (i < 0)
			return -1;
		if (s->programs[0].ops[i].kind != OP_ALL_GATHER &&
			s->groups[s->programs[0].ops[i].group].size > 1)
			return i;
	}
	return -1;
}

/* It becomes a mark: waits, takes and gives stay, the sum is gone. */
static bool remove_reduction(struct schedule *s, uint64_t *seed)
{
	int i = draw_reduction(s, seed);
	if (i < 0)
		return false;
	s->programs[0].ops[i].kind = OP_RESHARD;
	s->programs[0].ops[i].group = -1;
	return true;
}

static bool reduce_twice(struct schedule *s, uint64_t *seed)
{
	int i = draw_reduction(s, seed);
	struct program *p = &s->programs[0];
	if (i < 0 || i == p->n_ops - 1)
		return false;
	struct op again = p->ops[i];
	again.takes.count = again.gives.count = 0;
	p->ops[i + 1 + random_below(seed, p->n_ops - i - 1)] = again;
	return true;
}

static bool reduce_other_unit(struct schedule *s, uint64_t *seed)
{
	int i = draw_reduction(s, seed);
	if (i < 0 || s->n_units < 2)
		return false;
	struct op *op = &s->programs[0].ops[i];
	op->unit = (op->unit + 1) % s->n_units;
	return true;
}

static bool wrong_group(struct schedule *s, uint64_t *seed)
{
	int i = draw_collective(&s->programs[0], false, seed);
	if (i < 0)
		return false;
	struct op *op = &s->programs[0].ops[i];
	int group = (int)random_below(seed, s->n_groups);
	if (s->groups[group].kind == s->groups[op->group].kind)
		return false;
	if (op->kind == OP_ALL_GATHER && s->groups[group].kind == GROUP_RESHARD &&
		s->groups[group].size == s->groups[op->group].size)
		return false;
	op->group = group;
	return true;
}

static bool no_group(struct schedule *s, uint64_t *seed)
{
	int i = draw_collective(&s->programs[0], false, seed);
	if (i < 0)
		return false;
	s->programs[0].ops[i].group = random_below(seed, 2) ? -1 : s->n_groups;
	return true;
}

static bool group_of_other_size(struct schedule *s, uint64_t *seed)
{
	if (s->n_groups == 0)
		return false;
	struct group *group = &s->groups[random_below(seed, s->n_groups)];
	if (random_below(seed, 2))
		group->stride++;
	else
		group->size = group->size * 2 + 1;
	return true;
}

static bool wrong_payload(struct schedule *s, uint64_t *seed)
{
	int i = draw_collective(&s->programs[0], false, seed);
	if (i < 0)
		return false;
	s->programs[0].ops[i].bytes += random_below(seed, 2) ? 1 : -1;
	return true;
}

static bool is_parameters(const struct buffer *buffer)
{
	return buffer->role == BUFFER_UNSHARDED || buffer->role == BUFFER_COMPUTE_COPY;
}

/* Compute reads no parameters, or another unit's that are there as well. */
static bool wrong_parameters(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	for (int round = 0; round < 200; round++) {
		int op = (int)random_below(seed, p->n_ops), k;
		if ((p->ops[op].kind != OP_FORWARD && p->ops[op].kind != OP_BACKWARD) ||
			p->ops[op].unit < 0)
			continue;
		int buffer = draw_item(p, p->ops[op].uses, seed, &k);
		if (!is_parameters(&p->buffers[buffer]))
			continue;
		slice_drop(p, &p->ops[op].uses, k);
		for (int b = 0; b < p->n_buffers && random_below(seed, 2); b++)
			if (is_parameters(&p->buffers[b]) &&
				p->buffers[b].unit != p->ops[op].unit &&
				owner_of(p, TAKES, b) < op && owner_of(p, GIVES, b) > op) {
				slice_add(p, &p->ops[op].uses, b);
				break;
			}
		return true;
	}
	return false;
}

static bool no_optimizer(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int first = (int)random_below(seed, p->n_ops);
	for (int k = 0; k < p->n_ops; k++) {
		struct op *op = &p->ops[(first + k) % p->n_ops];
		if (op->kind == OP_OPTIMIZER) {
			op->kind = OP_RESHARD;
			return true;
		}
	}
	return false;
}

static bool out_of_range(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	struct op *op = &p->ops[random_below(seed, p->n_ops)];
	struct buffer *buffer = &p->buffers[random_below(seed, p->n_buffers)];
	switch (random_below(seed, 12)) {
	case 0:
		op->unit = s->n_units;
		break;
	case 1:
		op->unit = -2;
		break;
	case 2:
		op->cause = s->n_units;
		break;
	case 3:
		op->micro_batch = (int)s->plan.grad_accum;
		break;
	case 4:
		op->bytes = -1;
		break;
	case 5:
		op->waits = (struct slice){p->n_indices, 1};
		break;
	case 6:
		op->uses = (struct slice){-1, 1};
		break;
	case 7:
		slice_add(p, &op->uses, p->n_buffers);
		break;
	case 8:
		slice_add(p, &op->uses, -1);
		break;
	case 9:
		buffer->bytes = -1;
		break;
	case 10:
		buffer->unit = s->n_units;
		break;
	default:
		buffer->bytes = INT64_MAX;
		break;
	}
	return true;
}

static bool classes(struct schedule *s, uint64_t *seed)
{
	s->n_classes = random_below(seed, 2) ? 0 : 2;
	return true;
}

static const struct damage {
	const char *name;
	bool (*apply)(struct schedule *, uint64_t *seed);
} damages[] = {
	{"wait_for_itself", wait_for_itself},
	{"wait_forward", wait_forward},
	{"wait_two_steps_back", wait_two_steps_back},
	{"take_twice", take_twice},
	{"give_twice", give_twice},
	{"drop_take", drop_take},
	{"drop_give", drop_give},
	{"take_resident", take_resident},
	{"use_after_give", use_after_give},
	{"use_before_take", use_before_take},
	{"swap_with_taker", swap_with_taker},
	{"remove_reduction", remove_reduction},
	{"reduce_twice", reduce_twice},
	{"reduce_other_unit", reduce_other_unit},
	{"wrong_group", wrong_group},
	{"no_group", no_group},
	{"group_of_other_size", group_of_other_size},
	{"wrong_payload", wrong_payload},
	{"wrong_parameters", wrong_parameters},
	{"no_optimizer", no_optimizer},
	{"out_of_range", out_of_range},
	{"classes", classes},
};

/* Every kind of damage, at 400 places each: refused without exception. */
static void test_damage(void **state)
{
	(void)state;
	enum { PLACES = 400 };
	uint64_t seed = 4711;
	for (int d = 0; d < COUNT_OF(damages); d++)
		for (int done = 0, tries = 0; done < PLACES; tries++) {
			struct arena arena = {0};
			struct sample sample = random_sample(&arena, &seed);
			assert_in_range(tries, 0, 100 * PLACES);
			for (int k = 0; k < 5 && done < PLACES; k++) {
				struct schedule *damaged = copy(&arena, sample.schedule);
				assert_true(accepts(damaged));
				if (!damages[d].apply(damaged, &seed))
					continue;
				if (accepts(damaged))
					fail_msg("%s passes", damages[d].name);
				done++;
			}
			arena_finish(&arena);
		}
}

/* --- order: the validator agrees with the oracle
 * --------------------------------------------------
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
	bool ordered = oracle_ordered(part), accepted = accepts(s);
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
	for (int round = 0; round < 400; round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		struct schedule *s = copy(&arena, sample.schedule);
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
	assert_in_range(tally.waits, 5000, 100000);
	assert_int_equal(tally.refused, tally.needed);
	assert_true(tally.needed > (tally.waits - tally.redundant) * 9 / 10);
	assert_true(tally.redundant > 0);
}

/* Another order: an operation moves to another stream, a wait aims elsewhere, host waits go. */
static bool reorder(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int op = (int)random_below(seed, p->n_ops), k;
	if (random_below(seed, 3) == 0 && p->ops[op].stream != STREAM_HOST) {
		p->ops[op].stream = (enum stream)random_below(seed, STREAM_HOST);
		return true;
	}
	enum member member = random_below(seed, 3) ? WAITS : HOST_WAITS;
	op = draw(p, member, seed);
	if (op <= 0)
		return false;
	struct slice *slice = member_of(&p->ops[op], member);
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
	for (int round = 0; round < 3000; round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		struct schedule *s = copy(&arena, sample.schedule);
		if (s->programs[0].n_ops <= 120 && reorder(s, &seed)) {
			oracle_build(&oracle, &s->programs[0]);
			bool ordered = oracle_ordered(&oracle);
			verdicts[ordered]++;
			assert_int_equal(accepts(s), ordered);
		}
		arena_finish(&arena);
	}
	oracle_finish(&oracle);
	assert_in_range(verdicts[0], 500, 3000);
	assert_in_range(verdicts[1], 500, 3000);
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
	for (int round = 0; round < 6000; round++) {
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
			if (runtime_of((enum runtime_kind)r)->strategies >> s & 1)
				assert_in_range(seen[r][s], 50, 6000);
			else
				assert_int_equal(seen[r][s], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_dropped_waits),
		cmocka_unit_test(test_other_orders),
		cmocka_unit_test(test_random_plans),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
