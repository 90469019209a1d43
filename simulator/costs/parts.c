/* Parts of the cost model that can be switched off one by one, and the cost of an operation without
 * them. */
#include "simulator/costs/costs.h"

const char *const cost_part_names[] = {
#define X(suffix, name) name,
	COST_PARTS(X)
#undef X
};

static void be_on_time(struct cost *cost)
{
	double share = cost->device > 0 ? 1 - cost->late / cost->device : 1;

	cost->device -= cost->late;
	cost->arithmetic *= share;
	cost->memory *= share;
	cost->unaligned *= share;
	cost->late = 0;
}

void cost_leave_out(struct cost *cost, bool communicates, unsigned without)
{
	enum cost_part late = communicates ? COST_PART_LINKS : COST_PART_DEVICES;

	if (without & 1u << late)
		be_on_time(cost);
	if (communicates && without & 1u << COST_PART_MULTIPROCESSORS)
		cost->multiprocessors = 0;
	if (communicates && without & 1u << COST_PART_MEMORY)
		cost->memory_load = 0;
	if (without & 1u << COST_PART_HOST)
		cost->host = cost->host_before = 0;
}
