/* Tests which processors are nearest to each GPU, and the network by which ranks meet. */
#include "tests/executor/support.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/launch/tcp.h"
#include "executor/ranks/near.h"
#include "tests/executor/fakes/cuda.h"

enum { GPUS = 2 };

static char folder[64];

static void write_list(const char *device, const char *list)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", folder, device);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/%s/local_cpulist", folder, device);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(list, file);
	fclose(file);
}

static void lists_are_read(void **state)
{
	cpu_set_t cores;

	(void)state;
	write_list("0000:1b:00.0", "0-3,8,10-11\n");
	write_list("0000:1c:00.0", "\n");
	assert_true(near_cores("0000:1B:00.0", &cores));
	assert_int_equal(CPU_COUNT(&cores), 7);
	assert_true(CPU_ISSET(3, &cores) && CPU_ISSET(8, &cores) && CPU_ISSET(11, &cores));
	assert_false(CPU_ISSET(4, &cores));
	assert_false(near_cores("0000:1c:00.0", &cores));
	assert_false(near_cores("0000:1d:00.0", &cores));
}

static void *stay(void *bus_id)
{
	cpu_set_t here;

	near_stay(bus_id);
	CPU_ZERO(&here);
	sched_getaffinity(0, sizeof(here), &here);
	return (void *)(intptr_t)(CPU_COUNT(&here) * 1000 + (CPU_ISSET(0, &here) ? 1 : 0));
}

static intptr_t stay_in_a_thread(char *bus_id)
{
	pthread_t thread;
	void *found = NULL;

	assert_int_equal(pthread_create(&thread, NULL, stay, bus_id), 0);
	pthread_join(thread, &found);
	return (intptr_t)found;
}

/* Where there is no core in common, the one who bound it knows better. */
static void what_was_bound_stays(void **state)
{
	static char near[] = "0000:21:00.0", elsewhere[] = "0000:22:00.0";
	cpu_set_t all;

	(void)state;
	sched_getaffinity(0, sizeof(all), &all);
	write_list(near, "0\n");
	write_list(elsewhere, "1020\n");
	assert_int_equal(stay_in_a_thread(near), 1001);
	assert_int_equal(stay_in_a_thread(elsewhere) / 1000, CPU_COUNT(&all));
}

/* The fake looks where memory is pinned. */
static void ranks_train_beside_their_gpus(void **state)
{
	struct executor_job job = run_job(2);
	struct run run;

	(void)state;
	for (int together = 0; together < 2; together++) {
		write_list("0000:a0:00.0", "0\n");
		write_list("0000:a1:00.0", together ? "0\n" : "1\n");
		setenv("FAKE_NEAR", "1", 1);
		run_plan(&run, TINY_GPT2, GPUS,
			"seq_len=11 micro_batch=1 strategy=FULL_SHARD param_dtype=fp32");
		job.device = "cuda";
		job.transport = "nccl";
		job.kernels = "reference";
		/* The control: a GPU whose memory is another's. */
		if (run_train(&run, &job) != (together == 0))
			fail_msg("%s", run.error.message);
		if (together)
			assert_non_null(strstr(run.error.message, "pinned far from GPU 1"));
		run_finish(&run);
	}
	unsetenv("FAKE_NEAR");
}

static void interfaces_are_found(void **state)
{
	char name[TCP_INTERFACE_BYTES];
	struct ifaddrs *all = NULL;

	(void)state;
	assert_int_equal(getifaddrs(&all), 0);
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
		struct sockaddr_in address;

		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&address, i->ifa_addr, sizeof(address));
		address.sin_port = 0;
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
		tcp_interface(fd, name);
		assert_string_equal(name, i->ifa_flags & IFF_LOOPBACK ? "" : i->ifa_name);
		close(fd);
	}
	freeifaddrs(all);
}

static int forget(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_read),
		cmocka_unit_test(what_was_bound_stays),
		cmocka_unit_test(interfaces_are_found),
		cmocka_unit_test(ranks_train_beside_their_gpus),
	};
	const char *given = getenv("TEST_NEAR");

	snprintf(folder, sizeof(folder), "%s", given != NULL ? given : "near-XXXXXX");
	if (given == NULL && mkdtemp(folder) == NULL)
		return 1;
	/* The ranks see it too. */
	setenv("TEST_NEAR", folder, 1);
	near_use_devices(folder);
	fake_cuda_install(GPUS, 1);
	fake_nccl_install();
	run_as_rank(argc, argv);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return 77;
	return cmocka_run_group_tests(tests, NULL, forget);
}
