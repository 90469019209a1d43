/* A property's values are closed in by searches, until one on either side of a threshold gives the
 * two decisions that the sentence names. Between two values with different decisions, the plans
 * that searches have chosen say where it may change. */
#include "planner/defence/scan.h"

#include <math.h>

enum { TRIALS_MAX = 12, CARRIED_TRIALS = 4 };
#define SIDE 0.03 /* a threshold's sides are searched again so far beside it, as a share */
#define WIDE 0.25 /* ln of the ratio of a bracket that is halved by one look */

static void find_lead(const struct scan *scan, const struct search *search, struct look *look)
{
	const struct ranking *ranking = &search->ranking;
	int64_t mine = 0, others = 0;
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		const struct ranked *best = ranking_best(ranking, s);
		if (best == NULL || best->tight ||
			!ranking_is_rival(ranking, best->costs.of[ranking->objective]))
			continue;
		struct decision decision = decision_of(&search->space.plans[best->plan]);
		int64_t cost = best->costs.of[ranking->objective];
		if (decisions_same(&decision, &scan->today)) {
			mine = cost;
		} else if (others == 0 || cost < others) {
			others = cost;
			look->other = decision;
		}
	}
	look->lead = mine > 0 && others > 0 ? log((double)others / (double)mine) : NAN;
}

/* Carries what was chosen on to other values. */
static void carry_on(struct scan *scan, const struct search *search, const struct ranked *best)
{
	const struct plan *plan = &search->space.plans[best->plan];
	double time = costs_step_above(plan, best->costs.of[COST_TIME]);
	if (scan->property->carry != NULL)
		carried_add(&scan->carried, search->question, plan, best->departures, time,
			search->known[best->plan].needed);
}

static bool look_at(struct scan *scan, double at, struct look *look, struct error *error)
{
	struct search search;
	struct error mine = {0};
	struct lent quiet;
	struct moved *moved = ARENA_NEW(&scan->arena, struct moved);
	*look = (struct look){.at = at, .decision = {.kind = REFUSED}, .lead = NAN};
	property_move(scan->property, scan->question, at, &quiet, moved);
	bool ok = search_run(&moved->question, &scan->arena, &search, &mine);
	if (ok && !search.stopped) {
		const struct ranked *best = ranking_best(&search.ranking, STRATEGY_COUNT);
		look->decision.kind = NOTHING;
		if (best != NULL && !best->tight) {
			look->decision = decision_of(&search.space.plans[best->plan]);
			carry_on(scan, &search, best);
		}
		find_lead(scan, &search, look);
	}
	search_finish(&search);
	return ok || error_is_refusal(&mine, error);
}

/* --- one way ---------------------------------------------------------------------------------- */

double scan_rounded(const struct property *property, double value)
{
	double step = pow(10, floor(log10(value / property->step)) - 2) * property->step;
	if (property->whole)
		return fmax(1, round(value));
	return round(value / step) * step;
}

/* The value beside the threshold `at` at which a side is searched again: that of today's decision,
 * which is today's value at most, or the other one. */
static double side_of(const struct scan *scan, double at, bool today)
{
	bool below = scan->up == today;
	double now = scan->property->now;
	if (scan->property->whole)
		return !today ? at : scan->up ? at - 1 : at + 1;
	double side = below ? at * (1 - SIDE) : at * (1 + SIDE);
	if (scan->property->step == 1 && side > 100)
		side = round(side);
	return !today ? side : scan->up ? fmax(side, now) : fmin(side, now);
}

/* Would a plan of today's decision be chosen, of those that are carried? */
static bool stays_at(const struct scan *scan, double at, bool *known)
{
	struct decision decision;
	*known = *known &&
		 carried_choose(&scan->carried, scan->property, scan->question, at, &decision);
	return *known && decisions_same(&decision, &scan->today);
}

/* The value at which another of the plans that are carried would be chosen. False: none is known
 * between a value with today's decision (`stays`) and one with another (`leaves`). */
static bool find_crossing(
	const struct scan *scan, const struct look *stays, const struct look *leaves, double *value)
{
	double near = stays->at, far = leaves->at;
	bool known = true;
	if (!stays_at(scan, near, &known) || stays_at(scan, far, &known))
		return false;
	while (known && fabs(log(far / near)) > SIDE / 8) {
		double middle = sqrt(near * far);
		*(stays_at(scan, middle, &known) ? &near : &far) = middle;
	}
	*value = sqrt(near * far);
	return known;
}

/* Where the lead of today's strategy would be gone, if ln of the time went with ln of the value.
 * False: it is not known on both sides, or it is near one of them. */
static bool interpolate(const struct look *stays, const struct look *leaves, double *value)
{
	double share = stays->lead / (stays->lead - leaves->lead);
	*value = stays->at * pow(leaves->at / stays->at, share);
	return share > 0.1 && share < 0.9; /* not of NAN */
}

/* The next value to try. `*crossed`: there the decision should change, by the plans that are
 * carried or else, every other time, by the leads; else it is in the middle. */
static double guess(const struct scan *scan, const struct look *stays, const struct look *leaves,
	int trial, bool *crossed)
{
	double value = 0;
	*crossed = (trial < CARRIED_TRIALS && find_crossing(scan, stays, leaves, &value)) ||
		   (trial % 2 == 0 && interpolate(stays, leaves, &value));
	if (!*crossed)
		value = sqrt(stays->at * leaves->at);
	if (scan->property->whole) {
		value = scan->up ? floor(value) + 1 : ceil(value) - 1;
		value = scan->up ? fmin(value, leaves->at) : fmax(value, leaves->at);
	}
	return scan_rounded(scan->property, value);
}

