#include "cli/cores/cores.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base.h"

enum { CPUS_MOST = 1 << 16 };

int cores_available(void)
{
	size_t size = CPU_ALLOC_SIZE(CPUS_MOST);
	cpu_set_t *set = CPU_ALLOC(CPUS_MOST);
	int n = 0;

	if (set == NULL)
		base_out_of_memory(size);
	if (sched_getaffinity(0, size, set) == 0)
		n = CPU_COUNT_S(size, set);
	CPU_FREE(set);
	return n > 0 ? n : 1;
}

struct share {
	int n;
	atomic_int next;
	void (*piece)(void *data, int index, int worker);
	void *data;
};

struct hand {
	pthread_t thread;
	struct share *share;
	int worker;
};

static void *take_pieces(void *argument)
{
	const struct hand *hand = argument;
	struct share *share = hand->share;
	int i;

	while ((i = atomic_fetch_add(&share->next, 1)) < share->n)
		share->piece(share->data, i, hand->worker);
	return NULL;
}

/* Signals are left to the thread that called. */
static int start(struct hand *hands, int n, struct share *share)
{
	sigset_t all, before;
	int started = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (int i = 0; i < n; i++) {
		hands[started] = (struct hand){.share = share, .worker = i + 1};
		started += pthread_create(
				   &hands[started].thread, NULL, take_pieces, &hands[started]) == 0;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

void cores_each(int workers, int n, void (*piece)(void *data, int index, int worker), void *data)
{
	struct arena arena = {0};
	struct share share = {.n = n, .piece = piece, .data = data};
	struct hand mine = {.share = &share};
	int others = workers < n ? workers - 1 : n - 1, started = 0;
	struct hand *hands = ARENA_ARRAY(&arena, struct hand, others > 0 ? others : 0);

	if (others > 0)
		started = start(hands, others, &share);
	take_pieces(&mine);
	for (int i = 0; i < started; i++)
		pthread_join(hands[i].thread, NULL);
	arena_finish(&arena);
}
