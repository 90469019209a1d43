/* Where the experts of a token are. */
#include <math.h>

#include "models/architecture.h"

/* Of `all` things `some` are chosen at random: the chance that none of `k` others is. */
static double chance_of_none(double all, double some, int64_t k)
{
	double none = 1;

	for (int64_t i = 0; i < k; i++)
		none *= fmax(0, all - some - (double)i) / (all - (double)i);
	return none;
}

/* Ways to choose `k` of `n`; 0 where there are not so many. */
static double ways(int64_t n, int64_t k)
{
	double product = 1;

	for (int64_t i = 0; i < k; i++)
		product *= (double)(n - i) / (double)(i + 1);
	return k > n ? 0 : product;
}

/* The chance that `hits` of these groups are among the `chosen` ones of all. */
static double chance_of_groups(int64_t all, int64_t these, int64_t chosen, int64_t hits)
{
	return ways(these, hits) * ways(all - these, chosen - hits) / ways(all, chosen);
}

/* The chance that a place with `here` experts has one of the token's. */
static double chance_of_place(const struct architecture *a, double here)
{
	int64_t groups = a->expert_groups, chosen = a->groups_per_token;
	double experts = (double)a->experts, sum = 0;

	if (groups == 0)
		return 1 - chance_of_none(experts, here, a->experts_per_token);
	double each = experts / (double)groups, pool = each * (double)chosen;
	int64_t of = (int64_t)(here / each); /* groups that are all here */

	if (of == 0)
		return (double)chosen / (double)groups *
		       (1 - chance_of_none(pool, here, a->experts_per_token));
	for (int64_t hits = 0; hits <= chosen; hits++)
		sum += chance_of_groups(groups, of, chosen, hits) *
		       (1 - chance_of_none(pool, each * (double)hits, a->experts_per_token));
	return sum;
}

double architecture_expert_places(const struct architecture *a, double places)
{
	return places * chance_of_place(a, (double)a->experts / places);
}