bool scan_is_close(const struct look *look)
{
	return fabs(look->lead) <= log(RANKING_FUZZ);
}

/* No value separates two decisions by more than the fuzz. */
static bool look_for_tie(struct scan *scan, double at, struct error *error)
{
	struct look look;
	if (!look_at(scan, at, &look, error))
		return false;
	if (!scan_is_close(&look) || look.other.strategy == scan->today.strategy)
		return true;
	scan->outcome = NEAR_TIE;
	scan->at = at;
	scan->becomes = look.other;
	return true;
}

static bool closed(const struct scan *scan, const struct look *stays, const struct look *leaves)
{
	return scan->property->whole ? fabs(stays->at - leaves->at) < 1
				     : fabs(log(stays->at / leaves->at)) < SIDE / 2;
}

/* Looks at a value, which becomes the side of the bracket whose decision it has. */
static bool narrow(struct scan *scan, double at, struct look *stays, struct look *leaves,
	struct look *look, struct error *error)
{
	if (at == stays->at || at == leaves->at) {
		*look = at == stays->at ? *stays : *leaves;
		return true;
	}
	if (!look_at(scan, at, look, error))
		return false;
	if (look->decision.kind != REFUSED)
		*(decisions_same(&look->decision, &scan->today) ? stays : leaves) = *look;
	return true;
}

/* Is one look enough for now? In the middle of a wide bracket a second one says nothing new. */
static bool is_halved(const struct scan *scan, const struct look *stays, const struct look *leaves)
{
	return !scan->property->whole && fabs(log(stays->at / leaves->at)) > WIDE;
}

/* The decision may also change on the way to a threshold, and back: the nearest change is wanted.
 * Where the middle of a long way has another decision, it becomes the end of the way, and `at`. */
static bool look_before(
	struct scan *scan, struct look *stays, struct look *leaves, double *at, struct error *error)
{
	double now = scan->property->now, middle = sqrt(now * scan->at);
	struct look look;
	if (fabs(log(scan->at / now)) < 2 * WIDE)
		return true;
	middle = scan_rounded(scan->property, middle);
	if (!narrow(scan, middle, stays, leaves, &look, error))
		return false;
	if (leaves->at == middle)
		*at = middle;
	return true;
}

static bool close_in(struct scan *scan, struct look now, struct look leaves, struct error *error)
{
	struct look stays = now;
	double at = leaves.at;
	for (int trial = 0; trial < TRIALS_MAX && !closed(scan, &stays, &leaves); trial++) {
		struct look before, beyond;
		bool crossed;
		if (!scan->property->whole && scan_is_close(&stays) && scan_is_close(&leaves)) {
			at = scan_rounded(scan->property, sqrt(stays.at * leaves.at));
			break;
		}
		at = guess(scan, &stays, &leaves, trial, &crossed);
		bool halved = !crossed && is_halved(scan, &stays, &leaves);
		if (!narrow(scan, halved ? at : side_of(scan, at, true), &stays, &leaves, &before,
			    error))
			return false;
		if (before.decision.kind == REFUSED)
			return true;
		if (halved || !decisions_same(&before.decision, &scan->today))
			continue;
		if (!narrow(scan, side_of(scan, at, false), &stays, &leaves, &beyond, error))
			return false;
		if (beyond.decision.kind == REFUSED)
			return true;
		if (decisions_same(&beyond.decision, &scan->today))
			continue;
		if (scan_is_close(&before) && scan_is_close(&beyond))
			break;
		scan->outcome = CHANGES;
		scan->at = at;
		scan->becomes = beyond.decision;
		stays = now;
		if (!look_before(scan, &stays, &leaves, &at, error))
			return false;
		if (at == scan->at)
			return true;
	}
	return look_for_tie(scan, at, error);
}

/* Looks at the end of the range; where the question is refused there, half as far, and so on. */
static bool look_at_end(struct scan *scan, struct look *end, struct error *error)
{
	double at = scan->end;
	end->decision.kind = REFUSED;
	while (end->decision.kind == REFUSED &&
		(scan->up ? at > scan->property->now * 1.5 : at < scan->property->now / 1.5)) {
		if (!look_at(scan, at, end, error))
			return false;
		at = scan->property->whole ? floor(scan->up ? at / 2 : at * 2)
					   : (scan->up ? at / 2 : at * 2);
	}
	return true;
}

bool scan_today(struct scan *scans, int n, struct error *error)
{
	struct look look;
	if (n == 0)
		return true;
	if (!look_at(scans, scans->property->now, &look, error))
		return false;
	look.decision = scans->today;
	for (int i = 0; i < n; i++) {
		scans[i].now = look;
		scans[i].now.at = scans[i].property->now;
	}
	return true;
}

void scan_way(void *data, int index, int worker)
{
	struct scan *scan = &((struct scan *)data)[index];
	struct look end;
	(void)worker;
	if (look_at_end(scan, &end, &scan->error) && end.decision.kind != REFUSED) {
		scan->at = end.at;
		scan->outcome = SAME_AT_END;
		if (!decisions_same(&end.decision, &scan->today)) {
			scan->outcome = NO_CHANGE_KNOWN;
			close_in(scan, scan->now, end, &scan->error);
		}
	}
	arena_finish(&scan->arena);
}
