/* A cuDNN that might be, of the version that FAKE_CUDNN_VERSION says; without it there is none.
 * What it does with attention depends on the shape, so that a test finds each reason not to take
 * it. Where a machine is dry only patterns are told apart: what each kernel would have left where
 * it writes. */
#include <stdlib.h>
#include <string.h>

#include "tests/executor/fakes/cuda_private.h"

enum { SLOWER = 1, FAST = 2, REFUSED = 3, MARKS = 64 };

enum behaviour { RIGHT, WRONG, WRONG_SUMS, UNSTABLE, SLOW, NO_WAY };
static const struct scene {
	enum attention_pass pass;
	int64_t head_dim, length;
	enum behaviour behaviour;
	double speed;
} scenes[] = {
	{ATTENTION_FORWARD, 64, 1024, RIGHT, 1.3},
	{ATTENTION_FORWARD, 64, 2048, WRONG, 1.5},
	{ATTENTION_FORWARD, 64, 4096, WRONG_SUMS, 1.5},
	{ATTENTION_FORWARD, 64, 8192, UNSTABLE, 1.5},
	{ATTENTION_FORWARD, 128, 1024, SLOW, 1.01},
	{ATTENTION_FORWARD, 128, 2048, RIGHT, 1.25},
	{ATTENTION_FORWARD, 128, 4096, NO_WAY, 1},
	{ATTENTION_BACKWARD, 64, 1024, RIGHT, 1.4},
	{ATTENTION_BACKWARD, 64, 2048, WRONG, 1.5},
	{ATTENTION_BACKWARD, 64, 4096, UNSTABLE, 1.5},
	{ATTENTION_BACKWARD, 64, 8192, RIGHT, 1.5},
	{ATTENTION_BACKWARD, 128, 1024, SLOW, 1.01},
	{ATTENTION_BACKWARD, 128, 2048, NO_WAY, 1},
	{ATTENTION_BACKWARD, 128, 4096, NO_WAY, 1},
	{ATTENTION_BACKWARD, 128, 8192, NO_WAY, 1},
};
static const struct scene elsewhere = {ATTENTION_PASSES, 0, 0, RIGHT, 1.3};

/* Two bf16, or an fp32, each: ours, nearly that, and far from it. */
enum { PATTERN = 0x3f3f3f3f, NEARLY = 0x3f403f3f, FAR = 0x40404040 };

static int64_t n_runs;
static struct fake_choosers choosers;
static struct mark_of_memory {
	const char *address;
	int64_t bytes;
	uint32_t pattern;
} marks[MARKS];

static int64_t version(void)
{
	const char *given = getenv("FAKE_CUDNN_VERSION");

	return given != NULL ? atoll(given) : 0;
}

static const struct scene *scene_of(enum attention_pass pass, const struct attention *a)
{
	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		if (scenes[i].pass == pass && scenes[i].head_dim == a->head_dim &&
			scenes[i].length == a->length)
			return &scenes[i];
	return &elsewhere;
}

int64_t fake_attention_version(struct kernel_context *context)
{
	(void)context;
	return version();
}

/* A weight of each pair of tokens, in bf16. */
static int64_t head_bytes(const struct attention *a)
{
	return 2 * a->length * a->length;
}

int fake_attention_algorithms(struct kernel_context *context, enum attention_pass pass,
	const struct attention_backward *shape, struct attention_algorithm *algorithms,
	int64_t *bytes, int most)
{
	const struct attention *a = &shape->forward;

	(void)context;
	if (version() < (pass == ATTENTION_BACKWARD ? 91801 : 1) ||
		scene_of(pass, a)->behaviour == NO_WAY || most < 3)
		return 0;
	for (int i = 0; i < 3; i++) {
		algorithms[i] = (struct attention_algorithm){
			.engine = SLOWER + i, .kernel = 7, .cluster = 1, .tile_n = 2};
		bytes[i] = pass == ATTENTION_BACKWARD ? a->sequences * a->heads * head_bytes(a) : 0;
	}
	return 3;
}

void fake_choose_attention(struct kernel_context *context, struct attention_choice *choices, int n)
{
	fake_choose(&choosers, context, choices, n);
}

static struct attention_choice *find(
	const struct fake_chooser *c, enum attention_pass pass, const struct attention *a)
{
	struct attention_choice *choices = c->choices;

	for (int i = 0; i < c->n; i++)
		if (a->dtype == DTYPE_BF16 && choices[i].pass == pass &&
			choices[i].head_dim == a->head_dim && choices[i].length == a->length)
			return &choices[i];
	return NULL;
}

/* The newest stands last. */
static void mark(const void *address, int64_t bytes, uint32_t pattern)
{
	int n = 0;

	for (int i = 0; i < MARKS && marks[i].address != NULL; i++)
		if (marks[i].address != address)
			marks[n++] = marks[i];
	n = n < MARKS ? n : MARKS - 1;
	marks[n] = (struct mark_of_memory){address, bytes, pattern};
	if (n + 1 < MARKS)
		marks[n + 1].address = NULL;
}

