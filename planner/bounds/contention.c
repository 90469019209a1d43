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

/* --- between two operations of compute ----------------------------------------------------------
 *
 * Collectives of one stream that begin when operation A of compute has ended, and that have ended
 * when Z begins, run beside nothing but what compute does between them: by (3), with W of these
 * operations alone, from the end of A to the beginning of Z it takes W + sum l(g) C - l(g) sum w_i
 * (1 - f_i / g), whatever of it compute stands still for. Where l differs the largest covers:
 * beside collective j for x_ij seconds operation i loses l_j(g) (1 - f_i / g) (1 - l_j(f_i)) x_ij
 * less than l_j(g) x_ij, and sum_j (1 - l_j(f_i)) x_ij is what of w_i is done in that time. */

void bound_beside_compute(struct beside *beside, const struct cost *cost)
{
	for (int s = 0; s < SHARES; s++) {
		double cover = fmax(0, cost->device - cost->arithmetic / shares[s]);
		beside->work[s] += cost->device - loss_beside(beside->most, shares[s]) * cover;
	}
}

void bound_beside_collective(struct beside *beside, double loss, double seconds, double end)
{
	for (int s = 0; s < SHARES; s++) {
		beside->begins[s] =
			fmax(beside->begins[s], end - beside->work[s] - beside->lost[s]);
		beside->lost[s] += loss_beside(loss, shares[s]) * seconds;
	}
}

void bound_beside_ends(const struct beside *beside, double ends[SHARES])
{
	for (int s = 0; s < SHARES; s++)
		ends[s] = beside->begins[s] + beside->lost[s];
}

double bound_beside_start(const struct beside *beside, const double ends[SHARES])
{
	double start = 0;
	for (int s = 0; s < SHARES; s++)
		start = fmax(start, ends[s] + beside->work[s]);
	return start;
}
