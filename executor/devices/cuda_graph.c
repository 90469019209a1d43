#include "executor/devices/cuda_graph.h"

#include "executor/devices/cuda.h"

static bool record(struct device_cuda *d, void *event, enum stream stream, struct error *error)
{
	return device_check(
		d, d->api->cuEventRecord(event, d->streams[stream]), "cuEventRecord", error);
}

static bool wait(struct device_cuda *d, enum stream stream, void *event, struct error *error)
{
	return device_check(d, d->api->cuStreamWaitEvent(d->streams[stream], event, 0),
		"cuStreamWaitEvent", error);
}

/* --- set-up --- */

static bool make_event(struct device_cuda *d, void **event, struct error *error)
{
	return device_check(
		d, d->api->cuEventCreate(event, CUDA_EVENT_DISABLE_TIMING), "cuEventCreate", error);
}

bool device_graph_want(struct device_cuda *d, struct error *error)
{
	struct device_graph *g = &d->graph;

	g->links = ARENA_ARRAY(&d->arena, void *, d->program->n_ops);
	for (int i = 0; i < d->program->n_ops; i++)
		if (!make_event(d, &g->links[i], error))
			return false;
	for (int s = 0; s < STREAM_COUNT; s++)
		if (!make_event(d, &g->joins[s], error))
			return false;
	g->state = GRAPH_LATER;
	return make_event(d, &g->fork, error);
}

static void forget_event(struct device_cuda *d, void *event)
{
	if (event != NULL)
		d->api->cuEventDestroy(event);
}

void device_graph_close(struct device_cuda *d)
{
	struct device_graph *g = &d->graph;
	void *unfinished = NULL;

	if (d->api == NULL)
		return;
	if (g->state == GRAPH_WRITES &&
		d->api->cuStreamEndCapture(d->streams[STREAM_COMPUTE], &unfinished) == 0)
		d->api->cuGraphDestroy(unfinished);
	if (g->executable != NULL)
		d->api->cuGraphExecDestroy(g->executable);
	for (int i = 0; g->links != NULL && i < d->program->n_ops; i++)
		forget_event(d, g->links[i]);
	for (int s = 0; s < STREAM_COUNT; s++)
		forget_event(d, g->joins[s]);
	forget_event(d, g->fork);
	*g = (struct device_graph){.state = GRAPH_NEVER};
}

/* --- the capture --- */

bool device_graph_begin_step(struct device_cuda *d, struct error *error)
{
	struct device_graph *g = &d->graph;

	if (g->state == GRAPH_LATER)
		g->state = GRAPH_NEXT;
	else if (g->state == GRAPH_NEXT)
		g->state = GRAPH_WRITES;
	if (g->state != GRAPH_WRITES)
		return true;
	for (int s = 0; s < STREAM_COUNT; s++)
		g->inside[s] = s == STREAM_COMPUTE;
	/* Other threads of this process may allocate meanwhile, so only this thread's calls are
	 * captured. */
	return device_check(d,
		       d->api->cuStreamBeginCapture(
			       d->streams[STREAM_COMPUTE], CUDA_CAPTURE_THREAD_LOCAL),
		       "cuStreamBeginCapture", error) &&
	       record(d, g->fork, STREAM_COMPUTE, error);
}

bool device_graph_enter(struct device_cuda *d, enum stream stream, struct error *error)
{
	struct device_graph *g = &d->graph;

	if (g->inside[stream])
		return true;
	g->inside[stream] = true;
	return wait(d, stream, g->fork, error);
}

bool device_graph_link(struct device_cuda *d, int op, struct error *error)
{
	return record(d, d->graph.links[op], d->program->ops[op].stream, error);
}

static bool join_streams(struct device_cuda *d, struct error *error)
{
	struct device_graph *g = &d->graph;

	for (int s = 0; s < STREAM_COUNT; s++)
		if (s != STREAM_COMPUTE && g->inside[s] &&
			(!record(d, g->joins[s], (enum stream)s, error) ||
				!wait(d, STREAM_COMPUTE, g->joins[s], error)))
			return false;
	return true;
}

static bool instantiate(struct device_cuda *d, void *graph, struct error *error)
{
	struct device_graph *g = &d->graph;
	size_t nodes = 0;
	bool ok = device_check(d, d->api->cuGraphGetNodes(graph, NULL, &nodes), "cuGraphGetNodes",
			  error) &&
		  device_check(d, d->api->cuGraphInstantiateWithFlags(&g->executable, graph, 0),
			  "a step as a CUDA graph (cuGraphInstantiate)", error) &&
		  device_check(d, d->api->cuGraphUpload(g->executable, d->streams[STREAM_COMPUTE]),
			  "cuGraphUpload", error);

	g->nodes = (int64_t)nodes;
	return ok;
}

static bool end_capture(struct device_cuda *d, struct error *error)
{
	void *graph = NULL;

	if (!join_streams(d, error))
		return false;
	d->graph.state = GRAPH_NEVER;
	if (!device_check(d, d->api->cuStreamEndCapture(d->streams[STREAM_COMPUTE], &graph),
		    "a step as a CUDA graph (cuStreamEndCapture)", error))
		return false;
	bool ok = instantiate(d, graph, error);
	d->api->cuGraphDestroy(graph);
	d->graph.state = GRAPH_READY;
	return ok;
}

bool device_graph_end_step(struct device_cuda *d, struct error *error)
{
	if (device_graph_writes(&d->graph) && !end_capture(d, error))
		return false;
	return record(d, d->origin, STREAM_COMPUTE, error) &&
	       device_check(d,
		       d->api->cuGraphLaunch(d->graph.executable, d->streams[STREAM_COMPUTE]),
		       "cuGraphLaunch", error);
}