static const struct left {
	uint32_t result, again, sums;
} left[] = {
	[RIGHT] = {PATTERN, PATTERN, PATTERN},
	[WRONG] = {FAR, FAR, PATTERN},
	[WRONG_SUMS] = {PATTERN, PATTERN, FAR},
	[UNSTABLE] = {PATTERN, NEARLY, PATTERN},
	[SLOW] = {PATTERN, PATTERN, PATTERN},
	[NO_WAY] = {PATTERN, PATTERN, PATTERN},
};

/* NULL: ours. */
static void leave(const struct attention *a, const struct scene *scene)
{
	enum behaviour how = scene != NULL ? scene->behaviour : RIGHT;

	/* The result is wrong only where heads share keys, which the shape that is timed does not
	 * have. */
	if (how == WRONG_SUMS && a->kv_heads == a->heads)
		how = RIGHT;
	int64_t rows = a->sequences * a->length * a->heads;

	mark(a->out, rows * a->head_dim * 2, n_runs % 2 ? left[how].again : left[how].result);
	mark(a->lse, rows * 4, left[how].sums);
}

static void leave_gradients(const struct attention_backward *b, const struct scene *scene)
{
	const struct left *l = &left[scene != NULL ? scene->behaviour : RIGHT];
	int64_t rows = b->forward.sequences * b->forward.length;
	void *const gradients[] = {b->dq, b->dk, b->dv};
	const int64_t strides[] = {b->dq_stride, b->dk_stride, b->dv_stride};

	for (int i = 0; i < 3; i++)
		mark(gradients[i], rows * strides[i] * 2, n_runs % 2 ? l->again : l->result);
}

/* Must be called with the lock. Returns NULL when it is ours to do. */
static struct attention_choice *take(
	struct kernel_context *context, enum attention_pass pass, const struct attention *a)
{
	for (int i = 0; i < FAKE_CONTEXTS; i++) {
		struct attention_choice *choice =
			choosers.of[i].context == context ? find(&choosers.of[i], pass, a) : NULL;

		if (choice == NULL)
			continue;
		choice->taken = true;
		n_runs++;
		return choice;
	}
	return NULL;
}

static bool refuse(struct kernel_context *context)
{
	return error_set(&context->error, EXIT_CODE_FAULT,
		"cuda: cudnnBackendExecute gave cudnnStatus 5000");
}

bool fake_take_attention(struct kernel_context *context, const struct attention *a)
{
	fake_lock();
	const struct attention_choice *choice = take(context, ATTENTION_FORWARD, a);
	bool refused = choice != NULL && choice->algorithm.engine == REFUSED;

	if (fake_clock_is_dry())
		leave(a, choice != NULL ? scene_of(ATTENTION_FORWARD, a) : NULL);
	fake_unlock();
	return !refused || refuse(context);
}

/* FAKE_ATTENTION_WHOLE: the workspace is said to be for all heads at once, and no larger. */
static void check_workspace(const struct kernel_context *context, const struct attention *a,
	const struct attention_choice *choice)
{
	int64_t bytes = a->heads > a->kv_heads ? choice->shared_bytes : choice->head_bytes;

	if (choice->head_bytes < head_bytes(a) ||
		context->workspace_bytes < a->heads / a->kv_heads * bytes)
		fake_cuda_fault("a workspace of %lld bytes for backward of attention",
			(long long)context->workspace_bytes);
	if (getenv("FAKE_ATTENTION_WHOLE") != NULL &&
		context->workspace_bytes != a->sequences * a->heads * bytes)
		fake_cuda_fault("a workspace of %lld bytes, where all heads need %lld",
			(long long)context->workspace_bytes,
			(long long)(a->sequences * a->heads * bytes));
}

bool fake_take_attention_backward(
	struct kernel_context *context, const struct attention_backward *b)
{
	const struct attention *a = &b->forward;

	fake_lock();
	const struct attention_choice *choice = take(context, ATTENTION_BACKWARD, a);
	bool refused = choice != NULL && choice->algorithm.engine == REFUSED;

	if (choice != NULL)
		check_workspace(context, a, choice);
	if (fake_clock_is_dry())
		leave_gradients(b, choice != NULL ? scene_of(ATTENTION_BACKWARD, a) : NULL);
	fake_unlock();
	return !refused || refuse(context);
}

/* Must be called with the lock, while the kernels of one context run. */
double fake_attention_speed(enum attention_pass pass, const struct attention *a)
{
	for (int i = 0; i < FAKE_CONTEXTS; i++) {
		const struct attention_choice *choice =
			choosers.of[i].context != NULL ? find(&choosers.of[i], pass, a) : NULL;

		if (choice != NULL)
			return choice->algorithm.engine == FAST ? scene_of(pass, a)->speed : 0.9;
	}
	return 1;
}

void fake_dry_copy(void *to, const void *from, int64_t bytes)
{
	for (int i = 0; i < MARKS && marks[i].address != NULL; i++) {
		int64_t at = (const char *)from - marks[i].address;

		if (at < 0 || at >= marks[i].bytes)
			continue;
		for (int64_t j = 0; j + 4 <= bytes; j += 4)
			memcpy((char *)to + j, &marks[i].pattern, 4);
	}
}
