#include "executor/devices/cuda.h"

#include <string.h>

#include "kernels/kernels.h"

/* The host looks at an event so many times before it sleeps between looks. */
enum { SPINS = 2000 };

/* --- waiting --- */

static bool patient(struct device_cuda *d, double since, int looks, struct error *error)
{
	double waited;

	if (d->patience.abort != NULL && atomic_load(d->patience.abort) != 0)
		return false;
	if (looks < SPINS)
		return true;
	if (d->healthy != NULL && !d->healthy(d->health_data, error))
		return false;
	waited = clock_now() - since;
	if (d->patience.timeout > 0 && waited > d->patience.timeout)
		return error_set(error, EXIT_CODE_FAULT,
			"GPU %d has not done what it was given for %.0f s: "
			"a rank that does not come to a collective, or a kernel that hangs",
			d->ordinal, d->patience.timeout);
	clock_nap(waited);
	return true;
}

static bool await(struct device_cuda *d, void *event, struct error *error)
{
	double since = clock_now();

	for (int looks = 0;; looks += looks < SPINS) {
		int result = d->api->cuEventQuery(event);

		if (result != CUDA_ERROR_NOT_READY)
			return device_check(d, result, "an operation of the step", error);
		if (!patient(d, since, looks, error))
			return false;
	}
}

/* --- a step --- */

static bool record_origin(struct device_cuda *d, struct error *error)
{
	return device_check(d, d->api->cuEventRecord(d->origin, d->streams[STREAM_COMPUTE]),
		"cuEventRecord", error);
}

static bool begin_step(void *device, bool rehearsal, bool *walk, struct error *error)
{
	struct device_cuda *d = device;

	memset(d->seen, 0xff, sizeof(d->seen));
	d->last_collective = -1;
	d->start = clock_now();
	if (!rehearsal && !device_graph_begin_step(d, error))
		return false;
	*walk = rehearsal || d->graph.state != GRAPH_READY;
	return device_graph_writes(&d->graph) || !*walk || record_origin(d, error);
}

static bool wait_on_host(void *device, int op, struct error *error)
{
	struct device_cuda *d = device;

	return d->program->ops[op].stream == STREAM_HOST || await(d, d->ends[op], error);
}

/* Returns the event behind that operation, which others can wait for. */
static void *event_of(const struct device_cuda *d, int op)
{
	return device_graph_writes(&d->graph) ? d->graph.links[op] : d->ends[op];
}

/* Makes a stream wait for an operation. It need not wait again for what it has waited for once, nor
 * for what came before that on the other stream. */
static bool wait_on_stream(struct device_cuda *d, enum stream stream, int op, struct error *error)
{
	enum stream other = d->program->ops[op].stream;

	if (other == stream || other == STREAM_HOST || d->careless || d->seen[stream][other] >= op)
		return true;
	d->seen[stream][other] = op;
	return device_check(d, d->api->cuStreamWaitEvent(d->streams[stream], event_of(d, op), 0),
		"cuStreamWaitEvent", error);
}

/* Makes the host wait; in a graph everything that comes later waits in its place. */
static bool wait_for(void *device, int op, struct error *error)
{
	struct device_cuda *d = device;

	if (!device_graph_writes(&d->graph))
		return wait_on_host(d, op, error);
	for (int s = 0; s < STREAM_COUNT; s++)
		if (s != STREAM_HOST && (!device_graph_enter(d, (enum stream)s, error) ||
						!wait_on_stream(d, (enum stream)s, op, error)))
			return false;
	return true;
}

/* Records the time at which the event is passed; in a graph, each time the graph runs. */
static bool record_time(struct device_cuda *d, void *event, enum stream stream, struct error *error)
{
	if (device_graph_writes(&d->graph))
		return device_check(d,
			d->api->cuEventRecordWithFlags(
				event, d->streams[stream], CUDA_EVENT_RECORD_EXTERNAL),
			"cuEventRecordWithFlags", error);
	return device_check(
		d, d->api->cuEventRecord(event, d->streams[stream]), "cuEventRecord", error);
}

static bool wait_in_order(struct device_cuda *d, int index, struct error *error)
{
	const struct op *op = &d->program->ops[index];
	int before = d->last_collective;

	if (!d->one_at_a_time || op_kind_class(op->kind) != OP_CLASS_COLLECTIVE)
		return true;
	d->last_collective = index;
	return before < 0 || wait_on_stream(d, op->stream, before, error);
}

