/* Room on the device: a plan that fits may still need more than it was predicted to. */
#include "planner/evaluation/evaluation.h"

/* Bytes that stay free beside what a plan needs. */
static double headroom(
	const struct question *question, const struct plan *plan, double needed, double limit)
{
	const struct headroom *asked = &question->headroom;
	double doubt = question->topology->device.kind == DEVICE_GPU
			       ? runtime_of(plan->runtime)->memory_doubt
			       : 0;
	if (asked->given)
		return (double)asked->bytes + asked->share * limit;
	return doubt * needed;
}

bool has_room(const struct question *question, const struct plan *plan,
	const struct prediction *prediction)
{
	/* What the allocator has cached beside it is free for whatever else comes. */
	double needed = (double)(prediction->peak_memory_bytes - prediction->peak_reserved_bytes +
				 prediction->peak_allocated_bytes);
	double limit = (double)prediction->memory_limit_bytes;
	return prediction->fits == FITS_YES &&
	       needed + headroom(question, plan, needed, limit) <= limit;
}

bool surely_lacks_room(
	const struct question *question, const struct plan *plan, int64_t least, int64_t limit)
{
	return (double)least + headroom(question, plan, (double)least, (double)limit) >
	       (double)limit;
}
