/* Graphs of the fake GPU. What a captured stream is given goes to a list instead of its queue; a
 * launch gives the list, in its order, to a queue of the graph's own for each stream that took
 * part, with marks of this launch where the capture had events. So what the events of the capture
 * do not order comes in any order, and the accesses are checked, in every launch. */
#include <stdlib.h>
#include <string.h>

#include "tests/executor/fakes/cuda_private.h"

enum { LANES = 16 };

/* What a stream was given. A call, a recording for the host, or a collective are nodes; events
 * within the capture are edges. */
struct captured {
	enum fake_node_kind kind;
	int lane;
	const char *name;
	void (*run)(void *arguments);
	void (*again)(void *arguments, struct fake_stream *stream); /* NODE_MEET */
	void *arguments;
	size_t bytes;
	struct fake_touch *touches;
	int n_touches;
	int source;               /* NODE_WAIT: which recording */
	struct fake_event *event; /* NODE_RECORD for the host; else NULL */
};

struct fake_capture {
	int64_t number; /* from 1 */
	int users;      /* graphs, executable graphs, and while it goes on itself */
	struct fake_stream *streams[LANES];
	int n_lanes;
	struct captured *list;
	int n, room;
	int64_t nodes[LANES];         /* so many has the lane */
	int64_t behind[LANES][LANES]; /* [lane]: nodes of each lane that come before what is next */
};

struct fake_executable {
	struct fake_capture *graph;
	struct fake_stream *streams[LANES];
};

static int64_t n_captures;

static int lane_of(const struct fake_capture *c, const struct fake_stream *stream)
{
	int lane = 0;

	while (lane < c->n_lanes && c->streams[lane] != stream)
		lane++;
	return lane;
}

static int add_lane(struct fake_capture *c, struct fake_stream *stream)
{
	if (c->n_lanes == LANES) {
		fake_cuda_fault("a capture of more than %d streams", LANES);
		return 0;
	}
	c->streams[c->n_lanes] = stream;
	stream->capture = c;
	return c->n_lanes++;
}

static struct captured *add(
	struct fake_stream *stream, enum fake_node_kind kind, const char *name, bool node)
{
	struct fake_capture *c = stream->capture;
	int lane = lane_of(c, stream);

	if (c->n == c->room) {
		c->room = 2 * c->room + 256;
		c->list = realloc(c->list, (size_t)c->room * sizeof(*c->list));
		if (c->list == NULL)
			abort();
	}
	if (node)
		c->behind[lane][lane] = ++c->nodes[lane];
	c->list[c->n] = (struct captured){.kind = kind, .lane = lane, .name = name};
	return &c->list[c->n++];
}

static void *copy_of(const void *from, size_t bytes)
{
	void *copy = fake_calloc(bytes);

	if (bytes > 0)
		memcpy(copy, from, bytes);
	return copy;
}

void fake_capture_call(struct fake_stream *stream, const char *name, void (*run)(void *),
	const void *arguments, size_t bytes, const struct fake_touch *touches, int n_touches)
{
	struct captured *added = add(stream, NODE_CALL, name, true);

	added->run = run;
	added->arguments = copy_of(arguments, bytes);
	added->bytes = bytes;
	added->touches = copy_of(touches, (size_t)n_touches * sizeof(*touches));
	added->n_touches = n_touches;
}

void fake_capture_again(struct fake_stream *stream,
	void (*again)(void *arguments, struct fake_stream *stream), const void *arguments,
	size_t bytes)
{
	struct captured *added = add(stream, NODE_MEET, "a collective", true);

	added->again = again;
	added->arguments = copy_of(arguments, bytes);
	added->bytes = bytes;
}

/* --- events --- */

void fake_capture_record(struct fake_stream *stream, struct fake_event *event, bool for_the_host)
{
	struct fake_capture *c = stream->capture;
	struct captured *added = add(stream, NODE_RECORD, "an event", for_the_host);

	if (for_the_host) {
		added->event = event;
		return;
	}
	event->capture = c->number;
	event->recording = c->n - 1;
	event->behind = realloc(event->behind, sizeof(c->behind[0]));
	memcpy(event->behind, c->behind[added->lane], sizeof(c->behind[0]));
}

static struct fake_capture *capture_of_thread(int64_t number)
{
	struct fake_capture *c = fake_thread.capture;

	return c != NULL && c->number == number ? c : NULL;
}

void fake_capture_wait(struct fake_stream *stream, const struct fake_event *event)
{
	struct fake_capture *c = capture_of_thread(event->capture);

	if (event->capture == 0)
		fake_cuda_fault("a stream of a capture waits for an event outside of it");
	else if (c == NULL || (stream->capture != NULL && stream->capture != c))
		fake_cuda_fault("a stream waits for an event of another capture");
	else if (stream->capture == NULL && stream->head != NULL)
		fake_cuda_fault("a stream joins a capture while it has work to do");
	if (fake_outcome() != 0)
		return;
	if (stream->capture == NULL)
		add_lane(c, stream);
	struct captured *added = add(stream, NODE_WAIT, "a wait", false);
	added->source = event->recording;
	for (int i = 0; i < LANES; i++)
		if (event->behind[i] > c->behind[added->lane][i])
			c->behind[added->lane][i] = event->behind[i];
}

/* --- the driver's functions --- */

