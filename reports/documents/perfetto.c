/* A Chrome / Perfetto trace. The predicted and the measured step are two processes, with a thread
 * for the host and one for each stream, memory as counters, and waits between streams as flows. In
 * a pipeline every stage is a process, with messages as flows; the host, waits and memory are only
 * those of the class that is explained. */
#include "reports/documents/documents.h"
#include "schedule/pipeline/pipeline.h"

/* Ids of processes; those of a pipeline's stages follow. Flow ids of messages begin at an offset,
 * so that they differ from those of waits. */
enum { PREDICTED = 1, MEASURED = 2, FIRST_STAGE = 3, HOST_THREAD = 0 };
static const int64_t first_message = (int64_t)1 << 40;

struct trace {
	const struct schedule *schedule;
	struct writer *writer;
	int process;
	int stage;     /* -1: no pipeline */
	int next_flow; /* flow ids are unique over all processes */
};

/* Writes a time in microseconds, the unit of the format. */
static void write_time(struct writer *writer, const char *key, double seconds)
{
	writer_number(writer, key, seconds * 1e6);
}

static void begin_event(struct trace *trace, const char *phase, const char *name, int thread)
{
	writer_begin_map(trace->writer, NULL);
	writer_string(trace->writer, "ph", phase);
	writer_string(trace->writer, "name", name);
	writer_int(trace->writer, "pid", trace->process);
	writer_int(trace->writer, "tid", thread);
}

static void write_name(struct trace *trace, const char *what, const char *name, int thread)
{
	begin_event(trace, "M", what, thread);
	writer_begin_map(trace->writer, "args");
	writer_string(trace->writer, "name", name);
	writer_end_map(trace->writer);
	writer_end_map(trace->writer);
}

static void write_order(struct trace *trace, int thread)
{
	begin_event(trace, "M", "thread_sort_index", thread);
	writer_begin_map(trace->writer, "args");
	writer_int(trace->writer, "sort_index", thread);
	writer_end_map(trace->writer);
	writer_end_map(trace->writer);
}

/* Example: "predicted: FULL_SHARD, every one of 16 ranks". All ranks of a class do the same. */
static void write_process_name(struct trace *trace)
{
	const struct plan *plan = &trace->schedule->plan;
	bool predicted = trace->process != MEASURED;
	struct text name = {0};

	text_printf(&name, "%s: ", predicted ? "predicted" : "measured");
	plan_add_axes(plan, &name);
	text_printf(&name, "%s, %s", strategy_names[plan->strategy],
		predicted ? "every one of " : "rank 0 of ");
	if (predicted && trace->stage >= 0)
		text_printf(&name, "%lld ranks of stage %d",
			(long long)(plan_ranks(plan) / plan->mesh.pipeline), trace->stage);
	else
		text_printf(&name, "%lld ranks", (long long)plan_ranks(plan));
	write_name(trace, "process_name", text_string(&name), HOST_THREAD);
	text_finish(&name);
}

static void write_names(struct trace *trace)
{
	bool used[STREAM_COUNT];

	streams_used(trace->schedule, used);
	write_process_name(trace);
	write_name(trace, "thread_name", "host", HOST_THREAD);
	write_order(trace, HOST_THREAD);
	for (int s = 0; s < STREAM_COUNT; s++) {
		if (!used[s])
			continue;
		write_name(trace, "thread_name", stream_name((enum stream)s), 1 + s);
		write_order(trace, 1 + s);
	}
}

static const char *pytorch_dtype(enum dtype dtype)
{
	static const char *const names[DTYPE_COUNT] = {
		[DTYPE_FP32] = "Float", [DTYPE_BF16] = "BFloat16", [DTYPE_FP16] = "Half"};

	return names[dtype] != NULL ? names[dtype] : dtype_name(dtype);
}

/* Describes a collective as PyTorch's profiler does, so that its tools recognise it. */
static void write_collective(struct trace *trace, const struct op *op)
{
	static const char *const names[OP_KIND_COUNT] = {[OP_ALL_GATHER] = "_allgather_base",
		[OP_REDUCE_SCATTER] = "_reduce_scatter_base",
		[OP_ALL_REDUCE] = "allreduce",
		[OP_ALL_TO_ALL] = "all_to_allv",
		[OP_SEND_RECV] = "send"};
	const struct group *group = &trace->schedule->groups[op->group];
	int64_t elements = op->bytes / dtype_bytes(op->dtype);
	struct writer *writer = trace->writer;

	if (names[op->kind] == NULL)
		return;
	writer_string(writer, "Collective name", names[op->kind]);
	writer_int(writer, "In msg nelems",
		op->kind == OP_ALL_GATHER ? elements / group->size : elements);
	writer_int(writer, "Out msg nelems",
		op->kind == OP_REDUCE_SCATTER ? elements / group->size : elements);
	writer_int(writer, "Group size", group->size);
	writer_string(writer, "dtype", pytorch_dtype(op->dtype));
}

