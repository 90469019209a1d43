/* The fake machine: its faults, vector clocks and queues. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/executor/fakes/cuda_private.h"

struct fake_machine fake_machine = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
_Thread_local struct fake_thread fake_thread;

/* --- faults --- */

void fake_cuda_fault(const char *format, ...)
{
	va_list args;

	if (fake_machine.fault[0] != '\0')
		return;
	va_start(args, format);
	vsnprintf(fake_machine.fault, sizeof(fake_machine.fault), format, args);
	va_end(args);
}

const char *fake_cuda_first_fault(void)
{
	return fake_machine.fault;
}

void fake_cuda_forget_fault(void)
{
	fake_machine.fault[0] = '\0';
	fake_thread.capture = NULL;
}

int fake_outcome(void)
{
	return fake_machine.fault[0] != '\0' ? FAKE_ERROR : 0;
}

void *fake_calloc(size_t bytes)
{
	void *memory = calloc(1, bytes > 0 ? bytes : 1);

	if (memory == NULL)
		abort();
	return memory;
}

/* --- threads --- */

void fake_lock(void)
{
	pthread_mutex_lock(&fake_machine.lock);
	if (fake_thread.actor == 0)
		fake_thread.actor = fake_new_actor();
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&fake_machine.lock);
}

void fake_wait(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 2000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&fake_machine.changed, &fake_machine.lock, &until);
}

void fake_wake(void)
{
	pthread_cond_broadcast(&fake_machine.changed);
}

int fake_new_actor(void)
{
	if (fake_machine.n_actors + 1 >= FAKE_ACTORS)
		fake_cuda_fault("the fake has room for %d threads and streams", FAKE_ACTORS);
	else
		fake_machine.n_actors++;
	return fake_machine.n_actors;
}

void fake_join(uint32_t *into, const uint32_t *from)
{
	for (int i = 0; i <= fake_machine.n_actors; i++)
		into[i] = into[i] > from[i] ? into[i] : from[i];
}

/* --- queues --- */

struct fake_node *fake_enqueue(struct fake_stream *stream, enum fake_node_kind kind,
	const char *name, const void *arguments, size_t bytes, const struct fake_touch *touches,
	int n_touches)
{
	struct fake_node *node = fake_calloc(sizeof(*node));

	if (fake_thread.capture != NULL)
		fake_cuda_fault("%s is given to a stream outside of the capture", name);
	node->kind = kind;
	node->name = name;
	node->arguments = fake_calloc(bytes);
	if (bytes > 0)
		memcpy(node->arguments, arguments, bytes);
	if (n_touches > FAKE_TOUCHES)
		fake_cuda_fault("%s touches more than %d ranges", name, FAKE_TOUCHES);
	node->touches = fake_calloc((size_t)n_touches * sizeof(*touches));
	if (n_touches > 0)
		memcpy(node->touches, touches, (size_t)n_touches * sizeof(*touches));
	node->n_touches = n_touches;
	memcpy(node->clock, fake_thread.clock, sizeof(node->clock));
	node->number = fake_machine.n_nodes++;
	fake_clock_issue(node);
	if (stream->tail != NULL)
		stream->tail->next = node;
	else
		stream->head = node;
	stream->tail = node;
	stream->owner = fake_thread.actor;
	fake_wake();
	return node;
}

static void pop(struct fake_stream *stream)
{
	struct fake_node *node = stream->head;

	stream->head = node->next;
	if (stream->head == NULL)
		stream->tail = NULL;
	free(node->arguments);
	free(node->touches);
	free(node);
}

void fake_cuda_limit_queues(int n)
{
	fake_machine.n_queues = n;
}

/* Nothing lies before it in its queue. */
static bool is_first(const struct fake_stream *stream)
{
	for (struct fake_stream *s = fake_machine.streams; s != NULL && stream->queue >= 0;
		s = s->next)
		if (s->queue == stream->queue && s->head != NULL &&
			s->head->number < stream->head->number)
			return false;
	return true;
}

static bool is_ready(const struct fake_stream *stream)
{
	const struct fake_node *node = stream->head;

	if (node == NULL || !is_first(stream))
		return false;
	if (node->kind == NODE_WAIT)
		return node->mark->done;
	return node->kind != NODE_MEET || fake_meeting_is_complete(node->meeting);
}

/* What comes before the node is all done: its stream's clock may go on. */
void fake_begin_node(struct fake_stream *stream)
{
	struct fake_node *node = stream->head;

	fake_join(stream->clock, node->clock);
	if (node->kind == NODE_WAIT)
		fake_join(stream->clock, node->mark->clock);
	stream->clock[stream->actor]++;
}

void fake_check_node(struct fake_stream *stream)
{
	for (int i = 0; i < stream->head->n_touches; i++)
		fake_check_access(stream, stream->head->name, &stream->head->touches[i]);
}

void fake_join_clocks(struct fake_stream *stream, const struct fake_stream *other)
{
	fake_join(stream->clock, other->clock);
}

void fake_end_node(struct fake_stream *stream)
{
	pop(stream);
}

static void run_head(struct fake_stream *stream)
{
	struct fake_node *node = stream->head;

	if (node->kind == NODE_MEET) {
		fake_meeting_run(stream);
		return;
	}
	fake_begin_node(stream);
	fake_check_node(stream);
	fake_clock_begin(stream);
	if (node->kind == NODE_CALL && fake_machine.fault[0] == '\0' && !fake_clock_is_dry())
		node->run(node->arguments);
	if (fake_clock_is_dry() && node->n_touches == 2 && strcmp(node->name, "a copy") == 0)
		fake_dry_copy((void *)(uintptr_t)node->touches[0].address, node->touches[1].address,
			node->touches[1].bytes);
	fake_clock_end(stream);
	if (node->kind == NODE_RECORD) {
		memcpy(node->mark->clock, stream->clock, sizeof(node->mark->clock));
		node->mark->time = fake_clock_of(stream);
		node->mark->done = true;
	}
	pop(stream);
}

static uint64_t draw(uint64_t below)
{
	fake_machine.random ^= fake_machine.random << 13;
	fake_machine.random ^= fake_machine.random >> 7;
	fake_machine.random ^= fake_machine.random << 17;
	return fake_machine.random % below;
}

static struct fake_stream *draw_ready(void)
{
	struct fake_stream *chosen = NULL;
	uint64_t seen = 0;

	for (struct fake_stream *s = fake_machine.streams; s != NULL; s = s->next)
		if (is_ready(s) && draw(++seen) == 0)
			chosen = s;
	return chosen;
}

/* One node of a stream that is drawn; false when none can go on. Collectives get room when nothing
 * else can be done: then as many as can be wait for it. */
bool fake_run_one(void)
{
	struct fake_stream *chosen = draw_ready();

	if (chosen == NULL) {
		fake_meetings_start();
		chosen = draw_ready();
	}
	if (chosen == NULL)
		return false;
	run_head(chosen);
	fake_wake();
	return true;
}

void fake_cuda_call(void *stream, const char *name, void (*run)(void *arguments),
	const void *arguments, size_t bytes, const struct fake_touch *touches, int n_touches)
{
	struct fake_stream *s = stream;

	fake_lock();
	fake_trace_touches("call", s, 0, 0, touches, n_touches);
	if (s->capture != NULL)
		fake_capture_call(s, name, run, arguments, bytes, touches, n_touches);
	else
		fake_enqueue(s, NODE_CALL, name, arguments, bytes, touches, n_touches)->run = run;
	fake_unlock();
}
