/* The fake GPU itself: what it must take, and the mistakes with graphs that it must see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "executor/transports/nccl_config.h"
#include "tests/executor/fakes/cuda.h"

/* Mistakes break off half-way: what they leave behind is no leak of anybody's. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

/* Two streams, a capture on the first, and memory of the GPU. */
static struct {
	const struct cuda_api *api;
	void *first, *second, *event, *other, *graph, *executable;
	uint64_t memory;
	const struct nccl_api *nccl;
	void *comm, *handle, *of_nccl; /* of the cases that register memory */
} rig;

enum { PAGES = 2 * 4096 };

static void add_one(void *arguments)
{
	(*(int32_t **)arguments)[0]++;
}

static void double_it(void *arguments)
{
	(*(int32_t **)arguments)[0] *= 2;
}

static void call(void *stream, void (*run)(void *))
{
	int32_t *number = (int32_t *)(uintptr_t)rig.memory;
	const struct fake_touch touch = {number, sizeof(*number), true};

	fake_cuda_call(stream, "a kernel", run, &number, sizeof(void *), &touch, 1);
}

static int set_up(void **state)
{
	struct error error;

	(void)state;
	memset(&rig, 0, sizeof(rig));
	fake_cuda_forget_fault();
	rig.api = cuda_api(&error);
	rig.api->cuStreamCreateWithPriority(&rig.first, 0, 0);
	rig.api->cuStreamCreateWithPriority(&rig.second, 0, 0);
	rig.api->cuEventCreate(&rig.event, 0);
	rig.api->cuEventCreate(&rig.other, 0);
	rig.api->cuMemAlloc(&rig.memory, sizeof(int32_t));
	*(int32_t *)(uintptr_t)rig.memory = 1;
	return fake_cuda_first_fault()[0] != '\0';
}

/* Whatever a case has left unfinished. */
static int tear_down(void **state)
{
	(void)state;
	fake_cuda_forget_fault();
	if (rig.graph != NULL)
		rig.api->cuGraphDestroy(rig.graph);
	if (rig.executable != NULL)
		rig.api->cuGraphExecDestroy(rig.executable);
	rig.api->cuStreamDestroy(rig.first);
	rig.api->cuStreamDestroy(rig.second);
	rig.api->cuEventDestroy(rig.event);
	rig.api->cuEventDestroy(rig.other);
	rig.api->cuMemFree(rig.memory);
	return 0;
}

static void begin(void)
{
	rig.api->cuStreamBeginCapture(rig.first, CUDA_CAPTURE_THREAD_LOCAL);
}

/* The second stream joins behind what the first has so far. */
static void fork_second(void)
{
	rig.api->cuEventRecord(rig.event, rig.first);
	rig.api->cuStreamWaitEvent(rig.second, rig.event, 0);
}

static void join_second(void)
{
	rig.api->cuEventRecord(rig.event, rig.second);
	rig.api->cuStreamWaitEvent(rig.first, rig.event, 0);
}

static void end(void)
{
	rig.api->cuStreamEndCapture(rig.first, &rig.graph);
}

static void launch_and_wait(void)
{
	if (rig.executable == NULL)
		rig.api->cuGraphInstantiateWithFlags(&rig.executable, rig.graph, 0);
	rig.api->cuGraphLaunch(rig.executable, rig.first);
	rig.api->cuEventRecord(rig.other, rig.first);
	rig.api->cuEventSynchronize(rig.other);
}

/* --- what is right --- */

static void a_graph_runs_whenever_it_is_launched(void **state)
{
	const int32_t *number = (int32_t *)(uintptr_t)rig.memory;
	void *time = NULL;
	float elapsed = -1;
	size_t nodes;

	(void)state;
	rig.api->cuEventCreate(&time, 0);
	begin();
	call(rig.first, add_one);
	fork_second();
	call(rig.second, double_it);
	rig.api->cuEventRecordWithFlags(time, rig.second, CUDA_EVENT_RECORD_EXTERNAL);
	join_second();
	call(rig.first, add_one);
	end();
	assert_int_equal(*number, 1);
	rig.api->cuGraphGetNodes(rig.graph, NULL, &nodes);
	assert_int_equal(nodes, 4);
	launch_and_wait();
	assert_int_equal(*number, 5);
	launch_and_wait();
	assert_int_equal(*number, 13);
	assert_string_equal(fake_cuda_first_fault(), "");
	rig.api->cuEventElapsedTime(&elapsed, time, rig.other);
	assert_true(elapsed >= 0);
	assert_string_equal(fake_cuda_first_fault(), "");
	rig.api->cuEventDestroy(time);
}

