#include "oracle.h"

#include <stdlib.h>
#include <string.h>

static uint64_t *row(const struct oracle *o, int i)
{
	return o->rows + (size_t)i * (size_t)o->words;
}

static bool has(const uint64_t *bits, int i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

static void add(const struct oracle *o, uint64_t *bits, int i)
{
	for (int w = 0; w < o->words; w++)
		bits[w] |= row(o, i)[w];
	bits[i / 64] |= UINT64_C(1) << (i % 64);
}

/* Waits of an operation of step 0 or 1; what the first waits for in the step before is void. */
static void add_all(const struct oracle *o, uint64_t *bits, struct slice waits, int step)
{
	int n = o->program->n_ops;
	for (int k = 0; k < waits.count; k++) {
		int wait = slice_of(o->program, waits)[k];
		if (wait >= 0 || step == 1)
			add(o, bits, wait + step * n);
	}
}

void oracle_build(struct oracle *o, const struct program *program)
{
	int n = program->n_ops, last[STREAM_COUNT];
	o->program = program;
	o->words = (2 * n + 63) / 64;
	free(o->rows);
	o->rows = calloc((size_t)o->words * (size_t)(2 * n + 1), sizeof(uint64_t));
	uint64_t *host = row(o, 2 * n);
	for (int s = 0; s < STREAM_COUNT; s++)
		last[s] = -1;
	for (int i = 0; i < 2 * n; i++) {
		const struct op *op = &program->ops[i % n];
		add_all(o, host, op->host_waits, i / n);
		memcpy(row(o, i), host, (size_t)o->words * sizeof(uint64_t));
		if (last[op->stream] >= 0)
			add(o, row(o, i), last[op->stream]);
		add_all(o, row(o, i), op->waits, i / n);
		last[op->stream] = i;
		if (op->stream == STREAM_HOST) /* the issuing thread itself */
			add(o, host, i);
	}
}

void oracle_finish(struct oracle *o)
{
	free(o->rows);
	*o = (struct oracle){0};
}

bool oracle_equal(const struct oracle *a, const struct oracle *b)
{
	size_t size = (size_t)a->words * (size_t)(2 * a->program->n_ops) * sizeof(uint64_t);
	return memcmp(a->rows, b->rows, size) == 0;
}

bool oracle_before(const struct oracle *o, int first, int then)
{
	int n = o->program->n_ops;
	return has(row(o, then + n), first + n);
}

static bool names(const struct program *program, struct slice slice, int buffer)
{
	for (int k = 0; k < slice.count; k++)
		if (slice_of(program, slice)[k] == buffer)
			return true;
	return false;
}

static bool buffer_ordered(const struct oracle *o, int buffer, int *touching)
{
	const struct program *p = o->program;
	int n = 0;
	for (int i = 0; i < p->n_ops; i++)
		if (names(p, p->ops[i].takes, buffer) || names(p, p->ops[i].gives, buffer) ||
			names(p, p->ops[i].uses, buffer))
			touching[n++] = i;
	for (int a = 0; a < n; a++)
		for (int b = 0; b < n; b++) {
			const uint64_t *finished = row(o, p->n_ops + touching[b]);
			if (a < b && !has(finished, p->n_ops + touching[a]))
				return false;
			if (p->buffers[buffer].resident && !has(finished, touching[a]))
				return false;
		}
	return true;
}

bool oracle_ordered(const struct oracle *o)
{
	int *touching = calloc((size_t)o->program->n_ops + 1, sizeof(int));
	bool ok = true;
	for (int b = 0; b < o->program->n_buffers && ok; b++)
		ok = buffer_ordered(o, b, touching);
	free(touching);
	return ok;
}
