/* The ledger adds up live bytes in the order of the list. */
#include <string.h>

#include "schedule/memory/memory.h"

/* What is live on the device, by category, and in host memory. */
struct live {
	int64_t device[CATEGORY_COUNT], host;
};

static void count_buffer(const struct buffer *buffer, struct live *live, int times)
{
	if (buffer_in_host(buffer))
		live->host += times * buffer->bytes;
	else
		live->device[buffer_role_category(buffer->role)] += times * buffer->bytes;
}

static void count(const struct program *program, const struct op *op, struct slice slice,
	struct live *live, int sign)
{
	const int *buffers = slice_of(program, slice);
	for (int i = 0; i < slice.count; i++)
		count_buffer(&program->buffers[buffers[i]], live,
			sign * buffers_at_once(program, op, buffers[i]));
}

static int64_t sum(const int64_t *live)
{
	int64_t total = 0;
	for (int c = 0; c < CATEGORY_COUNT; c++)
		total += live[c];
	return total;
}

static void note_peaks(struct ledger *ledger, int op, const struct live *now)
{
	const int64_t *live = now->device;
	int64_t total = sum(live);
	ledger->host_peak_bytes = max_i64(ledger->host_peak_bytes, now->host);
	if (total > ledger->peak_bytes) {
		ledger->peak_bytes = total;
		ledger->peak_op = op;
	}
	for (int c = 0; c < CATEGORY_COUNT; c++)
		ledger->category_peak_bytes[c] = max_i64(ledger->category_peak_bytes[c], live[c]);
}

struct walk {
	const struct program *program;
	struct ledger *ledger;
	struct live live;
};

static void carry_out(struct walk *walk, int op)
{
	const struct op *here = &walk->program->ops[op];
	count(walk->program, here, here->takes, &walk->live, 1);
	if (walk->ledger->live != NULL)
		memcpy(walk->ledger->live[op], walk->live.device, sizeof(walk->live.device));
	note_peaks(walk->ledger, op, &walk->live);
	count(walk->program, here, here->gives, &walk->live, -1);
}

static void skip(struct live *live, const struct live *before, int times)
{
	for (int c = 0; c < CATEGORY_COUNT; c++)
		live->device[c] += times * (live->device[c] - before->device[c]);
	live->host += times * (live->host - before->host);
}

/* In every iteration what is live grows by the same amount, so it is largest in the first or in the
 * last one. */
static void carry_out_all(struct walk *walk, int first, int end, int outer)
{
	for (int i = first; i < end; i++) {
		int l = program_loop(walk->program, i, outer);
		if (l < 0) {
			carry_out(walk, i);
			continue;
		}
		const struct loop *loop = &walk->program->loops[l];
		const struct live before = walk->live;
		carry_out_all(walk, i, i + loop->n, l);
		if (loop->times > 2)
			skip(&walk->live, &before, loop->times - 2);
		if (loop->times > 1)
			carry_out_all(walk, i, i + loop->n, l);
		i += loop->n - 1;
	}
}

void schedule_ledger(
	const struct schedule *schedule, int class, struct arena *arena, struct ledger *ledger)
{
	const struct program *program = &schedule->programs[class];
	struct walk walk = {.program = program, .ledger = ledger};
	*ledger = (struct ledger){.peak_op = -1};
	if (arena != NULL)
		ledger->live = arena_alloc(arena, (size_t)program->n_ops, sizeof(*ledger->live));
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident)
			count_buffer(&program->buffers[i], &walk.live,
				buffer_times(&program->buffers[i]));
	carry_out_all(&walk, 0, program->n_ops, -1);
}

/* Counts buffers on the device that stay there: the gradient of an offloaded unit only passes
 * through. */
static int64_t role_bytes(const struct program *program, enum buffer_role role)
{
	int64_t total = 0;
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *buffer = &program->buffers[i];
		bool passes = !buffer->resident && buffer->unit >= 0 &&
			      program->units[buffer->unit].offload != OFFLOAD_NONE;
		if (buffer->role == role && !buffer_in_host(buffer) && !passes)
			total += buffer_times(buffer) * buffer->bytes;
	}
	return total;
}

/* Counts the copies of parameters that exist between steps. */
static int64_t resident_parameters(const struct program *program)
{
	int64_t total = 0;
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident && !buffer_in_host(&program->buffers[i]) &&
			buffer_role_category(program->buffers[i].role) == CATEGORY_PARAMETERS)
			total += buffer_times(&program->buffers[i]) * program->buffers[i].bytes;
	return total;
}

/* ZeRO-1 holds gradients of all parameters until the last micro-batch ends. A buffer that lives for
 * one operation only (the second part of a tied weight's gradient) is not counted. */
static int64_t whole_gradients(const struct program *program)
{
	int64_t total = role_bytes(program, BUFFER_GRADIENT);
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const int *takes = slice_of(program, op->takes),
			  *gives = slice_of(program, op->gives);
		for (int t = 0; t < op->takes.count; t++)
			for (int g = 0; g < op->gives.count; g++)
				if (takes[t] == gives[g] &&
					program->buffers[takes[t]].role == BUFFER_GRADIENT)
					total -= program->buffers[takes[t]].bytes;
	}
	return total;
}

static int64_t resident_gradients(const struct program *program)
{
	int64_t total = 0;
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident && program->buffers[i].role == BUFFER_GRADIENT)
			total += buffer_times(&program->buffers[i]) * program->buffers[i].bytes;
	return total;
}

static int64_t gradients(const struct schedule *schedule, const struct program *program)
{
	int64_t resident = resident_gradients(program);
	if (resident > 0)
		return resident;
	if (strategy_stage(schedule->plan.strategy) == 1 &&
		runtime_of(schedule->plan.runtime)->zero != NULL)
		return whole_gradients(program);
	return role_bytes(program, BUFFER_GRADIENT_SHARD);
}

struct model_states schedule_model_states(const struct schedule *schedule, int class)
{
	const struct program *program = &schedule->programs[class];
	return (struct model_states){
		.parameters = resident_parameters(program),
		.gradients = gradients(schedule, program),
		.optimizer_state = role_bytes(program, BUFFER_OPTIMIZER_STATE),
	};
}
