/* Decides which streams a rank has on its GPU. A rank that has the GPU to itself has one for each
 * stream of the schedule.
 *
 * A GPU takes work from QUEUES queues, and begins what lies in one of them in order. Where more
 * streams than that are in use, one that waits or is held holds up strangers. So ranks that share a
 * GPU and are held to modelled times have a compute stream each, and share the others by kind: as
 * many neighbours share a stream as are needed for all streams to find a queue. Ranks that share a
 * stream go in lockstep (device_meet): first all start the operation, then all are held, so that
 * its time passes for all at once. */
#include <pthread.h>

#include "executor/devices/cuda.h"

/* This is CUDA_DEVICE_MAX_CONNECTIONS as executor/launch/spawn.c sets it, less some for the
 * driver's own streams. */
enum { QUEUES = 32, SPARE = 3 };
/* Communication runs before arithmetic where both have blocks to run; the lower number is
 * sooner. */
enum { PRIORITY_COMPUTE = 0, PRIORITY_COMMUNICATION = -1 };

static bool make(struct device_cuda *d, enum stream kind, void **stream, struct error *error)
{
	bool first = kind == STREAM_COMPUTE || kind == STREAM_HOST;

	return cuda_check(d->api,
		d->api->cuStreamCreateWithPriority(stream, CUDA_STREAM_NON_BLOCKING,
			first ? PRIORITY_COMPUTE : PRIORITY_COMMUNICATION),
		"cuStreamCreate", error);
}

static void destroy(struct device_cuda *d, void **stream)
{
	if (*stream != NULL)
		d->api->cuStreamDestroy(*stream);
	*stream = NULL;
}

/* --- streams of several ranks --- */

static bool uses(const struct device_cuda *d, enum stream kind)
{
	for (int i = 0; i < d->program->n_ops; i++)
		if (d->program->ops[i].stream == kind)
			return true;
	return false;
}

/* Returns how many streams of each kind besides compute are shared. It is a divisor of the ranks,
 * so that all ranks have as many neighbours. */
static int streams_of_a_kind(const struct device_cuda *d, int ranks)
{
	int kinds = 0, count = ranks;

	for (int s = 0; s < STREAM_COUNT; s++)
		kinds += s != STREAM_COMPUTE && s != STREAM_HOST && uses(d, (enum stream)s);
	while (count > 1 && (ranks % count != 0 || ranks + kinds * count > QUEUES - SPARE))
		count--;
	return count;
}

static bool borrow(struct device_cuda *d, enum stream kind, int n, struct error *error)
{
	struct stream_pool *pool = d->pool;
	void **stream = &pool->streams[kind][n];

	if (*stream == NULL && !make(d, kind, stream, error))
		return false;
	*(kind == STREAM_HOST ? &d->background : &d->streams[kind]) = *stream;
	return true;
}

static bool borrow_all(struct device_cuda *d, struct error *error)
{
	int count = streams_of_a_kind(d, d->pool->ranks), n = d->rank * count / d->pool->ranks;
	bool ok = borrow(d, STREAM_HOST, 0, error);

	d->in_lockstep = count < d->pool->ranks;
	for (int s = 0; s < STREAM_COUNT && ok; s++) {
		if (s == STREAM_COMPUTE || s == STREAM_HOST)
			continue;
		if (uses(d, (enum stream)s))
			ok = borrow(d, (enum stream)s, n, error);
		else
			d->streams[s] = d->streams[STREAM_COMPUTE];
	}
	return ok;
}

void stream_pool_open(struct stream_pool *pool, int ranks, struct arena *arena)
{
	*pool = (struct stream_pool){.ranks = ranks};
	pthread_mutex_init(&pool->lock, NULL);
	for (int s = 0; s < STREAM_COUNT; s++)
		pool->streams[s] = ARENA_ARRAY(arena, void *, ranks);
}

void stream_pool_close(struct stream_pool *pool)
{
	pthread_mutex_destroy(&pool->lock);
}

/* --- of a rank --- */

static bool open_shared(struct device_cuda *d, struct error *error)
{
	struct stream_pool *pool = d->pool;

	if (!make(d, STREAM_COMPUTE, &d->streams[STREAM_COMPUTE], error))
		return false;
	pthread_mutex_lock(&pool->lock);
	pool->users++;
	d->borrows = true;
	bool ok = borrow_all(d, error);
	pthread_mutex_unlock(&pool->lock);
	return ok;
}

bool device_streams_open(struct device_cuda *d, struct error *error)
{
	if (d->pool != NULL)
		return open_shared(d, error);
	for (int s = 0; s < STREAM_COUNT; s++)
		if (s != STREAM_HOST && !make(d, (enum stream)s, &d->streams[s], error))
			return false;
	return make(d, STREAM_HOST, &d->background, error);
}

/* The last rank to leave destroys what was shared. */
static void give_back(struct device_cuda *d)
{
	struct stream_pool *pool = d->pool;

	pthread_mutex_lock(&pool->lock);
	bool last = --pool->users == 0;
	for (int s = 0; s < STREAM_COUNT && last; s++)
		for (int n = 0; n < pool->ranks; n++)
			destroy(d, &pool->streams[s][n]);
	pthread_mutex_unlock(&pool->lock);
}

void device_streams_close(struct device_cuda *d)
{
	destroy(d, &d->streams[STREAM_COMPUTE]);
	if (d->pool != NULL) {
		if (d->borrows)
			give_back(d);
		return;
	}
	for (int s = 0; s < STREAM_COUNT; s++)
		destroy(d, &d->streams[s]);
	destroy(d, &d->background);
}

bool device_meet(struct device_cuda *d, int op, struct error *error)
{
	struct stream_pool *pool = d->pool;
	enum stream stream = d->program->ops[op].stream;

	if (!d->in_lockstep || stream == STREAM_COMPUTE || stream == STREAM_HOST)
		return true;
	uint32_t round = ++d->meetings;
	uint32_t come = atomic_fetch_add(&pool->come, 1) + 1;
	if (come == round * (uint32_t)pool->ranks) {
		event_set(&pool->met, round);
		return true;
	}
	enum event_result result = event_wait(&pool->met, round, &d->patience);
	if (result == EVENT_TIMED_OUT)
		return error_set(error, EXIT_CODE_FAULT,
			"a rank that shares the GPU did not come to operation %d", op);
	return result == EVENT_REACHED;
}
