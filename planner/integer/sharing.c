/* Shares blocks out over the stages of a pipeline. Blocks are equal, so a time for each chunk
 * decides how many blocks each of its stages can have at most, and whether all blocks find a place.
 * Chunks between the first and the last are equal and get the same time. */
#include "planner/integer/integer.h"

#include <math.h>

/* Tolerance for sums in another order. */
#define ROUNDING 1e-9

enum place { FIRST, MIDDLE, LAST, PLACES };

struct trial {
	const struct sharing *s;
	double may_take[PLACES], best[PLACES]; /* s of a chunk */
	double seconds, slowest;               /* of the best, and of its slowest chunk; infinite:
						  there is none */
	int *held;                             /* by rank */
};

static int stages_of(const struct sharing *s)
{
	return s->ranks * s->chunks;
}

static double own(const struct sharing *s, int stage)
{
	return (stage == 0 ? s->first : 0) + (stage == stages_of(s) - 1 ? s->last : 0);
}

static int least_at(const struct sharing *s, int stage)
{
	return stage > 0 && stage < stages_of(s) - 1;
}

static enum place place_of(const struct sharing *s, int stage)
{
	int chunk = stage / s->ranks;
	return chunk == 0 ? FIRST : chunk == s->chunks - 1 ? LAST : MIDDLE;
}

static double taken(const struct sharing *s, const int *stages, int stage)
{
	return stages[stage] * s->block + own(s, stage);
}

double sharing_seconds(const struct sharing *sharing, const int *stages)
{
	double sum = 0, most = 0;
	for (int stage = 0; stage < stages_of(sharing); stage++) {
		most = fmax(most, taken(sharing, stages, stage));
		if ((stage + 1) % sharing->ranks == 0) {
			sum += most;
			most = 0;
		}
	}
	return sum;
}

/* --- what chunks may take --------------------------------------------------------------------- */

/* The most blocks of a stage; < 0: its embedding or head alone takes longer. */
static int most_at(const struct sharing *s, const double *may_take, int stage)
{
	double left = may_take[place_of(s, stage)] * (1 + ROUNDING) - own(s, stage);
	return left < 0 ? -1 : (int)fmin(left / s->block, s->blocks);
}

/* Do all blocks find a place? */
static bool suffices(const struct trial *t)
{
	const struct sharing *s = t->s;
	int all = 0;
	for (int r = 0; r < s->ranks; r++)
		t->held[r] = 0;
	for (int stage = 0; stage < stages_of(s); stage++) {
		int most = most_at(s, t->may_take, stage);
		if (most < least_at(s, stage))
			return false;
		t->held[s->rank[stage]] += most;
	}
	for (int r = 0; r < s->ranks; r++)
		all += t->held[r] < s->most[r] ? t->held[r] : s->most[r];
	return all >= s->blocks;
}

/* The least time of the chunks between first and last; infinite: no time suffices. */
static double least_between(struct trial *t)
{
	int low = 0, high = t->s->chunks > 2 ? t->s->blocks + 1 : 0;
	while (low < high) {
		int middle = low + (high - low) / 2;
		t->may_take[MIDDLE] = middle * t->s->block;
		if (suffices(t))
			high = middle;
		else
			low = middle + 1;
	}
	t->may_take[MIDDLE] = low * t->s->block;
	return suffices(t) ? t->may_take[MIDDLE] : INFINITY;
}

/* Among solutions of equal time, prefers the one with the most even chunks. */
static bool is_better(const struct trial *t, double seconds, double slowest)
{
	return seconds < t->seconds * (1 - ROUNDING) ||
	       (seconds <= t->seconds * (1 + ROUNDING) && slowest < t->slowest * (1 - ROUNDING));
}

static void try_both(struct trial *t, double first, double last)
{
	if (!is_better(t, first + last, fmax(first, last)))
		return;
	t->may_take[FIRST] = first;
	t->may_take[LAST] = last;
	double between = least_between(t);
	int chunks = t->s->chunks > 2 ? t->s->chunks - 2 : 0;
	double seconds = first + last + (chunks > 0 ? chunks * between : 0);
	double slowest = fmax(fmax(first, last), between);
	if (isinf(between) || !is_better(t, seconds, slowest))
		return;
	t->seconds = seconds;
	t->slowest = slowest;
	for (int p = 0; p < PLACES; p++)
		t->best[p] = t->may_take[p];
}

/* A chunk's slowest stage has so many blocks, and may be an end; a single chunk has both. */
static void try_all(struct trial *t)
{
	const struct sharing *s = t->s;
	bool one = s->chunks == 1;
	const double before[] = {0, s->first, one ? s->last : 0, one ? s->first + s->last : 0};
	const double behind[] = {0, s->last};
	for (int i = 0; i <= s->blocks; i++)
		for (int b = 0; b < COUNT_OF(before); b++)
			for (int j = 0; j <= (one ? 0 : s->blocks); j++)
				for (int e = 0; e < (one ? 1 : COUNT_OF(behind)); e++)
					try_both(t, i * s->block + before[b],
						j * s->block + behind[e]);
}

/* --- who has how many ------------------------------------------------------------------------- */

/* The slowest stage, of that rank or of any (-1), that can do with a block less; the last of
 * several, as frameworks give the first ones a block more. */
static int slowest(const struct sharing *s, const int *stages, int rank)
{
	int found = -1;
	for (int stage = 0; stage < stages_of(s); stage++) {
		bool counts =
			(rank < 0 || s->rank[stage] == rank) && stages[stage] > least_at(s, stage);
		if (counts && (found < 0 || taken(s, stages, stage) >=
						    taken(s, stages, found) * (1 - ROUNDING)))
			found = stage;
	}
	return found;
}

/* As many as there may be, less what is too many for a rank, and for all. */
static bool share_out(const struct trial *t, int *stages)
{
	const struct sharing *s = t->s;
	int all = -s->blocks;
	for (int r = 0; r < s->ranks; r++)
		t->held[r] = 0;
	for (int stage = 0; stage < stages_of(s); stage++) {
		stages[stage] = most_at(s, t->best, stage);
		t->held[s->rank[stage]] += stages[stage];
		all += stages[stage];
	}
	for (int r = 0; r < s->ranks; r++)
		for (; t->held[r] > s->most[r]; t->held[r]--, all--) {
			int stage = slowest(s, stages, r);
			if (stage < 0)
				return false;
			stages[stage]--;
		}
	for (; all > 0; all--) {
		int stage = slowest(s, stages, -1);
		if (stage < 0)
			return false;
		stages[stage]--;
	}
	return true;
}

bool sharing_solve(const struct sharing *sharing, int *stages, double *seconds)
{
	struct arena arena = {0};
	struct trial t = {.s = sharing, .seconds = INFINITY, .slowest = INFINITY};
	t.held = ARENA_ARRAY(&arena, int, sharing->ranks);
	try_all(&t);
	bool ok = isfinite(t.seconds) && share_out(&t, stages);
	*seconds = t.seconds;
	arena_finish(&arena);
	return ok;
}
