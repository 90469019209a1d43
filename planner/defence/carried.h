/* Private to defence/: plans that are carried to another value of a property, where they say
 * cheaply which of them a search would choose. It may choose another: only searches decide. */
#ifndef PLANNER_DEFENCE_CARRIED_H
#define PLANNER_DEFENCE_CARRIED_H

#include "planner/search/search.h"

/* A question with one property moved. */
struct moved {
	struct question question;
	struct model model;
	struct topology topology;
	struct earlier earlier;
};

/* What stays as it is when a property moves. */
enum stays {
	STAYS_NOTHING,
	STAYS_COMPUTE, /* what a rank computes */
	STAYS_SPACE,   /* the same, and all plans */
	STAYS_COST     /* what a plan's operations take; plans may be others */
};

struct property {
	const char *name, *unit;
	const char *of;   /* what follows a value: "104 Gbit/s" " per NIC" */
	const char *one;  /* the same after 1 */
	bool whole;       /* a count: values are whole numbers */
	double now;       /* 0: the question has no such property */
	double low, high; /* the values that the model allows and machines have */
	double reach;     /* how many times less or more is looked at */
	double step;      /* values are rounded to three digits in this unit */
	enum stays stays;
	void (*apply)(double value, struct moved *moved);
	void (*carry)(double value, struct plan *plan); /* NULL: a plan cannot be carried */
	void (*print)(struct text *text, double value);
};

/* The question at a value, for a search that reports to nobody. Of what is known before, it may use
 * what stays. */
void property_move(const struct property *property, const struct question *question, double value,
	struct lent *quiet, struct moved *moved);

/* What a search chose; NOTHING: no plan fits with room. */
struct decision {
	enum { CHOSEN, NOTHING, REFUSED } kind;
	enum strategy strategy;
	int64_t group; /* of hybrid strategies; else 0 */
};
struct decision decision_of(const struct plan *plan);
bool decisions_same(const struct decision *a, const struct decision *b);

enum { CARRIED_MAX = 12 };

struct carried {
	int n;
	struct carried_plan {
		struct plan plan;
		int departures;
		double time, memory; /* what it was predicted to take and need, over its sketch */
	} of[CARRIED_MAX];
};

/* Adds a plan of `question`, with its step time (s) and the bytes that it needs; not beyond
 * CARRIED_MAX. */
void carried_add(struct carried *carried, const struct question *question, const struct plan *plan,
	int departures, double step_time, int64_t needed);
/* Which of them would be chosen at a value. False: that cannot be told. */
bool carried_choose(const struct carried *carried, const struct property *property,
	const struct question *question, double value, struct decision *decision);

#endif