static void write_arguments(struct trace *trace, const struct op *op, int i)
{
	struct writer *writer = trace->writer;
	const struct schedule *schedule = trace->schedule;

	writer_begin_map(writer, "args");
	writer_int(writer, "operation", i);
	writer_string(writer, "kind", op_kind_name(op->kind));
	writer_int(writer, "device", 0);
	writer_int(writer, "stream", (int)op->stream);
	if (op->unit >= 0 && op->unit < schedule->programs->n_units)
		writer_string(writer, "unit", schedule->programs->units[op->unit].name);
	if (op->micro_batch >= 0)
		writer_int(writer, "micro_batch", op->micro_batch);
	if (op->bytes > 0)
		writer_int(writer, "bytes", op->bytes);
	if (op->group >= 0 && op->group < schedule->n_groups) {
		writer_string(writer, "group", group_kind_names[schedule->groups[op->group].kind]);
		write_collective(trace, op);
	}
	writer_end_map(writer);
}

static bool is_gpu(const struct schedule *schedule)
{
	return schedule->topology != NULL && schedule->topology->device.kind == DEVICE_GPU;
}

static void write_operation(struct trace *trace, const struct timeline *timeline, int i)
{
	const struct op *op = &trace->schedule->programs[0].ops[i];
	const struct span *span = &timeline->spans[i];
	struct text label = {0};

	/* Tools for PyTorch's traces take names that start with "nccl" for communication. */
	if (op_kind_class(op->kind) == OP_CLASS_COLLECTIVE && is_gpu(trace->schedule))
		text_add(&label, "nccl:");
	operation_label(trace->schedule, op, &label);
	begin_event(trace, "X", text_string(&label), 1 + (int)op->stream);
	writer_string(trace->writer, "cat",
		op_kind_class(op->kind) == OP_CLASS_COPY ? "gpu_memcpy" : "kernel");
	write_time(trace->writer, "ts", timeline->begins + span->start);
	write_time(trace->writer, "dur", span->end - span->start);
	write_arguments(trace, op, i);
	writer_end_map(trace->writer);
	text_finish(&label);
}

/* Writes the host's slice of an operation. It ends where the host reaches the next operation, so
 * blocking shows as length. */
static void write_issue(struct trace *trace, const struct timeline *timeline, int i)
{
	struct text label = {0};
	double end =
		i + 1 < timeline->n_ops ? timeline->spans[i + 1].issued : timeline->spans[i].issued;

	text_add(&label, "issue ");
	operation_label(trace->schedule, &trace->schedule->programs[0].ops[i], &label);
	begin_event(trace, "X", text_string(&label), HOST_THREAD);
	writer_string(trace->writer, "cat", "cpu_op");
	write_time(trace->writer, "ts", timeline->begins + timeline->spans[i].issued);
	write_time(trace->writer, "dur",
		end > timeline->spans[i].issued ? end - timeline->spans[i].issued : 0);
	writer_end_map(trace->writer);
	text_finish(&label);
}

static void write_flow(struct trace *trace, const char *phase, int64_t id, int thread, double time)
{
	begin_event(trace, phase, id < first_message ? "wait" : "message", thread);
	writer_string(trace->writer, "cat", id < first_message ? "wait" : "message");
	writer_int(trace->writer, "id", id);
	write_time(trace->writer, "ts", time);
	if (phase[0] == 'f')
		writer_string(trace->writer, "bp", "e");
	writer_end_map(trace->writer);
}

/* Writes flows of waits. A wait for the step before (negative) has none, because that step is not
 * drawn. */
static void write_waits(struct trace *trace, const struct timeline *timeline, int i)
{
	const struct program *program = &trace->schedule->programs[0];
	const struct op *op = &program->ops[i];

	for (int w = 0; w < op->waits.count; w++) {
		int from = slice_of(program, op->waits)[w];
		if (from < 0 || from >= timeline->n_ops)
			continue;
		write_flow(trace, "s", trace->next_flow, 1 + (int)program->ops[from].stream,
			timeline->begins + timeline->spans[from].end);
		write_flow(trace, "f", trace->next_flow, 1 + (int)op->stream,
			timeline->begins + timeline->spans[i].start);
		trace->next_flow++;
	}
}

