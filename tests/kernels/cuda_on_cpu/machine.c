#include "tests/kernels/cuda_on_cpu/machine.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 256 << 10, MOST_COPIES = 320, MOST_GROUPS = 64, LANES = 32 };

enum state { READY, IN_WARP, IN_BLOCK, WAITING, GONE };

struct copy {
	uint32_t offset;
	const void *from;
	int bytes, group;
};

struct thread_state {
	struct cuda_thread thread;
	enum state state;
	void *stack, *pointer; /* of a thread that does not run */
	void *shadow;          /* the address sanitizer's own stack */
	const char *doing;
	int turn, group, n_copies;
	bool (*ready)(const void *); /* of one that is WAITING */
	const void *about;
	struct copy copies[MOST_COPIES];
};

struct warp {
	int waiting, alive;
	struct exchange
		exchanges[2]; /* by turns: a fast lane cannot overwrite what a slow one reads */
};

struct cuda_thread *cuda_thread;
struct cuda_index cuda_block, cuda_block_size, cuda_grid;
char *cuda_shared;
bool cuda_backwards;

static struct thread_state *threads[CUDA_MOST_THREADS];
static struct warp warps[CUDA_MOST_THREADS / LANES];
static int n_threads, waiting_in_block, alive;
static uint32_t shared_size;
static void (*kernel_of_threads)(const void *);
static const void *kernel_arguments;
static void *scheduler_pointer;

void cuda_die(const char *what)
{
	fprintf(stderr, "cuda on cpu: block %u,%u,%u thread %u: %s\n", cuda_block.x, cuda_block.y,
		cuda_block.z, cuda_thread ? cuda_thread->index.x : 0, what);
	abort();
}

/* --- changing places --- */

static struct thread_state *self(void)
{
	return cuda_thread->state;
}

#if defined(__SANITIZE_ADDRESS__)
static const void *scheduler_bottom;
static size_t scheduler_size;
static void *scheduler_shadow;

static void leave(void **shadow, const void *bottom, size_t size)
{
	__sanitizer_start_switch_fiber(shadow, bottom, size);
}

static void arrive(void *shadow, const void **bottom, size_t *size)
{
	__sanitizer_finish_switch_fiber(shadow, bottom, size);
}
#endif

#if defined(__x86_64__)
/* Saves what a call must keep, exchanges the stack pointers, and goes on there. swapcontext does
 * the same with a system call each time, which takes most of the run. */
void cuda_switch(void **from, void *to);
__asm__(".text\n"
	".globl cuda_switch\n"
	"cuda_switch:\n"
	"push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
	"mov %rsp, (%rdi)\n"
	"mov %rsi, %rsp\n"
	"pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
	"ret\n");

static void *new_stack_pointer(char *stack, void (*entry)(void))
{
	void **top = (void **)(stack + STACK_BYTES - 64);

	/* `ret` takes the entry and leaves the stack as a call would: 8 below a multiple of 16. */
	*--top = NULL;
	*--top = (void *)(uintptr_t)entry;
	for (int i = 0; i < 6; i++)
		*--top = NULL;
	return top;
}
#else
static void cuda_switch(void **from, void *to)
{
	ucontext_t here;

	*from = &here;
	swapcontext(&here, to);
}

static void *new_stack_pointer(char *stack, void (*entry)(void))
{
	ucontext_t *context = (ucontext_t *)stack; /* the low end is far from the frames */

	getcontext(context);
	context->uc_stack.ss_sp = stack + sizeof(*context);
	context->uc_stack.ss_size = STACK_BYTES - sizeof(*context);
	context->uc_link = NULL;
	makecontext(context, entry, 0);
	return context;
}
#endif

static void to_scheduler(void)
{
	struct thread_state *me = self();

#if defined(__SANITIZE_ADDRESS__)
	leave(me->state == GONE ? NULL : &me->shadow, scheduler_bottom, scheduler_size);
#endif
	cuda_switch(&me->pointer, scheduler_pointer);
#if defined(__SANITIZE_ADDRESS__)
	arrive(me->shadow, &scheduler_bottom, &scheduler_size);
#endif
}

static void to_thread(struct thread_state *thread)
{
	cuda_thread = &thread->thread;
#if defined(__SANITIZE_ADDRESS__)
	leave(&scheduler_shadow, thread->stack, STACK_BYTES);
#endif
	cuda_switch(&scheduler_pointer, thread->pointer);
#if defined(__SANITIZE_ADDRESS__)
	arrive(scheduler_shadow, NULL, NULL);
#endif
}

/* --- waiting for each other --- */

static int warp_of(const struct thread_state *thread)
{
	return (int)thread->thread.index.x / LANES;
}

static void wake(int first, int end, enum state state)
{
	for (int i = first; i < end; i++)
		if (threads[i]->state == state)
			threads[i]->state = READY;
}

static void check_warp(int warp)
{
	struct warp *w = &warps[warp];
	int first = warp * LANES, end = first + LANES < n_threads ? first + LANES : n_threads;

	if (w->waiting < w->alive)
		return;
	for (int i = first; i < end; i++)
		if (threads[i]->state == IN_WARP &&
			(threads[i]->doing != threads[first]->doing ||
				threads[i]->turn != threads[first]->turn))
			cuda_die("lanes of one warp do different things");
	w->waiting = 0;
	wake(first, end, IN_WARP);
}

