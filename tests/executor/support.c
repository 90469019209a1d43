#include "support.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "executor/launch/tcp.h"
#include "executor/memory/memory.h"
#include "schedule/resolve/resolve.h"
#include "tests/kernels/reference/reference.h"

/* As many nodes like this machine as hold the ranks, over a link that is never measured. */
static bool make_nodes(struct run *run, int64_t ranks, int64_t per_node)
{
	if (!executor_detect_local(per_node, &run->arena, &run->file.topology, &run->error))
		return false;
	run->file.topology->nodes = ranks / per_node;
	run->file.topology->network = (struct network){.kind = NETWORK_ETHERNET,
		.nics_per_node = 1,
		.nic_bandwidth = 1e9,
		.latency = 30e-6,
		.oversubscription = 1};
	return topology_check(run->file.topology, NULL, &run->error);
}

/* `topology` NULL: `ranks` devices, `per_node` on each machine like this one. */
static void make_plan(struct run *run, const char *model, const char *topology, int64_t ranks,
	int64_t per_node, const char *options)
{
	struct question question = {0};
	struct error *error = &run->error;
	char copy[640];
	bool ok;

	*run = (struct run){0};
	snprintf(copy, sizeof(copy), "%s", options);
	ok = strncmp(model, "shardplan:", 10) == 0
		     ? model_parse(
			       &run->arena, "model", model, strlen(model), &run->file.model, error)
		     : model_load_preset(&run->arena, model, &run->file.model, error);
	if (topology != NULL)
		ok = ok && topology_parse(&run->arena, "topology", topology, strlen(topology),
				   &run->file.topology, error);
	else
		ok = ok && (per_node == ranks ? executor_detect_local(ranks, &run->arena,
							&run->file.topology, error)
					      : make_nodes(run, ranks, per_node));
	for (char *save, *word = strtok_r(copy, " ", &save); word != NULL && ok;
		word = strtok_r(NULL, " ", &save)) {
		char *equals = strchr(word, '=');

		assert_non_null(equals);
		*equals = '\0';
		ok = question_set_by_name(&question, word, word, equals + 1, &run->arena, error);
	}
	question.model = run->file.model;
	question.topology = run->file.topology;
	ok = ok && plan_resolve(&question, &run->arena, &run->file.plan, error);
	ok = ok && schedule_build(&run->arena, &run->file.plan, run->file.model, run->file.topology,
			   &run->schedule, error);
	if (!ok)
		fail_msg("%s: %s", options, error->message);
	run->file.schedule_digest = arena_strdup(&run->arena, schedule_digest(run->schedule).hex);
	run->file.question = (struct question_text){"test", "local", ""};
	run->file.prediction.schedule_digest = run->file.schedule_digest;
	run->file.prediction.peak_name = run->file.prediction.peak_at =
		run->file.prediction.uncertainty_source = "";
}

void run_plan(struct run *run, const char *model, int64_t ranks, const char *options)
{
	make_plan(run, model, NULL, ranks, ranks, options);
}

void run_plan_nodes(
	struct run *run, const char *model, int64_t ranks, int64_t per_node, const char *options)
{
	make_plan(run, model, NULL, ranks, per_node, options);
}

void run_plan_on(struct run *run, const char *model, const char *topology, const char *options)
{
	make_plan(run, model, topology, 0, 0, options);
}

bool run_train(struct run *run, struct executor_job *job)
{
	job->plan = &run->file;
	return executor_train(job, &run->arena, &run->measurement, &run->error);
}

int free_port(void)
{
	struct error error = {0};
	struct tcp_listener listener;

	assert_true(tcp_listen(&listener, NULL, 0, &error));
	tcp_stop_listening(&listener);
	return listener.port;
}

void run_finish(struct run *run)
{
	arena_finish(&run->arena);
}

struct executor_job run_job(int64_t steps)
{
	struct executor_job job = {
		.training = training_defaults(), .data = getenv("TEST_TEXT"), .one_process = true};

	job.training.steps = steps;
	return job;
}

static void reserve(struct solo *solo)
{
	solo->capacity = buffers_capacity(solo->run->schedule, 0);
	solo->memory = mmap(NULL, (size_t)solo->capacity, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(solo->memory, MAP_FAILED);
}

static void open_contexts(struct solo *solo, const struct kernels *kernels)
{
	const struct program *program = &solo->run->schedule->programs[0];
	struct error error = {0};

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].role == BUFFER_KERNEL_WORKSPACE)
			solo->context.workspace = buffers_address(&solo->buffers, i);
	solo->background.workspace = workspace_reserve();
	solo->context.workspace_bytes = solo->background.workspace_bytes = KERNELS_WORKSPACE_BYTES;
	assert_true(kernels->open(&solo->context, &error));
	assert_true(kernels->open(&solo->background, &error));
}

