/* The validator refuses schedules that break a law: they are damaged at random places, law by
 * law. */
#include "damage.h"
#include "support.h"

/* --- places --------------------------------------------------------------------------------------
 */

static int owner_of(const struct program *p, enum member member, int buffer)
{
	for (int i = 0; i < p->n_ops; i++) {
		struct slice slice = *op_member(&p->ops[i], member);
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

/* --- one kind of damage each; false: this schedule has no such place -----------------------------
 */

static bool wait_for_itself(struct schedule *s, uint64_t *seed)
{
	struct program *p = &s->programs[0];
	int op = draw_op(p, WAITS, seed), k;
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
	slice_add(p, op_member(&p->ops[op], random_below(seed, 2) ? WAITS : HOST_WAITS), later);
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
	int op = draw_op(p, member, seed), k;
	draw_item(p, *op_member(&p->ops[op], member), seed, &k);
	slice_drop(p, op_member(&p->ops[op], member), k);
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
		op_member(&p->ops[random_below(seed, p->n_ops)],
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
	if (i < 0 || s->programs->n_units < 2)
		return false;
	struct op *op = &s->programs[0].ops[i];
	op->unit = (op->unit + 1) % s->programs->n_units;
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
		op->unit = s->programs->n_units;
		break;
	case 1:
		op->unit = -2;
		break;
	case 2:
		op->cause = s->programs->n_units;
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
		buffer->unit = s->programs->n_units;
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
				struct schedule *damaged = schedule_copy(&arena, sample.schedule);
				assert_true(is_accepted(damaged));
				if (!damages[d].apply(damaged, &seed))
					continue;
				if (is_accepted(damaged))
					fail_msg("%s passes", damages[d].name);
				done++;
			}
			arena_finish(&arena);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
