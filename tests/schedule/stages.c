/* Pipelines drawn by hand. */
#include "stages.h"

#include "damage.h"
#include "support.h"

struct stage {
	struct schedule *schedule;
	struct program *program;
	int class, micro_batches;
	int *residual_in; /* by micro-batch: what its backward gives back */
};

static int add_buffer(struct program *p, enum buffer_role role, enum stream pool)
{
	p->buffers[p->n_buffers] = (struct buffer){.role = role,
		.pool = pool,
		.unit = -1,
		.layer = -1,
		.dtype = DTYPE_BF16,
		.bytes = STAGES_BYTES};
	return p->n_buffers++;
}

int stages_add(struct schedule *schedule, int class, struct op op)
{
	struct program *p = &schedule->programs[class];
	op.unit = op.layer = op.cause = -1;
	op.dtype = DTYPE_BF16;
	op.waits = op.host_waits = op.takes = op.gives = op.uses = (struct slice){p->n_indices, 0};
	p->ops[p->n_ops] = op;
	return p->n_ops++;
}

static int add(struct stage *s, enum op_kind kind, enum stream stream, int micro_batch)
{
	return stages_add(s->schedule, s->class,
		(struct op){
			.kind = kind, .stream = stream, .micro_batch = micro_batch, .group = -1});
}

static void has(struct stage *s, int op, enum member member, int item)
{
	slice_add(s->program, op_member(&s->program->ops[op], member), item);
}

static int add_message(struct stage *s, enum op_kind kind, int micro_batch, int peer)
{
	bool sends = kind == OP_SEND;
	int op = add(s, kind, sends ? STREAM_SEND : STREAM_RECEIVE, micro_batch);
	struct op *o = &s->program->ops[op];
	o->group = 0;
	o->bytes = STAGES_BYTES;
	o->message.peer = peer;
	o->message.direction = (peer > s->class) == sends ? DIRECTION_FORWARD : DIRECTION_BACKWARD;
	return op;
}

/* The buffer of what has come in, and the operation that brought it. */
static int receive(struct stage *s, int micro_batch, int peer, int *op)
{
	bool forward = peer < s->class;
	int buffer = add_buffer(
		s->program, forward ? BUFFER_RESIDUAL : BUFFER_RESIDUAL_GRADIENT, STREAM_RECEIVE);
	*op = add_message(s, OP_RECV, micro_batch, peer);
	has(s, *op, TAKES, buffer);
	has(s, *op, USES, buffer);
	return buffer;
}

static void send(struct stage *s, int micro_batch, int peer, int buffer, int computed)
{
	int op = add_message(s, OP_SEND, micro_batch, peer);
	has(s, op, WAITS, computed);
	has(s, op, USES, buffer);
	has(s, op, GIVES, buffer);
}

static void add_forward(struct stage *s, int micro_batch)
{
	int received = -1, in = -1;
	if (s->class > 0)
		in = receive(s, micro_batch, s->class - 1, &received);
	int op = add(s, OP_FORWARD, STREAM_COMPUTE, micro_batch);
	s->residual_in[micro_batch] = in;
	if (in >= 0) {
		has(s, op, WAITS, received);
		has(s, op, USES, in);
	}
	if (s->class == s->schedule->n_classes - 1)
		return;
	int out = add_buffer(s->program, BUFFER_RESIDUAL, STREAM_COMPUTE);
	has(s, op, TAKES, out);
	has(s, op, USES, out);
	send(s, micro_batch, s->class + 1, out, op);
}

static void add_backward(struct stage *s, int micro_batch)
{
	int received = -1, in = -1, residual = s->residual_in[micro_batch];
	if (s->class < s->schedule->n_classes - 1)
		in = receive(s, micro_batch, s->class + 1, &received);
	int op = add(s, OP_BACKWARD, STREAM_COMPUTE, micro_batch);
	if (in >= 0) {
		has(s, op, WAITS, received);
		has(s, op, USES, in);
		has(s, op, GIVES, in);
	}
	if (residual < 0)
		return;
	has(s, op, USES, residual);
	has(s, op, GIVES, residual);
	int out = add_buffer(s->program, BUFFER_RESIDUAL_GRADIENT, STREAM_COMPUTE);
	has(s, op, TAKES, out);
	has(s, op, USES, out);
	send(s, micro_batch, s->class - 1, out, op);
}

static void fill(struct stage *s, enum stages_order order)
{
	int m = s->micro_batches, ahead = s->schedule->n_classes - 1 - s->class;
	if (order == STAGES_GPIPE || ahead > m)
		ahead = m;
	for (int i = 0; i < ahead; i++)
		add_forward(s, i);
	for (int i = 0; i < m; i++) {
		if (i + ahead < m)
			add_forward(s, i + ahead);
		add_backward(s, i);
	}
}

struct schedule *stages_schedule(
	struct arena *arena, int stages, int micro_batches, enum stages_order order)
{
	const struct model *model = toy_model(arena, stages, false);
	const struct topology *topology = gpu_cluster(arena, 1, stages);
	struct plan plan = toy_plan(arena, model, topology, "strategy=NO_SHARD", NULL);
	struct schedule *schedule = ARENA_NEW(arena, struct schedule);
	int most = 8 * micro_batches + 64;
	plan.grad_accum = micro_batches;
	plan.mesh = (struct mesh){1, 1, 1, stages, 1, 1};
	*schedule = (struct schedule){.arena = arena,
		.plan = plan,
		.model = model,
		.topology = topology,
		.n_groups = 1,
		.n_engines = 1,
		.n_classes = stages};
	schedule->groups = ARENA_ARRAY(arena, struct group, 4);
	schedule->groups[0] = (struct group){GROUP_PIPELINE, stages, 1, 0};
	schedule->programs = ARENA_ARRAY(arena, struct program, stages);
	for (int c = 0; c < stages; c++) {
		struct program *p = &schedule->programs[c];
		struct stage stage = {
			schedule, p, c, micro_batches, ARENA_ARRAY(arena, int, micro_batches)};
		p->model = model;
		p->ops = ARENA_ARRAY(arena, struct op, most);
		p->buffers = ARENA_ARRAY(arena, struct buffer, most);
		p->indices = ARENA_ARRAY(arena, int, 32 * most);
		fill(&stage, order);
	}
	return schedule;
}

int stages_find(
	const struct program *program, enum op_kind kind, int micro_batch, enum direction direction)
{
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op->kind == kind && op->micro_batch == micro_batch &&
			op->message.direction == direction)
			return i;
	}
	fail_msg("no %s of micro-batch %d", op_kind_name(kind), micro_batch);
	return -1;
}
