#include "tests/kernels/problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/bf16.h"

/* Neighbouring numbers differ by this, relatively, at most. */
#define BF16_STEP 0x1p-7

struct adamw third_adamw(int64_t n)
{
	return (struct adamw){.n = n,
		.lr = 1e-3,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.epsilon = 1e-8,
		.weight_decay = 0.1,
		.bias_correction1 = 0.271,
		.bias_correction2 = 0.142625,
		.gradient_scale = 1};
}

void context_init(struct kernel_context *context, const struct kernels *kernels)
{
	struct error error = {0};

	memset(context, 0, sizeof(*context));
	context->workspace_bytes = KERNELS_WORKSPACE_BYTES;
	context->workspace = aligned_alloc(KERNELS_WORKSPACE_ALIGNMENT, KERNELS_WORKSPACE_BYTES);
	if (!context->workspace || !kernels->open(context, &error)) {
		fprintf(stderr, "cannot open %s: %s\n", kernels->name, error.message);
		exit(1);
	}
	/* A kernel that reads what it did not write sees NaN. */
	memset(context->workspace, 0xff, KERNELS_WORKSPACE_BYTES);
}

void context_finish(struct kernel_context *context, const struct kernels *kernels)
{
	kernels->close(context);
	free(context->workspace);
}

/* splitmix64 (Steele 2014) */
static uint64_t next_random(struct problem *problem)
{
	uint64_t z = problem->random += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

double random_between(struct problem *problem, double low, double high)
{
	return low + (high - low) * (double)(next_random(problem) >> 11) * 0x1p-53;
}

void *make_input_as(
	struct problem *problem, enum dtype dtype, int slot, int64_t count, double low, double high)
{
	struct buffer *buffer = &problem->buffer[slot];
	size_t bytes = (size_t)((count + problem->offset + 16) * dtype_bytes(dtype));
	char *block;

	buffer->dtype = dtype;
	buffer->count = count;
	if (problem->memory) {
		buffer->data =
			problem->memory->make(problem->memory->owner, dtype, count, low, high);
		return buffer->data;
	}
	block = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (!block)
		abort();
	buffer->data = block + problem->offset * dtype_bytes(dtype);
	for (int64_t i = 0; i < count; i++)
		element_put(dtype, buffer->data, i, (float)random_between(problem, low, high));
	return buffer->data;
}

void *make_output_as(struct problem *problem, enum dtype dtype, int slot, int64_t count, double low,
	double high, double tolerance)
{
	make_input_as(problem, dtype, slot, count, low, high);
	problem->buffer[slot].output = true;
	problem->buffer[slot].tolerance =
		dtype == DTYPE_BF16 ? fmax(tolerance, BF16_STEP) : tolerance;
	return problem->buffer[slot].data;
}

void *make_input(struct problem *problem, int slot, int64_t count, double low, double high)
{
	return make_input_as(problem, problem->kernel_case->dtype, slot, count, low, high);
}

void *make_output(
	struct problem *problem, int slot, int64_t count, double low, double high, double tolerance)
{
	return make_output_as(
		problem, problem->kernel_case->dtype, slot, count, low, high, tolerance);
}

enum dtype gradient_dtype(const struct problem *problem)
{
	return problem->kernel_case->gradient_dtype;
}

int32_t *make_ids(struct problem *problem, int64_t count, int64_t limit, bool ignore)
{
	problem->n_ids = count;
	problem->ids = calloc((size_t)count + 1, sizeof(*problem->ids));
	if (!problem->ids)
		abort();
	for (int64_t i = 0; i < count; i++) {
		uint64_t random = next_random(problem);
		problem->ids[i] =
			ignore && random % 8 == 7 ? -1 : (int32_t)(random / 8 % (uint64_t)limit);
	}
	return problem->ids;
}

double traffic(const struct problem *problem, double elements)
{
	return (double)dtype_bytes(problem->kernel_case->dtype) * elements;
}

void problem_init(struct problem *problem, const struct kernel_case *kernel_case,
	const int64_t dim[MOST_DIMS], const struct kernels *kernels, struct kernel_context *context,
	int64_t offset)
{
	problem_init_in(problem, NULL, kernel_case, dim, kernels, context, offset);
}

void problem_init_in(struct problem *problem, const struct problem_memory *memory,
	const struct kernel_case *kernel_case, const int64_t dim[MOST_DIMS],
	const struct kernels *kernels, struct kernel_context *context, int64_t offset)
{
	memset(problem, 0, sizeof(*problem));
	problem->memory = memory;
	problem->kernels = kernels;
	problem->context = context;
	problem->kernel_case = kernel_case;
	problem->offset = offset;
	problem->random = 20;
	memcpy(problem->dim, dim, sizeof(problem->dim));
	kernel_case->make(problem);
}

void problem_finish(struct problem *problem)
{
	for (int i = 0; i < MOST_BUFFERS; i++) {
		if (problem->buffer[i].data && !problem->memory)
			free(element_at(problem->buffer[i].dtype, problem->buffer[i].data,
				-problem->offset));
	}
	free(problem->ids);
}

static double root_mean_square(const struct buffer *buffer)
{
	double sum = 0.0;

	for (int64_t i = 0; i < buffer->count; i++) {
		double x = element_get(buffer->dtype, buffer->data, i);

		if (isfinite(x))
			sum += x * x;
	}
	return buffer->count > 0 ? sqrt(sum / (double)buffer->count) : 0.0;
}

static double element_distance(float a, float b, double tolerance, double rms)
{
	double allowed = tolerance * (fabs((double)b) + rms);

	if (a == b || (isnan(a) && isnan(b)))
		return 0.0;
	if (!isfinite(a) || !isfinite(b) || allowed == 0.0)
		return INFINITY;
	return fabs((double)a - b) / allowed;
}

double problem_distance(const struct problem *a, const struct problem *b, char *where)
{
	double worst = 0.0;

	snprintf(where, WHERE, "nowhere");
	for (int slot = 0; slot < MOST_BUFFERS; slot++) {
		const struct buffer *x = &a->buffer[slot], *y = &b->buffer[slot];
		double rms = y->output ? root_mean_square(y) : 0.0;

		for (int64_t i = 0; y->output && i < y->count; i++) {
			float got = element_get(x->dtype, x->data, i);
			float want = element_get(y->dtype, y->data, i);
			double d = element_distance(got, want, y->tolerance, rms);

			if (d <= worst)
				continue;
			worst = d;
			snprintf(where, WHERE, "buffer %d[%lld]: %.9g, expected %.9g", slot,
				(long long)i, (double)got, (double)want);
		}
	}
	return worst;
}

bool problem_same_bits(const struct problem *a, const struct problem *b)
{
	for (int slot = 0; slot < MOST_BUFFERS; slot++) {
		const struct buffer *x = &a->buffer[slot], *y = &b->buffer[slot];

		if (y->output && y->count > 0 &&
			memcmp(x->data, y->data, (size_t)(y->count * dtype_bytes(y->dtype))) != 0)
			return false;
	}
	return true;
}