/* Alone, input and output are the same data. */
static bool self_run(struct comm *comm, const struct collective *c)
{
	(void)comm;
	if (c->output != c->input)
		memmove(c->output, c->input, (size_t)(c->count * comm_element_bytes(c->element)));
	return true;
}

static const struct transport transport_self = {.name = "self", .run = self_run};

static void open_alone(struct comm *comm)
{
	*comm = (struct comm){
		.transport = &transport_self, .ranks = 1, .fault = {.rank = -1, .step = -1}};
}

void solo_open(struct solo *solo, struct run *run, const struct kernels *kernels, bool peers,
	struct training training)
{
	const struct program *program = &run->schedule->programs[0];
	const struct plan *plan = &run->schedule->plan;
	struct error error = {0};

	*solo = (struct solo){.run = run};
	reserve(solo);
	assert_true(buffers_init(&solo->buffers, program, solo->memory, solo->capacity, &error));
	if (peers)
		comm_open_null(&solo->comm, 0, (int)plan_ranks(plan));
	else
		open_alone(&solo->comm);
	open_contexts(solo, kernels);
	assert_true(data_open(&solo->data, getenv("TEST_TEXT"), plan->seq_len,
		run->file.model->architecture.vocab, training.seed, &error));
	solo->compute = (struct compute){.schedule = run->schedule,
		.program = program,
		.buffers = &solo->buffers,
		.kernels = kernels,
		.context = &solo->context,
		.background = &solo->background,
		.data = &solo->data,
		.training = training,
		.fault = {.rank = -1, .step = -1},
		.ranks = (int)plan_data_parallel(plan)};
	assert_true(compute_open(&solo->compute, &error));
	solo->interpreter = (struct interpreter){.schedule = run->schedule,
		.program = program,
		.buffers = &solo->buffers,
		.comm = &solo->comm,
		.backend = {.name = "test", .run = compute_run, .data = &solo->compute},
		.fault = {.rank = -1, .step = -1}};
	if (!interpreter_open(&solo->interpreter, &error))
		fail_msg("%s", error.message);
}

void solo_step(struct solo *solo, int64_t step)
{
	struct error error = {0};

	if (!compute_begin_step(&solo->compute, step, &error) ||
		!interpret_step(&solo->interpreter, step, false, &error))
		fail_msg("step %lld: %s", (long long)step, error.message);
}

void solo_close(struct solo *solo)
{
	interpreter_close(&solo->interpreter);
	comm_close(&solo->comm);
	compute_close(&solo->compute);
	solo->compute.kernels->close(&solo->context);
	solo->compute.kernels->close(&solo->background);
	workspace_release(solo->background.workspace);
	data_close(&solo->data);
	buffers_finish(&solo->buffers);
	munmap(solo->memory, (size_t)solo->capacity);
	arena_finish(&solo->arena);
}

float *solo_shard(const struct solo *solo, int unit)
{
	const struct program *program = &solo->run->schedule->programs[0];

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].role == BUFFER_PARAMETER_SHARD &&
			program->buffers[i].unit == unit)
			return buffers_address(&solo->buffers, i);
	return NULL;
}

void run_as_rank(int argc, char **argv)
{
	kernels_add(kernels_reference());
	if (argc > 1 && strcmp(argv[1], EXECUTOR_RANK_ARGUMENT) == 0)
		exit(executor_rank_main(argc, argv));
}

static bool is_hole(const struct heap *heap, int i)
{
	return i >= 0 && heap->blocks[i].bytes == 0;
}

bool heap_check(const struct heap *heap)
{
	int64_t end = 0, live = 0;
	int previous = -1;

	for (int i = 0; i >= 0; previous = i, i = heap->blocks[i].next) {
		const struct heap_block *block = &heap->blocks[i];

		if (block->offset != end || block->span <= 0 || block->previous != previous)
			return false;
		if (block->span % HEAP_ALIGNMENT != 0 || block->bytes > block->span)
			return false;
		if (is_hole(heap, i) && is_hole(heap, previous))
			return false;
		end += block->span;
		live += block->bytes;
	}
	return end == heap->capacity && live == heap->live && live <= heap->live_peak;
}