static void check_block(void)
{
	if (waiting_in_block < alive)
		return;
	waiting_in_block = 0;
	wake(0, n_threads, IN_BLOCK);
}

const struct exchange *cuda_exchange(const char *what, const void *operand, int bytes)
{
	struct thread_state *me = self();
	struct warp *w = &warps[warp_of(me)];
	struct exchange *mine = &w->exchanges[me->turn++ & 1];

	if (w->alive != LANES)
		cuda_die("an exchange in a warp that has lost lanes");
	if (bytes > 0)
		memcpy(mine->of[me->thread.index.x % LANES], operand, (size_t)bytes);
	me->doing = what;
	me->state = IN_WARP;
	w->waiting++;
	check_warp(warp_of(me));
	if (me->state != READY)
		to_scheduler();
	return mine;
}

void cuda_wait_for_block(void)
{
	self()->state = IN_BLOCK;
	waiting_in_block++;
	check_block();
	if (self()->state != READY)
		to_scheduler();
}

void cuda_wait_until(bool (*ready)(const void *), const void *about)
{
	struct thread_state *me = self();

	if (ready(about))
		return;
	me->ready = ready;
	me->about = about;
	me->state = WAITING;
	to_scheduler();
}

/* --- copies --- */

void cuda_cp_async(uint32_t offset, const void *from, int bytes)
{
	struct thread_state *me = self();

	if (me->n_copies == MOST_COPIES)
		cuda_die("too many copies under way");
	if (offset % (uint32_t)bytes || (uintptr_t)from % (uintptr_t)bytes)
		cuda_die("a copy that is not aligned to its bytes");
	me->copies[me->n_copies++] = (struct copy){offset, from, bytes, me->group};
}

void cuda_cp_async_commit_group(void)
{
	self()->group++;
}

void cuda_cp_async_wait_group(int open_groups)
{
	struct thread_state *me = self();
	int kept = 0;

	for (int i = 0; i < me->n_copies; i++) {
		const struct copy *copy = &me->copies[i];

		if (copy->group >= me->group - open_groups) {
			me->copies[kept++] = *copy;
			continue;
		}
		if (copy->from)
			memcpy(cuda_shared + copy->offset, copy->from, (size_t)copy->bytes);
		else
			memset(cuda_shared + copy->offset, 0, (size_t)copy->bytes);
	}
	me->n_copies = kept;
}

/* --- running --- */

static void thread_main(void)
{
	struct thread_state *me;

#if defined(__SANITIZE_ADDRESS__)
	arrive(NULL, &scheduler_bottom, &scheduler_size);
#endif
	kernel_of_threads(kernel_arguments);
	me = self();
	if (me->n_copies > 0)
		cuda_die("ended with copies under way");
	cuda_hopper_end_thread();
	me->state = GONE;
	alive--;
	warps[warp_of(me)].alive--;
	if (warps[warp_of(me)].waiting > 0)
		cuda_die("ended while other lanes of the warp wait for it");
	check_block();
	to_scheduler();
}

static void begin_thread(int i)
{
	struct thread_state *t = threads[i];
	void *stack = t ? t->stack : NULL;

	if (!t) {
		threads[i] = t = malloc(sizeof(*t));
		stack = aligned_alloc(64, STACK_BYTES);
		if (!t || !stack)
			abort();
	}
	/* The copies are kilobytes, and none is there. */
	memset(t, 0, offsetof(struct thread_state, copies));
	t->stack = stack;
	t->thread.index.x = (uint32_t)i;
	t->thread.state = t;
	t->pointer = new_stack_pointer(stack, thread_main);
}

static void run_block(void)
{
	n_threads = alive = (int)cuda_block_size.x;
	waiting_in_block = 0;
	for (int i = 0; i < n_threads; i++)
		begin_thread(i);
	for (int w = 0; w * LANES < n_threads; w++) {
		warps[w].waiting = 0;
		warps[w].alive = n_threads - w * LANES < LANES ? n_threads - w * LANES : LANES;
	}
	memset(cuda_shared, 0xff, shared_size);
	cuda_hopper_begin_block();
	while (alive > 0) {
		bool any = false;

		for (int i = 0; i < n_threads; i++) {
			struct thread_state *t = threads[cuda_backwards ? n_threads - 1 - i : i];

			if (t->state == WAITING && t->ready(t->about))
				t->state = READY;
			if (t->state == READY) {
				any = true;
				to_thread(t);
			}
		}
		if (!any)
			cuda_die("threads wait for each other and none can go on");
	}
}

void cuda_run(void (*kernel)(const void *), const void *arguments, struct cuda_index grid,
	struct cuda_index block, uint32_t shared_bytes)
{
	uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;

	cuda_grid = grid;
	cuda_block_size = block;
	kernel_of_threads = kernel;
	kernel_arguments = arguments;
	shared_size = shared_bytes;
	/* malloc, so that the address sanitizer sees the byte after the last. */
	cuda_shared = malloc(shared_bytes);
	for (uint64_t i = 0; i < blocks; i++) {
		uint64_t b = cuda_backwards ? blocks - 1 - i : i;

		cuda_block = (struct cuda_index){.x = (uint32_t)(b % grid.x),
			.y = (uint32_t)(b / grid.x % grid.y),
			.z = (uint32_t)(b / grid.x / grid.y)};
		run_block();
	}
	free(cuda_shared);
	cuda_shared = NULL;
	cuda_thread = NULL;
}
