/* Memory outside of the schedule's buffers (docs/runtimes.md). */
#include "schedule/schedule.h"

static int64_t given_or(int64_t given, int64_t usual)
{
	return given > 0 ? given : usual;
}

/* The groups of one engine share its communicator; one rank alone needs none. */
static bool makes_communicator(const struct schedule *schedule, int group)
{
	if (schedule->groups[group].size <= 1)
		return false;
	for (int i = 0; i < group; i++)
		if (schedule->groups[i].size > 1 &&
			schedule->groups[i].engine == schedule->groups[group].engine)
			return false;
	return true;
}

struct fixed_memory schedule_fixed_memory(const struct schedule *schedule)
{
	const struct runtime *runtime = runtime_of(schedule->plan.runtime);
	const struct overheads *given = &schedule->topology->overheads;
	struct fixed_memory fixed = {
		.context = given_or(given->context_bytes, runtime->context_bytes)};

	if (schedule->topology->device.kind == DEVICE_CPU)
		return (struct fixed_memory){.context = runtime->process_bytes};
	for (int i = 0; i < schedule->n_groups; i++)
		if (makes_communicator(schedule, i))
			fixed.communicators +=
				given_or(given->communicator_bytes, runtime->communicator_bytes);
	return fixed;
}
