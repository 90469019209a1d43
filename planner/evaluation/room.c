/* Room on the device: a plan that fits may still need more than it was predicted to. */
#include "planner/evaluation/evaluation.h"

/* Bytes that stay free beside what a plan needs. */
static double headroom(
	const struct question *question, const struct plan *plan, double needed, double limit)
{
	const struct headroom *asked = &question->headroom;
	if (asked->given)
		return (double)asked->bytes + asked->share * limit;
	return memory_doubt(question, plan, needed);
}

bool has_room(const struct question *question, const struct plan *plan,
	const struct prediction *prediction)
{
	double needed = (double)prediction_needed_bytes(prediction);
	double limit = (double)prediction->memory_limit_bytes;
	return prediction->fits == FITS_YES &&
	       needed + headroom(question, plan, needed, limit) <= limit;
}

int64_t headroom_bytes(const struct question *question, const struct plan *plan,
	const struct prediction *prediction)
{
	double needed = (double)prediction_needed_bytes(prediction);
	return (int64_t)headroom(question, plan, needed, (double)prediction->memory_limit_bytes);
}

bool surely_lacks_room(
	const struct question *question, const struct plan *plan, int64_t least, int64_t limit)
{
	return (double)least + headroom(question, plan, (double)least, (double)limit) >
	       (double)limit;
}