static int begin(void *stream, int mode)
{
	struct fake_stream *s = stream;

	fake_lock();
	fake_trace("capture %d %d", fake_thread.actor, s->actor);
	if (mode != CUDA_CAPTURE_THREAD_LOCAL)
		fake_cuda_fault("a capture that other threads could spoil");
	if (s->capture != NULL || fake_thread.capture != NULL)
		fake_cuda_fault("a capture begins in another");
	struct fake_capture *c = fake_calloc(sizeof(*c));
	c->number = ++n_captures;
	c->users = 1;
	add_lane(c, s);
	fake_thread.capture = c;
	fake_unlock();
	return fake_outcome();
}

static void drop(struct fake_capture *c)
{
	if (--c->users > 0)
		return;
	for (int i = 0; i < c->n; i++) {
		free(c->list[i].arguments);
		free(c->list[i].touches);
	}
	free(c->list);
	free(c);
}

static int end(void *stream, void **graph)
{
	struct fake_stream *s = stream;
	struct fake_capture *c = s->capture;

	fake_lock();
	if (c == NULL || c != fake_thread.capture || c->streams[0] != s)
		fake_cuda_fault("a capture ends on a stream or thread where it did not begin");
	for (int i = 0; c != NULL && i < c->n_lanes; i++) {
		if (c->behind[0][i] < c->nodes[i])
			fake_cuda_fault("a stream of the capture was not joined");
		c->streams[i]->capture = NULL;
	}
	fake_thread.capture = NULL;
	*graph = c;
	fake_unlock();
	return fake_outcome();
}

static int count(void *graph, void **nodes, size_t *n)
{
	const struct fake_capture *c = graph;

	(void)nodes;
	*n = 0;
	for (int i = 0; i < c->n_lanes; i++)
		*n += (size_t)c->nodes[i];
	return fake_outcome();
}

static int instantiate(void **executable, void *graph, unsigned long long flags)
{
	struct fake_executable *e = fake_calloc(sizeof(*e));
	struct fake_capture *c = graph;

	(void)flags;
	fake_lock();
	e->graph = c;
	c->users++;
	for (int i = 0; i < c->n_lanes; i++)
		e->streams[i] = fake_new_stream();
	fake_unlock();
	*executable = e;
	return fake_outcome();
}

static int upload(void *executable, void *stream)
{
	(void)executable;
	(void)stream;
	return fake_outcome();
}

static struct mark *record(struct fake_stream *stream)
{
	struct mark *mark = fake_new_mark();

	fake_enqueue(stream, NODE_RECORD, "an event", NULL, 0, NULL, 0)->mark = mark;
	return mark;
}

static void wait(struct fake_stream *stream, struct mark *mark)
{
	fake_enqueue(stream, NODE_WAIT, "a wait", NULL, 0, NULL, 0)->mark = mark;
}

static void give(const struct fake_executable *e, const struct captured *item, struct mark **marks)
{
	struct fake_stream *stream = e->streams[item->lane];

	switch (item->kind) {
	case NODE_CALL:
		fake_enqueue(stream, NODE_CALL, item->name, item->arguments, item->bytes,
			item->touches, item->n_touches)
			->run = item->run;
		break;
	case NODE_RECORD:
		marks[item - e->graph->list] = record(stream);
		if (item->event != NULL)
			item->event->mark = marks[item - e->graph->list];
		break;
	case NODE_WAIT:
		wait(stream, marks[item->source]);
		break;
	case NODE_MEET:
		item->again(item->arguments, stream);
		break;
	}
}

static int launch(void *executable, void *stream)
{
	const struct fake_executable *e = executable;
	const struct fake_capture *c = e->graph;
	struct mark **marks = fake_calloc((size_t)c->n * sizeof(*marks));

	fake_lock();
	if (fake_thread.capture != NULL)
		fake_cuda_fault("a graph is launched while a step is captured");
	fake_trace("launch %d %d", fake_thread.actor, ((struct fake_stream *)stream)->actor);
	struct mark *start = record(stream);
	for (int i = 0; i < c->n_lanes; i++)
		wait(e->streams[i], start);
	for (int i = 0; i < c->n; i++)
		give(e, &c->list[i], marks);
	for (int i = 0; i < c->n_lanes; i++)
		wait(stream, record(e->streams[i]));
	fake_unlock();
	free(marks);
	return fake_outcome();
}

static int destroy_executable(void *executable)
{
	struct fake_executable *e = executable;

	fake_lock();
	for (int i = 0; i < e->graph->n_lanes; i++) {
		if (e->streams[i]->head != NULL && fake_outcome() == 0)
			fake_cuda_fault("a graph is destroyed while it runs");
		fake_forget_stream(e->streams[i]);
	}
	drop(e->graph);
	fake_unlock();
	free(e);
	return fake_outcome();
}

static int destroy(void *graph)
{
	fake_lock();
	drop(graph);
	fake_unlock();
	return fake_outcome();
}

void fake_graph_install(struct cuda_api *api)
{
	api->cuStreamBeginCapture = begin;
	api->cuStreamEndCapture = end;
	api->cuGraphGetNodes = count;
	api->cuGraphInstantiateWithFlags = instantiate;
	api->cuGraphUpload = upload;
	api->cuGraphLaunch = launch;
	api->cuGraphExecDestroy = destroy_executable;
	api->cuGraphDestroy = destroy;
}