/* --- what is wrong --- */

static void waits_for_what_is_outside(void)
{
	rig.api->cuEventRecord(rig.event, rig.second);
	begin();
	rig.api->cuStreamWaitEvent(rig.first, rig.event, 0);
}

static void does_not_join(void)
{
	begin();
	fork_second();
	call(rig.second, add_one);
	end();
}

static void joins_too_early(void)
{
	begin();
	fork_second();
	call(rig.second, add_one);
	join_second();
	call(rig.second, add_one);
	end();
}

static void allocates(void)
{
	uint64_t more;

	begin();
	rig.api->cuMemAlloc(&more, 4);
}

static void synchronises(void)
{
	begin();
	rig.api->cuStreamSynchronize(rig.first);
}

static void looks_at_an_edge(void)
{
	begin();
	fork_second();
	rig.api->cuEventQuery(rig.event);
}

static void uses_another_stream(void)
{
	begin();
	call(rig.second, add_one);
}

static void records_for_no_graph(void)
{
	rig.api->cuEventRecordWithFlags(rig.event, rig.first, CUDA_EVENT_RECORD_EXTERNAL);
}

static void ends_elsewhere(void)
{
	begin();
	rig.api->cuStreamEndCapture(rig.second, &rig.graph);
	rig.graph = NULL;
}

static void keeps_an_edge(void)
{
	begin();
	fork_second();
	join_second();
	end();
	rig.api->cuStreamWaitEvent(rig.second, rig.event, 0);
}

/* Both write, and no edge is between them. */
static void races_in_a_graph(void)
{
	begin();
	fork_second();
	call(rig.first, add_one);
	call(rig.second, add_one);
	join_second();
	end();
	launch_and_wait();
}

static void races_with_a_graph(void)
{
	begin();
	call(rig.first, add_one);
	end();
	rig.api->cuGraphInstantiateWithFlags(&rig.executable, rig.graph, 0);
	rig.api->cuGraphLaunch(rig.executable, rig.first);
	call(rig.second, add_one);
	rig.api->cuEventRecord(rig.other, rig.second);
	rig.api->cuEventSynchronize(rig.other);
	rig.api->cuEventRecord(rig.other, rig.first);
	rig.api->cuEventSynchronize(rig.other);
}

static void destroys_what_runs(void)
{
	begin();
	call(rig.first, add_one);
	end();
	rig.api->cuGraphInstantiateWithFlags(&rig.executable, rig.graph, 0);
	rig.api->cuGraphLaunch(rig.executable, rig.first);
	rig.api->cuGraphExecDestroy(rig.executable);
	rig.executable = NULL;
}

/* --- while a step runs --- */

static void synchronises_the_device(void)
{
	rig.api->cuCtxSynchronize();
}

static void synchronises_a_stream_of_the_step(void)
{
	rig.api->cuEventRecord(rig.event, rig.first);
	rig.api->cuStreamSynchronize(rig.first);
}

static void allocates_in_a_step(void)
{
	uint64_t more;

	call(rig.first, add_one);
	rig.api->cuMemAlloc(&more, 4);
}

static void pins_in_a_step(void)
{
	void *more;

	call(rig.first, add_one);
	rig.api->cuMemHostAlloc(&more, 4, 0);
}

/* --- memory that NCCL knows --- */

/* Its last call has ended. */
static void settle(void)
{
	int result;

	rig.nccl->ncclCommGetAsyncError(rig.comm, &result);
}

/* A communicator of one rank, and memory that it can know. */
static void open_comm(void)
{
	const struct nccl_wish none = {0};
	struct nccl_config config;
	struct nccl_id id;

	rig.nccl = nccl_api(NULL);
	nccl_config_make(rig.nccl, &none, &config, NULL);
	rig.nccl->ncclGetUniqueId(&id);
	rig.nccl->ncclCommInitRankConfig(&rig.comm, 1, id, 0, &config);
	rig.nccl->ncclMemAlloc(&rig.of_nccl, PAGES);
}

static void knows_all(void)
{
	open_comm();
	rig.nccl->ncclCommWindowRegister(
		rig.comm, rig.of_nccl, PAGES, &rig.handle, NCCL_WIN_COLL_SYMMETRIC);
	settle();
}

static void close_comm(void)
{
	rig.nccl->ncclCommWindowDeregister(rig.comm, rig.handle);
	settle();
	rig.nccl->ncclMemFree(rig.of_nccl);
	rig.nccl->ncclCommDestroy(rig.comm);
}