/* An id that is the same at both ends of a message and that no other message has. */
static int64_t message_id(const struct trace *trace, const struct op *op)
{
	const struct plan *plan = &trace->schedule->plan;
	struct pipeline pipeline = plan_pipeline(plan);
	int from = op->kind == OP_SEND ? trace->stage : op->message.peer;
	int to = op->kind == OP_SEND ? op->message.peer : trace->stage;
	int64_t id = (int64_t)from * pipeline.ranks + to;

	id = (id * pipeline.chunks + op->message.chunk) * 2 + (int)op->message.direction;
	return first_message + id * pipeline.micro_batches + op->micro_batch;
}

/* Writes a message. It begins when the later of its two ends is ready, and ends at both at once. */
static void write_message(struct trace *trace, const struct timeline *timeline, int i)
{
	const struct op *op = &trace->schedule->programs[0].ops[i];

	if (trace->stage < 0 || op_kind_class(op->kind) != OP_CLASS_MESSAGE)
		return;
	write_flow(trace, op->kind == OP_SEND ? "s" : "f", message_id(trace, op),
		1 + (int)op->stream,
		timeline->begins +
			(op->kind == OP_SEND ? timeline->spans[i].start : timeline->spans[i].end));
}

static void write_memory(struct trace *trace, const struct memory_curve *memory, double begins)
{
	for (int i = 0; i < memory->n; i++) {
		begin_event(trace, "C", "memory", HOST_THREAD);
		write_time(trace->writer, "ts", begins + memory->times[i]);
		writer_begin_map(trace->writer, "args");
		for (int c = 0; c < CATEGORY_COUNT; c++)
			writer_int(trace->writer, category_names[c], memory->bytes[i][c]);
		writer_end_map(trace->writer);
		writer_end_map(trace->writer);
	}
}

/* `memory` NULL: of a stage other than the one that is explained. */
static void write_process(
	struct trace *trace, const struct timeline *timeline, const struct memory_curve *memory)
{
	int n_ops = trace->schedule->programs[0].n_ops;

	write_names(trace);
	for (int i = 0; i < n_ops && i < timeline->n_ops; i++) {
		if (memory != NULL)
			write_issue(trace, timeline, i);
		write_operation(trace, timeline, i);
		write_message(trace, timeline, i);
		if (memory != NULL)
			write_waits(trace, timeline, i);
	}
	if (memory != NULL)
		write_memory(trace, memory, timeline->begins);
}

static void write_measured(struct trace *trace, const struct timeline *timeline)
{
	struct arena arena = {0};
	struct memory_curve memory;

	memory_of_ledger(timeline, &arena, &memory);
	trace->process = MEASURED;
	write_process(trace, timeline, &memory);
	arena_finish(&arena);
}

static void write_stages(
	struct trace *trace, const struct explained *explained, const struct memory_curve *memory)
{
	const struct schedule *told = trace->schedule;
	struct schedule one = *explained->whole;

	for (int s = 0; s < explained->whole->n_classes; s++) {
		const struct program *program = &explained->whole->programs[s];
		one.programs = explained->whole->programs + s;
		trace->schedule = &one;
		trace->process = FIRST_STAGE + s;
		trace->stage = s;
		write_process(trace, explained->stages[s],
			program->ops == told->programs->ops ? memory : NULL);
	}
	trace->schedule = told;
	trace->stage = -1;
}

static void write_predicted(struct trace *trace, const struct explained *explained)
{
	struct arena arena = {0};
	struct memory_curve memory = {0};

	if (explained->memory != NULL)
		memory_with_overhead(explained->memory, explained->prediction, &arena, &memory);
	if (explained->stages != NULL)
		write_stages(trace, explained, &memory);
	else
		write_process(trace, explained->predicted, &memory);
	arena_finish(&arena);
}

/* Writes what PyTorch's profiler records of the job. */
static void write_job(struct trace *trace)
{
	writer_begin_map(trace->writer, "distributedInfo");
	writer_string(trace->writer, "backend", is_gpu(trace->schedule) ? "nccl" : "gloo");
	writer_int(trace->writer, "rank", 0);
	writer_int(trace->writer, "world_size", plan_ranks(&trace->schedule->plan));
	writer_end_map(trace->writer);
}

void report_trace(const struct explained *explained, struct text *text)
{
	struct writer writer;
	struct trace trace = {explained->schedule, &writer, PREDICTED, -1, 1};

	writer_init(&writer, text, WRITER_JSON_COMPACT);
	writer_int(&writer, "schemaVersion", 1);
	writer_string(&writer, "displayTimeUnit", "ms");
	write_job(&trace);
	writer_begin_list(&writer, "traceEvents");
	if (explained->predicted != NULL)
		write_predicted(&trace, explained);
	if (explained->measured != NULL && explained->measured->timeline.n_ops > 0)
		write_measured(&trace, &explained->measured->timeline);
	writer_end_list(&writer);
	writer_finish(&writer);
}
