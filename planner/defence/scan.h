/* Private to defence/: the value of a property at which the decision changes. */
#ifndef PLANNER_DEFENCE_SCAN_H
#define PLANNER_DEFENCE_SCAN_H

#include "planner/defence/carried.h"

/* A search of the question at one value. */
struct look {
	double at;
	struct decision decision;
	/* ln of time per token, the best of other strategies / the best of today's: above 0 today's
	 * strategy is faster. NAN: one of them does not fit. */
	double lead;
	struct decision other; /* the best of other strategies */
};

/* The search for a threshold of one property in one direction. Each look is the search that the
 * user would start at that value, so it has the same result. */
struct scan {
	const struct question *question;
	const struct property *property;
	struct carried carried; /* the chosen plan; then those of the looks */
	struct arena arena;     /* their strings, while it lasts */
	struct decision today;
	struct look now;
	bool up;
	double end; /* of the property's range in this direction */
	/* The result: */
	enum { NO_CHANGE_KNOWN, SAME_AT_END, CHANGES, NEAR_TIE } outcome;
	double at;
	struct decision becomes;
	struct error error;
};

/* Values of a property are rounded to three digits. */
double scan_rounded(const struct property *property, double value);
/* Are the two within RANKING_FUZZ? */
bool scan_is_close(const struct look *look);
/* Looks at today's value, for all of the scans. */
bool scan_today(struct scan *scans, int n, struct error *error);
/* One of the scans at `data`, for lent_each. */
void scan_way(void *data, int index, int worker);

#endif