static void memory_is_known_and_forgotten(void **state)
{
	(void)state;
	knows_all();
	rig.nccl->ncclAllReduce(
		rig.of_nccl, rig.of_nccl, 16, NCCL_FLOAT32, NCCL_SUM, rig.comm, rig.first);
	rig.api->cuEventRecord(rig.event, rig.first);
	rig.api->cuEventSynchronize(rig.event);
	close_comm();
	assert_string_equal(fake_cuda_first_fault(), "");
}

static void registers_what_is_not_nccls(void)
{
	open_comm();
	rig.nccl->ncclCommRegister(rig.comm, (void *)(uintptr_t)rig.memory, 4, &rig.handle);
}

static void registers_part_of_a_page(void)
{
	open_comm();
	rig.nccl->ncclCommWindowRegister(
		rig.comm, rig.of_nccl, 100, &rig.handle, NCCL_WIN_COLL_SYMMETRIC);
}

static void reduces_what_is_unknown(void)
{
	knows_all();
	rig.nccl->ncclAllReduce((void *)(uintptr_t)rig.memory, (void *)(uintptr_t)rig.memory, 1,
		NCCL_FLOAT32, NCCL_SUM, rig.comm, rig.first);
}

static void forgets_to_deregister(void)
{
	knows_all();
	rig.nccl->ncclCommDestroy(rig.comm);
}

static void frees_what_is_known(void)
{
	knows_all();
	rig.nccl->ncclMemFree(rig.of_nccl);
}

static void leaves_too_early(void)
{
	knows_all();
	rig.nccl->ncclCommWindowDeregister(rig.comm, rig.handle);
	rig.nccl->ncclCommFinalize(rig.comm);
}

static void reduce(void)
{
	rig.nccl->ncclAllReduce(
		rig.of_nccl, rig.of_nccl, 16, NCCL_FLOAT32, NCCL_SUM, rig.comm, rig.first);
}

static void mixes_with_a_graph(void)
{
	knows_all();
	setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
	rig.api->cuStreamBeginCapture(rig.first, CUDA_CAPTURE_THREAD_LOCAL);
	reduce();
	rig.api->cuStreamEndCapture(rig.first, &rig.graph);
	rig.api->cuGraphInstantiateWithFlags(&rig.executable, rig.graph, 0);
	rig.api->cuGraphLaunch(rig.executable, rig.first);
	reduce();
	unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
}

static void deregisters_otherwise(void)
{
	knows_all();
	rig.nccl->ncclCommDeregister(rig.comm, rig.handle);
}

static const struct mistake {
	void (*make)(void);
	const char *told;
} mistakes[] = {
	{waits_for_what_is_outside, "waits for an event outside of it"},
	{does_not_join, "was not joined"},
	{joins_too_early, "was not joined"},
	{allocates, "memory is allocated while a step is captured"},
	{synchronises, "synchronised while it is captured"},
	{looks_at_an_edge, "that only a capture knows"},
	{uses_another_stream, "a stream outside of the capture"},
	{records_for_no_graph, "nothing is captured"},
	{ends_elsewhere, "where it did not begin"},
	{keeps_an_edge, "an event of another capture"},
	{races_in_a_graph, "race: "},
	{races_with_a_graph, "race: "},
	{destroys_what_runs, "destroyed while it runs"},
	{synchronises_the_device, "the device is synchronised"},
	{synchronises_a_stream_of_the_step, "a stream of the step is synchronised"},
	{allocates_in_a_step, "memory is allocated while a step runs"},
	{pins_in_a_step, "memory is allocated while a step runs"},
	{registers_what_is_not_nccls, "not of ncclMemAlloc"},
	{registers_part_of_a_page, "no whole pages"},
	{reduces_what_is_unknown, "that its communicator does not know"},
	{forgets_to_deregister, "still knows memory"},
	{frees_what_is_known, "freed that a communicator knows"},
	{leaves_too_early, "before its last call has ended"},
	{mixes_with_a_graph, "by a graph and outside of it at once"},
	{deregisters_otherwise, "that the communicator does not know"},
};

static void mistakes_are_seen(void **state)
{
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		if (i > 0) {
			tear_down(state);
			assert_int_equal(set_up(state), 0);
		}
		mistakes[i].make();
		if (strstr(fake_cuda_first_fault(), mistakes[i].told) == NULL)
			fail_msg("expected \"%s\", got \"%s\"", mistakes[i].told,
				fake_cuda_first_fault());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_graph_runs_whenever_it_is_launched, set_up, tear_down),
		cmocka_unit_test_setup_teardown(memory_is_known_and_forgotten, set_up, tear_down),
		cmocka_unit_test_setup_teardown(mistakes_are_seen, set_up, tear_down),
	};

	fake_cuda_install(1, 1);
	fake_nccl_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