static bool begin(void *device, int index, struct error *error)
{
	struct device_cuda *d = device;
	const struct op *op = &d->program->ops[index];
	const int *waits = slice_of(d->program, op->waits);
	bool on_host = op->stream == STREAM_HOST;

	if (device_graph_writes(&d->graph) && !device_graph_enter(d, op->stream, error))
		return false;
	for (int i = 0; i < op->waits.count; i++)
		if (waits[i] >= 0 && !(on_host ? wait_on_host(d, waits[i], error)
					       : wait_on_stream(d, op->stream, waits[i], error)))
			return false;
	if (!on_host)
		return wait_in_order(d, index, error) &&
		       record_time(d, d->starts[index], op->stream, error);
	d->host_starts[index] = clock_now() - d->start;
	return true;
}

static bool end(void *device, int index, struct error *error)
{
	struct device_cuda *d = device;
	const struct op *op = &d->program->ops[index];

	d->host_ends[index] = clock_now() - d->start;
	if (device_graph_writes(&d->graph) && !device_graph_link(d, index, error))
		return false;
	return op->stream == STREAM_HOST ||
	       (record_time(d, d->ends[index], op->stream, error) && device_meet(d, index, error));
}

static bool read_time(struct device_cuda *d, void *event, double *seconds, struct error *error)
{
	float milliseconds = 0;

	if (!device_check(d, d->api->cuEventElapsedTime(&milliseconds, d->origin, event),
		    "cuEventElapsedTime", error))
		return false;
	*seconds = milliseconds / 1e3;
	return true;
}

/* The device's clock is set by the start of the step. Where it seems ahead of the host's, the
 * operation is taken to have started when it was issued. */
static void put_in_order(struct span *span)
{
	span->start = span->start > span->issued ? span->start : span->issued;
	span->end = span->end > span->start ? span->end : span->start;
}

static bool read_times(struct device_cuda *d, struct span *spans, struct error *error)
{
	bool launched = d->graph.state == GRAPH_READY;

	for (int i = 0; i < d->program->n_ops; i++) {
		if (launched)
			spans[i].issued = 0;
		if (d->program->ops[i].stream == STREAM_HOST) {
			spans[i].start = d->host_starts[i];
			spans[i].end = d->host_ends[i];
		} else if (!read_time(d, d->starts[i], &spans[i].start, error) ||
			   !read_time(d, d->ends[i], &spans[i].end, error)) {
			return false;
		}
		put_in_order(&spans[i]);
	}
	return true;
}

static bool fetch_scalars(struct device_cuda *d, struct error *error)
{
	struct device_scalars *host = d->scalars_on_host;

	return device_copy(d, host, d->scalars, sizeof(*host), STREAM_COMPUTE, error) &&
	       (d->fault == NULL || device_copy(d, &host->fault, d->fault, sizeof(host->fault),
					    STREAM_COMPUTE, error));
}

static bool await_streams(struct device_cuda *d, struct error *error)
{
	int last[STREAM_COUNT];

	memset(last, 0xff, sizeof(last));
	for (int i = 0; i < d->program->n_ops; i++)
		last[d->program->ops[i].stream] = i;
	for (int s = 0; s < STREAM_COUNT; s++)
		if (last[s] >= 0 && !wait_on_host(d, last[s], error))
			return false;
	return true;
}

static bool end_step(void *device, struct span *spans, struct error *error)
{
	struct device_cuda *d = device;
	bool one = device_graph_writes(&d->graph) || d->graph.state == GRAPH_READY;

	if (one && !device_graph_end_step(d, error))
		return false;
	return fetch_scalars(d, error) &&
	       device_check(d, d->api->cuEventRecord(d->origin_end, d->streams[STREAM_COMPUTE]),
		       "cuEventRecord", error) &&
	       (one || await_streams(d, error)) && await(d, d->origin_end, error) &&
	       read_times(d, spans, error) && device_pace_fetch(d, error);
}

static void *stream_of(void *device, enum stream stream)
{
	return device_stream(device, stream);
}

const struct device_ops device_cuda_ops = {.begin_step = begin_step,
	.begin = begin,
	.end = end,
	.wait = wait_for,
	.end_step = end_step,
	.stream = stream_of,
	.start = device_pace_start,
	.clock = device_pace_clock,
	.hold = device_pace_hold,
	.late = device_pace_late};

/* --- copies --- */
