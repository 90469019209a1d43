/* Private to defence/: the value of a property at which the decision changes. */
#ifndef PLANNER_DEFENCE_SCAN_H
#define PLANNER_DEFENCE_SCAN_H

#include "planner/defence/carried.h"

/* The search for a threshold of one property in one direction. Each look is the search that the
 * user would start at that value, so it has the same result. */
struct scan {
	const struct question *question;
	const struct property *property;
	struct carried carried; /* the chosen plan; then those of the looks */
	struct arena arena;     /* their strings, while it lasts */
	struct decision today;
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
/* One of the scans at `data`, for lent_each. */
void scan_way(void *data, int index, int worker);

#endif
