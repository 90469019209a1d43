/* What collectives take from the arithmetic beside them. The proof is in bounds.c. */
#include <math.h>

#include "planner/bounds/parts.h"

/* Blocks of transformers spend two thirds to nine tenths of their time on arithmetic. */
static const double shares[SHARES] = {
	1, 0.95, 0.92, 0.9, 0.88, 0.86, 0.84, 0.82, 0.8, 0.77, 0.74, 0.7, 0.6, 0.5};

double bound_loss(const struct topology *topology, double multiprocessors)
{
	double all = (double)topology->device.multiprocessors;
	if (topology->device.kind != DEVICE_GPU || all <= 0)
		return 0;
	return fmin(multiprocessors / all, 0.5);
}

/* Beside work of which only a share is arithmetic. */
static double loss_beside(double loss, double share)
{
	return loss * share / (1 - loss + loss * share);
}

void bound_add_cover(const struct cost *cost, double times, double cover[SHARES])
{
	for (int s = 0; s < SHARES; s++)
		cover[s] += times * fmax(0, cost->device - cost->arithmetic / shares[s]);
}

double bound_contention(const double losses[COMMUNICATORS_MAX],
	const double communicators[COMMUNICATORS_MAX], const double cover[SHARES])
{
	double most = 0;
	for (int set = 0; set <= COMMUNICATORS_MAX; set++) {
		bool idle = set < COMMUNICATORS_MAX && communicators[set] <= 0;
		for (int s = 0; s < SHARES && !idle; s++) {
			double all = 0, lost = 0;
			for (int e = 0; e < COMMUNICATORS_MAX; e++) {
				if ((set < COMMUNICATORS_MAX && e != set) || communicators[e] <= 0)
					continue;
				all += losses[e];
				lost += loss_beside(losses[e], shares[s]) * communicators[e];
			}
			most = fmax(most, lost - loss_beside(fmin(all, 0.5), shares[s]) * cover[s]);
		}
	}
	return most;
}
