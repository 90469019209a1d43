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
	int64_t head_dim, length;
	enum behaviour behaviour;
	double speed;
} scenes[] = {
	{64, 1024, RIGHT, 1.3},
	{64, 2048, WRONG, 1.5},
	{64, 4096, WRONG_SUMS, 1.5},
	{64, 8192, UNSTABLE, 1.5},
	{128, 1024, SLOW, 1.01},
	{128, 2048, RIGHT, 1.25},
	{128, 4096, NO_WAY, 1},
};
static const struct scene elsewhere = {0, 0, RIGHT, 1.3};

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

static const struct scene *scene_of(int64_t head_dim, int64_t length)
{
	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		if (scenes[i].head_dim == head_dim && scenes[i].length == length)
			return &scenes[i];
	return &elsewhere;
}

int64_t fake_attention_version(struct kernel_context *context)
{
	(void)context;
	return version();
}

int fake_attention_algorithms(struct kernel_context *context, const struct attention *a,
	struct attention_algorithm *algorithms, int most)
{
	(void)context;
	if (version() == 0 || scene_of(a->head_dim, a->length)->behaviour == NO_WAY || most < 3)
		return 0;
	for (int i = 0; i < 3; i++)
		algorithms[i] = (struct attention_algorithm){
			.engine = SLOWER + i, .kernel = 7, .cluster = 1, .tile_n = 2};
	return 3;
}

void fake_choose_attention(struct kernel_context *context, struct attention_choice *choices, int n)
{
	fake_choose(&choosers, context, choices, n);
}

static struct attention_choice *find(const struct fake_chooser *c, const struct attention *a)
{
	struct attention_choice *choices = c->choices;

	for (int i = 0; i < c->n; i++)
		if (a->dtype == DTYPE_BF16 && choices[i].head_dim == a->head_dim &&
			choices[i].length == a->length)
			return &choices[i];
	return NULL;
}

static void mark(const void *address, int64_t bytes, uint32_t pattern)
{
	int at = 0;

	while (at < MARKS - 1 && marks[at].address != NULL && marks[at].address != address)
		at++;
	marks[at] = (struct mark_of_memory){address, bytes, pattern};
}

static void leave(const struct attention *a, const struct scene *scene)
{
	static const struct {
		uint32_t result, again, sums;
	} left[] = {
		[RIGHT] = {PATTERN, PATTERN, PATTERN},
		[WRONG] = {FAR, FAR, PATTERN},
		[WRONG_SUMS] = {PATTERN, PATTERN, FAR},
		[UNSTABLE] = {PATTERN, NEARLY, PATTERN},
		[SLOW] = {PATTERN, PATTERN, PATTERN},
		[NO_WAY] = {PATTERN, PATTERN, PATTERN},
	};
	enum behaviour how = scene != NULL ? scene->behaviour : RIGHT;

	/* Only where heads share keys, as the shape that is timed does not. */
	if (how == WRONG_SUMS && a->kv_heads == a->heads)
		how = RIGHT;
	int64_t rows = a->sequences * a->length * a->heads;

	mark(a->out, rows * a->head_dim * 2, n_runs % 2 ? left[how].again : left[how].result);
	mark(a->lse, rows * 4, left[how].sums);
}

bool fake_take_attention(struct kernel_context *context, const struct attention *a)
{
	const struct scene *scene = NULL;
	bool refused = false;

	fake_lock();
	for (int i = 0; i < FAKE_CONTEXTS; i++) {
		struct attention_choice *choice =
			choosers.of[i].context == context ? find(&choosers.of[i], a) : NULL;

		if (choice == NULL)
			continue;
		choice->taken = true;
		refused = choice->algorithm.engine == REFUSED;
		scene = scene_of(a->head_dim, a->length);
		n_runs++;
	}
	if (fake_clock_is_dry())
		leave(a, scene);
	fake_unlock();
	return !refused || error_set(&context->error, EXIT_CODE_FAULT,
				   "cuda: cudnnBackendExecute gave cudnnStatus 5000");
}

/* With the lock, while the kernels of one context run. */
double fake_attention_speed(const struct attention *a)
{
	for (int i = 0; i < FAKE_CONTEXTS; i++) {
		const struct attention_choice *choice =
			choosers.of[i].context != NULL ? find(&choosers.of[i], a) : NULL;

		if (choice != NULL)
			return choice->algorithm.engine == FAST
				       ? scene_of(a->head_dim, a->length)->speed
				       : 0.9;
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
