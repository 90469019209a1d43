/* Integer programmes by branch and bound. */
#include "planner/integer/integer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tolerance: the caller adds in another order, and GLPK stops within 1e-7 of its optimum. */
#define ROUNDING 1e-6

/* The choices of a group in the order of the bytes that they take of one memory; and for each place
 * in that order the least term of each row up to it. */
struct order {
	int64_t *bytes;
	double *least[PROGRAMME_ROWS_MAX];
};

struct branching {
	const struct programme *programme;
	struct order orders[PROGRAMME_MEMORIES_MAX][PROGRAMME_GROUPS_MAX];
	/* The least bytes that groups g and later add to each memory. */
	int64_t least_bytes[PROGRAMME_MEMORIES_MAX][PROGRAMME_GROUPS_MAX + 1];
	bool down[PROGRAMME_GROUPS_MAX]; /* the last choice is faster: try it first */
	int choice[PROGRAMME_GROUPS_MAX];
	int64_t nodes;
	double limit; /* objectives above it are of no use */
	struct solution *best;
};

/* A node of the search: choices for the first groups. */
struct prefix {
	double sums[PROGRAMME_ROWS_MAX];
	int64_t bytes[PROGRAMME_MEMORIES_MAX];
};

struct item {
	int64_t bytes;
	int choice;
};

static int by_bytes(const void *left, const void *right)
{
	const struct item *a = left, *b = right;
	return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static void make_order(
	const struct programme *p, int memory, int group, struct arena *arena, struct order *order)
{
	int n = p->sizes[group];
	struct item *items = ARENA_ARRAY(arena, struct item, n);
	for (int i = 0; i < n; i++)
		items[i] = (struct item){p->memories[memory].bytes[group][i], i};
	qsort(items, (size_t)n, sizeof(*items), by_bytes);
	order->bytes = ARENA_ARRAY(arena, int64_t, n);
	for (int i = 0; i < n; i++)
		order->bytes[i] = items[i].bytes;
	for (int r = 0; r < p->n_rows; r++) {
		double least = INFINITY;
		order->least[r] = ARENA_ARRAY(arena, double, n);
		for (int i = 0; i < n; i++) {
			least = fmin(least, p->rows[r].term[group][items[i].choice]);
			order->least[r][i] = least;
		}
	}
}

static void make_orders(struct branching *b, struct arena *arena)
{
	const struct programme *p = b->programme;
	for (int q = 0; q < p->n_memories; q++) {
		b->least_bytes[q][p->n_groups] = 0;
		for (int g = p->n_groups - 1; g >= 0; g--) {
			make_order(p, q, g, arena, &b->orders[q][g]);
			b->least_bytes[q][g] = b->orders[q][g].bytes[0] + b->least_bytes[q][g + 1];
		}
	}
	for (int g = 0; g < p->n_groups; g++)
		b->down[g] = p->rows[0].term[g][p->sizes[g] - 1] < p->rows[0].term[g][0];
}

/* The last place in the order whose choice takes at most `bytes`; the first is assumed to. */
static int last_within(const struct order *order, int n, int64_t bytes)
{
	int low = 0, high = n;
	while (high - low > 1) {
		int middle = low + (high - low) / 2;
		if (order->bytes[middle] <= bytes)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static void accept(struct branching *b)
{
	double objective = programme_objective(b->programme, b->choice);
	if (b->best->feasible && objective >= b->best->objective)
		return;
	b->best->feasible = true;
	b->best->objective = objective;
	b->limit = fmin(b->limit, objective * (1 - ROUNDING));
	for (int g = 0; g < b->programme->n_groups; g++)
		b->best->choice[g] = b->choice[g];
}

/* Adds to the rows the least that the group grows them by, whatever is left for it when the other
 * open groups take the fewest bytes. */
static void add_least(const struct branching *b, int group, const int64_t *free, double *rows)
{
	const struct programme *p = b->programme;
	int places[PROGRAMME_MEMORIES_MAX];
	for (int q = 0; q < p->n_memories; q++) {
		const struct order *order = &b->orders[q][group];
		places[q] = last_within(order, p->sizes[group], free[q] + order->bytes[0]);
	}
	for (int r = 0; r < p->n_rows; r++) {
		double least = -INFINITY;
		for (int q = 0; q < p->n_memories; q++)
			least = fmax(least, b->orders[q][group].least[r][places[q]]);
		rows[r] += least;
	}
}

/* Can the node be pruned? Below it no solution beats the best so far, or none has room. */
static bool is_hopeless(const struct branching *b, int group, const struct prefix *node)
{
	const struct programme *p = b->programme;
	int64_t free[PROGRAMME_MEMORIES_MAX];
	double rows[PROGRAMME_ROWS_MAX], bound = -INFINITY;
	for (int q = 0; q < p->n_memories; q++) {
		free[q] = p->memories[q].capacity - node->bytes[q] - b->least_bytes[q][group];
		if (free[q] < 0)
			return true;
	}
	memcpy(rows, node->sums, sizeof(rows));
	for (int g = group; g < p->n_groups; g++)
		add_least(b, g, free, rows);
	for (int r = 0; r < p->n_rows; r++)
		bound = fmax(bound, rows[r]);
	return bound > b->limit;
}

static void add_choice(const struct branching *b, int group, int choice,
	const struct prefix *prefix, struct prefix *with)
{
	const struct programme *p = b->programme;
	*with = *prefix;
	for (int r = 0; r < p->n_rows; r++)
		with->sums[r] += p->rows[r].term[group][choice];
	for (int q = 0; q < p->n_memories; q++)
		with->bytes[q] += p->memories[q].bytes[group][choice];
}

static void branch(struct branching *b, int group, const struct prefix *prefix)
{
	const struct programme *p = b->programme;
	b->nodes++;
	if (is_hopeless(b, group, prefix))
		return;
	if (group == p->n_groups || group == PROGRAMME_GROUPS_MAX) {
		accept(b);
		return;
	}
	int first = p->ordered && group == 1 ? b->choice[0] : 0, n = p->sizes[group];
	for (int i = first; i < n; i++) {
		int choice = b->down[group] ? first + n - 1 - i : i;
		struct prefix with;
		add_choice(b, group, choice, prefix, &with);
		b->choice[group] = choice;
		branch(b, group + 1, &with);
	}
}

void programme_solve_bounding(const struct programme *programme, struct solution *solution)
{
	struct branching b = {.programme = programme, .limit = INFINITY, .best = solution};
	struct arena arena = {0};
	struct prefix root = {{0}, {0}};
	*solution = (struct solution){0};
	for (int r = 0; r < programme->n_rows; r++)
		root.sums[r] = programme->rows[r].constant;
	make_orders(&b, &arena);
	branch(&b, 0, &root);
	arena_finish(&arena);
	solution->bound = solution->objective * (1 - ROUNDING);
	solution->nodes = b.nodes;
}
