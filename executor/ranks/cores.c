#include "executor/ranks/cores.h"

#include <unistd.h>

bool cores_are_bound(int cores, int ranks, int threads)
{
	return (int64_t)ranks * threads <= cores && (int64_t)ranks * (threads + 1) > cores;
}

const char *cores_places(struct arena *arena, const cpu_set_t *allowed, int rank, int threads)
{
	const char *places = "";
	int seen = 0, first = rank * threads;

	for (int cpu = 0; cpu < CPU_SETSIZE && seen < first + threads; cpu++) {
		if (!CPU_ISSET(cpu, allowed))
			continue;
		if (seen >= first)
			places = arena_printf(
				arena, "%s%s{%d}", places, seen > first ? "," : "", cpu);
		seen++;
	}
	return places;
}

int cores_start_thread(pthread_t *thread, void *(*run)(void *data), void *data)
{
	pthread_attr_t attributes;
	cpu_set_t allowed;

	pthread_attr_init(&attributes);
	CPU_ZERO(&allowed);
	if (sched_getaffinity(getppid(), sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) > 0)
		pthread_attr_setaffinity_np(&attributes, sizeof(allowed), &allowed);
	int failure = pthread_create(thread, &attributes, run, data);
	pthread_attr_destroy(&attributes);
	return failure;
}
